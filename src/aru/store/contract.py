"""The interface of every store: records of bytes by kind and key, changed in transactions."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from aru.errors import StorageError, verbatim
from aru.store.layout import Layout

Key = str | int
# A record of one series, one that all series share, digests of requests, what a service knows of its model, and the
# entries of a journal: what was taken in, in order.
Kind = Literal["series", "panel", "request", "service", "journal"]
COUNTED = 1  # key of the panel's record of the number of observations


@dataclasses.dataclass(frozen=True)
class About:
    """A store's description of its records: which model wrote them and how to read them."""

    format: int
    fingerprint: str
    correctable_steps: int
    size: int  # bytes per record of a series
    layout: Sequence[Sequence[Any]]  # name, type and shape of every field
    integer_ids: bool
    datetime: bool  # whether times are microseconds since 1970 or plain integers
    zone: str | None = None  # time zone of the timestamps
    wall: bool = False  # whether they are kept as the zone's clocks show them (`aru.data.clock`)
    schema: Mapping[str, Any] | None = None  # of covariates, where a pretrained model found it in the first rows
    adapter: Mapping[str, Any] | None = None  # settings and columns, where an adapter wrote the records

    def to_json(self) -> str:
        """As text, with a checksum."""
        values = dataclasses.asdict(self)
        return json.dumps({**values, "checksum": _checksum(values)})

    @classmethod
    def from_json(cls, text: str | bytes) -> About:
        """The inverse of `to_json`."""
        try:
            values = json.loads(text)
            if values.pop("checksum", None) != _checksum(values):
                raise ValueError("its checksum is wrong")
            about = cls(**values)
            if Layout(about.layout).size != about.size:
                raise ValueError("its layout has another size")
            return about
        except (TypeError, ValueError, AttributeError) as error:
            raise StorageError(
                f"The description of the store cannot be read ({verbatim(error)})",
                "Use the version of aru that wrote it.",
            ) from error

    def require(self, theirs: About, name: object) -> None:
        """Refuse records that another model, another version or another setting wrote."""
        migrate = "rebuild the states from history with aru state migrate."
        if theirs.fingerprint != self.fingerprint:
            raise StorageError(
                f"{verbatim(name)} was written by another model (fingerprint {theirs.fingerprint}, here "
                f"{self.fingerprint})",
                f"Use the model that wrote it, or {migrate}",
            )
        if theirs.correctable_steps != self.correctable_steps:
            raise StorageError(
                f"{verbatim(name)} has `correctable_steps={theirs.correctable_steps}`, here it is "
                f"{self.correctable_steps}: it was fixed when the store was created",
                f"Leave it out, or {migrate}",
            )
        if theirs != self:
            raise StorageError(
                f"{verbatim(name)} was written in another format ({theirs.format}, here {self.format})",
                f"Use the version of aru that wrote it, or {migrate}",
            )


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


