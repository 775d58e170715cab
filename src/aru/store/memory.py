"""Records in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from aru.store.contract import About, Key, Kind
from aru.store.staged import Changes, StagedStore


class MemoryStore(StagedStore):
    """Records in dictionaries: nothing survives the process."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[Kind, dict[Key, bytes]] = {kind: {} for kind in get_args(Kind)}
        self._about: About | None = None
        self._newest: int | None = None

    def load(self, keys: Sequence[Key], kind: Kind) -> list[bytes | None]:
        """The record of each key."""
        return list(map(self._records[kind].get, keys))

    def all_keys(self, kind: Kind) -> Iterable[Key]:
        """All keys."""
        return self._records[kind]

    def description(self) -> About | None:
        """The description of the records."""
        return self._about

    def load_newest(self) -> int | None:
        """The newest time of all series."""
        return self._newest

    def apply(self, changed: Changes, about: About | None, newest: int | None) -> None:
        """Write and delete records."""
        self._about, self._newest = about or self._about, newest
        for (kind, key), record in changed.items():
            if record is None:
                self._records[kind].pop(key, None)
            else:
                self._records[kind][key] = record

    def __str__(self) -> str:
        return "The store in memory"

    def close(self) -> None:
        """Nothing to close."""
