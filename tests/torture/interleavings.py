"""Random calls with replays, gaps, late rows, corrections and restarts: the stream equals its accepted history."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aru import Forecaster
from tests.test_stream_property import C, E, calls, replay, train
from tests.torture import Attack, Outcome

REACHES = (0, C, 2 * E)  # rows that corrections reach back


def interleavings(size: int) -> Outcome:
    """This many interleavings for each reach of corrections."""
    model, done = train(), 0
    for reach in REACHES:
        done += attempts(model, reach, size)
    return Outcome(done, 0, "states and forecasts equal to a replay of what was accepted")


def attempts(model: Forecaster, reach: int, size: int) -> int:
    """How many there were."""
    done = 0

    @settings(max_examples=size, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(steps=st.lists(calls, min_size=1, max_size=7))
    def attempt(steps: Any) -> None:
        nonlocal done
        done += 1
        replay(steps, reach, model)

    attempt()
    return done


ATTACKS = [Attack("interleavings of calls and restarts", interleavings, 5, 300)]
