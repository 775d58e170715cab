"""What stores have in common that collect the changes of a transaction and apply them at its end."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aru.store.base import About, Key, Store, Transaction


class StagedStore(Store):
    """A store for one process, whose changes are applied in one go. None marks a removal."""

    def __init__(self) -> None:
        self._writer = threading.Lock()
        self._access = threading.Lock()  # held for moments only, so that readers see all of a change or nothing
        self._version = 0

    @abc.abstractmethod
    def load(self, keys: Sequence[Key]) -> list[bytes | None]:
        """The record of each series."""

    @abc.abstractmethod
    def all_keys(self) -> Iterable[Key]:
        """All series, in any order."""

    @abc.abstractmethod
    def description(self) -> About | None:
        """What the records are."""

    @abc.abstractmethod
    def apply(self, changed: Mapping[Key, bytes | None], about: About | None) -> None:
        """Make changes durable, all at once; `about` is None where it stays as it is."""

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One consistent view."""
        with self._access:
            yield _Changes(self, self._version)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """The only writer; changes are applied at the end."""
        with self._writer:
            changes = _Changes(self, self._version)
            yield changes
            with self._access:
                self.apply(changes.changed, changes.described)
                self._version += 1


class _Changes(Transaction):
    """A store with changes on top that are not applied yet."""

    def __init__(self, store: StagedStore, version: int) -> None:
        self._store = store
        self._version = version
        self.described: About | None = None
        self.changed: dict[Key, bytes | None] = {}

    def about(self) -> About | None:
        return self.described or self._store.description()

    def version(self) -> int:
        return self._version

    def describe(self, about: About) -> None:
        self.described = about

    def get(self, keys: Sequence[Key]) -> list[bytes | None]:
        stored = self._store.load(keys)
        return [self.changed.get(key, old) for key, old in zip(keys, stored, strict=True)]

    def keys(self) -> list[Key]:
        gone = {key for key, record in self.changed.items() if record is None}
        return sorted({*self._store.all_keys(), *self.changed} - gone)

    def heads(self, size: int) -> list[bytes]:
        return [record[:size] for record in self.get(self.keys()) if record is not None]

    def put(self, keys: Sequence[Key], records: Sequence[bytes | memoryview]) -> None:
        self.changed.update(zip(keys, map(bytes, records), strict=True))

    def delete(self, keys: Sequence[Key]) -> None:
        self.changed.update(dict.fromkeys(keys))
