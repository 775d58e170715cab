"""Regressors from rows: covariates and the calendar, as the schema lists them.

A regressor is a factor or the product of two (`aru.data.schema.Factor`). All but numbers are looked up in tables: of a
category by its code, of the calendar by the weekday, the hour, and so on. Covariates of older rows are kept in a byte
each, and so is their time: days, or hours, modulo 256, which is unique because rows are less than 256 of them apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, UInt8
from numpy.typing import NDArray
from torch import Tensor

from aru.data.clock import Clock
from aru.data.frequency import DAY
from aru.data.rows import Rows
from aru.data.schema import CategoryColumn, Factor, Regressor, Schema
from aru.nn.kernels import smooth_numbers

Array = NDArray[np.float64]
HOUR = DAY // 24
STEPS = 254  # of a number in a byte
CALENDAR = ("weekday", "weekend", "hour", "month", "day_wave", "month_wave", "year_wave")
OF_DAY = ("hour", "day_wave")  # parts of the calendar that need the hour


class Table(NamedTuple):
    """Factors that are looked up by a code: of the category in `column`, or of the calendar."""

    clock: str  # the name of the code; empty for a category
    column: int
    values: Array  # (code, factor)


class Moving(NamedTuple):
    """Moving averages of numbers, with the sums of their weights: what is kept of each series."""

    mean: Float64[Tensor, "series average"]
    weight: Float64[Tensor, "series average"]


class Regressors:
    """The regressors of a schema."""

    def __init__(self, schema: Schema) -> None:
        self.listed = schema.regressors
        self.numbers, self.categories = schema.futr
        self._clock = Clock(schema.zone)
        factors = list(dict.fromkeys(f for r in self.listed for f in r.factors))
        names = [column.name for column in self.numbers]
        plain = [f for f in factors if f.kind == "number"]
        self._read = np.array([names.index(f.column) for f in plain if not f.level], np.int64)
        averaged = [f for f in plain if f.level]
        self._averaged = np.array([names.index(f.column) for f in averaged], np.int64)
        self._half_lives = np.array([float(f.level) for f in averaged])
        self._tables, order = self._look_ups(factors)
        place = {f: 1 + i for i, f in enumerate([*(f for f in plain if not f.level), *averaged, *order])}
        self._factors = 1 + len(place)  # the first is the constant 1
        self._left = np.array([place[r.factors[0]] for r in self.listed], np.int64)
        self._right = np.array([place[r.factors[1]] if len(r.factors) > 1 else 0 for r in self.listed], np.int64)
        self._middle, self._unit = (np.array([getattr(r, name) for r in self.listed]) for name in ("middle", "unit"))
        self.taken_out = np.array([not r.stays for r in self.listed], bool)
        kinds = {f.kind for f in factors}
        self._tick = 0 if kinds.isdisjoint(CALENDAR) else DAY if kinds.isdisjoint(OF_DAY) else HOUR
        self.bytes = len(self.numbers) + len(self.categories) + (self._tick > 0)

    def __len__(self) -> int:
        return len(self.listed)

    @property
    def averages(self) -> int:
        """Moving averages that are kept of each series."""
        return len(self._averaged)

    def of(self, rows: Rows, moving: Moving, steps: Tensor) -> tuple[Float64[Tensor, "series row k"], Moving]:
        """Regressors of (series, row) rows, and the averages after the first `steps` of them."""
        numbers, missing = _numbers(rows)
        averages, after = self._smooth(numbers, missing, moving, steps)
        x = self._factors_of(numbers, averages, _array(rows.futr_cat), self._ticks(rows))
        return torch.from_numpy(self._products(x)), after

    def table_of(self, rows: Rows) -> Array:
        """Regressors of all (row,) rows, moving averages not included (0). To learn their units."""
        numbers, _ = _numbers(rows)
        averages = np.zeros((len(numbers), self.averages))
        return self._products(self._factors_of(numbers, averages, _array(rows.futr_cat), self._ticks(rows)))

    def effects(
        self, past: Rows, codes: UInt8[Tensor, "series older byte"], future: Rows, thetas: list[Array]
    ) -> list[Float[Array, "series rows"]]:
        """Effects (without those that stay) of all past rows and the future ones, for each set of coefficients.

        `codes` are the bytes of rows before `past`.
        """
        old = codes.cpu().numpy()
        recent, gone = _numbers(past)
        coming, unknown = _numbers(future)
        decoded = np.stack([table[old[..., i]] for i, table in enumerate(self._values_of_bytes)], -1) if self.numbers else recent[:, :0]
        n = len(old)
        if not self.numbers:
            decoded = np.zeros((*old.shape[:2], 0))
        numbers = np.concatenate([np.nan_to_num(decoded), recent, coming], 1)
        missing = np.concatenate([np.isnan(decoded), gone, unknown], 1)
        at = len(self.numbers)
        categories = np.concatenate(
            [old[..., at : at + len(self.categories)].astype(np.int64), _array(past.futr_cat), _array(future.futr_cat)], 1
        )
        now = self._ticks(past)
        ticks = np.concatenate([_unrolled(old[..., -1], now), now, self._ticks(future)], 1) if self._tick else now
        averages = np.zeros((*numbers.shape[:2], 0))
        if self.averages:
            none = Moving(*(torch.zeros(n, self.averages, dtype=torch.float64) for _ in range(2)))
            averages, _ = self._smooth(numbers, missing, none, torch.full((n,), numbers.shape[1]))
        factors = self._factors_of(numbers, averages, categories, ticks)
        return [self._sum(factors, theta) for theta in thetas]

    def codes(self, rows: Rows) -> UInt8[Tensor, "*rows byte"]:
        """What is kept of older rows, a byte each: numbers (0: missing), categories, time."""
        parts: list[Any] = []
        numbers, missing = _numbers(rows)
        for i, column in enumerate(self.numbers):
            low, high = column.ends
            steps = 1 + np.round((numbers[..., i].clip(low, high) - low) * (STEPS / (high - low)))
            parts.append(np.where(missing[..., i], 0, steps))
        parts += [code.clip(max=255) for code in np.moveaxis(_array(rows.futr_cat), -1, 0)]
        if self._tick:
            parts.append(self._ticks(rows) & 255)
        return torch.from_numpy(np.stack(parts, -1).astype(np.uint8)).to(rows.y.device)

    @property
    def _values_of_bytes(self) -> list[Array]:
        """The number of each byte, NaN where missing."""
        steps = np.arange(-1, 255) / STEPS
        ends = [column.ends for column in self.numbers]
        return [np.where(steps < 0, np.nan, low + steps * (high - low)) for low, high in ends]

    def _look_ups(self, factors: list[Factor]) -> tuple[list[Table], list[Factor]]:
        """Tables of all factors that are no numbers, and these factors in the order of the tables."""
        tables, order = [], []
        for i, column in enumerate(self.categories):
            own = [f for f in factors if f.kind in ("level", "others") and f.column == column.name]
            if own:
                tables.append(Table("", i, _by_code(column, own)))
                order += own
        for clock, kinds in CLOCKS.items():
            own = [f for f in factors if f.kind in kinds]
            if own:
                tables.append(Table(clock, 0, np.stack([_by_clock(f) for f in own], -1)))
                order += own
        return tables, order

    def _ticks(self, rows: Rows) -> Int64[Array, "*rows"]:
        """Days, or hours, since 1970 on the clocks of the zone."""
        ds = _array(rows.ds)
        if not self._tick:
            return ds
        return self._clock.local(ds.ravel()).reshape(ds.shape) // self._tick

    def _smooth(self, numbers: Array, missing: Array, moving: Moving, steps: Tensor) -> tuple[Array, Moving]:
        if not self.averages:
            return np.zeros((*numbers.shape[:-1], 0)), moving
        values = np.where(missing, np.nan, numbers)[..., self._averaged]
        averages, mean, weight = smooth_numbers(values, _array(moving.mean), _array(moving.weight), self._half_lives, _array(steps))
        return averages, Moving(torch.from_numpy(mean), torch.from_numpy(weight))

    def _factors_of(self, numbers: Array, averages: Array, categories: Any, ticks: Any) -> Array:
        """(..., factor): the constant, numbers, averages, and what the tables say."""
        parts = [np.ones((*numbers.shape[:-1], 1)), numbers[..., self._read], averages]
        clocks = _clocks(ticks, self._tick, {table.clock for table in self._tables})
        for table in self._tables:
            codes = clocks[table.clock] if table.clock else categories[..., table.column].clip(max=255)
            parts.append(table.values[codes])
        return np.concatenate(parts, -1)

    def _products(self, factors: Array) -> Array:
        out: Array = (factors[..., self._left] * factors[..., self._right] - self._middle) / self._unit
        return out

    def _sum(self, factors: Array, theta: Array) -> Array:
        """(series, row) sum of the regressors that are taken out, by the coefficients (series, k)."""
        weights = np.where(self.taken_out, theta, 0.0) / self._unit
        second, place = np.unique(self._right, return_inverse=True)
        pairs = np.zeros((len(theta), self._factors, len(second)))
        np.add.at(pairs, (slice(None), self._left, place), weights)
        both = np.matmul(factors, pairs)
        out: Array = np.einsum("nrs,nrs->nr", both, factors[..., second]) - (weights @ self._middle)[:, None]
        return out


# Codes of the calendar, and the factors that are looked up by them.
CLOCKS = {
    "weekday": ("weekday", "weekend"),
    "hour": ("hour", "day_wave"),
    "month": ("month",),
    "day_of_month": ("month_wave",),
    "day_of_year": ("year_wave",),
}


def _clocks(ticks: Any, tick: int, names: set[str]) -> dict[str, Any]:
    """Codes of the calendar: day_of_month is (day - 1) * 4 + length of the month - 28."""
    if names <= {""}:
        return {}
    days, hours = (ticks // 24, ticks % 24) if tick == HOUR else (ticks, ticks)
    out = {"weekday": (days + 3) % 7, "hour": hours}  # 1970 began on a Thursday; Monday is 0
    if names.isdisjoint(("month", "day_of_month", "day_of_year")):
        return out
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    first = months.astype("datetime64[D]")
    length = ((months + 1).astype("datetime64[D]") - first).astype(np.int64)
    out["month"] = months.astype(np.int64) % 12
    out["day_of_month"] = (days - first.astype(np.int64)) * 4 + length - 28
    out["day_of_year"] = days - dates.astype("datetime64[Y]").astype("datetime64[D]").astype(np.int64)
    return out


def _by_clock(factor: Factor) -> Array:
    """The factor at each code of its clock."""
    kind, level = factor.kind, factor.level
    if kind == "weekend":
        return (np.arange(7) >= 5).astype(float)
    if kind in ("weekday", "hour", "month"):
        codes = {"weekday": 7, "hour": 24, "month": 12}[kind]
        return (np.arange(codes) == int(level)).astype(float)
    codes = np.arange(124)
    share = {
        "day_wave": np.arange(24) / 24,
        "month_wave": (codes // 4) / (codes % 4 + 28),
        "year_wave": np.arange(366) / 365.25,
    }[kind]
    wave, often = level.split()
    return (np.sin if wave == "sin" else np.cos)(2 * np.pi * int(often) * share)


def _by_code(column: CategoryColumn, own: list[Factor]) -> Array:
    """(256, factor): each factor by the code of the category."""
    levels = [column.values.index(f.level) + 1 for f in own if f.kind == "level"]
    codes = np.arange(256)
    usual = [1] if len(column.values) else []
    others = ~np.isin(codes, [*levels, *usual])
    return np.stack(
        [(codes == column.values.index(f.level) + 1 if f.kind == "level" else others).astype(float) for f in own], -1
    )


def _numbers(rows: Rows) -> tuple[Array, Any]:
    """Rescaled numbers, 0 (their middle) where missing, and where that is."""
    pairs = _array(rows.futr)
    return pairs[..., ::2].astype(np.float64), pairs[..., 1::2] > 0


def _unrolled(old: Any, now: Any) -> Any:
    """Days or hours of older rows, from what they are modulo 256 and from those of the rows after them."""
    bytes_ = np.concatenate([old, (now[:, :1] & 255).astype(np.uint8)], 1)
    apart = np.diff(bytes_).astype(np.int64)  # modulo 256, as bytes are
    return now[:, :1] - np.cumsum(apart[:, ::-1], 1)[:, ::-1]


def _array(value: Tensor) -> Any:
    return value.cpu().numpy()
