"""Work on many series is shared out among as many threads as torch has.

Torch itself works on one thread meanwhile: its own threads stay awake for a while after every operation, and take the
processors from ours.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

T = TypeVar("T")
_caller = threading.local()


def thread_count() -> int:
    """How many threads there are to share work among."""
    count: int = getattr(_caller, "count", 0) or torch.get_num_threads()
    return count


@contextlib.contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Leave the processors to `in_parallel`."""
    count = torch.get_num_threads()
    if count == 1:
        yield
        return
    _caller.count = count
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _caller.count = 0


def in_parallel(work: Callable[[int, int], T], n: int, part: int) -> list[T]:
    """What `work` gives for each part of range(n), from `lo` up to `hi`, in order."""
    bounds = [(lo, min(lo + part, n)) for lo in range(0, n, part)]
    count = min(thread_count(), len(bounds))
    if count <= 1:
        return [work(lo, hi) for lo, hi in bounds]
    done: dict[int, T] = {}
    waiting = deque(enumerate(bounds))

    def take_turns() -> None:
        while True:
            try:
                i, (lo, hi) = waiting.popleft()
            except IndexError:  # nothing is left
                return
            done[i] = work(lo, hi)

    helpers = [_pool(os.getpid(), thread_count() - 1).submit(take_turns) for _ in range(count - 1)]
    take_turns()
    for helper in helpers:
        helper.result()
    return [done[i] for i in range(len(bounds))]


@functools.cache
def _pool(process: int, threads: int) -> concurrent.futures.ThreadPoolExecutor:
    """Threads of this process: a forked one has none of its parent's."""
    return concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="aru")
