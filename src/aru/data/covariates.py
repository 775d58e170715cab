"""Covariates: how their columns are encoded, and the regressors that are made of them."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from aru.data.clock import Times
from aru.data.columns import Categories, Floats, Ints
from aru.data.frequency import CODES, calendar_codes
from aru.errors import listing, quoted

FARTHEST = 20.0  # units from the middle, beyond which a number counts as that far
HOLIDAY = "holiday"  # as people read it, and the beginning of the kinds of factors
OUTSIDE = 1.0  # how far a number may leave its training range, in units of the range, before it is cut off
_WHOLE_NUMBER = re.compile(r"(-?\d+)(?:\.0)?")


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """A numeric covariate and its range in training. With `middle` it is rescaled around that, not into its range."""

    name: str
    low: float
    high: float
    middle: float | None = None
    unit: float = 1.0
    two_values: bool = False  # it takes its lowest and its highest value alone

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
        low, high = (self.low, self.high) if self.middle is None else self._range
        return (values - low) / ((high - low) or 1.0)


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
    shares: tuple[float, ...] = ()  # of a static covariate: how many series have the second value, the third, ...

    @functools.cached_property
    def boolean(self) -> bool:
        """Whether training saw bools, which frames and files spell as True, true or 1."""
        words = {value.casefold() for value in self.values}
        return (
            not self.levels
            and self.name != "unique_id"
            and 0 < len(words) == len(self.values)
            and words <= {"true", "false"}
        )

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
    holiday                 1 on the holiday `level`, or on all of them without one, else 0
    holiday_eve, holiday_next          1 on the day before or after a holiday that is none itself, else 0
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
    stays: int = 0  # from so many values of a series on it is left in them, as the network knows this season; 0: none

    @property
    def name(self) -> str:
        """As people read it."""
        return " x ".join(f"{f.column or f.kind}{f.level and '='}{f.level}" for f in self.factors)

    @property
    def column(self) -> str:
        """The covariate that it is made of; empty for the calendar, but for holidays."""
        names = (f.column or (HOLIDAY if f.kind.startswith(HOLIDAY) else "") for f in self.factors)
        return next(filter(None, names), "")


Group = tuple[tuple[NumberColumn, ...], tuple[CategoryColumn, ...]]


def whole_number(value: str) -> str:
    """The whole number in a text such as 1 or 1.0; empty for any other text."""
    match = _WHOLE_NUMBER.fullmatch(value)
    return match[1] if match else ""
