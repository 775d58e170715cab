"""Learn a schema from training rows: all at once, or part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru.data.clock import Times
from aru.data.columns import Bools, Categories, Column, Floats, Ints
from aru.data.covariates import CategoryColumn, Group, NumberColumn
from aru.data.frequency import CYCLES, DAY, Frequency, calendar_codes, calendar_features
from aru.data.jumps import Timeline
from aru.data.panel import Panel
from aru.data.schema import ENOUGH_CYCLES, Schema, choose_distribution, choose_lags, context_length, id_column
from aru.data.target import ASKED, Support, broken, check_values, refusal, rules_of
from aru.errors import ColumnError, ValueRangeError, quoted
from aru.settings import Settings

PRIORS = (1.0, 4.0, 16.0, 64.0, 256.0, None)  # candidates of `Schema.scale_prior`
SAMPLE = 2**20  # about how many values the typical size of the target is estimated from


def learn_schema(
    panel: Panel, static: Mapping[str, Column], settings: Settings, freq: Frequency, train: Bools
) -> Schema:
    """Learn from the rows where `train` is true. The others, for validation, need only be valid."""
    learner = Learner(settings, freq)
    learner.add(panel, static, train)
    return learner.schema()


class Learner:
    """Learns a schema from one part of the data after the other, in constant memory."""

    def __init__(self, settings: Settings, freq: Frequency) -> None:
        self._settings, self._freq = settings, freq
        self._kinds: _Kinds | None = None
        self._count, self._zeros, self._total, self._longest = 0, 0, 0.0, 0
        self._support = Support(nonnegative=True, integer=True)
        self._no_counts: ValueRangeError | None = None  # raised if the negative binomial is chosen
        self._sizes = _Sample()
        self._scale = _Scale(settings.h, context_length(settings, freq)) if settings.network.scaler == "auto" else None
        self._groups = [_Group(names) for names in (settings.futr_exog_list, settings.hist_exog_list)]
        self._stat = _Group(settings.stat_exog_list)
        self._ids: list[str] = []

    def add(self, panel: Panel, static: Mapping[str, Column], train: Bools, early: Bools | None = None) -> None:
        """Learn from the rows of a part where `train` is true; the sizes of y only where `early` is, if it is given."""
        early = train if early is None else early
        kinds = _Kinds(panel.clock is not None, bool(pd.api.types.is_integer_dtype(panel.ids)))
        if self._kinds is None:
            self._kinds, self._calendar = kinds, _Calendar(panel, train) if panel.clock else None
            self.timeline = Timeline(self._freq, panel.clock)
        _check_alike(self._kinds, kinds)
        self.timeline.add_panel(panel)
        self._check_target(panel)
        self._support &= Support.of(panel.y[train & panel.observed])
        y = panel.y[early & panel.observed]
        level = np.abs(y)
        self._count, self._zeros, self._total = (
            self._count + len(y),
            self._zeros + int((y == 0).sum()),
            self._total + float(level.sum()),
        )
        self._longest = max(self._longest, int(np.bincount(panel.series[train], minlength=1).max()))
        self._sizes.add(level)
        if self._scale is not None:
            self._scale.add(panel, early)
        if self._calendar is not None:
            self._calendar.add(self._freq.clock.local(panel.ds[train]))
        for group in self._groups:
            group.add(panel.columns, train)
        self._stat.add(static, slice(None))
        if self._settings.network.series_id:
            self._ids += id_column(panel.ids).values

    def _check_target(self, panel: Panel) -> None:
        """Refuse values of y that the settings do not allow, also in validation rows."""
        check_values(panel, rules_of(self._settings, self._settings.distribution))
        if self._settings.distribution == "auto" and self._no_counts is None:
            _, rule = broken(rules_of(self._settings, "negative-binomial"), panel.y)
            self._no_counts = refusal(rule, panel) if rule else None

    def schema(self) -> Schema:
        """What was learned."""
        assert self._kinds is not None
        settings = self._settings
        support = ASKED.get(settings.support, self._support)
        distribution = choose_distribution(settings, all(support), self._zeros / self._count)
        if self._no_counts is not None and distribution == "negative-binomial":
            raise self._no_counts
        # The paper's scale is 1 + mean|y|. For data far below 1 (rates, shares) the constant 1 would dominate, so it
        # is at most the mean.
        unit = float(min(1.0, self._total / self._count)) or 1.0
        futr, hist = (group.columns() for group in self._groups)
        stat = self._stat.columns()
        if settings.network.series_id:
            stat = (stat[0], (*stat[1], CategoryColumn("unique_id", tuple(self._ids))))
        return Schema(
            input_size=context_length(settings, self._freq),
            lags=choose_lags(settings, self._freq, self._longest),
            distribution=distribution,
            datetime=self._kinds.datetime,
            integer_ids=self._kinds.integer_ids,
            nonnegative=support.nonnegative,
            integer=support.integer,
            unit=unit,
            typical_scale=float(unit + np.median(self._sizes.values())),
            calendar=() if self._calendar is None else self._calendar.columns(),
            futr=futr,
            hist=hist,
            stat=stat,
            jump=self.timeline.jump(),
            zone=self._freq.clock.zone if self._freq.clock.utc else None,
            scale_prior=None if self._scale is None or distribution == "negative-binomial" else self._scale.prior(),
        )


class _Sample:
    """A sample of values that come in parts: all of them, thinned out by 2, 4, 8, ... above SAMPLE values."""

    def __init__(self) -> None:
        self._parts: list[Floats] = []
        self._every = 1

    def add(self, values: Floats) -> None:
        self._parts.append(values[:: self._every])
        # A single part is in memory anyway, so only several parts are thinned out.
        while len(self._parts) > 1 and sum(map(len, self._parts)) > SAMPLE:
            self._parts = [part[::2] for part in self._parts]
            self._every *= 2

    def values(self) -> Floats:
        return np.concatenate(self._parts)


class _Scale:
    """Finds the best predictor of mean |y| over the next h rows: mean |y| of the context, of all values, or a mix."""

    def __init__(self, h: int, input_size: int) -> None:
        self._h, self._input_size = h, input_size
        self._errors = np.zeros(len(PRIORS))

    def add(self, panel: Panel, train: Bools) -> None:
        known, series = train & panel.observed, panel.series
        size = np.where(known, np.abs(panel.y), 0.0)
        totals, number = (np.bincount(series, x, len(panel.ids)) for x in (size, known))
        means = totals / np.maximum(number, 1)
        size /= np.where(means > 0, means, 1.0)[series]  # sums over series of different size would lose digits
        sums, counts = (np.concatenate([[0.0], np.cumsum(x)]) for x in (size, known))
        place = np.arange(len(size)) - panel.starts[series]
        left = panel.lengths[series] - place
        origin = np.flatnonzero((place >= self._input_size) & (place % self._h == 0) & (left >= self._h))
        first, context, end = origin - place[origin], origin - self._input_size, origin + self._h
        with np.errstate(divide="ignore", invalid="ignore"):  # windows without any value, or of zeros alone
            overall = (sums[origin] - sums[first]) / (counts[origin] - counts[first])
            truth = (sums[end] - sums[origin]) / (counts[end] - counts[origin])
        near, n = sums[origin] - sums[context], counts[origin] - counts[context]
        usable = (overall > 0) & (truth > 0)
        overall, truth, near, n = overall[usable], truth[usable], near[usable], n[usable]
        for i, prior in enumerate(PRIORS):
            guess = overall if prior is None else (near + prior * overall) / (n + prior)
            self._errors[i] += np.abs(np.log(truth / guess)).sum()

    def prior(self) -> float | None:
        """Weight of the overall mean in the best mix; None if the overall mean alone is as good."""
        best = int(self._errors.argmin())
        return PRIORS[best] if self._errors[best] < self._errors[-1] - 1e-6 else None  # more than rounding


class _Group:
    """Ranges of numbers and values of categories, by column."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._ranges: dict[str, list[float]] = {name: [] for name in names}
        self._values: dict[str, set[str]] = {}

    def add(self, columns: Mapping[str, Column], train: Any) -> None:
        for name in self._names:
            column = columns[name]
            if isinstance(column, Categories):
                seen = np.unique(column.codes[train])
                self._values.setdefault(name, set()).update(column.values[c] for c in seen if c >= 0)
            else:
                known = column[train]
                known = known[~np.isnan(known)]
                if len(known):
                    self._ranges[name] += [float(known.min()), float(known.max())]
            if name in self._values and self._ranges[name]:
                raise ColumnError(
                    f"Column {quoted(name)} holds numbers in some parts and text in others",
                    "Convert it.",
                    columns=[name],
                )

    def columns(self) -> Group:
        numbers = [(name, self._ranges[name] or [0.0, 1.0]) for name in self._names if name not in self._values]
        categories = [(name, sorted(self._values[name])) for name in self._names if name in self._values]
        return (
            tuple(NumberColumn(name, min(known), max(known)) for name, known in numbers),
            tuple(CategoryColumn(name, tuple(values)) for name, values in categories),
        )


