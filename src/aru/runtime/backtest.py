"""Rolling evaluation without retraining.

At every cutoff the states have consumed exactly the rows up to it, by the same update and forecast as in production.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from aru.data.columns import Ints
from aru.data.panel import Panel
from aru.data.rows import Ragged, Rows, Static
from aru.errors import AruWarning, TooLittleDataError, listing
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
    back = h + step_size * np.arange(n_windows - 1, -1, -1)
    position = panel.lengths - 1 - back[:, None]
    observed = np.concatenate([[0], np.cumsum(panel.observed)])
    begin = panel.starts
    some = observed[begin + position.clip(min=-1) + 1] > observed[begin]
    rows = np.where((position >= 0) & some, begin + position, -1)
    if (rows[0] < 0).all():
        raise TooLittleDataError(
            f"No series is long enough for {n_windows} windows of `h={h}` every {step_size} steps: the longest has "
            f"{int(panel.lengths.max())} rows and {int(back[0]) + 1} are needed",
            "Use fewer windows.",
        )
    return rows


def warn_short(panel: Panel, cutoffs: Ints) -> None:
    """Warn about series that are too short for all cutoffs: scores then cover only a part of the series."""
    windows = (cutoffs >= 0).sum(0)
    short, none = np.flatnonzero(windows < len(cutoffs)), int((windows == 0).sum())
    if len(short):
        warnings.warn(
            f"{len(short)} of {len(panel.ids)} series are too short for {len(cutoffs)} windows: "
            f"{listing(list(panel.ids[short]))}. They are scored on the windows that they have"
            + (f", {none} of them with none" if none else "")
            + ". Use fewer windows, or more history.",
            AruWarning,
            stacklevel=3,
        )


def rolling(
    engine: NetworkEngine,
    panel: Panel,
    static: Static,
    cutoffs: Ints,
    quantiles: Sequence[float],
    adapt: bool = True,
) -> Iterator[Fold]:
    """Replay a panel from empty states and forecast at every cutoff.

    With `adapt=False` the statistics of a series are frozen at its first cutoff, while its context moves on.
    """
    rows = engine.schema.encode(panel)
    skipped = torch.from_numpy(panel.skipped)
    state = engine.empty(static)
    done = panel.starts.copy()  # first row of each series that is not consumed yet
    for cutoff in cutoffs:
        until = np.where(cutoff >= 0, cutoff + 1, done)
        learns = np.full(len(done), adapt) | (done == panel.starts)
        for which in (True, False):
            lengths = np.where(learns == which, until - done, 0)
            data = Ragged(rows, torch.from_numpy(done), torch.from_numpy(lengths), skipped)
            state = engine.advance(state, data, adapt=which) if lengths.any() else state
        done = until
        series = np.flatnonzero(cutoff >= 0)
        if len(series) == 0:
            continue
        future = cutoff[series, None] + 1 + np.arange(engine.h)
        ahead = Rows(*(v[torch.from_numpy(future)] for v in rows)).ahead()
        here = take(state, torch.from_numpy(series).to(engine.device))
        forecast = engine.forecast(here, ahead, quantiles).cpu()
        yield Fold(series, cutoff[series], future, forecast)
