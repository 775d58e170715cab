"""What training learned about the columns: ranges, vocabularies, calendar, lags, typical size of the target.

A `Schema` turns any later panel into the same tensors, so training, backtest and streaming see one encoding.
Code 0 of every categorical column means "unknown": a missing value, or one that training never saw. Bools are the same
in every spelling. Numbers are rescaled to [0, 1] by their training range; each has a second column that says whether it
is missing.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from aru.data.clock import Clock, Times
from aru.data.columns import Categories, Column, Floats, Ints
from aru.data.frequency import CODES, Frequency, calendar_codes
from aru.data.panel import Panel
from aru.data.rows import Rows, Static
from aru.data.target import Support
from aru.errors import SHOWN, ColumnError, Offending, listing, name_series, quoted, warn
from aru.settings import Settings

FARTHEST = 20.0  # units from the middle, beyond which a number counts as that far
OUTSIDE = 1.0  # how far a number may leave its training range, in units of the range, before it is cut off
ENOUGH_CYCLES = 1.75  # cycles that the data must cover before a season or calendar feature is used
LONGEST_SEASON = 1000  # rows; longer lags would make the state of a series too large
MANY_ZEROS = 0.2  # share of zeros from which counts are modelled as counts
_WHOLE_NUMBER = re.compile(r"(-?\d+)(?:\.0)?")
TRUTHS = {"true": "true", "1": "true", "1.0": "true", "false": "false", "0": "false", "0.0": "false"}


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """A numeric covariate and its range in training. With `middle` it is rescaled around that, not into its range."""

    name: str
    low: float
    high: float
    middle: float | None = None
    unit: float = 1.0

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest encoded value, around the middle."""
        return tuple(np.clip((end - (self.middle or 0.0)) / self.unit, -FARTHEST, FARTHEST) for end in self._range)

    @property
    def _range(self) -> tuple[float, float]:
        """That of training; some room where training saw only one value."""
        return (self.low, self.high) if self.low < self.high else (self.low - self.unit, self.high + self.unit)

    def encode(self, values: Floats) -> Floats:
        """Two columns: the rescaled value (0 where missing) and whether it is missing."""
        missing = np.isnan(values)
        if self.middle is None:
            scaled = self._rescale(values).clip(-OUTSIDE, 1 + OUTSIDE)
        else:
            scaled = ((values - self.middle) / self.unit).clip(*self.ends)
        return np.stack([np.where(missing, 0.0, scaled), missing.astype(np.float64)], -1)

    def unlike(self, values: Floats) -> str:
        """What is unlike training in these values, for a warning; empty if nothing is."""
        scaled = self._rescale(values)
        far = (scaled < -OUTSIDE) | (scaled > 1 + OUTSIDE)
        if not far.any():
            return ""
        share = f"{far.sum()} of {(~np.isnan(values)).sum()} rows"
        examples = listing([f"{value:g}" for value in dict.fromkeys(values[far].tolist())], 3)
        return f"{quoted(self.name)} lies far outside of {self.low:g} to {self.high:g} in {share} ({examples})"

    def _rescale(self, values: Floats) -> Floats:
        return (values - self.low) / ((self.high - self.low) or 1.0)


