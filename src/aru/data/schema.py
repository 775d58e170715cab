"""What training learned about the columns: ranges, vocabularies, calendar, lags, typical size of the target.

A `Schema` turns any later panel into the same tensors, so training, backtest and streaming see one encoding.
Code 0 of every categorical column means "unknown": a missing value, or one that training never saw. Bools are the same
in every spelling. Numbers are rescaled to [0, 1] by their training range; each has a second column that says whether it
is missing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from aru.data.clock import Clock, Times
from aru.data.columns import Categories, Column, Floats, Ints
from aru.data.covariates import CategoryColumn, Factor, Group, NumberColumn, Regressor
from aru.data.frequency import Frequency
from aru.data.panel import Panel
from aru.data.rows import Rows, Static
from aru.data.target import Support
from aru.errors import SHOWN, ColumnError, Offending, listing, name_series, quoted, warn
from aru.settings import Settings

ENOUGH_CYCLES = 1.75  # cycles that the data must cover before a season or calendar feature is used
LONGEST_SEASON = 1000  # rows; longer lags would make the state of a series too large
MANY_ZEROS = 0.2  # share of zeros from which counts are modelled as counts
TRUTHS = {"true": "true", "1": "true", "1.0": "true", "false": "false", "0": "false", "0.0": "false"}


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
    country: str | None = None  # whose holidays are among them

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
            held=torch.zeros(len(observed), dtype=torch.bool),
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
            return tuple(
                CategoryColumn(**{**c, "values": tuple(c["values"]), "shares": tuple(c["shares"])}) for c in items
            )

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
