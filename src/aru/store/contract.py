"""The contract of every store: records of bytes by kind and key, changed all at once or not at all."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from aru.errors import StorageError

Key = str | int
Kind = Literal["series", "panel"]  # what is known of one series; what all series have in common


@dataclasses.dataclass(frozen=True)
class About:
    """What a store remembers about its records: who wrote them and how to read them."""

    format: int
    fingerprint: str
    correctable_steps: int
    size: int  # bytes a record of a series
    layout: Sequence[Sequence[Any]]  # name, type and shape of every field
    integer_ids: bool
    datetime: bool  # whether times are microseconds since 1970 or plain integers
    adapter: Mapping[str, Any] | None = None  # settings and columns, where an adapter wrote the records

    def to_json(self) -> str:
        """As text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> About:
        """The inverse of `to_json`."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise StorageError(
                f"The description of the store cannot be read ({error})", "Use the version of aru that wrote it."
            ) from error

    def require(self, theirs: About, name: object) -> None:
        """Refuse records that another model, another version or another setting wrote."""
        migrate = "rebuild the states from history with aru state migrate."
        if theirs.fingerprint != self.fingerprint:
            raise StorageError(
                f"{name} was written by another model (fingerprint {theirs.fingerprint}, here {self.fingerprint})",
                f"Use the model that wrote it, or {migrate}",
            )
        if theirs.correctable_steps != self.correctable_steps:
            raise StorageError(
                f"{name} has `correctable_steps={theirs.correctable_steps}`, here it is {self.correctable_steps}: "
                "it was fixed when the store was created",
                f"Leave it out, or {migrate}",
            )
        if theirs != self:
            raise StorageError(
                f"{name} was written in another format ({theirs.format}, here {self.format})",
                f"Use the version of aru that wrote it, or {migrate}",
            )


class Transaction(abc.ABC):
    """Reads that belong together, and writes that take effect together."""

    @abc.abstractmethod
    def about(self) -> About | None:
        """What the records are; None in a store that is still empty."""

    @abc.abstractmethod
    def version(self) -> int:
        """How many changes were made before this transaction: each adds one."""

    @abc.abstractmethod
    def describe(self, about: About) -> None:
        """Say what the records are."""

    @abc.abstractmethod
    def get(self, keys: Sequence[Key], kind: Kind = "series") -> list[bytes | None]:
        """The record of each key, None where there is none."""

    @abc.abstractmethod
    def keys(self, kind: Kind = "series") -> list[Key]:
        """All keys, in order."""

    @abc.abstractmethod
    def heads(self, size: int) -> list[bytes]:
        """The first bytes of every series' record, in the order of `keys`."""

    @abc.abstractmethod
    def put(self, keys: Sequence[Key], records: Sequence[bytes], kind: Kind = "series") -> None:
        """Write or replace records."""

    @abc.abstractmethod
    def delete(self, keys: Sequence[Key], kind: Kind = "series") -> None:
        """Remove records."""

    def require_about(self) -> About:
        """What the records are; a store without any is an error."""
        about = self.about()
        if about is None:
            raise StorageError("The store is empty: nothing was ever written to it")
        return about


class Store(abc.ABC):
    """Records by kind and key, with one writer at a time."""

    @abc.abstractmethod
    def __str__(self) -> str:
        """What messages call it."""

    @abc.abstractmethod
    def reading(self) -> contextlib.AbstractContextManager[Transaction]:
        """One consistent view; never waits for a computation of a writer."""

    @abc.abstractmethod
    def writing(self) -> contextlib.AbstractContextManager[Transaction]:
        """The only writer. Leaving with an exception undoes everything; leaving without one makes it durable."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of files. The store is opened again when it is next used."""


def chunks(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """Keys in pieces of at most `size`."""
    for at in range(0, len(keys), size):
        yield keys[at : at + size]
