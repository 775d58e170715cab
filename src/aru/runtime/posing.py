"""The forecasts that a history would have asked for, as problems to tune a network on and to judge it by.

Effects of covariates are those of the whole history that is given: what a series knows in the end is what its later
forecasts rest on, and the first origins of a series know hardly any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from aru.data.columns import Ints
from aru.data.rows import Ragged, Static
from aru.nn.tree import concat, take, tree_map
from aru.pretrained.patches import CONTEXT
from aru.pretrained.problems import Problems
from aru.pretrained.zero_shot import ZeroShot
from aru.runtime.backtest import Fold, Stop, stops
from aru.runtime.engine import NetworkEngine
from aru.runtime.state import SeriesState

MOST_PROBLEMS = 20_000
MOST_NUMBERS = 2**27  # of all problems together, in memory
LEAST_KNOWN = 3  # rows before an origin
POSED_TOGETHER = 256  # problems that are posed at once, at least


class Series(NamedTuple):
    """Rows of series without outliers, and their static covariates."""

    rows: Ragged
    static: Static

    @property
    def n(self) -> int:
        """How many."""
        return len(self.rows.lengths)

    def some(self, index: Ints) -> Series:
        """Some of them."""
        which = torch.from_numpy(index)
        rows = self.rows._replace(starts=self.rows.starts[which], lengths=self.rows.lengths[which])
        return Series(rows, Static(*(v[which] for v in self.static)))

    def before(self, rows: Ints) -> Series:
        """All but the last rows of each."""
        return self._replace(rows=self.rows._replace(lengths=self.rows.lengths - torch.from_numpy(rows)))

    @property
    def lengths(self) -> Ints:
        """Rows of each."""
        return self.rows.lengths.numpy()


class LearnedSeries(NamedTuple):
    """What was learned of series: their states, and what they have in common (which the engine holds)."""

    engine: NetworkEngine
    state: SeriesState

    @classmethod
    def of(cls, engine: NetworkEngine, series: Series) -> LearnedSeries:
        """From all of their rows."""
        twin = engine.twin()
        state = twin.advance(twin.empty(series.static), series.rows)
        twin.learn_common(state, range(series.n), now=True)
        return cls(twin, state)

    def members_of(self, index: Ints) -> Any:
        """What models keep of some series."""
        return take(self.state.members, torch.from_numpy(index))


def most_problems(engine: NetworkEngine) -> int:
    """How many fit into memory."""
    model = engine.models[0]
    assert isinstance(model, ZeroShot)
    numbers = 2 * CONTEXT + engine.h * (model.covariates + 5)
    return min(MOST_PROBLEMS, MOST_NUMBERS // numbers)


def random_origins(lengths: Ints, h: int, most: int, rng: np.random.Generator) -> Ints:
    """(origin, series) places of cutoffs in their series, each with h rows after it, in order; -1 for none.

    About `most` in all, as many of each series as it has room for.
    """
    room = np.maximum(lengths - h - LEAST_KNOWN + 1, 0)
    each = _shared_out(room, most)
    out = np.full((int(each.max(initial=0)), len(lengths)), -1, np.int64)
    for i in np.flatnonzero(each).tolist():
        places = rng.choice(int(room[i]), int(each[i]), replace=False)
        out[len(out) - each[i] :, i] = np.sort(places) + LEAST_KNOWN - 1
    return out


def _shared_out(room: Ints, most: int) -> Ints:
    """At most `room` of each, at most `most` in all: as even as that allows."""
    if room.sum() <= most:
        return room
    low, high = 0, int(room.max())
    while low < high:  # the largest number of each that is not too many
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(room, middle).sum() <= most else (low, middle - 1)
    each = np.minimum(room, low)
    more = np.flatnonzero(room > low)[: most - int(each.sum())]
    each[more] += 1
    return each


def last_origins(lengths: Ints, h: int, windows: int, held: Ints) -> Ints:
    """(window, series) cutoffs every h rows over the rows held back of each series; -1 where there are none."""
    back = h * np.arange(windows, 0, -1)[:, None]
    return np.where((back <= held) & (lengths - back >= LEAST_KNOWN), lengths - back - 1, -1)


def pose(learned: LearnedSeries, series: Series, origins: Ints) -> Problems | None:
    """The problems at these origins; None if there is none."""
    engine = learned.engine
    (model,) = engine.models
    assert isinstance(model, ZeroShot)
    parts: list[Problems] = []
    for some in _gathered(_stops(engine, series, origins)):
        context, rows = concat([stop.state.context for stop in some]), concat([stop.rows for stop in some])
        members = learned.members_of(np.concatenate([stop.series for stop in some]))
        met = model.meet(members[0], context, engine.common.effects)
        parts.append(tree_map(lambda v: v.cpu(), model.problems(met, context, rows)))
    return concat(parts) if parts else None


def _gathered(stops: Iterator[Stop]) -> Iterator[list[Stop]]:
    """Stops that are posed together: of few series each, they would cost little but overhead."""
    some: list[Stop] = []
    for stop in stops:
        some.append(stop)
        if sum(len(s.series) for s in some) >= POSED_TOGETHER:
            yield some
            some = []
    if some:
        yield some


def forecast_held(
    engine: NetworkEngine, learned: LearnedSeries, series: Series, origins: Ints, quantiles: Sequence[float]
) -> Iterator[Fold]:
    """Forecasts at these origins by the models of an engine, with what was learned before all of them."""
    engine = engine.twin()
    engine.common = learned.engine.common
    for stop in _stops(engine, series, origins):
        state = stop.state._replace(members=learned.members_of(stop.series))
        forecast = engine.forecast(state, stop.rows.ahead(), quantiles).cpu()
        yield Fold(stop.series, stop.cutoff, stop.future, forecast)


def _stops(engine: NetworkEngine, series: Series, origins: Ints) -> Iterator[Stop]:
    rows = np.where(origins >= 0, series.rows.starts.numpy() + origins, -1)
    return stops(engine, series.rows, series.static, rows, learn=False)