class Transaction(abc.ABC):
    """A transaction: consistent reads, and writes that take effect together."""

    @abc.abstractmethod
    def about(self) -> About | None:
        """The description of the records; None in an empty store."""

    @abc.abstractmethod
    def version(self) -> int:
        """Number of writing transactions before this one: while it stays the same, so does the store."""

    @abc.abstractmethod
    def describe(self, about: About) -> None:
        """Write the description of the records."""

    @abc.abstractmethod
    def get(self, keys: Sequence[Key], kind: Kind = "series") -> list[bytes | None]:
        """The record of each key, None where there is none."""

    @abc.abstractmethod
    def keys(self, kind: Kind = "series") -> list[Key]:
        """All keys, in order."""

    @abc.abstractmethod
    def put(self, keys: Sequence[Key], records: Sequence[bytes], kind: Kind = "series") -> None:
        """Write or replace records."""

    @abc.abstractmethod
    def delete(self, keys: Sequence[Key], kind: Kind = "series") -> None:
        """Remove records."""

    def about_or_new(self) -> About | None:
        """The description of the records; None in a new store. Records without one are an error."""
        about = self.about()
        if about is None and any(self.keys(kind) for kind in ("series", "panel", "request")):
            raise StorageError(
                "The store has records, but their description is lost", "Restore the store from a backup."
            )
        return about

    @abc.abstractmethod
    def newest(self) -> int | None:
        """The newest time of all series; None if it is not known, and is found by reading all records."""

    @abc.abstractmethod
    def keep_newest(self, time: int) -> None:
        """Remember the newest time. A transaction that changes series without saying it makes it unknown."""

    def counted(self) -> int | None:
        """The number of observations of all series, as writers have counted them; None if it is not known."""
        (record,) = self.get([COUNTED], "panel")
        return None if record is None else int(record)

    def count(self, more: int) -> None:
        """Add to a known number of observations. Writers of different series need not wait for each other."""
        self.recount((self.counted() or 0) + more)

    def recount(self, total: int | None) -> None:
        """Set the number of observations; None makes it unknown. For writers of the whole store."""
        if total is None:
            self.delete([COUNTED], "panel")
        else:
            self.put([COUNTED], [str(total).encode()], "panel")

    def claim_panel(self) -> bool:
        """Whether this writer may now write what all series share: one at a time, the others need not wait."""
        return True

    def number(self) -> int:
        """The number of series."""
        return len(self.keys())

    # The journal: entries with rising numbers, in the order of the changes that they were written with.

    def last_entry(self) -> int:
        """The number of the latest entry; 0 if there was none."""
        return max((int(key) for key in self.keys("journal")), default=0)

    def entries(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """The first entries after a number, at most so many."""
        numbers = sorted(key for key in self.keys("journal") if isinstance(key, int) and key > after)[:most]
        return [(n, entry) for n, entry in zip(numbers, self.get(numbers, "journal"), strict=True) if entry]

    def append(self, entry: bytes, number: int | None = None) -> None:
        """Add an entry. `number` is that of the journal of which this one is a copy."""
        self.put([self.last_entry() + 1 if number is None else number], [entry], "journal")

    def drop_entries(self, until: int) -> None:
        """Remove the entries up to a number. The latest one stays, as a sign of how far the journal came."""
        last = self.last_entry()
        gone = [key for key in self.keys("journal") if isinstance(key, int) and key <= min(until, last - 1)]
        self.delete(gone, "journal")

    def journal_bytes(self) -> int:
        """What the entries take, about."""
        numbers = self.keys("journal")
        return sum(len(entry or b"") for entry in self.get(numbers, "journal"))

    def require_about(self) -> About:
        """The description of the records; an error in an empty store."""
        about = self.about_or_new()
        if about is None:
            raise StorageError("The store is empty: nothing was ever written to it")
        return about


class Store(abc.ABC):
    """Records by kind and key. A series has one writer at a time."""

    @abc.abstractmethod
    def __str__(self) -> str:
        """The name of the store in messages."""

    @abc.abstractmethod
    def reading(self) -> contextlib.AbstractContextManager[Transaction]:
        """A consistent view. It never waits while a writer computes."""

    @abc.abstractmethod
    def writing(self, keys: Sequence[Key] | None = None) -> contextlib.AbstractContextManager[Transaction]:
        """A writer of these series, or of the whole store. An exception undoes everything.

        Leaving without one makes changes durable. Writers that share a series take turns; those that do not may work at
        the same time, where the store can do that. A writer of some series changes no others, and tells the newest time
        if it changes any (`keep_newest`), which it cannot lower.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close files. The next use opens the store again."""

    def settled(self) -> int:
        """The number of an entry of the journal, up to which all are there: none will come before it any more."""
        with self.reading() as view:
            return view.last_entry()

    def lead(self, task: str) -> bool:
        """Whether it is this process, of all that use the store, that has a task: until it ends or closes the store."""
        return True

    def size(self) -> int:
        """Bytes on disk."""
        return 0

    def remove(self) -> None:
        """Delete the store with all that is in it. Nobody else may use it."""
        raise StorageError(f"{verbatim(self)} cannot be removed")


def chunks(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """Keys in pieces of at most `size`."""
    for at in range(0, len(keys), size):
        yield keys[at : at + size]
