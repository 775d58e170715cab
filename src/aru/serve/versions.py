"""The versions of a model in their stores: who they are, how they are loaded, and how they go."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from aru.errors import StorageError, verbatim
from aru.runtime.kept import forgotten
from aru.serve.bundles import bundle_of, pack, unpack
from aru.serve.contest import contest_files
from aru.serve.options import Options
from aru.serve.rollout import CONTEST, Rollout, RolloutError, Version, read_rollout, write_rollout
from aru.store import Key, SQLiteStore, Store, Transaction, open_existing, open_store
from aru.store.address import beside
from aru.stream import Stream

MONITOR_ENDING = ".monitor"  # of the file beside the states


def champion_of(place: str | Path) -> int:
    """The number of the champion, where a service has its states. They must be there."""
    with contextlib.closing(open_existing(place)) as home, home.reading() as view:
        rollout = read_rollout(view)
    return 1 if rollout is None else rollout.champion


def open_champion(place: str | Path) -> Store:
    """The store of the champion."""
    number = champion_of(place)
    return open_existing(place if number == 1 else beside(place, str(number)))


def note_forgotten(place: str | Path, keys: Sequence[Key]) -> Callable[[Transaction], None]:
    """Writes down, in the transaction that deletes series, that it did so; if the service keeps a journal."""
    with contextlib.closing(open_existing(place)) as home, home.reading() as view:
        rollout = read_rollout(view)
    if rollout is None or not rollout.journals:
        return lambda change: None
    return lambda change: change.append(forgotten(keys))


def require_states(store: Store, number: int) -> None:
    """Refuse a store without states: the version would begin anew with those that it was saved with, without a word."""
    with store.reading() as view:
        if view.about_or_new() is None:
            raise StorageError(
                f"{verbatim(store)} has no states, and those of version {number} were there",
                "Restore all files of a backup. A version that is not the champion can be dropped: aru rollout drop.",
            )


class Versions:
    """Of one model.

    Args:
        place: Where the store of the first version is; None: in memory, where there cannot be another version.
        home: That store, which has the rollout.
        fingerprint: Of the first version, in a new store.
        options: Of the service.
    """

    def __init__(self, place: str | Path | None, home: Store, fingerprint: str, options: Options) -> None:
        self._place, self.home, self._options = place, home, options
        self._first = Rollout({1: Version(1, fingerprint, time.time(), "shadowing")})

    def rollout(self) -> Rollout:
        """The versions that there are."""
        with self.home.reading() as view:
            return read_rollout(view) or self._first

    def change(self, how: Callable[[Rollout], Rollout], scores: bool = True) -> Rollout:
        """Change the versions; without `scores` those of a contest are forgotten."""
        with self.home.writing() as change:
            changed = how(read_rollout(change) or self._first)
            write_rollout(change, changed)
            if not scores:
                change.delete([CONTEST], "service")
        return changed

    def keep_rows(self, seconds: float | None) -> None:
        """Keep rows for so long; 0: no longer; None: as before."""
        wanted = seconds or None
        if seconds is None or wanted == self.rollout().keep:
            return
        self.require_place()
        self.change(lambda rollout: dataclasses.replace(rollout, keep=wanted))

    def require_place(self) -> None:
        """Refuse what stores in memory cannot do."""
        if self._place is None:
            raise RolloutError("The states are in memory", "Keep them in a file or a database: --state.")

    def store(self, number: int) -> Store:
        """The store of a version."""
        assert self._place is not None
        return self.home if number == 1 else open_store(beside(self._place, str(number)))

    def file(self, store: Store) -> Path | None:
        """The file of a monitor of series in this store."""
        if isinstance(store, SQLiteStore):
            return store.path.with_name(store.path.name + MONITOR_ENDING)
        folder = self._options.scratch
        return None if folder is None or self._place is None else Path(folder) / _plain(f"{store}{MONITOR_ENDING}")

    def load(self, number: int, correctable_steps: int) -> Stream:
        """The stream of a version."""
        bundle, version = bundle_of(self.home, number), self.rollout().versions.get(number)
        if bundle is None or version is None:
            raise StorageError(f"The files of version {number} are not kept", "Bring the model in again.")
        store = self.store(number)
        if version.status != "building":
            require_states(store, number)
        return Stream(unpack(bundle, self._options.accelerator), store, correctable_steps)

    def add(self, bundle: bytes, champion: Stream) -> Rollout:
        """Bring in a challenger, from an archive of its files.

        All of it happens while this is the only writer: of two processes that are asked at the same time one is
        refused, and leaves the files and states of the other's challenger alone.
        """
        fingerprint = unpack(bundle, self._options.accelerator).runtime.engine.fingerprint
        self.require_place()
        rollout = self.rollout().challenged_by(fingerprint)  # or refused before there is more work
        packed = pack(champion.model) if bundle_of(self.home, rollout.champion) is None else None
        with self.home.writing() as change:
            rollout = (read_rollout(change) or self._first).challenged_by(fingerprint)
            number = rollout.challenger
            assert number is not None
            with contextlib.closing(self.store(number)) as store:
                store.remove()  # what another attempt may have left
            if packed is not None:  # the champion came from a folder, and may be needed to go back to
                change.put([rollout.champion], [packed], "service")
            change.put([number], [bundle], "service")
            write_rollout(change, rollout)
            change.delete([CONTEST], "service")
        return rollout

    def remove(self, number: int) -> None:
        """Delete the states and files of a version that is no longer in the rollout."""
        with self.home.writing() as change:
            change.delete([number], "service")
            if number == 1:  # its store stays: it has the rollout
                change.delete(change.keys())
                change.delete(change.keys("panel"), "panel")
                change.delete(change.keys("request"), "request")
                change.drop_entries(change.last_entry())
        store = self.store(number)
        file = self.file(store)
        if number != 1:
            with contextlib.closing(store):
                store.remove()
        for path in (file, *contest_files(file)):
            for suffix in ("", "-wal", "-shm") if path is not None else ():
                assert path is not None
                path.with_name(path.name + suffix).unlink(missing_ok=True)


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[-200:]
