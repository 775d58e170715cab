"""Regressors from rows: covariates and the calendar, as the schema lists them.

A regressor is a factor or the product of two (`aru.data.covariates.Factor`). All but numbers are looked up in tables:
of a category by its code, of the calendar by weekday, hour and so on.

Covariates of older rows are kept in a few bits each (`Packing`): 8 of a number, 2 of a flag, as many of a category as
it has values. Their times follow from the frequency. Where they do not, 8 bits have their day, or hour, modulo 256,
which is unique because rows are less than 256 of them apart. Historic covariates come h rows late, so that they are
known for all rows ahead. They are read from those bits, wherever their row is, so that nothing depends on how rows
were delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

from aru.data.clock import Clock
from aru.data.columns import Bools, Ints
from aru.data.columns import Floats as Array
from aru.data.covariates import CategoryColumn, Factor
from aru.data.frequency import DAY, Frequency
from aru.data.holiday_dates import holiday_codes
from aru.data.rows import Rows
from aru.data.schema import Schema
from aru.nn.kernels import smooth_numbers
from aru.nn.windows import Context
from aru.pretrained.calendar_codes import CALENDAR, CLOCKS, HOLIDAY_CLOCKS, HOUR, OF_DAY, by_clock, clock_codes
from aru.pretrained.packing import Packing
from aru.settings import Settings


class Table(NamedTuple):
    """Factors that are looked up by a code: of the category in `column`, or of the calendar."""

    clock: str  # the name of the code; empty for a category
    column: int
    values: Array  # (code, factor)


class Together(NamedTuple):
    """Regressors whose first factors are in one table (None: numbers), and whose second factor is the same."""

    table: int | None
    second: int  # 0 for none
    which: Ints  # regressors
    columns: Ints  # of the table


class CovariateRows(NamedTuple):
    """Covariates of (..., row) rows."""

    numbers: Array  # rescaled, 0 (their middle) where missing
    missing: Bools
    categories: Any  # codes


class KnownRows(NamedTuple):
    """What the regressors of rows are made of, the older ones in the steps of their codes."""

    plain: Array  # (series, row, number) numbers and averages
    codes: list[Any]  # the code of each table, (series, row)

    def rows(self, begin: int, end: int | None = None) -> KnownRows:
        """Some of the rows."""
        return KnownRows(self.plain[:, begin:end], [code[:, begin:end] for code in self.codes])

    def series(self, some: Ints) -> KnownRows:
        """Some of the series."""
        return KnownRows(self.plain[some], [code[some] for code in self.codes])


class Moving(NamedTuple):
    """Moving averages of numbers, with the sums of their weights: what is kept of each series."""

    mean: Float64[Tensor, "series average"]
    weight: Float64[Tensor, "series average"]

    @classmethod
    def empty(cls, n: int, averages: int) -> Moving:
        """Of series without rows."""
        return cls(*(torch.zeros(n, averages, dtype=torch.float64) for _ in range(2)))


class Regressors:
    """The regressors of a schema."""

    def __init__(self, schema: Schema, settings: Settings) -> None:
        self.listed, self._h = schema.regressors, settings.h
        self.numbers, self.categories = (*schema.futr[0], *schema.hist[0]), (*schema.futr[1], *schema.hist[1])
        self._late = len(schema.hist[0]), len(schema.hist[1])  # the last numbers and categories are historic
        self._clock, self._country = Clock(schema.zone), schema.country or ""
        factors = list(dict.fromkeys(f for r in self.listed for f in r.factors))
        names = [column.name for column in self.numbers]
        plain = [f for f in factors if f.kind == "number"]
        self._read = np.array([names.index(f.column) for f in plain if not f.level], np.int64)
        averaged = [f for f in plain if f.level]
        self._averaged = np.array([names.index(f.column) for f in averaged], np.int64)
        self._half_lives = np.array([float(f.level) for f in averaged])
        self._feasts = [f.level for f in factors if f.kind == "holiday" and f.level]
        self._tables, order = self._look_ups(factors)
        place = {f: 1 + i for i, f in enumerate([*(f for f in plain if not f.level), *averaged, *order])}
        self._left = np.array([place[r.factors[0]] for r in self.listed], np.int64)
        self._right = np.array([place[r.factors[1]] if len(r.factors) > 1 else 0 for r in self.listed], np.int64)
        self._middle, self._unit = (np.array([getattr(r, name) for r in self.listed]) for name in ("middle", "unit"))
        self.stays = np.array([r.stays or np.inf for r in self.listed])
        self._groups = self._grouped()
        of = [r.factors[0].column or r.factors[0].kind for r in self.listed]
        self.kin = [np.array([i for i, name in enumerate(of) if name == one]) for one in dict.fromkeys(of)]
        self._ends = np.array([column.ends for column in self.numbers]).reshape(-1, 2).T
        kinds = {f.kind for f in factors}
        self._tick = 0 if kinds.isdisjoint(CALENDAR) else DAY if kinds.isdisjoint(OF_DAY) else HOUR
        step = Frequency(settings.freq).step if schema.zone is None else None  # a day of a zone has 23 to 25 hours
        self._step = step or 0
        bits = [2 if column.two_values else 8 for column in self.numbers]
        bits += [min(len(column.values).bit_length(), 8) for column in self.categories]
        self._packing = Packing([*bits, *([8] if self._tick and not self._step else [])])
        self._most = [2**n - 1 for n in bits]  # the largest whole number of each

    def __len__(self) -> int:
        return len(self.listed)

    @property
    def bytes(self) -> int:
        """Bytes that are kept of each older row."""
        return self._packing.bytes

    @property
    def averages(self) -> int:
        """Moving averages that are kept of each series."""
        return len(self._averaged)

    def of(
        self, rows: Rows, context: Context, moving: Moving, steps: Tensor
    ) -> tuple[Float64[Tensor, "series row k"], Moving]:
        """Regressors of (series, row) rows after a context, and the averages after the first `steps` of them."""
        read = _read(rows)
        if any(self._late):
            before = [context.older.codes[:, -self._h :], self.codes(context.rows), self.codes(rows)]
            n, codes = rows.y.shape[1], torch.cat(before, 1).cpu().numpy()
            read = self._with_late(read, codes[:, -(n + self._h) : -self._h], n)
        averages, after = self._smooth(read, moving, _array(steps))
        sources = self._sources(read, averages, self._ticks(rows))
        return torch.from_numpy(self._products(*sources)), after

    def table_of(self, rows: Rows) -> Array:
        """Regressors of all (row,) rows, moving averages not included (0), nothing late. To learn their units."""
        read = _read(rows)
        averages = np.zeros((len(rows.y), self.averages))
        return self._products(*self._sources(read, averages, self._ticks(rows)))

    def known(self, older: UInt8[Tensor, "series older byte"], past: Rows, future: Rows | None = None) -> KnownRows:
        """What regressors of older rows, which have these bytes, and of the rows after them are made of."""
        codes, parts = older.cpu().numpy(), [past] if future is None else [past, future]
        read = CovariateRows(
            *(np.concatenate(part, 1) for part in zip(self._decoded(codes), *map(_read, parts), strict=True))
        )
        if any(self._late):
            n, before = read.numbers.shape[1], np.concatenate([codes, _array(self.codes(past))], 1)
            read = self._with_late(read, before[:, : max(n - self._h, 0)], n)
        ticks = [self._ticks(rows) for rows in parts]
        ticks = [self._older_ticks(codes, past, ticks[0]), *ticks] if self._tick else ticks
        averages, _ = self._smooth(read, Moving.empty(len(codes), self.averages), None)
        return KnownRows(*self._sources(read, averages, np.concatenate(ticks, 1)))

    def values(self, known: KnownRows) -> Array:
        """(series, row, k) regressors."""
        return self._products(*known)

    def effects(self, known: KnownRows, theta: Array) -> Array:
        """(series, row) effects by coefficients (series, k)."""
        return self._sum(*known, theta)

    def _decoded(self, codes: Any) -> CovariateRows:
        """What is known of older rows by their bytes."""
        n, categories = len(self.numbers), np.empty((*codes.shape[:2], len(self.categories)), np.int64)
        numbers = np.empty((*codes.shape[:2], n))
        for i, table in enumerate(self._values_of_codes):
            numbers[..., i] = table[self._packing.unpack(codes, i)]
        for i in range(len(self.categories)):
            categories[..., i] = self._packing.unpack(codes, n + i)
        return CovariateRows(np.nan_to_num(numbers), np.isnan(numbers), categories)

    def _older_ticks(self, codes: Any, past: Rows, ticks: Ints) -> Ints:
        """Days or hours of older rows, before rows that have these."""
        older = codes.shape[1]
        if self._step:
            ds = past.ds[:, :1].cpu().numpy() - self._step * np.arange(older, 0, -1)
            return self._clock.local(ds.ravel()).reshape(ds.shape) // self._tick
        return _unrolled(self._packing.unpack(codes, len(self._most)), ticks)

    def _with_late(self, read: CovariateRows, codes: Any, n: int) -> CovariateRows:
        """The same rows, `n` of each series, with historic covariates from h rows earlier, which have these bytes.

        The last of them belong to the last rows. Before a series began they are missing; a missing category has no
        effect.
        """
        codes = np.concatenate([np.zeros((len(codes), n - codes.shape[1], codes.shape[2]), np.uint8), codes], 1)
        numbers, missing, categories = (np.array(part) for part in read)
        late, (m, c) = self._decoded(codes), self._late
        at, of = numbers.shape[-1] - m, categories.shape[-1] - c
        numbers[..., at:], missing[..., at:] = late.numbers[..., at:], late.missing[..., at:]
        categories[..., of:] = np.maximum(late.categories[..., of:], 1)
        return CovariateRows(numbers, missing, categories)

    def codes(self, rows: Rows) -> UInt8[Tensor, "*rows byte"]:
        """What is kept of older rows: numbers in equal steps (0: missing), categories, time."""
        numbers, missing, categories = _read(rows)
        parts = []
        for i, most in enumerate(self._most[: len(self.numbers)]):
            low, high = self._ends[:, i]
            steps = 1 + np.round((numbers[..., i] - low) * ((most - 1) / (high - low)))
            parts.append(np.where(missing[..., i], 0, steps))
        most = self._most[len(self.numbers) :]
        parts += [np.minimum(categories[..., i], most[i]) for i in range(len(self.categories))]
        if self._tick and not self._step:
            parts.append(self._ticks(rows) & 255)
        packed = self._packing.pack(parts) if parts else np.zeros((*rows.y.shape, 0), np.uint8)
        return torch.from_numpy(packed).to(rows.y.device)

    @property
    def _values_of_codes(self) -> list[Array]:
        """The number of each code, NaN where missing."""
        found = []
        for (low, high), most in zip(self._ends.T, self._most, strict=False):
            steps = np.arange(-1, most) / (most - 1)
            found.append(np.where(steps < 0, np.nan, low + steps * (high - low)))
        return found

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
                tables.append(Table(clock, 0, np.stack([by_clock(f, self._feasts) for f in own], -1)))
                order += own
        return tables, order

    def _ticks(self, rows: Rows) -> Ints:
        """Days, or hours, since 1970 on the clocks of the zone."""
        ds = rows.ds.cpu().numpy()
        return self._clock.local(ds.ravel()).reshape(ds.shape) // self._tick if self._tick else ds

    def _smooth(self, read: CovariateRows, moving: Moving, steps: Any) -> tuple[Array, Moving]:
        """Moving averages at each row, and after the first `steps` rows; None: after all."""
        if not self.averages:
            return np.empty((*read.numbers.shape[:-1], 0)), moving
        values = np.where(read.missing, np.nan, read.numbers)[..., self._averaged]
        steps = np.full(len(values), values.shape[1]) if steps is None else steps
        out, mean, weight = smooth_numbers(values, _array(moving.mean), _array(moving.weight), self._half_lives, steps)
        return out, Moving(*(torch.from_numpy(v).to(moving.mean.device) for v in (mean, weight)))

    def _sources(self, read: CovariateRows, averages: Array, ticks: Ints) -> tuple[Array, list[Any]]:
        """(..., number) numbers and averages, and the code of each table at each row."""
        names = {table.clock for table in self._tables}
        clocks = clock_codes(ticks, self._tick, names)
        if not names.isdisjoint(HOLIDAY_CLOCKS):
            clocks |= self._holiday_clocks(ticks // 24 if self._tick == HOUR else ticks)
        codes = [
            clocks[table.clock] if table.clock else np.minimum(read.categories[..., table.column], 255)
            for table in self._tables
        ]
        return np.concatenate([read.numbers[..., self._read], averages], -1), codes

    def _holiday_clocks(self, days: Ints) -> dict[str, Ints]:
        """The code of the holiday, and 1 on the eve of one or 2 on the day after one."""
        today, before, after = (holiday_codes(self._country, self._feasts, days + away) for away in (0, 1, -1))
        return {"holiday": today, "beside": np.where(today > 0, 0, np.where(before > 0, 1, np.where(after > 0, 2, 0)))}

    def _products(self, plain: Array, codes: Sequence[Any]) -> Array:
        """(..., k) regressors."""
        looked_up = [table.values[code] for table, code in zip(self._tables, codes, strict=True)]
        factors = np.concatenate([np.ones((*plain.shape[:-1], 1)), plain, *looked_up], -1)
        out: Array = (factors[..., self._left] * factors[..., self._right] - self._middle) / self._unit
        return out

    def _sum(self, plain: Array, codes: Sequence[Any], theta: Array) -> Array:
        """(series, row) sum of the regressors by the coefficients (series, k).

        Regressors that share a table and the second factor are looked up at once, as their sum.
        """
        weights = theta / self._unit
        out: Array = np.repeat(-(weights @ self._middle)[:, None], plain.shape[1], 1)
        for group in self._groups:
            weight = weights[:, group.which]
            if not weight.any():  # all of them stay
                continue
            if group.table is None:
                part = np.matmul(plain[..., group.columns], weight[..., None])[..., 0]
            else:
                by_code = weight @ self._tables[group.table].values[:, group.columns].T
                part = np.take_along_axis(by_code, codes[group.table].astype(np.int64), 1)
            out += part * self._second(plain, codes, group.second) if group.second else part
        return out

    def _second(self, plain: Array, codes: Sequence[Any], factor: int) -> Array:
        """A factor at each row."""
        table, column = self._place(factor)
        return plain[..., column] if table is None else self._tables[table].values[codes[table], column]

    def _place(self, factor: int) -> tuple[int | None, int]:
        """The table of a factor, None for numbers, and its column there."""
        at = factor - 1 - len(self._read) - self.averages
        if at < 0:
            return None, factor - 1
        for i, table in enumerate(self._tables):
            if at < table.values.shape[1]:
                return i, at
            at -= table.values.shape[1]
        raise IndexError(factor)

    def _grouped(self) -> list[Together]:
        """The regressors by the table of their first factor and by their second factor."""
        found: dict[tuple[int | None, int], list[tuple[int, int]]] = {}
        for k in range(len(self)):
            table, column = self._place(int(self._left[k]))
            found.setdefault((table, int(self._right[k])), []).append((k, column))
        return [Together(*key, *(np.array(v) for v in zip(*pairs, strict=True))) for key, pairs in found.items()]


def _by_code(column: CategoryColumn, own: Sequence[Factor]) -> Array:
    """(256, factor): each factor by the code of the category. The first value is the commonest, and has none."""
    codes = np.arange(256)
    places = [column.values.index(f.level) + 1 if f.kind == "level" else 0 for f in own]
    others = ~np.isin(codes, [1, *filter(None, places)])
    return np.stack([codes == place if place else others for place in places], -1).astype(np.float64)


def _read(rows: Rows) -> CovariateRows:
    """Known-future covariates, then historic ones."""
    pairs = np.concatenate([_array(rows.futr), _array(rows.hist)], -1)
    categories = np.concatenate([_array(rows.futr_cat), _array(rows.hist_cat)], -1)
    return CovariateRows(pairs[..., ::2].astype(np.float64), pairs[..., 1::2] > 0, categories)


def _unrolled(older: Any, ticks: Ints) -> Ints:
    """Days or hours of older rows, from what they are modulo 256 and from those of the rows after them."""
    first = ticks[:, :1]
    apart = np.diff(np.concatenate([older, (first & 255).astype(np.uint8)], 1)).astype(np.int64)  # modulo 256, too
    out: Ints = first - np.cumsum(apart[:, ::-1], 1)[:, ::-1]
    return out


def _array(value: Tensor) -> Any:
    return value.cpu().numpy()
