"""The wider panels: nothing of a report is in them, and sums are sums."""

from __future__ import annotations

import numpy as np
import pytest

from pretraining import wider
from pretraining.evaluate import PANELS


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every panel is one series 0, 1, 2, ..., whose values are the numbers of its rows."""
    monkeypatch.setattr(wider, "series_of", lambda name: [np.arange(100.0)] * 4)


@pytest.mark.usefixtures("counting")
def test_sums_end_before_the_report() -> None:
    last = 100 - PANELS["tourism_monthly"].h
    quarters = wider.sums("tourism_monthly", 3)[0]
    assert quarters[-1] == sum(range(last - 3, last))
    assert len(quarters) == last // 3
    assert wider.skipping("exchange_rate", 5)[0][-1] == 100 - PANELS["exchange_rate"].h - 1
    assert len(wider.sums("car_parts", 3, 2)) == 2


@pytest.mark.usefixtures("counting")
def test_a_window_follows_its_context() -> None:
    other = wider.Other(lambda: wider.before_report("m1_monthly"), 4, 1, (1, 0), 3, 2, 10)
    windows = wider.windows_of(other)
    assert len(windows.futures) == 12
    assert all(future[0] == context[-1] + 1 for context, future in zip(*windows, strict=True))
    assert windows.futures.max() < 100 - PANELS["m1_monthly"].h
