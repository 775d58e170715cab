"""Which regressors a panel has: found once, in the first rows, from covariates and frequency.

A covariate with two values is a flag: a number of its own, and with the weekday. Numbers with few values are read by
their levels, as categories are; other numbers have a linear effect. The calendar adds what a frequency suggests.
Seasons that the network is told stay in the values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from aru.data.columns import Bools, Categories, Column, Floats
from aru.data.frequency import DAY, Frequency
from aru.data.panel import Panel
from aru.data.schema import CategoryColumn, Factor, NumberColumn, Regressor, Schema
from aru.nn.tree import take
from aru.pretrained.regressors import Regressors
from aru.pretrained.seasons import told_by
from aru.settings import Settings

FEW = 20  # values of a number that are read as levels
MAIN, MOSTLY = 8, 0.95  # or so many values that make up this share of the rows
RARE, LEAST = 1e-3, 20  # share of rows, and rows, below which a level is one of the others
MOST_LEVELS = 24  # levels of a column with a regressor of their own
LONG = 1.2  # years that the rows must span for regressors of the month
HALF_LIVES = ("3", "24")  # rows; of moving averages of numbers
SAMPLE = 2**16  # rows from which the units of regressors are found


def design(panel: Panel, keep: Bools, schema: Schema, settings: Settings, freq: Frequency) -> Schema:
    """The schema with the covariates of the settings, as they are in the rows where `keep` is true."""
    rows = np.flatnonzero(keep & ~panel.inserted)
    numbers, categories, terms, flags, linear = [], [], [], [], []
    for name in settings.futr_exog_list:
        column = _read(name, panel.columns[name], rows)
        if isinstance(column, NumberColumn):
            numbers.append(column)
            factor = Factor("number", name)
            terms.append((factor,))
            values = panel.columns[name][rows]
            (flags if len(np.unique(values[~np.isnan(values)])) == 2 else linear).append(factor)
        else:
            categories.append(column)
            factors = _levels(column, panel.columns[name], rows)
            terms += [(factor,) for factor in factors]
            flags += factors if len(column.values) == 2 and not column.levels else []
    calendar = _calendar(freq, schema, panel.ds[rows], flags, linear) if schema.datetime else []
    told = told_by(freq, settings.season_length) is not None and freq.freq is not None
    stays = [told and not any(f.column for f in term) and term[0].kind != "month_wave" and term[0].kind != "month" for term in calendar]
    listed = [Regressor(tuple(term)) for term in terms]
    listed += [Regressor(tuple(term), stays=season) for term, season in zip(calendar, stays, strict=True)]
    schema = dataclasses.replace(schema, futr=(tuple(numbers), tuple(categories)), regressors=tuple(listed))
    return _in_units(schema, panel, rows)


def _in_units(schema: Schema, panel: Panel, rows: np.ndarray) -> Schema:
    """The same with the means and deviations of the regressors. Those that do not vary are left out."""
    some = rows[:: -(-len(rows) // SAMPLE) or 1]
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


def _read(name: str, column: Column, rows: np.ndarray) -> NumberColumn | CategoryColumn:
    """How a column is read."""
    if isinstance(column, Categories):
        count = np.bincount(column.codes[rows][column.codes[rows] >= 0], minlength=len(column.values))
        order = [int(i) for i in np.argsort(-count, kind="stable") if count[i]]
        return CategoryColumn(name, tuple(column.values[i] for i in order))
    known = column[rows]
    known = known[~np.isnan(known)]
    values, count = np.unique(known, return_counts=True)
    few = len(values) <= FEW or np.sort(count)[-MAIN:].sum() > MOSTLY * len(known)
    if len(values) > 2 and few:
        order = np.argsort(-count, kind="stable")[: 1 + MOST_LEVELS]
        middle = np.sort(known)[len(known) // 2]
        place = np.flatnonzero(values[order] == middle)
        return CategoryColumn(name, tuple(f"{v!r}" for v in values[order].tolist()), True, 1 + int(place[0]) if len(place) else 1)
    if len(known) == 0:
        return NumberColumn(name, 0.0, 1.0, 0.0)
    return NumberColumn(name, float(known.min()), float(known.max()), float(np.median(known)), _unit(known))


def _unit(known: Floats) -> float:
    return float(known.std()) or float(abs(known[0])) or 1.0


def _levels(column: CategoryColumn, values: Column, rows: np.ndarray) -> list[Factor]:
    """Factors of the levels that are not rare, but the commonest, and one of all others if there are any."""
    codes = column.encode(values) if isinstance(values, Categories) else column.encode_numbers(values)
    count = np.bincount(codes[rows], minlength=1 + len(column.values))
    least = min(max(RARE * len(rows), LEAST), 0.01 * len(rows))
    own = [i for i in range(2, len(count)) if count[i] >= least][:MOST_LEVELS]
    out = [Factor("level", column.name, column.values[i - 1]) for i in own]
    others = len(rows) - count[1] - sum(count[i] for i in own) if len(count) > 1 else 0
    return [*out, Factor("others", column.name)] if others else out


def _calendar(
    freq: Frequency, schema: Schema, ds: np.ndarray, flags: list[Factor], numbers: list[Factor]
) -> list[tuple[Factor, ...]]:
    """Regressors of the calendar, for rows at these times."""
    (season, *_) = (*freq.seasons(), 0)
    weekdays = [Factor("weekday", level=str(i)) for i in range(1, 7)]
    years = (ds.max() - ds.min()) / (365.25 * DAY) if len(ds) else 0.0
    if freq.step is not None and freq.step < DAY:
        hours = [Factor("hour", level=str(i)) for i in range(1, 24)]
        return [
            *((hour,) for hour in hours),
            *((hour, Factor("weekend")) for hour in hours),
            *((day,) for day in weekdays),
            *((number, wave) for number in numbers for wave in _waves("day_wave", 2)),
            *((number._replace(level=half),) for number in numbers for half in HALF_LIVES),
        ]
    if freq.freq is None or freq.step == DAY or season == 5:
        out = [*((day,) for day in weekdays), *((flag, day) for flag in flags for day in weekdays)]
        if years > LONG:
            out += [(wave,) for wave in _waves("month_wave", 6)]
            out += [(Factor("month", level=str(i)),) for i in range(1, 12)]
        return out
    if season == 52 and years > LONG:
        return [(wave,) for wave in _waves("year_wave", 8)]
    return []


def _waves(kind: str, most: int) -> Iterable[Factor]:
    return [Factor(kind, level=f"{wave} {i}") for i in range(1, most + 1) for wave in ("sin", "cos")]
