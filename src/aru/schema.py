"""What training learned about the columns: ranges, vocabularies, calendar, lags, typical size of the target.

A `Schema` turns any later panel into the same tensors, so training, backtest and streaming see one encoding.
Code 0 of every categorical column means "unknown": a missing value, or one that training never saw. Numbers
are rescaled to [0, 1] by training's range and followed by an indicator of missingness.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from aru.columns import Bools, Categories, Column, Floats, Ints
from aru.errors import ColumnError, ConfigError, ValueRangeError
from aru.frequency import CYCLES, DAY, Frequency, Times, calendar_codes, calendar_features
from aru.panel import Panel
from aru.settings import Settings

OUTSIDE = 1.0  # how far a number may leave its training range, in units of the range, before it is cut off
ENOUGH_CYCLES = 1.75  # of a calendar feature, before it is a pattern and not just the date
MANY_ZEROS = 0.2  # share of zeros from which counts are modelled as counts


class Rows(NamedTuple):
    """Encoded rows of all series, one after the other. A missing y is 0 with `observed` false."""

    ds: Tensor  # (row,) int64
    y: Tensor  # (row,) float64
    observed: Tensor  # (row,) bool
    futr: Tensor  # (row, 2 * numbers) float32
    futr_cat: Tensor  # (row, columns) int64
    hist: Tensor
    hist_cat: Tensor


class Static(NamedTuple):
    """Encoded static covariates of each series."""

    numbers: Tensor  # (series, 2 * numbers) float32
    categories: Tensor  # (series, columns) int64


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """A numeric covariate and its range in training."""

    name: str
    low: float
    high: float

    def encode(self, values: Floats) -> Floats:
        """Two columns: the rescaled value (0 where missing) and whether it is missing."""
        missing = np.isnan(values)
        scaled = (values - self.low) / ((self.high - self.low) or 1.0)
        scaled = np.where(missing, 0.0, scaled.clip(-OUTSIDE, 1 + OUTSIDE))
        return np.stack([scaled, missing.astype(np.float64)], -1)


@dataclasses.dataclass(frozen=True)
class CategoryColumn:
    """A categorical covariate and the values that training saw; value i has code i + 1."""

    name: str
    values: tuple[str, ...]

    def encode(self, column: Categories) -> Ints:
        """Codes in training's vocabulary, 0 for anything else."""
        table = pd.Index(self.values, dtype=object).get_indexer(pd.Index(column.values, dtype=object)) + 1
        return np.append(table, 0)[column.codes]


Group = tuple[tuple[NumberColumn, ...], tuple[CategoryColumn, ...]]


@dataclasses.dataclass(frozen=True)
class Schema:
    """Everything about the data that a model needs to know besides its weights."""

    input_size: int
    lags: tuple[int, ...]
    distribution: str
    datetime: bool
    integer_ids: bool
    nonnegative: bool
    integer: bool
    unit: float
    typical_scale: float
    calendar: tuple[CategoryColumn, ...]
    futr: Group
    hist: Group
    stat: Group

    @property
    def history(self) -> int:
        """How many past values a forecast can see: the context, and the longest lag of each of its rows."""
        return self.input_size + max(self.lags, default=0)

    def encode(self, panel: Panel, columns: Mapping[str, Column] | None = None) -> Rows:
        """Encode the rows of a panel."""
        columns = panel.columns if columns is None else columns
        n = len(panel.ds)
        futr, futr_cat = _encode_group(self.futr, columns, n)
        hist, hist_cat = _encode_group(self.hist, columns, n)
        calendar = [_calendar_column(c, panel.ds) for c in self.calendar]
        if calendar:
            futr_cat = torch.cat([futr_cat, torch.from_numpy(np.stack(calendar, -1))], -1)
        return Rows(
            ds=torch.from_numpy(panel.ds),
            y=torch.from_numpy(np.where(panel.observed, panel.y, 0.0)),
            observed=torch.from_numpy(panel.observed),
            futr=futr,
            futr_cat=futr_cat,
            hist=hist,
            hist_cat=hist_cat,
        )

    def encode_static(self, columns: Mapping[str, Column], ids: pd.Index[Any]) -> Static:
        """Encode static covariates, and the series' own identity where it is an input."""
        if any(c.name == "unique_id" for c in self.stat[1]):
            columns = {**columns, "unique_id": _id_column(ids)}
        return Static(*_encode_group(self.stat, columns, len(ids)))

    def no_static(self) -> Static:
        """The static covariates of no series at all."""
        numbers, categories = self.stat
        return Static(torch.zeros(0, 2 * len(numbers)), torch.zeros(0, len(categories), dtype=torch.int64))

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Schema:
        """The inverse of `to_json`."""

        def categories(items: Sequence[Mapping[str, Any]]) -> tuple[CategoryColumn, ...]:
            return tuple(CategoryColumn(c["name"], tuple(c["values"])) for c in items)

        def group(pair: Sequence[Any]) -> Group:
            return tuple(NumberColumn(**c) for c in pair[0]), categories(pair[1])

        changed = {
            "lags": tuple(values["lags"]),
            "calendar": categories(values["calendar"]),
            **{name: group(values[name]) for name in ("futr", "hist", "stat")},
        }
        return cls(**{**values, **changed})


