"""A small trained model, and files of observations."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.running import TINY, aru, sales, write


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 24 days of three series, without covariates."""
    folder = tmp_path_factory.mktemp("cli")
    data = write(sales(), folder / "sales.csv")
    result = aru("fit", data, folder / "model", *TINY)
    assert result.code == 0, result
    return folder / "model"


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "model"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(sales(), tmp_path / "sales.csv")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return write(sales(24, 27), tmp_path / "new.csv")
