"""Small versions of the attacks on files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture import disk

SIZES = {
    "a damaged SQLite file": 25,
    "a damaged export": 25,
    "a damaged file of a model": 10,
    "a forged record": 10,
    "loads during saves": 30,
    "killed saves": 5,
    "two updates of a model at once": 1,
    "processes that create one store": 24,
    "copies of a store in use": 5,
    "forked children": 1,
}
SLOW = {
    "killed saves",
    "two updates of a model at once",
    "loads during saves",
    "forked children",
    "copies of a store in use",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torture")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in disk.ATTACKS]
)
def test_attacks_on_files_fail(name: str, folder: Path) -> None:
    attack, _ = disk.ATTACKS[name]
    attempts, failures = attack(folder, SIZES[name])
    assert attempts >= SIZES[name]
    assert not failures