@dataclasses.dataclass(frozen=True)
class CategoryColumn:
    """A categorical covariate and the values that training saw; value i has code i + 1.

    With `levels` it is a column of numbers that takes few values: `values` are they, and `missing` is the code of a
    missing number.
    """

    name: str
    values: tuple[str, ...]
    levels: bool = False
    missing: int = 0

    @functools.cached_property
    def boolean(self) -> bool:
        """Whether training saw bools, which frames and files spell as True, true or 1."""
        words = {value.casefold() for value in self.values}
        return not self.levels and self.name != "unique_id" and 0 < len(words) == len(self.values) and words <= {"true", "false"}

    def encode(self, column: Categories) -> Ints:
        """Codes in training's vocabulary, 0 for anything else. 1 and 1.0 are the same, unless training had both."""
        known = [self._known.get(value, self._numbers.get(whole_number(value), 0)) for value in column.values]
        return np.array([*known, 0])[column.codes]

    def encode_numbers(self, values: Floats) -> Ints:
        """The same of numbers that take few values."""
        found, where = np.unique(values, return_inverse=True)
        known = {float(value): i + 1 for i, value in enumerate(self.values)}
        codes = [self.missing if np.isnan(value) else known.get(value, 0) for value in found.tolist()]
        return np.array(codes, np.int64)[where]

    def unlike(self, column: Categories) -> str:
        """What is unlike training in this column, for a warning; empty if nothing is. New series are no surprise."""
        if self.name == "unique_id":
            return ""
        new = np.flatnonzero((self.encode(column) == 0) & (column.codes >= 0))
        if len(new) == 0:
            return ""
        examples = listing([repr(column.values[code]) for code in dict.fromkeys(column.codes[new].tolist())], 3)
        share = f"{len(new)} of {(column.codes >= 0).sum()} rows"
        return f"{quoted(self.name)} has categories that training never saw in {share} ({examples})"

    def encode_calendar(self, ds: Times) -> Ints:
        """Codes of the calendar feature of this name."""
        return self._table[calendar_codes(self.name, ds)]

    @functools.cached_property
    def _known(self) -> Mapping[str, int]:
        return {value.casefold() if self.boolean else value: i + 1 for i, value in enumerate(self.values)}

    @functools.cached_property
    def _numbers(self) -> Mapping[str, int]:
        """Codes by whole number, if it is unique: 1 may come back as 1.0, since pandas stores gaps as floats."""
        numbers = [whole_number(value) for value in self.values] if self.name != "unique_id" else []
        often = Counter(numbers)
        return {number: i + 1 for i, number in enumerate(numbers) if number and often[number] == 1}

    @functools.cached_property
    def _table(self) -> Ints:
        """The code in training's vocabulary of each value that a calendar feature can have."""
        table = np.zeros(CODES, np.int64)
        table[[int(v) for v in self.values]] = np.arange(len(self.values)) + 1
        return table


class Factor(NamedTuple):
    """What a regressor is made of: a covariate or a part of the calendar (`aru.pretrained.regressors`).

        number   the rescaled number in `column`; with a `level`, its moving average with that half-life in rows
        level    1 where `column` has the value `level`, else 0
        others   1 where `column` has a value that is no level of its own, else 0
        weekday, hour, month    1 where the time is in `level`, else 0
        weekend                 1 on Saturdays and Sundays, else 0
        day_wave, month_wave, year_wave    sine ("sin 2") or cosine of the share of the cycle that has passed
    """

    kind: str
    column: str = ""
    level: str = ""


@dataclasses.dataclass(frozen=True)
class Regressor:
    """A column of a regression: a factor, or the product of two, less `middle`, in units of `unit`."""

    factors: tuple[Factor, ...]
    middle: float = 0.0
    unit: float = 1.0
    stays: bool = False  # fitted beside the others, but left in the values, because the network knows this season

    @property
    def name(self) -> str:
        """As people read it."""
        return " x ".join(f"{f.column or f.kind}{f.level and '='}{f.level}" for f in self.factors)


Group = tuple[tuple[NumberColumn, ...], tuple[CategoryColumn, ...]]
NameRows = Callable[[Ints], Offending]  # from row numbers to series and times


