"""How many observations came in lately."""

from __future__ import annotations

import pytest

from aru.serve.metrics import RowRate


def test_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("aru.serve.metrics.time.monotonic", lambda: now)
    rate = RowRate()
    rate.add(30)
    now = 1000.6
    rate.add(10)
    now = 1002.2
    rate.add(20)
    assert rate.by_second() == [0] * 58 + [40, 0]  # the second that has begun is not over
    now = 1010.0
    assert rate.per_second() == 6.0
    assert rate.by_second()[-10:] == [40, 0, 20, *[0] * 7]
    now = 1061.5
    assert rate.per_second() == 20 / 60
    assert sum(rate.by_second()) == 20
