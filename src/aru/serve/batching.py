"""Batches waiting requests. Each gets the same result as if it were computed alone, in order of arrival."""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from aru.errors import StorageError

Request = TypeVar("Request")
Outcome = Any  # the result of `work` for a request, or its exception


class Busy(Exception):
    """Too many rows are waiting, or the service is stopping."""


class _Waiting(NamedTuple):
    request: Any
    rows: int
    future: asyncio.Future[Any]


class Batcher(Generic[Request]):
    """A thread that works on all waiting requests together, up to a number of rows.

    Args:
        work: Takes requests in order of arrival and returns the outcome of each. If it raises, all of them failed.
        max_rows: Rows computed together; a larger request is a batch of its own.
        max_waiting: Rows that may wait; more are refused.
        after: Called after the results of a batch were delivered.
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
        """Whether the thread is alive and accepts requests."""
        return not self._closed and self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Number of waiting rows."""
        return self._rows

    async def submit(self, request: Request, rows: int) -> Any:
        """The result of `work` for this request, or its exception."""
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
            except Exception as error:  # noqa: BLE001 - otherwise the requests would wait forever
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
            if waiting.future.done():  # the client has disconnected
                continue
            if isinstance(outcome, Exception):
                waiting.future.set_exception(outcome)
            else:
                waiting.future.set_result(outcome)

    loop = batch[0].future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


def rounds(series: Sequence[Iterable[Hashable]], kinds: Sequence[Hashable]) -> list[list[int]]:
    """Divide requests into groups that are computed one after the other.

    `series` lists the series of each request. No two requests of a group share a series, requests that share a series
    keep their order, and all requests of a group are of one kind.
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
    """The outcome of each request. If a group fails, its halves are tried, down to single requests."""
    try:
        return dict(zip(group, work(group), strict=True))
    except StorageError as error:  # not the fault of a request
        return dict.fromkeys(group, error)
    except Exception as error:  # noqa: BLE001 - becomes the outcome of the request that causes it
        if len(group) == 1:
            return {group[0]: error}
        middle = len(group) // 2
        return isolate(work, group[:middle]) | isolate(work, group[middle:])