@dataclasses.dataclass(frozen=True)
class Schema:
    """What training learned about the data, which a model needs in addition to its weights."""

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
    zone: str | None  # whose calendar counts; None: times are kept as its clocks show them, or have none
    jump: int  # how far beyond the newest time of all series a new row may lie (`aru.data.jumps`)
    scale_prior: float | None = None  # what `scaler="auto"` found (`aru.nn.windows.Scaling`)
    regressors: tuple[Regressor, ...] = ()  # of a pretrained model with covariates

    @property
    def clock(self) -> Clock | None:
        """How timestamps are kept; None for integers."""
        return Clock(self.zone) if self.datetime else None

    @property
    def support(self) -> Support:
        """The values of y to which forecasts are restricted."""
        return Support(self.nonnegative, self.integer)

    @property
    def history(self) -> int:
        """How many past values a forecast reads: the context, and the longest lag before it."""
        return self.input_size + max(self.lags, default=0)

    def encode(self, panel: Panel) -> Rows:
        """Encode the rows of a panel."""
        odd: list[str] = []
        futr, futr_cat = self._encode_known(panel.ds, panel.columns, panel.name_rows, odd)
        hist, hist_cat = _encode_group(self.hist, panel.columns, len(panel.ds), panel.name_rows, odd)
        _warn_odd(odd)
        observed = panel.observed
        return Rows(
            ds=torch.from_numpy(panel.ds),
            y=torch.from_numpy(np.where(observed, panel.y, 0.0)),
            observed=torch.from_numpy(observed),
            futr=futr,
            futr_cat=futr_cat,
            hist=hist,
            hist_cat=hist_cat,
        )

    def encode_ahead(self, ds: Times, columns: Mapping[str, Column], name_rows: NameRows) -> Rows:
        """Encode (series, h) future rows. `columns` holds their known covariates, one series after the other."""
        odd: list[str] = []
        futr, futr_cat = self._encode_known(ds.ravel(), columns, name_rows, odd)
        _warn_odd(odd)
        futr, futr_cat = (v.reshape(*ds.shape, v.shape[-1]) for v in (futr, futr_cat))
        return Rows.known_ahead(torch.from_numpy(ds), futr, futr_cat, len(self.hist[0]), len(self.hist[1]))

    def _encode_known(
        self, ds: Times, columns: Mapping[str, Column], name_rows: NameRows, odd: list[str]
    ) -> tuple[Tensor, Tensor]:
        """Encode known-future covariates and the calendar."""
        futr, futr_cat = _encode_group(self.futr, columns, len(ds), name_rows, odd)
        if not self.calendar:
            return futr, futr_cat
        ds = Clock(self.zone).local(ds)
        calendar = np.stack([c.encode_calendar(ds) for c in self.calendar], -1)
        codes = torch.from_numpy(calendar.astype(np.int32))
        return futr, torch.cat([futr_cat, codes], -1) if futr_cat.shape[-1] else codes

    def encode_static(self, columns: Mapping[str, Column], ids: pd.Index[Any]) -> Static:
        """Encode static covariates, and with `series_id` the id of the series."""
        if any(c.name == "unique_id" for c in self.stat[1]):
            columns = {**columns, "unique_id": id_column(ids)}
        odd: list[str] = []
        static = Static(*_encode_group(self.stat, columns, len(ids), lambda rows: name_series(ids[rows]), odd))
        _warn_odd(odd)
        return static

    @functools.cached_property
    def no_rows(self) -> Rows:
        """Zero rows: the type and the width of every field."""
        columns = {c.name: np.zeros(0) for group in (self.futr, self.hist) for part in group for c in part}
        none = np.zeros(0, np.int64)
        panel = Panel(pd.Index([]), none, none, none, np.zeros(0), columns, np.zeros(0, bool), none, self.clock)
        return self.encode(panel)

    def no_static(self) -> Static:
        """Static covariates of zero series."""
        numbers, categories = self.stat
        return Static(torch.zeros(0, 2 * len(numbers)), torch.zeros(0, len(categories), dtype=torch.int32))

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Schema:
        """The inverse of `to_json`."""

        def categories(items: Sequence[Mapping[str, Any]]) -> tuple[CategoryColumn, ...]:
            return tuple(CategoryColumn(**{**c, "values": tuple(c["values"])}) for c in items)

        def group(pair: Sequence[Any]) -> Group:
            return tuple(NumberColumn(**c) for c in pair[0]), categories(pair[1])

        changed = {
            "lags": tuple(values["lags"]),
            "calendar": categories(values["calendar"]),
            **{name: group(values[name]) for name in ("futr", "hist", "stat")},
            "regressors": tuple(
                Regressor(**{**r, "factors": tuple(Factor(*f) for f in r["factors"])}) for r in values["regressors"]
            ),
        }
        return cls(**{**values, **changed})


def context_length(settings: Settings, freq: Frequency) -> int:
    """`input_size`, or the longest of: the horizon, seasons of at most four horizons, `season_length` plus stride."""
    seasons = [season for season in freq.seasons() if season <= 4 * settings.h]
    if settings.season_length:
        seasons.append(settings.season_length + settings.window_stride)
    return settings.input_size or max([settings.h, *seasons])


