"""Work that is divided among threads, and torch on one of them meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from aru.nn.threads import in_parallel, thread_count, torch_on_one_thread


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_torch_has_one_thread_inside_and_the_users_number_outside() -> None:
    with torch_on_one_thread():
        assert (torch.get_num_threads(), thread_count()) == (1, 2)
        with torch_on_one_thread():
            assert (torch.get_num_threads(), thread_count()) == (1, 2)
        assert (torch.get_num_threads(), thread_count()) == (1, 2)
    assert (torch.get_num_threads(), thread_count()) == (2, 2)


def test_an_error_leaves_the_users_number() -> None:
    with pytest.raises(ZeroDivisionError), torch_on_one_thread():
        raise ZeroDivisionError
    assert (torch.get_num_threads(), thread_count()) == (2, 2)


def test_a_thread_that_first_meets_torch_meanwhile_keeps_the_users_number() -> None:
    """Torch gives a new thread the number that was set last, which is our 1."""
    met, left, counts = threading.Event(), threading.Event(), []

    def work() -> None:
        counts.append(torch.get_num_threads())
        counts.append(thread_count())
        met.set()
        left.wait(60)
        counts.append(thread_count())
        with torch_on_one_thread():
            counts.append(thread_count())

    thread = threading.Thread(target=work)
    with torch_on_one_thread():
        thread.start()
        assert met.wait(60)
    left.set()
    thread.join(60)
    assert counts == [1, 2, 2, 2]


def test_parts_come_back_in_order_and_cover_the_range() -> None:
    found = in_parallel(lambda lo, hi: list(range(lo, hi)), 23, 5)
    assert found == [list(range(lo, min(lo + 5, 23))) for lo in range(0, 23, 5)]


@pytest.mark.parametrize("bad", [0, 20])
def test_an_error_in_any_part_is_raised(bad: int) -> None:
    def work(lo: int, hi: int) -> int:
        if lo == bad:
            raise ZeroDivisionError
        return hi

    with pytest.raises(ZeroDivisionError):
        in_parallel(work, 23, 5)
