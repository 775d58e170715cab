"""Scores of folds beside those of seasonal naive on the same rows, and the scorecard of a training."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru.data.columns import Bools, Floats, Ints, name_rows
from aru.data.frames import FrameStyle, percentages, quantiles_of
from aru.data.frequency import Frequency
from aru.data.naive import SeasonalNaive
from aru.data.naming import Names
from aru.data.panel import Panel
from aru.data.rows import Whole
from aru.data.scores import Judged, Scorecard, mase, pooled
from aru.errors import listing, warn
from aru.runtime.backtest import Fold, cutoff_rows, possible_cutoffs, rolling
from aru.runtime.engine import NetworkEngine
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.posing import LearnedSeries, Series, forecast_held
from aru.runtime.trained import Trained
from aru.settings import Settings

LEVEL = 90  # of the intervals on the scorecard of a training
JUDGED = 1000  # series on it, evenly spread over longer panels, since each is replayed from its first row


def season_of(settings: Settings, freq: Frequency) -> int:
    """Rows of the season that seasonal naive repeats: `season_length`, else the shortest of the frequency, else 1."""
    return settings.season_length or next(iter(freq.seasons()), 1)


def judge_ends(
    engine: NetworkEngine,
    freq: Frequency,
    whole: Callable[[int], Whole],
    spared: Sequence[Bools],
    rows: int,
    later: int,
) -> Scorecard | None:
    """The scorecard of a training: forecasts of the last `rows` rows of each series that could spare them.

    `whole` reads the parts of the data, and `spared` tells, by part, which series these are. States begin empty, and a
    forecast is made every h rows. `later` steps trained on these rows after the weights of `engine` were taken. None
    without rows, or if no series could spare them.
    """
    settings = engine.settings
    marks = Marks(season_of(settings, freq), [LEVEL])
    every = max(1, -(-sum(int(which.sum()) for which in spared) // JUDGED))
    passed = 0
    for part, which in enumerate(spared):
        chosen = which & ((passed + np.cumsum(which) - 1) % every == 0)
        passed += int(which.sum())
        if rows and chosen.any():
            _judge_part(engine, whole(part), marks, rows, chosen)
    total = sum(map(len, spared))
    series = f"{marks.series:,}" if marks.series == total else f"{marks.series:,} of {total:,}"
    about = f"the last {rows:,} rows of {series} series, forecast by weights that had not seen them"
    if later:
        about += f" (the last {later:,} of {settings.steps:,} steps trained on them, too)"
    return marks.card(settings.name, about)


class HeldBack(NamedTuple):
    """Series with rows that were held back, and what the rows before told of them."""

    panel: Panel
    series: Series
    origins: Ints  # (window, series) places of the cutoffs in their series; -1 for none
    learned: LearnedSeries


def judge_held(engine: NetworkEngine, freq: Frequency, cases: Sequence[HeldBack], retrained: bool) -> Scorecard | None:
    """The scorecard of weights on rows held back. `retrained`: those of the model have seen these rows since."""
    settings = engine.settings
    marks = Marks(season_of(settings, freq), [LEVEL])
    for case in cases:
        folds = forecast_held(engine, case.learned, case.series, case.origins, quantiles_of([LEVEL]))
        collections.deque(marks.add(case.panel, folds), maxlen=0)
    about = f"{marks.forecasts:,} forecasts of {marks.series:,} series, of rows that were held back"
    return marks.card(settings.name, about + (" (the final weights were tuned on them, too)" if retrained else ""))


def _judge_part(engine: NetworkEngine, part: Whole, marks: Marks, rows: int, chosen: Bools) -> None:
    panel, h = part.panel, engine.h
    cutoffs = possible_cutoffs(panel, h, -(-rows // h), h)
    cutoffs[:, ~chosen] = -1
    counted = np.arange(len(panel.y)) >= np.repeat(panel.starts + panel.lengths - rows, panel.lengths)
    folds = rolling(engine, part.rows, part.static, cutoffs, quantiles_of([LEVEL]))
    collections.deque(marks.add(panel, folds, counted), maxlen=0)


class Marks:
    """Collects folds of one or several panels, and scores them and seasonal naive on the same rows."""

    def __init__(self, season: int, level: Sequence[float]) -> None:
        self._season, self._level = season, list(level)
        self._ours: list[Judged] = []
        self._naive: list[Judged] = []
        self._units: list[Floats] = []
        self._seasonal = False
        self.series = 0  # with a forecast

    def add(self, panel: Panel, folds: Iterable[Fold], counted: Bools | None = None) -> Iterator[Fold]:
        """Note the folds of a panel as they pass; with `counted` only the rows where it is true."""
        naive = SeasonalNaive(panel, self._season)
        seen = np.zeros(len(panel.ids), bool)
        for fold in folds:
            y = panel.y[fold.future]
            if counted is not None:
                y = np.where(counted[fold.future], y, np.nan)
            median, *ends = fold.forecast.quantiles.numpy().astype(np.float64)
            intervals = {level: (ends[2 * i], ends[2 * i + 1]) for i, level in enumerate(self._level)}
            self._ours.append(Judged(y, fold.forecast.mean.numpy().astype(np.float64), median, intervals))
            other = naive.forecast(fold.cutoff, y.shape[1])
            halves = {level: NormalDist().inv_cdf(0.5 + level / 200) * other.spread for level in self._level}
            around = {level: (other.point - half, other.point + half) for level, half in halves.items()}
            self._naive.append(Judged(y, other.point, other.point, around))
            self._units.append(other.unit)
            self._seasonal = self._seasonal or naive.seasonal(fold.cutoff)
            self.series += int((~seen[fold.series]).sum())
            seen[fold.series] = True
            yield fold

    @property
    def forecasts(self) -> int:
        """Forecasts of all series together."""
        return sum(len(judged.y) for judged in self._ours)

    def card(self, name: str, about: str) -> Scorecard | None:
        """The scorecard; None if no actual value was forecast."""
        if not any((~np.isnan(judged.y)).any() for judged in self._ours):
            return None
        units = np.concatenate(self._units)

        def marks(parts: list[Judged]) -> dict[str, float]:
            levels = {
                level: (
                    np.concatenate([p.intervals[level][0] for p in parts]),
                    np.concatenate([p.intervals[level][1] for p in parts]),
                )
                for level in self._level
            }
            y, mean, median = (np.concatenate(part) for part in zip(*(p[:3] for p in parts), strict=True))
            scores = pooled(Judged(y, mean, median, levels))
            return {"nd": scores.pop("nd"), "mase": mase(y, median, units), **scores}

        season = self._season if self._seasonal else 1
        return Scorecard(name, about, season, self.series, self.forecasts, marks(self._ours), marks(self._naive))


class Backtest(NamedTuple):
    """Forecasts from rolling cutoffs beside the actual values, and their scores beside those of seasonal naive."""

    forecasts: Any
    scorecard: Scorecard | None  # None if no actual value was forecast


class BacktestPlan(NamedTuple):
    """Where a backtest forecasts from, and how."""

    n_windows: int
    step_size: int
    level: Sequence[float] | None
    adapt: bool
    allow_jump: bool


def run_backtest(trained: Trained, df: Any, static_df: Any, plan: BacktestPlan, names: Names) -> Backtest:
    """Forecasts from rolling cutoffs by states that start empty and replay `df`. Result columns have these names."""
    trained = trained.suited(df, static_df, trained.runtime.h + plan.step_size * (plan.n_windows - 1))
    runtime = trained.runtime
    # Long gaps are shortened only before the first possible cutoff.
    panel = runtime.read_history(df, runtime.h + plan.step_size * plan.n_windows, plan.allow_jump)
    cutoffs = cutoff_rows(panel, runtime.h, plan.n_windows, plan.step_size)
    folds = runtime.rolling(panel, cutoffs, plan.level, plan.adapt, static_df)
    warn_short(panel, cutoffs)
    inside = warn_cutoffs(trained, panel, cutoffs)
    columns, card = score_folds(runtime, panel, folds, plan.level, seen=inside)
    warn_losing(card)
    return Backtest(FrameStyle.of(df, runtime.style).called(names).build(columns), card)


def score_folds(
    runtime: ForecastRuntime, panel: Panel, folds: Iterable[Fold], level: Sequence[float] | None, seen: bool
) -> tuple[dict[str, Any], Scorecard | None]:
    """The columns of a backtest, sorted by series, cutoff and time, and its scorecard.

    `seen` tells whether training has seen some of the rows.
    """
    h, marks = runtime.h, Marks(season_of(runtime.settings, runtime.freq), percentages(level))
    frames = [
        {
            "unique_id": np.repeat(panel.ids[fold.series].to_numpy(), h),
            "ds": panel.ds[fold.future].ravel(),
            "cutoff": np.repeat(panel.ds[fold.cutoff], h),
            "y": panel.y[fold.future].ravel(),
            **runtime.forecast_columns(fold.forecast, level),
        }
        for fold in marks.add(panel, folds)
    ]
    columns = {k: np.concatenate([f[k] for f in frames]) for k in frames[0]}
    order = np.lexsort((columns["ds"], columns["cutoff"], pd.factorize(columns["unique_id"], sort=True)[0]))
    rows = "some of them rows that training has seen" if seen else "rows that training has not seen"
    about = f"{marks.forecasts:,} forecasts of {marks.series:,} series, {rows}"
    return {k: v[order] for k, v in columns.items()}, marks.card(runtime.settings.name, about)


def warn_losing(card: Scorecard | None) -> None:
    """Warn about forecasts that are worse than seasonal naive."""
    if card is not None and card.loses:
        warn(card.warning)


def warn_short(panel: Panel, cutoffs: Ints) -> None:
    """Warn about series that are too short for all cutoffs: scores then cover only a part of the series."""
    windows = (cutoffs >= 0).sum(0)
    short, none = np.flatnonzero(windows < len(cutoffs)), int((windows == 0).sum())
    if len(short):
        warn(
            f"{len(short)} of {len(panel.ids)} series are too short for {len(cutoffs)} windows: "
            f"{listing(list(panel.ids[short]))}. They are scored on the windows that they have"
            + (f", {none} of them with none" if none else "")
            + ". Use fewer windows, or more history.",
        )


def warn_cutoffs(trained: Trained, panel: Panel, cutoffs: Ints) -> bool:
    """Warn about cutoffs inside the training data, where scores are too good. Return whether there are any."""
    at = trained.ids.get_indexer(panel.ids)
    until = np.append(trained.until, np.iinfo(np.int64).min)[at]  # the last one where a series is new
    first = np.where(cutoffs >= 0, panel.ds[cutoffs], np.iinfo(np.int64).max).min(0)
    inside = np.flatnonzero(first < until)
    if len(inside):
        warn(
            f"{len(inside)} series have cutoffs inside the training data: "
            f"{name_rows(panel.ids[inside], first[inside], panel.clock)}. These scores are too good; "
            "evaluate on later rows.",
        )
    return len(inside) > 0
