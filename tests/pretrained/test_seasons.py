"""The periods that a network is told."""

from __future__ import annotations

import pytest

from aru.data.frequency import Frequency
from aru.pretrained.seasons import told_by


@pytest.mark.parametrize(
    ("freq", "season_length", "told"),
    [
        ("h", None, (24, 168)),
        ("30min", None, (48, 336)),
        ("15min", None, (96, 672)),
        ("10min", None, (144, 0)),
        ("5min", None, (288, 0)),
        ("min", None, (60, 0)),
        ("2h", None, (12, 84)),
        ("D", None, (7, 365)),
        ("B", None, (5, 261)),
        ("W-FRI", None, (52, 0)),
        ("MS", None, (12, 0)),
        ("QE", None, (4, 0)),
        ("YS", None, (1, 0)),
        ("YE-JUN", None, (1, 0)),
        ("h", 12, (12, 0)),
        (None, 7, (7, 0)),
        ("45s", None, (80, 0)),
        ("7min", None, None),
        (1, None, None),
        (None, None, None),
    ],
)
def test_periods_of_a_frequency(
    freq: str | int | None, season_length: int | None, told: tuple[int, int] | None
) -> None:
    assert told_by(Frequency(freq), season_length) == told
