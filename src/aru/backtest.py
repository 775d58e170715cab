"""Rolling evaluation without retraining, and the scores of its frames.

At every cutoff the states have consumed exactly the rows up to it: the same update and forecast that run in production.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from aru.columns import Ints, as_frame
from aru.engine import Engine, Forecast, Ragged
from aru.errors import ColumnError, TooLittleDataError
from aru.panel import Panel
from aru.schema import Rows, Static


class Fold(NamedTuple):
    """Forecasts from one cutoff of each series that has it."""

    series: Ints  # index into the panel's series
    cutoff: Ints  # row of the cutoff
    future: Ints  # (series, h) rows that were forecast
    forecast: Forecast


def cutoff_rows(panel: Panel, h: int, n_windows: int, step_size: int) -> Ints:
    """(window, series) row of each cutoff, counted back from each series' own end; -1 where no value comes before."""
    back = h + step_size * np.arange(n_windows - 1, -1, -1)
    position = panel.lengths - 1 - back[:, None]
    observed = np.concatenate([[0], np.cumsum(panel.observed)])
    begin = panel.starts
    some = observed[begin + position.clip(min=-1) + 1] > observed[begin]
    rows = np.where((position >= 0) & some, begin + position, -1)
    if (rows[0] < 0).all():
        raise TooLittleDataError(
            f"No series is long enough for {n_windows} windows of h={h} every {step_size} steps: the longest has "
            f"{int(panel.lengths.max())} rows and {int(back[0]) + 1} are needed. Use fewer windows."
        )
    return rows


def rolling(
    engine: Engine,
    panel: Panel,
    static: Static,
    cutoffs: Ints,
    quantiles: Sequence[float],
    adapt: bool = True,
) -> Iterator[Fold]:
    """Replay a panel from empty states and forecast at every cutoff.

    With `adapt` false the statistics stay as they were at a series' first cutoff, while contexts move on.
    """
    h = engine.settings.h
    rows = engine.schema.encode(panel)
    skipped = torch.from_numpy(panel.skipped)
    state = engine.empty(static)
    done = panel.starts.copy()  # first row that a series has not consumed
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
        future = cutoff[series, None] + 1 + np.arange(h)
        ahead = Rows._make(v[torch.from_numpy(future.ravel())] for v in rows)
        ahead = ahead._replace(y=torch.zeros_like(ahead.y), observed=torch.zeros_like(ahead.observed))
        forecast = engine.forecast(engine.select(state, torch.from_numpy(series)), ahead, quantiles).cpu()
        yield Fold(series, cutoff[series], future, forecast)


def scores(frame: Any, name: str, level: float | None = None) -> Mapping[str, float]:
    """Accuracy pooled over all series and steps with a known y.

    ND is scored on the median and RMSE on the mean; with `level`, coverage and mean width (relative to mean |y|) of
    that central interval.
    """
    data = as_frame(frame, "frame")
    needed = ["y", name, f"{name}-median"] + ([f"{name}-lo-{level:g}", f"{name}-hi-{level:g}"] if level else [])
    missing = [c for c in needed if c not in data.columns]
    if missing:
        raise ColumnError(f"The frame has no column {', '.join(missing)}: it must come from cross_validation.")
    columns = {c: np.asarray(data[c].to_numpy(), dtype=np.float64) for c in needed}
    known = ~np.isnan(columns["y"])
    y = columns["y"][known]
    mean, median = columns[name][known], columns[f"{name}-median"][known]
    size = float(np.abs(y).sum())
    out = {
        "nd": float(np.abs(y - median).sum() / size) if size else float("nan"),
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "values": float(len(y)),
    }
    if level:
        low, high = columns[f"{name}-lo-{level:g}"][known], columns[f"{name}-hi-{level:g}"][known]
        out["coverage"] = float(np.mean((low <= y) & (y <= high)))
        out["width"] = float((high - low).sum() / size) if size else float("nan")
    return out
