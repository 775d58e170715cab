"""Base of stores that collect the changes of a transaction and apply them at its end."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aru.store.contract import About, Key, Kind, Store, Transaction

Changes = Mapping[tuple[Kind, Key], bytes | None]  # None marks a removal


class StagedStore(Store):
    """A store for one process, whose changes are applied together at the end of a transaction."""

    def __init__(self) -> None:
        self._writer = threading.Lock()
        self._access = threading.Lock()  # held briefly, so that readers see all of a change or nothing
        self._version = 0

    @abc.abstractmethod
    def load(self, keys: Sequence[Key], kind: Kind) -> list[bytes | None]:
        """The record of each key."""

    @abc.abstractmethod
    def all_keys(self, kind: Kind) -> Iterable[Key]:
        """All keys, in any order."""

    @abc.abstractmethod
    def description(self) -> About | None:
        """The description of the records."""

    @abc.abstractmethod
    def load_newest(self) -> int | None:
        """The newest time of all series, None if it is not known."""

    @abc.abstractmethod
    def apply(self, changed: Changes, about: About | None, newest: int | None) -> None:
        """Apply all changes together. `about` is None if the description does not change."""

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One consistent view."""
        with self._access:
            yield _Staged(self, self._version)

    @contextlib.contextmanager
    def writing(self, keys: Sequence[Key] | None = None) -> Iterator[Transaction]:
        """The only writer, whatever its series; changes are applied at the end."""
        with self._writer:
            staged = _Staged(self, self._version)
            yield staged
            with self._access:
                self.apply(staged.changed, staged.described, staged.newest())
                self._version += 1


class _Staged(Transaction):
    """A transaction: a store and the changes that are not applied yet."""

    def __init__(self, store: StagedStore, version: int) -> None:
        self._store = store
        self._version = version
        self.described: About | None = None
        self.changed: dict[tuple[Kind, Key], bytes | None] = {}
        self._newest: int | None = None

    def about(self) -> About | None:
        return self.described or self._store.description()

    def version(self) -> int:
        return self._version

    def describe(self, about: About) -> None:
        self.described = about

    def get(self, keys: Sequence[Key], kind: Kind = "series") -> list[bytes | None]:
        stored = self._store.load(keys, kind)
        if not self.changed:
            return stored
        return [self.changed.get((kind, key), old) for key, old in zip(keys, stored, strict=True)]

    def newest(self) -> int | None:
        if self._newest is not None or any(kind == "series" for kind, _ in self.changed):
            return self._newest
        return self._store.load_newest()

    def keep_newest(self, time: int) -> None:
        self._newest = time

    def keys(self, kind: Kind = "series") -> list[Key]:
        mine = {key: record for (of, key), record in self.changed.items() if of == kind}
        gone = {key for key, record in mine.items() if record is None}
        return sorted({*self._store.all_keys(kind), *mine} - gone)

    def put(self, keys: Sequence[Key], records: Sequence[bytes], kind: Kind = "series") -> None:
        self.changed.update(((kind, key), record) for key, record in zip(keys, records, strict=True))

    def delete(self, keys: Sequence[Key], kind: Kind = "series") -> None:
        self.changed.update(((kind, key), None) for key in keys)
