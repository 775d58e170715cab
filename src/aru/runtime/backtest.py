"""Rolling evaluation without retraining.

At every cutoff the states have consumed exactly the rows up to it, by the same update and forecast as in production.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from aru.data.columns import Ints
from aru.data.panel import Panel
from aru.data.rows import Ragged, Rows, Static
from aru.errors import TooLittleDataError
from aru.nn.tree import take
from aru.runtime.engine import Forecast, NetworkEngine


class Fold(NamedTuple):
    """Forecasts from one cutoff, of the series that have this cutoff."""

    series: Ints  # index into the panel's series
    cutoff: Ints  # row of the cutoff
    future: Ints  # (series, h) rows that were forecast
    forecast: Forecast


def cutoff_rows(panel: Panel, h: int, n_windows: int, step_size: int) -> Ints:
    """(window, series) row of each cutoff, counted back from the end of its series; -1 if it is before any value."""
    rows = possible_cutoffs(panel, h, n_windows, step_size)
    if (rows[0] < 0).all():
        raise TooLittleDataError(
            f"No series is long enough for {n_windows} windows of `h={h}` every {step_size} steps: the longest has "
            f"{int(panel.lengths.max())} rows and {h + step_size * (n_windows - 1) + 1} are needed",
            "Use fewer windows.",
        )
    return rows


def possible_cutoffs(panel: Panel, h: int, n_windows: int, step_size: int) -> Ints:
    """The same where no series may be long enough."""
    back = h + step_size * np.arange(n_windows - 1, -1, -1)
    position = panel.lengths - 1 - back[:, None]
    observed = np.concatenate([[0], np.cumsum(panel.observed)])
    begin = panel.starts
    some = observed[begin + position.clip(min=-1) + 1] > observed[begin]
    return np.where((position >= 0) & some, begin + position, -1)


def rolling(
    engine: NetworkEngine,
    data: Ragged,
    static: Static,
    cutoffs: Ints,
    quantiles: Sequence[float],
    adapt: bool = True,
) -> Iterator[Fold]:
    """Replay the rows of a panel from empty states and forecast at every cutoff.

    With `adapt=False` the statistics of a series are frozen at its first cutoff, while its context moves on.
    """
    rows, starts = data.rows, data.starts.numpy()
    state = engine.empty(static)
    done = starts.copy()  # first row of each series that is not consumed yet
    for cutoff in cutoffs:
        until = np.where(cutoff >= 0, cutoff + 1, done)
        learns = np.full(len(done), adapt) | (done == starts)
        for which in (True, False):
            lengths = np.where(learns == which, until - done, 0)
            new = Ragged(rows, torch.from_numpy(done), torch.from_numpy(lengths), data.skipped)
            state = engine.advance(state, new, adapt=which) if lengths.any() else state
        done = until
        series = np.flatnonzero(cutoff >= 0)
        if len(series) == 0:
            continue
        future = cutoff[series, None] + 1 + np.arange(engine.h)
        ahead = Rows(*(v[torch.from_numpy(future)] for v in rows)).ahead()
        here = take(state, torch.from_numpy(series).to(engine.device))
        forecast = engine.forecast(here, ahead, quantiles).cpu()
        yield Fold(series, cutoff[series], future, forecast)
