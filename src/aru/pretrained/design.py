"""Which regressors a panel has: found once, in the first rows, from covariates and frequency.

A covariate with two values is a flag: a number of its own, and with the weekday. Numbers with few values are read by
their levels, as categories are; other numbers have a linear effect. The calendar adds what a frequency suggests.
Seasons that the network is told stay in the values, once a series has shown them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aru.data.clock import Clock, Times
from aru.data.columns import Bools, Categories, Column, Floats, Ints
from aru.data.covariates import CategoryColumn, Factor, Group, NumberColumn, Regressor
from aru.data.frequency import DAY, Frequency
from aru.data.holiday_dates import names_of_year
from aru.data.panel import Panel
from aru.data.schema import Schema
from aru.pretrained.calendar_codes import HOLIDAYS
from aru.pretrained.regressors import Regressors
from aru.pretrained.seasons import told_by
from aru.settings import Settings

FEW_VALUES = 20  # values of a number that are read as levels
MAIN_VALUES, MOSTLY = 8, 0.95  # or so many values that make up this share of the rows
TIMES_SEEN = 4  # rows of a value in the mean: fewer say little about which values there are
RARE, FEWEST_ROWS = 1e-3, 20  # share of rows, and rows, below which a level is one of the others
MOST_LEVELS = 24  # levels of a column with a regressor of their own
LONG_SPAN = 1.2  # years that the rows must span for regressors of the month
HALF_LIVES = ("3", "24")  # rows; of moving averages of numbers
OFTEN = 2  # times that a holiday must have come to have an effect of its own
SEASONS_SEEN, ROWS_SEEN = 1.5, 20  # seasons, and rows, after which the network knows a season better than the panel
RANGE_ROWS = 100  # that show a range;
ROOM = 0.125  # where they are fewer, it is wider by this share for every time they are fewer
ENTRY_RANGES = 4.0  # ranges of the others beyond which a number is one entry gone wrong
UNIT_SAMPLE = 2**16  # rows from which the units of regressors are found


def design(panel: Panel, keep: Bools, schema: Schema, settings: Settings, freq: Frequency) -> Schema:
    """The schema with the covariates of the settings, as they are in the rows where `keep` is true."""
    rows = np.flatnonzero(keep & ~panel.inserted)
    futr, hist = (_Found.of(panel, names, rows) for names in (settings.futr_exog_list, settings.hist_exog_list))
    listed = [Regressor((factor,)) for factor in (*futr.factors, *hist.factors)]
    if schema.datetime and len(rows):
        years = float(np.ptp(panel.ds[rows])) / (365.25 * DAY)
        told = [season for season in told_by(freq, settings.season_length) or () if season]
        listed += [
            Regressor(factors, stays=round(SEASONS_SEEN * season) + ROWS_SEEN if season in told else 0)
            for season, factors in _calendar(freq, years, futr.flags, futr.linear)
        ]
        listed += [Regressor(factors) for factors in _holidays(schema, panel.ds[rows], freq)]
    schema = dataclasses.replace(schema, futr=futr.group, hist=hist.group, regressors=tuple(listed))
    return _in_units(schema, panel, rows, settings)


class _Found(NamedTuple):
    """Columns, and the factors that are made of them: of all, of flags, and of numbers with a linear effect."""

    group: Group
    factors: list[Factor]
    flags: list[Factor]
    linear: list[Factor]

    @classmethod
    def of(cls, panel: Panel, names: Sequence[str], rows: Ints) -> _Found:
        numbers: list[NumberColumn] = []
        categories: list[CategoryColumn] = []
        listed: list[Factor] = []
        flags: list[Factor] = []
        linear: list[Factor] = []
        for name in names:
            values = panel.columns[name]
            column = _read(name, values, rows)
            if isinstance(column, NumberColumn):
                numbers.append(column)
                factors = [Factor("number", name)]
                (flags if column.two_values else linear).extend(factors)
            else:
                categories.append(column)
                factors = _levels(column, values, rows)
                flags += factors if len(column.values) == 2 else []
            listed += factors
        return cls((tuple(numbers), tuple(categories)), listed, flags, linear)


def _in_units(schema: Schema, panel: Panel, rows: Ints, settings: Settings) -> Schema:
    """The same with the means and deviations of the regressors. Those that do not vary are left out."""
    some = np.random.default_rng(0).permutation(rows)[
        :UNIT_SAMPLE
    ]  # not every sixth: that would see four hours of a day
    chosen = np.zeros(len(panel.ds), bool)
    chosen[some] = True
    x = Regressors(schema, settings).table_of(schema.encode(panel.select(chosen)))
    middle, unit = x.mean(0), x.std(0)
    listed = []
    for regressor, mean, deviation in zip(schema.regressors, middle.tolist(), unit.tolist(), strict=True):
        varies = deviation > 1e-6 * max(abs(mean), 1e-3)
        first = regressor.factors[0]
        if first.kind == "number" and len(regressor.factors) == 1 and (first.level or not varies):
            mean, deviation = 0.0, 1.0  # an average is in the units of its number; a constant may vary later
        elif not varies:
            continue
        listed.append(dataclasses.replace(regressor, middle=mean, unit=deviation))
    return dataclasses.replace(schema, regressors=tuple(listed))


def _read(name: str, column: Column, rows: Ints) -> NumberColumn | CategoryColumn:
    """How a column is read. The commonest value of a category, or level, comes first."""
    if isinstance(column, Categories):
        codes = column.codes[rows]
        count = np.bincount(codes[codes >= 0], minlength=len(column.values))
        order = [i for i in np.argsort(-count, kind="stable").tolist() if count[i]]
        return CategoryColumn(name, tuple(column.values[i] for i in order))
    known = column[rows]
    known = known[~np.isnan(known)]
    if len(known) == 0:
        return NumberColumn(name, 0.0, 1.0, 0.0)
    values, count = np.unique(known, return_counts=True)
    seen = len(known) >= TIMES_SEEN * len(values)
    few = len(values) <= FEW_VALUES or np.sort(count)[-MAIN_VALUES:].sum() > MOSTLY * len(known)
    if len(values) > 2 and few and seen:
        levels = values[np.argsort(-count, kind="stable")[: 1 + MOST_LEVELS]].tolist()
        middle = float(np.quantile(known, 0.5, method="lower"))
        missing = 1 + levels.index(middle) if middle in levels else 1
        return CategoryColumn(name, tuple(f"{level:.17g}" for level in levels), levels=True, missing=missing)
    flag = len(values) == 2 and (seen or set(values.tolist()) == {0.0, 1.0})
    usual = known if flag else _usual(known)
    unit = float(usual.std()) or float(abs(usual[0])) or 1.0
    low, high = float(usual.min()), float(usual.max())
    room = 0.0 if flag else ROOM * max(RANGE_ROWS / len(usual) - 1, 0.0) * (high - low)
    return NumberColumn(name, low - room, high + room, float(np.median(known)), unit, flag)


def _usual(values: Floats) -> Floats:
    """Without what lies far outside of all but a hundredth of them at either end: one wrong entry is no range."""
    ordered = np.sort(values)
    cut = min(max(1, len(ordered) // 100), (len(ordered) - 1) // 2)
    low, high = ordered[cut], ordered[-1 - cut]
    far = ENTRY_RANGES * (high - low)
    return values[(values >= low - far) & (values <= high + far)] if far > 0 else values


def _levels(column: CategoryColumn, values: Column, rows: Ints) -> list[Factor]:
    """Factors of the levels that are not rare, but the commonest, and one of all others if there are any."""
    if isinstance(values, Categories):
        places = {value: code for code, value in enumerate(column.values, 1)}
        codes = np.array([*(places.get(value, 0) for value in values.values), 0])[values.codes]
    else:
        codes = column.encode_numbers(values)
    count = np.bincount(codes[rows], minlength=2)
    least = min(max(RARE * len(rows), FEWEST_ROWS), 0.01 * len(rows))
    own = [code for code in range(2, len(count)) if count[code] >= least][:MOST_LEVELS]
    out = [Factor("level", column.name, column.values[code - 1]) for code in own]
    others = len(rows) > count[1] + sum(count[code] for code in own)
    return [*out, Factor("others", column.name)] if others else out


def _calendar(
    freq: Frequency, years: float, flags: Sequence[Factor], numbers: Sequence[Factor]
) -> list[tuple[int, tuple[Factor, ...]]]:
    """Factors of the regressors of the calendar, each with the season in rows that it describes; 0 for none."""
    seasons = freq.seasons()
    weekdays = [Factor("weekday", level=str(i)) for i in range(1, 7)]
    if freq.step is not None and freq.step < DAY:
        hours = [Factor("hour", level=str(i)) for i in range(1, 24)]
        day, week = DAY // freq.step, 7 * DAY // freq.step
        return [
            *((day, (hour,)) for hour in hours),
            *((week, (hour, Factor("weekend"))) for hour in hours),
            *((week, (weekday,)) for weekday in weekdays),
            *((0, (number, wave)) for number in numbers for wave in _waves("day_wave", 2)),
            *((0, (number._replace(level=half),)) for number in numbers for half in HALF_LIVES),
        ]
    if freq.freq is None or seasons in ((7,), (5,)):
        out: list[tuple[int, tuple[Factor, ...]]] = [((*seasons, 0)[0], (weekday,)) for weekday in weekdays]
        out += [(0, (flag, weekday)) for flag in flags for weekday in weekdays]
        if years > LONG_SPAN:
            out += [(0, (wave,)) for wave in _waves("month_wave", 6)]
            out += [(0, (Factor("month", level=str(i)),)) for i in range(1, 12)]
        return out
    return [(52, (wave,)) for wave in _waves("year_wave", 8)] if seasons == (52,) and years > LONG_SPAN else []


def _holidays(schema: Schema, ds: Times, freq: Frequency) -> list[tuple[Factor, ...]]:
    """Factors of all holidays together, of each that came often enough, and of the days beside them."""
    if schema.country is None:
        return []
    days = np.unique(Clock(schema.zone).local(ds) // DAY)
    first, last = days[[0, -1]].astype("datetime64[D]").astype("datetime64[Y]").astype(int).tolist()
    names: dict[int, str] = {}
    for year in range(1970 + first, 1971 + last):
        names |= names_of_year(schema.country, year)
    often = Counter(names[day] for day in days.tolist() if day in names)
    own = [Factor("holiday", level=name) for name, times in often.items() if times >= OFTEN]
    kinds = [Factor(kind) for kind in HOLIDAYS]
    found: list[tuple[Factor, ...]] = [(factor,) for factor in (*kinds, *own[:MOST_LEVELS])]
    if freq.step is not None and freq.step < DAY:
        found += [(Factor("holiday"), wave) for wave in _waves("day_wave", 2)]
    return found


def _waves(kind: str, most: int) -> list[Factor]:
    return [Factor(kind, level=f"{wave} {i}") for i in range(1, most + 1) for wave in ("sin", "cos")]