def learn_schema(
    panel: Panel, static: Mapping[str, Column], settings: Settings, freq: Frequency, train: Bools
) -> Schema:
    """Learn from the rows where `train` is true; the others (validation) only have to be encodable."""
    y = panel.y[train & panel.observed]
    _check_target(panel, settings, train & panel.observed)
    level = np.abs(y)
    # The paper's scale is 1 + mean|y|. Data measured in small units (rates, shares) would hardly be scaled by
    # it, so the constant shrinks with them.
    unit = float(min(1.0, level.mean())) or 1.0
    stat = _learn_group(settings.stat_exog_list, static, slice(None))
    if settings.series_id:
        stat = (stat[0], (*stat[1], CategoryColumn("unique_id", _id_column(panel.ids).values)))
    return Schema(
        input_size=context_length(settings, freq),
        lags=choose_lags(settings, freq),
        distribution=choose_distribution(settings, y),
        datetime=panel.datetime,
        integer_ids=bool(pd.api.types.is_integer_dtype(panel.ids)),
        nonnegative=bool((y >= 0).all()),
        integer=bool((y == np.round(y)).all()),
        unit=unit,
        typical_scale=float(unit + np.median(level)),
        calendar=_learn_calendar(panel, train) if panel.datetime else (),
        futr=_learn_group(settings.futr_exog_list, panel.columns, train),
        hist=_learn_group(settings.hist_exog_list, panel.columns, train),
        stat=stat,
    )


def _check_target(panel: Panel, settings: Settings, known: Bools) -> None:
    """Refuse values that the chosen transform or distribution cannot take."""
    negative = np.flatnonzero(known & (panel.y < 0))
    if settings.transform == "log1p" and len(negative):
        raise ValueRangeError(
            f"transform='log1p' needs y >= 0, but it is negative at {panel.show(negative)}. Use transform='asinh'."
        )
    odd = np.flatnonzero(known & ~((panel.y >= 0) & (panel.y == np.round(panel.y))))
    if settings.distribution == "negative-binomial" and len(odd):
        raise ValueRangeError(
            f"The negative binomial needs counts (0, 1, 2, ...), but y is no count at {panel.show(odd)}. "
            "Use distribution='student-t'."
        )


def context_length(settings: Settings, freq: Frequency) -> int:
    """`input_size`, or the horizon, or a season that is not much longer than the horizon, or what `season` needs."""
    seasons = [season for season in freq.seasons() if season <= 4 * settings.h]
    if settings.season:
        seasons.append(settings.season + settings.window_stride)
    return settings.input_size or max([settings.h, *seasons])


def choose_lags(settings: Settings, freq: Frequency) -> tuple[int, ...]:
    """Lags as asked for, or with "auto" the first whole seasons that are not shorter than the horizon."""
    if settings.lags != "auto":
        return tuple(settings.lags or ())
    seasons = freq.seasons()
    if not seasons:
        raise ConfigError(f"lags='auto' knows no season for freq={settings.freq!r}: give the lags as numbers.")
    return tuple(sorted({season * -(-settings.h // season) for season in seasons}))


def choose_distribution(settings: Settings, y: Floats) -> str:
    """Student-t, or the negative binomial for non-negative integers with many zeros."""
    if settings.distribution != "auto":
        return settings.distribution
    counts = bool((y >= 0).all() and (y == np.round(y)).all())
    plain = settings.transform is None and settings.loss == "nll"
    return "negative-binomial" if counts and plain and (y == 0).mean() > MANY_ZEROS else "student-t"


def _encode_group(group: Group, columns: Mapping[str, Column], n: int) -> tuple[Tensor, Tensor]:
    numbers, categories = group
    values = np.zeros((n, 2 * len(numbers)), np.float32)
    for i, number in enumerate(numbers):
        column = columns[number.name]
        if isinstance(column, Categories):
            raise ColumnError(f"Column {number.name!r} was numeric in training and is not any more.")
        values[:, 2 * i : 2 * i + 2] = number.encode(column)
    codes = np.zeros((n, len(categories)), np.int64)
    for i, category in enumerate(categories):
        column = columns[category.name]
        if isinstance(column, Categories):
            codes[:, i] = category.encode(column)
        elif not np.isnan(column).all():  # a column without any value may be of any type: all unknown
            raise ColumnError(f"Column {category.name!r} was categorical in training and is numeric now.")
    return torch.from_numpy(values), torch.from_numpy(codes)


def _learn_group(names: Sequence[str], columns: Mapping[str, Column], train: Any) -> Group:
    numbers, categories = [], []
    for name in names:
        column = columns[name]
        if isinstance(column, Categories):
            seen = np.unique(column.codes[train])
            categories.append(CategoryColumn(name, tuple(column.values[c] for c in seen if c >= 0)))
        else:
            known = column[train]
            known = known[~np.isnan(known)]
            low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
            numbers.append(NumberColumn(name, low, high))
    return tuple(numbers), tuple(categories)


def _learn_calendar(panel: Panel, train: Bools) -> tuple[CategoryColumn, ...]:
    """Calendar features by the distance between rows; those whose values training saw about twice."""
    ds = panel.ds[train]
    gaps = np.diff(ds)[np.diff(panel.series[train]) == 0]
    step = int(np.median(gaps)) if len(gaps) else DAY
    span = int(ds.max() - ds.min())
    names = [f for f in calendar_features(step) if span >= ENOUGH_CYCLES * CYCLES[f]]
    return tuple(CategoryColumn(f, tuple(str(v) for v in np.unique(calendar_codes(f, ds)))) for f in names)


def _calendar_column(column: CategoryColumn, ds: Times) -> Ints:
    known = np.array([int(v) for v in column.values])
    codes = calendar_codes(column.name, ds)
    at = np.searchsorted(known, codes).clip(max=len(known) - 1)
    return np.where(known[at] == codes, at + 1, 0)


def _id_column(ids: pd.Index[Any]) -> Categories:
    return Categories(np.arange(len(ids)), tuple(str(i) for i in ids))
