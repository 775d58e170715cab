"""A store in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aru.store.base import About, Key
from aru.store.staged import StagedStore


class MemoryStore(StagedStore):
    """Records in a dictionary: nothing survives the process."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[Key, bytes] = {}
        self._about: About | None = None

    def load(self, keys: Sequence[Key]) -> list[bytes | None]:
        """The record of each series."""
        return [self._records.get(key) for key in keys]

    def all_keys(self) -> Iterable[Key]:
        """All series."""
        return self._records

    def description(self) -> About | None:
        """What the records are."""
        return self._about

    def apply(self, changed: Mapping[Key, bytes | None], about: About | None) -> None:
        """Write and remove."""
        self._about = about or self._about
        for key, record in changed.items():
            if record is None:
                self._records.pop(key, None)
            else:
                self._records[key] = record

    def __str__(self) -> str:
        return "The store in memory"

    def close(self) -> None:
        """There is nothing to let go of."""