def choose_lags(settings: Settings, freq: Frequency, rows: int) -> tuple[int, ...]:
    """The lags of the settings; with "auto", of each season the smallest multiple that is at least the horizon.

    Seasons above LONGEST_SEASON are left out, and lags that training could hardly learn from: `rows` is the length of
    the longest training series. There may be none.
    """
    if settings.lags != "auto":
        return tuple(settings.lags or ())
    seasons = [season for season in freq.seasons() if season <= LONGEST_SEASON]
    lags = {season * -(-settings.h // season) for season in seasons}
    return tuple(sorted(lag for lag in lags if ENOUGH_CYCLES * lag <= rows))


def choose_distribution(settings: Settings, counts: bool, zeros: float) -> str:
    """Student-t, or the negative binomial for non-negative integers with a large share of zeros."""
    if settings.distribution != "auto":
        return settings.distribution
    return "negative-binomial" if counts and not settings.transform and zeros > MANY_ZEROS else "student-t"


def whole_number(value: str) -> str:
    """The whole number in a text such as 1 or 1.0; empty for any other text."""
    match = _WHOLE_NUMBER.fullmatch(value)
    return match[1] if match else ""


def _encode_group(
    group: Group, columns: Mapping[str, Column], n: int, name_rows: NameRows, odd: list[str]
) -> tuple[Tensor, Tensor]:
    """Encode columns, and add to `odd` what in them is unlike training."""
    numbers, categories = group
    values = np.zeros((n, 2 * len(numbers)), np.float32)
    for i, number in enumerate(numbers):
        column = columns[number.name]
        if isinstance(column, Categories):
            column = _read_numbers(number, column, name_rows)
        values[:, 2 * i : 2 * i + 2] = number.encode(column)
        odd.append(number.unlike(column))
    codes = np.zeros((n, len(categories)), np.int32)
    for i, category in enumerate(categories):
        column = columns[category.name]
        if category.levels:
            if isinstance(column, Categories):
                known = [float(value) for value in category.values]
                column = _read_numbers(NumberColumn(category.name, min(known), max(known)), column, name_rows)
            codes[:, i] = category.encode_numbers(column)
            continue
        if category.boolean:
            column = _read_truths(category.name, column, name_rows)
        if isinstance(column, Categories):
            codes[:, i] = category.encode(column)
            odd.append(category.unlike(column))
        elif not np.isnan(column).all():  # a column without any value is all "unknown"
            _refuse_numbers(category.name, column, name_rows)
    return torch.from_numpy(values), torch.from_numpy(codes)


def _warn_odd(odd: Sequence[str]) -> None:
    """One warning about all covariates that are unlike those of training."""
    if any(odd):
        warn(
            f"Covariates are unlike those of training: {'; '.join(filter(None, odd))}. Unknown categories count as "
            "missing, and numbers are cut off.",
        )


def _read_numbers(number: NumberColumn, column: Categories, name_rows: NameRows) -> Floats:
    """Text as numbers: bools if training had 0 and 1, NaN for an empty column. Other text is refused."""
    words = [TRUTHS.get(value.strip().casefold(), "") for value in column.values]
    if number.low in (0, 1) and number.high in (0, 1) and all(words):
        return np.array([*(float(word == "true") for word in words), np.nan])[column.codes]
    known = np.flatnonzero(column.codes >= 0)
    if len(known) == 0:
        return np.full(len(column.codes), np.nan)
    text = np.array([*pd.to_numeric(pd.Series(column.values, dtype=object), errors="coerce").isna(), False])
    wrong = known[text[column.codes[known]]]
    rows = wrong if len(wrong) else known  # if all are numbers written as text, report every row
    cells = _cells(rows, lambda row: quoted(column.values[column.codes[row]]), name_rows)
    raise ColumnError(
        f"Column {quoted(number.name)} was numeric in training and holds text or bools now: {cells}",
        "Convert it to numbers, as in training; leave missing values empty.",
        columns=[number.name],
        rows=name_rows(rows),
    )


def _refuse_numbers(name: str, column: Floats, name_rows: NameRows) -> None:
    rows = np.flatnonzero(~np.isnan(column))
    cells = _cells(rows, lambda row: f"{column[row]:g}", name_rows)
    raise ColumnError(
        f"Column {quoted(name)} was categorical in training and is numeric now: {cells}",
        "Convert it to text or categories, spelled as in training.",
        columns=[name],
        rows=name_rows(rows),
    )


def _cells(rows: Ints, value: Callable[[int], str], name_rows: NameRows) -> str:
    """The first few of these rows with their values, as text."""
    head = ", ".join(f"{value(row)} at {name_rows(rows[i : i + 1])}" for i, row in enumerate(rows[:SHOWN]))
    return head + (f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else "")


def _read_truths(name: str, column: Column, name_rows: NameRows) -> Categories:
    """Bools as "true" and "false", from bools, text or numbers."""
    if not isinstance(column, Categories):
        codes, numbers = pd.factorize(column)
        column = Categories(codes, tuple(map(str, numbers.tolist())))
    words = tuple(TRUTHS.get(value.strip().casefold(), "") for value in column.values)
    wrong = np.flatnonzero(np.array([*(not word for word in words), False])[column.codes])
    if len(wrong):
        values = [repr(value) for value, word in zip(column.values, words, strict=True) if not word]
        rows = name_rows(wrong)
        raise ColumnError(
            f"Column {quoted(name)} was true or false in training and is {listing(values)} now, at {rows}",
            "Write true or false; leave missing values empty.",
            columns=[name],
            rows=rows,
        )
    return Categories(column.codes, words)


def id_column(ids: pd.Index[Any]) -> Categories:
    """The names of series as a covariate."""
    return Categories(np.arange(len(ids)), tuple(str(i) for i in ids))
