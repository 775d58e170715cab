"""Series that ended: what they are, naming them, and leaving them out.

A series has ended if the newest time of all series is more than h steps after its own latest time, and more than
FEW_STEPS steps: then all of its forecast lies in the past. Without a frequency there are no steps to count, and no
series has ended.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from aru.data.columns import Bools, name_rows, show_times
from aru.errors import ConfigError, quoted, warn
from aru.nn.tree import take
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.state import SeriesState

Ended = Literal["keep", "skip"]
FEW_STEPS = 5


def have_ended(runtime: ForecastRuntime, state: SeriesState, newest: int | None) -> Bools:
    """Which series have ended; `newest` is the newest time of all series."""
    last = state.last.cpu().numpy()
    if newest is None or runtime.freq.freq is None or len(last) == 0:
        return np.zeros(len(last), bool)
    ended: Bools = last < runtime.freq.shift(np.array([newest]), -_most_behind(runtime))
    return ended


def judge_ended(
    runtime: ForecastRuntime, names: pd.Index[Any], state: SeriesState, newest: int | None, ended: Ended
) -> tuple[pd.Index[Any], SeriesState]:
    """Series without those that ended, with "skip"; with "keep" all, and a warning names the ended ones once."""
    if ended not in ("keep", "skip"):
        raise ConfigError(f"`ended={quoted(ended)}` is not known", "Choose 'keep' or 'skip'.")
    which = have_ended(runtime, state, newest)
    if newest is None or not which.any():
        return names, state
    if ended == "skip":
        stay = np.flatnonzero(~which)
        return names[stay], take(state, torch.from_numpy(stay).to(state.last.device))
    _warn_once(runtime, names, state, which, newest)
    return names, state


def _warn_once(runtime: ForecastRuntime, names: pd.Index[Any], state: SeriesState, which: Bools, newest: int) -> None:
    said = runtime.engine.said
    fresh = np.flatnonzero(which & ~np.array([f"ended {name}" in said for name in names], bool))
    if len(fresh):
        said.update(f"ended {name}" for name in names[fresh])
        clock = runtime.schema.clock
        rows = name_rows(names[fresh], state.last.cpu().numpy()[fresh], clock)
        (until,) = show_times(np.array([newest]), clock)
        warn(
            f"{len(rows)} of {len(names)} series ended more than {_most_behind(runtime)} steps before the newest time "
            f"of all series, {until}: {rows}. Their forecasts lie in the past; `ended='skip'` leaves them out."
        )


def _most_behind(runtime: ForecastRuntime) -> int:
    """By how many steps a series may lie behind the newest time."""
    return max(runtime.h, FEW_STEPS)
