"""Requests that wait at the same time are computed together, each as if it had come alone and in its turn."""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from aru.errors import StorageError

Request = TypeVar("Request")
Outcome = Any  # what `work` found, or the exception with which a request failed


class Busy(Exception):
    """Too much is waiting, or the service is stopping."""


class _Waiting(NamedTuple):
    request: Any
    rows: int
    future: asyncio.Future[Any]


class Batcher(Generic[Request]):
    """One thread that works on all requests that have arrived while it was busy, up to a number of rows.

    Args:
        work: Takes requests in order of arrival and returns the outcome of each. If it raises, all of them failed.
        max_rows: Rows computed together; a larger request is a batch of its own.
        max_waiting: Rows that may wait; more are refused.
        after: Called when the answers of a batch are on their way.
    """

    def __init__(
        self,
        work: Callable[[list[Request]], Sequence[Outcome]],
        max_rows: int,
        max_waiting: int,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._work, self._after = work, after
        self._max_rows, self._max_waiting = max_rows, max_waiting
        self._queue: collections.deque[_Waiting] = collections.deque()
        self._changed = threading.Condition()
        self._rows, self._closed = 0, False
        self._thread = threading.Thread(target=self._run, name="aru-batches", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether requests are taken and worked on."""
        return not self._closed and self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Rows that wait for their turn."""
        return self._rows

    async def submit(self, request: Request, rows: int) -> Any:
        """What `work` finds for this request; raises the exception it finds."""
        future = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._closed or (self._rows and self._rows + rows > self._max_waiting):
                raise Busy
            self._queue.append(_Waiting(request, rows, future))
            self._rows += rows
            self._changed.notify()
        return await future

    def close(self) -> None:
        """Finish what was accepted, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next():
            try:
                outcomes = self._work([waiting.request for waiting in batch])
            except Exception as error:  # noqa: BLE001 - nobody must wait for ever
                outcomes = [error] * len(batch)
            _deliver(batch, outcomes)
            self._after()

    def _next(self) -> list[_Waiting]:
        """The requests to work on now; none when the service stops."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            batch: list[_Waiting] = []
            rows = 0
            while self._queue and (not batch or rows + self._queue[0].rows <= self._max_rows):
                batch.append(self._queue.popleft())
                rows += batch[-1].rows
            self._rows -= rows
            return batch


def _deliver(batch: Sequence[_Waiting], outcomes: Sequence[Outcome]) -> None:
    """Hand all outcomes to the event loop in one go."""

    def settle() -> None:
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if waiting.future.done():  # its client has gone
                continue
            if isinstance(outcome, Exception):
                waiting.future.set_exception(outcome)
            else:
                waiting.future.set_result(outcome)

    loop = batch[0].future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


def rounds(series: Sequence[Iterable[Hashable]], kinds: Sequence[Hashable]) -> list[list[int]]:
    """Cut requests into groups to be computed together, one group after the other.

    `series` are those that each request is about. No two requests of a group share a series, requests that share one
    keep their order, and a group is of one kind.
    """
    turn: dict[Hashable, int] = {}
    groups: dict[tuple[int, Hashable], list[int]] = {}
    for i, (names, kind) in enumerate(zip(series, kinds, strict=True)):
        names = list(names)
        mine = max((turn.get(name, 0) for name in names), default=0)
        turn.update(dict.fromkeys(names, mine + 1))
        groups.setdefault((mine, kind), []).append(i)
    return [groups[key] for key in sorted(groups, key=lambda key: key[0])]


def isolate(work: Callable[[list[int]], Sequence[Outcome]], group: list[int]) -> dict[int, Outcome]:
    """The outcome of each request. If a group fails, its halves are tried, until those that fail do so alone."""
    try:
        return dict(zip(group, work(group), strict=True))
    except StorageError as error:  # has nothing to do with the requests
        return dict.fromkeys(group, error)
    except Exception as error:  # noqa: BLE001 - whoever sent the request that breaks us gets the blame
        if len(group) == 1:
            return {group[0]: error}
        middle = len(group) // 2
        return isolate(work, group[:middle]) | isolate(work, group[middle:])
