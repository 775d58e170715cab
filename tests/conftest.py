"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
import torch
from hypothesis import settings

from aru.runtime.engine import NetworkEngine
from tests import postgres

ROOT = Path(__file__).resolve().parents[1]

# Examples are the same on every run; `--hypothesis-profile=explore` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeatable")

torch.set_num_threads(1)  # networks this small are slower on several threads, and tests run in several processes


def pytest_addoption(parser: pytest.Parser) -> None:
    """How hard to try."""
    parser.addoption("--kills", type=int, default=10, help="how often each test of killed processes kills one")


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    """How often to kill a process."""
    return int(request.config.getoption("--kills"))


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Start every test from the same seed, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture
def as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody checks annotations outside of tests."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="module")
def in_torch() -> Iterator[None]:
    """Networks run in torch, for tests of what is around them: to export them takes longer than these trainings do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NetworkEngine, "_exported", lambda *_: {})
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data sets; tests that need it are skipped where it is absent."""
    path = Path(os.environ.get("ARU_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no data folder at {path}: set ARU_DATA to the folder of the real data sets")
    return path


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL server of the tests' own; tests that need it are skipped where there is none."""
    with postgres.running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: postgres.Server) -> str:
    """The address of a new store in PostgreSQL."""
    return postgres.new_url(postgres_server)


@pytest.fixture(params=["sqlite", "postgres"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """A new store that several processes can use: a file, and a database."""
    found: str = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    return found or tmp_path / "state.db"
