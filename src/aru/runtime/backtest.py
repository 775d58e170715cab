"""Rolling evaluation without retraining.

At every cutoff the states have consumed exactly the rows up to it, by the same update and forecast as in production.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from aru.data.columns import Bools, Ints
from aru.data.panel import Panel
from aru.data.rows import Ragged, Rows, Static
from aru.errors import TooLittleDataError
from aru.nn.tree import take
from aru.runtime.engine import Forecast, NetworkEngine
from aru.runtime.epochs import Common
from aru.runtime.state import SeriesState


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


class Stop(NamedTuple):
    """Series at a cutoff, with the states that they have there."""

    series: Ints  # index into the panel's series
    cutoff: Ints  # row of the cutoff
    future: Ints  # (series, h) rows that follow
    state: SeriesState  # of these series
    rows: Rows  # those that follow, as they came


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
    engine = engine.twin() if engine.shares else engine
    for stop in stops(engine, data, static, cutoffs, adapt):
        forecast = engine.forecast(stop.state, stop.rows.ahead(), quantiles).cpu()
        yield Fold(stop.series, stop.cutoff, stop.future, forecast)


def stops(
    engine: NetworkEngine, data: Ragged, static: Static, cutoffs: Ints, adapt: bool = True, learn: bool = True
) -> Iterator[Stop]:
    """The same without forecasts. With `learn=False` only contexts move on, and nothing is ever learned.

    The engine gets what series have in common at each cutoff.
    """
    if engine.shares and learn:
        yield from _in_time(engine, data, static, cutoffs, adapt)
        return
    state, walk = engine.empty(static), _Walk(engine, data)
    for cutoff in cutoffs:
        learns = walk.learners(adapt) & learn
        state = walk.to(state, np.where(cutoff >= 0, cutoff + 1, walk.done), learns)
        if (cutoff >= 0).any():
            yield walk.stop(state, np.flatnonzero(cutoff >= 0), cutoff)


EPOCHS = 64  # times at which what series have in common is learned, at most


def _in_time(engine: NetworkEngine, data: Ragged, static: Static, cutoffs: Ints, adapt: bool) -> Iterator[Stop]:
    """The same where forecasts rest on other series, too: in the order of time, whenever series end.

    What series have in common is learned from rows up to the first cutoff of a group of cutoffs, never later.
    """
    ds = data.rows.ds.numpy()
    walk, state = _Walk(engine, data), engine.empty(static)
    engine.common = Common()
    when = np.where(cutoffs >= 0, ds[cutoffs], np.iinfo(np.int64).max)
    first = when.min(0)
    times = np.unique(when[cutoffs >= 0])
    for group in np.array_split(times, min(len(times), EPOCHS)):
        state = walk.to(state, np.maximum(walk.rows_until(int(group[0])), walk.done), adapt | (first >= group[0]))
        engine.learn_common(state, range(len(walk.done)))
        for cutoff, at in zip(cutoffs, when, strict=True):
            series = np.flatnonzero((at >= group[0]) & (at <= group[-1]) & (cutoff >= 0))
            if len(series) == 0:
                continue
            until = walk.done.copy()
            until[series] = np.maximum(cutoff[series] + 1, until[series])
            state = walk.to(state, until, adapt | (first >= at))
            yield walk.stop(state, series, cutoff)


class _Walk:
    """Goes through the rows of a panel."""

    def __init__(self, engine: NetworkEngine, data: Ragged) -> None:
        self._engine, self._data = engine, data
        self._starts = data.starts.numpy()
        self.done: Ints = self._starts.copy()  # first row of each series that is not consumed yet

    def learners(self, adapt: bool) -> Bools:
        """Which series learn: with `adapt` all, else those that have not begun."""
        learns: Bools = np.full(len(self.done), adapt) | (self.done == self._starts)
        return learns

    def rows_until(self, time: int) -> Ints:
        """The first row of each series after a time."""
        before = np.concatenate([[0], np.cumsum(self._data.rows.ds.numpy() <= time)])
        rows: Ints = self._starts + before[self._starts + self._data.lengths.numpy()] - before[self._starts]
        return rows

    def to(self, state: SeriesState, until: Ints, learns: Bools) -> SeriesState:
        """Consume the rows before `until`."""
        for which in (True, False):
            lengths = np.where(learns == which, until - self.done, 0)
            new = Ragged(self._data.rows, torch.from_numpy(self.done), torch.from_numpy(lengths), self._data.skipped)
            state = self._engine.advance(state, new, adapt=which) if lengths.any() else state
        self.done = until
        return state

    def stop(self, state: SeriesState, series: Ints, cutoff: Ints) -> Stop:
        """Some series at their cutoffs."""
        future = cutoff[series, None] + 1 + np.arange(self._engine.h)
        rows = Rows(*(v[torch.from_numpy(future)] for v in self._data.rows))
        here = take(state, torch.from_numpy(series).to(self._engine.device))
        return Stop(series, cutoff[series], future, here, rows)
