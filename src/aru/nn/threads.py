"""Divides work on many series among as many threads as torch has.

Meanwhile torch itself uses one thread: its own threads keep spinning after every operation and would take the
processors from ours. After a fork everything runs on one thread.
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
_here = threading.local()  # count: torch's threads before it was told to use one; only inside of `torch_on_one_thread`
_main = 0  # torch's threads in the main thread, as last seen


def thread_count() -> int:
    """Number of threads to divide work among."""
    inside: int = getattr(_here, "count", 0)
    return inside or _torch_threads()


def _torch_threads() -> int:
    """Number of threads that the user gave torch.

    Torch has a number per calling thread. A new thread starts with the number that any thread set last, which may be
    our 1, so the number of the main thread is considered, too.
    """
    global _main
    own = torch.get_num_threads()
    if threading.current_thread() is not threading.main_thread():
        return max(own, _main)
    _main = own
    return own


def _after_fork() -> None:
    """In a forked process compute on one thread: it has none of torch's others, and torch would wait for them."""
    global _main
    _main = 1
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Limit torch to one thread, so that `in_parallel` can use the others."""
    count = _torch_threads()
    if count == 1 or getattr(_here, "count", False):
        yield
        return
    _here.count = count
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _here.count = 0


def in_parallel(work: Callable[[int, int], T], n: int, part: int) -> list[T]:
    """Run `work(lo, hi)` for consecutive parts of range(n) on several threads; return the results in order."""
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
    """The thread pool of this process: a forked process cannot use its parent's."""
    return concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="aru")
