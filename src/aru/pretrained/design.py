"""Which regressors a panel has: found once, in the first rows, from covariates and frequency.

A covariate with two values is a flag: a number of its own, and with the weekday. Numbers with few values are read by
their levels, as categories are; other numbers have a linear effect. The calendar adds what a frequency suggests.
Seasons that the network is told stay in the values, once a series has shown them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from aru.data.columns import Bools, Categories, Column, Ints
from aru.data.covariates import CategoryColumn, Factor, NumberColumn, Regressor
from aru.data.frequency import DAY, Frequency
from aru.data.panel import Panel
from aru.data.schema import Schema
from aru.pretrained.regressors import Regressors
from aru.pretrained.seasons import told_by
from aru.settings import Settings

FEW_VALUES = 20  # values of a number that are read as levels
MAIN_VALUES, MOSTLY = 8, 0.95  # or so many values that make up this share of the rows
RARE, FEWEST_ROWS = 1e-3, 20  # share of rows, and rows, below which a level is one of the others
MOST_LEVELS = 24  # levels of a column with a regressor of their own
LONG_SPAN = 1.2  # years that the rows must span for regressors of the month
HALF_LIVES = ("3", "24")  # rows; of moving averages of numbers
SEASONS_SEEN, ROWS_SEEN = (
    1.5,
    20,
)  # seasons, and rows, after which the network knows a season better than the panel does
UNIT_SAMPLE = 2**16  # rows from which the units of regressors are found


def design(panel: Panel, keep: Bools, schema: Schema, settings: Settings, freq: Frequency) -> Schema:
    """The schema with the covariates of the settings, as they are in the rows where `keep` is true."""
    rows = np.flatnonzero(keep & ~panel.inserted)
    numbers: list[NumberColumn] = []
    categories: list[CategoryColumn] = []
    listed: list[Regressor] = []
    flags: list[Factor] = []
    linear: list[Factor] = []
    for name in settings.futr_exog_list:
        values = panel.columns[name]
        column = _read(name, values, rows)
        if isinstance(column, NumberColumn):
            numbers.append(column)
            factors = [Factor("number", name)]
            (flags if _count(values, rows) == 2 else linear).extend(factors)
        else:
            categories.append(column)
            factors = _levels(column, values, rows)
            flags += factors if len(column.values) == 2 else []
        listed += [Regressor((factor,)) for factor in factors]
    if schema.datetime and len(rows):
        years = float(np.ptp(panel.ds[rows])) / (365.25 * DAY)
        told = [season for season in told_by(freq, settings.season_length) or () if season]
        listed += [
            Regressor(factors, stays=round(SEASONS_SEEN * season) + ROWS_SEEN if season in told else 0)
            for season, factors in _calendar(freq, years, flags, linear)
        ]
    schema = dataclasses.replace(schema, futr=(tuple(numbers), tuple(categories)), regressors=tuple(listed))
    return _in_units(schema, panel, rows)


def _in_units(schema: Schema, panel: Panel, rows: Ints) -> Schema:
    """The same with the means and deviations of the regressors. Those that do not vary are left out."""
    some = np.random.default_rng(0).permutation(rows)[
        :UNIT_SAMPLE
    ]  # not every sixth: that would see four hours of a day
    chosen = np.zeros(len(panel.ds), bool)
    chosen[some] = True
    x = Regressors(schema).table_of(schema.encode(panel.select(chosen)))
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
    few = len(values) <= FEW_VALUES or np.sort(count)[-MAIN_VALUES:].sum() > MOSTLY * len(known)
    if len(values) > 2 and few:
        levels = values[np.argsort(-count, kind="stable")[: 1 + MOST_LEVELS]].tolist()
        middle = float(np.quantile(known, 0.5, method="lower"))
        missing = 1 + levels.index(middle) if middle in levels else 1
        return CategoryColumn(name, tuple(f"{level:.17g}" for level in levels), levels=True, missing=missing)
    unit = float(known.std()) or float(abs(known[0])) or 1.0
    return NumberColumn(name, float(values[0]), float(values[-1]), float(np.median(known)), unit)


def _count(column: Column, rows: Ints) -> int:
    """How many values a column of numbers has."""
    values = np.asarray(column)[rows]
    return len(np.unique(values[~np.isnan(values)]))


def _levels(column: CategoryColumn, values: Column, rows: Ints) -> list[Factor]:
    """Factors of the levels that are not rare, but the commonest, and one of all others if there are any."""
    codes = column.encode(values) if isinstance(values, Categories) else column.encode_numbers(values)
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


def _waves(kind: str, most: int) -> list[Factor]:
    return [Factor(kind, level=f"{wave} {i}") for i in range(1, most + 1) for wave in ("sin", "cos")]
