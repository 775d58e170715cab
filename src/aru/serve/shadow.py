"""A version that follows the champion: it takes in the champion's journal, entry by entry, each once.

An entry is copied into the version's own journal in the transaction that applies its rows. So the latest entry of that
journal says how far the version has come, whoever is killed when; and when it is promoted, its journal goes on where
the champion's ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from aru.errors import InputError
from aru.runtime import kept
from aru.runtime.kept import Call
from aru.runtime.lateness import CONFLICT, TOO_LATE
from aru.runtime.update import Update
from aru.store import Transaction
from aru.store.receipts import Receipt
from aru.stream import Stream

TAKEN_AT_ONCE = 2**12  # rows that are taken in at a time: more would hold up a champion that shares the processor
REFUSED = "refused"  # key of the record of rows that a version could not take
Entries = Callable[[int], list[tuple[int, bytes]]]  # the first ones after a number


class Overtaken(Exception):
    """Another process has taken in these entries meanwhile."""


class Numbered(NamedTuple):
    """An entry of a journal."""

    number: int
    entry: bytes
    call: Call


class Progress(NamedTuple):
    """How far a version has come, and how many rows of the champion it could not take, and why."""

    position: int
    refused: int
    reason: str | None


class Shadow:
    """A stream that follows another one's journal."""

    def __init__(self, number: int, stream: Stream) -> None:
        self.number, self.stream = number, stream

    def progress(self) -> Progress:
        """How far it has come."""
        with self.stream.store.reading() as view:
            return Progress(view.last_entry(), *_refused(view))

    def take_in(self, entries: Entries, until: int) -> Iterator[list[Update]]:
        """Take in a journal after the present position, some entries at a time, and yield what changed.

        Up to `until` all entries must be there.
        """
        while (after := self.progress().position) < until:
            try:
                for some in _portions(entries, after, until):
                    yield self._apply(some, after)
                    after = some[-1].number
                return
            except Overtaken:  # it goes on after what the other one has taken in
                continue

    def _apply(self, some: Sequence[Numbered], after: int) -> list[Update]:
        """Apply the entries after a number in one transaction.

        If their rows cannot be taken, halves of them are tried, down to single entries.
        """
        call = kept.merged([one.call for one in some])
        try:
            if call.forgotten:
                self._forget(some, after, call)
                return []
            return [self._take(some, after, call)]
        except InputError as error:
            if len(some) > 1:
                middle = len(some) // 2
                first = self._apply(some[:middle], after)
                return first + self._apply(some[middle:], some[middle - 1].number)
            with self.stream.store.writing([]) as change:
                _copy(change, some, after, [str(error)] * call.size)
            return []

    def _take(self, some: Sequence[Numbered], after: int, call: Call) -> Update:
        def together(change: Transaction, update: Update) -> None:
            reasons = update.result.left_out["reason"].tolist()
            _copy(change, some, after, [reason for reason in reasons if reason not in (CONFLICT, TOO_LATE)])

        return self.stream.apply(
            call.frame(),
            call.static_frame(),
            "correct" if call.correct else "skip",
            invalid="skip",
            allow_jump=True,  # the champion has allowed it
            requests=[Receipt(bytes.fromhex(digest), ()) for digest in call.requests],
            together=together,
        )

    def _forget(self, some: Sequence[Numbered], after: int, call: Call) -> None:
        known = self.stream.states(list(call.forgotten))[0].tolist()
        if known:
            self.stream.forget(known, lambda change: _copy(change, some, after))
            return
        with self.stream.store.writing([]) as change:
            _copy(change, some, after)


def in_background(work: Iterator[list[Update]]) -> Iterator[list[Update]]:
    """The same with pauses: it takes half of a processor's time."""
    while True:
        began = time.perf_counter()
        done = next(work, None)
        if done is None:
            return
        yield done
        time.sleep(time.perf_counter() - began)


def _portions(entries: Entries, after: int, until: int) -> Iterator[list[Numbered]]:
    """Entries in portions that can be applied together."""
    some, rows = list[Numbered](), 0
    while after < until and (found := entries(after)):
        for number, entry in found:
            after = number
            if number > until:
                break
            one = Numbered(number, entry, Call.from_entry(number, entry))
            if some and not (_go_together(some[-1].call, one.call) and rows + one.call.size <= TAKEN_AT_ONCE):
                yield some
                some, rows = [], 0
            some.append(one)
            rows += one.call.size
    if some:
        yield some


def _go_together(one: Call, other: Call) -> bool:
    """Whether rows of consecutive calls can be applied as one. The order of corrections and deletions matters."""
    return not (one.forgotten or other.forgotten or one.correct or other.correct) and one.clock == other.clock


def _copy(change: Transaction, some: Sequence[Numbered], after: int, refused: Sequence[str] = ()) -> None:
    """Copy the entries after a number, if it still is the latest one; and count rows that could not be taken."""
    if change.last_entry() != after:
        raise Overtaken
    for one in some:
        change.append(one.entry, one.number)
    if refused:
        before, reason = _refused(change)
        record = json.dumps([before + len(refused), reason or refused[0]])
        change.put([REFUSED], [record.encode()], "service")


def _refused(view: Transaction) -> tuple[int, str | None]:
    (record,) = view.get([REFUSED], "service")
    if record is None:
        return 0, None
    rows, reason = json.loads(record)
    return rows, reason