class _Calendar:
    """Calendar features for the step between rows, of which the data cover at least ENOUGH_CYCLES cycles."""

    def __init__(self, panel: Panel, train: Bools) -> None:
        ds = panel.ds[train]
        gaps = np.diff(ds)[np.diff(panel.series[train]) == 0]
        step = int(np.median(gaps)) if len(gaps) else DAY
        self._codes: dict[str, Ints] = {feature: np.zeros(0, np.int64) for feature in calendar_features(step)}
        self._ends: list[int] = []

    def add(self, ds: Times) -> None:
        for feature, seen in self._codes.items():
            self._codes[feature] = np.union1d(seen, calendar_codes(feature, ds))
        self._ends += [int(ds.min()), int(ds.max())] if len(ds) else []

    def columns(self) -> tuple[CategoryColumn, ...]:
        span = max(self._ends) - min(self._ends)
        names = [f for f in self._codes if span >= ENOUGH_CYCLES * CYCLES[f]]
        return tuple(CategoryColumn(f, tuple(str(v) for v in self._codes[f])) for f in names)


class _Kinds(NamedTuple):
    """Types of the key columns."""

    datetime: bool
    integer_ids: bool


def _check_alike(first: _Kinds, part: _Kinds) -> None:
    for name, ours, theirs in zip(("ds", "unique_id"), first, part, strict=True):
        if ours != theirs:
            raise ColumnError(
                f"`{name}` has one type in some parts and another in others", "Convert the column.", columns=[name]
            )
