"""Copies of the stores of a service, with all versions of its models, also while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from aru.errors import StorageError, verbatim
from aru.serve.rollout import Rollout, read_rollout
from aru.store import Store, exchange, open_existing
from aru.store.address import beside, is_database
from aru.store.atomic import new_folder

COPY_ATTEMPTS = 3  # how often a copy is begun anew because versions changed meanwhile


def backup_all(place: str | Path, copy: Path, without_log: bool = False) -> dict[Path, int]:
    """Copy a store and the versions beside it, or all stores of a folder. Returns the series of each new file."""
    folder = None if is_database(place) else Path(place)
    if folder is None or not folder.is_dir():
        with contextlib.closing(open_existing(place, without_log)) as home:
            return _backup(home, place, copy)
    stores = sorted(folder.glob("*.db"))
    if not stores:
        raise StorageError(f"{verbatim(folder)} has no stores", "Give the --state of a service.")
    if copy.exists():
        raise StorageError(f"{verbatim(copy)} exists already", "Choose a new folder.")
    made: dict[Path, int] = {}
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(copy) as part:
            for store in stores:
                made |= backup_all(store, part / store.name, without_log)
    except OSError as error:
        raise StorageError(
            f"{verbatim(copy)} cannot be written ({verbatim(error)})", "Choose another folder."
        ) from error
    return {copy / file.name: series for file, series in made.items()}


def _backup(home: Store, place: str | Path, copy: Path) -> dict[Path, int]:
    """A version that follows is copied before the one that it follows: so it is not ahead of it in the copy either."""
    for _ in range(COPY_ATTEMPTS):
        rollout = _rollout(home)
        order = [1] if rollout is None else [*rollout.shadows, rollout.champion]
        if 1 not in order:
            order.append(1)  # which has the rollout, if nothing else
        made: dict[Path, int] = {}
        try:
            for number in order:
                target = copy if number == 1 else Path(beside(copy, str(number)))
                made[target] = _copy(home, place, number, target)
        except BaseException:
            _remove(made)
            raise
        if _rollout(home) == rollout:
            return made
        _remove(made)
    raise StorageError("Versions changed while they were copied", "Try again.")


def _copy(home: Store, place: str | Path, number: int, target: Path) -> int:
    if number == 1:
        return exchange.backup(home, target)
    with contextlib.closing(open_existing(beside(place, str(number)))) as store:
        return exchange.backup(store, target)


def _rollout(home: Store) -> Rollout | None:
    with home.reading() as view:
        return read_rollout(view)


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
