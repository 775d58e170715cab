"""Blocks of rows, the grid of origins on them, and the causal scale at each origin.

A `Block` is a batch of series: `input_size` rows of context, then the rows to forecast or learn from. Origin i lies
after i of those rows, origin 0 at the end of the context. An origin reads only rows before it.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from aru.data.rows import Rows, Static


class Values(NamedTuple):
    """Values of y, and which of them were observed; a missing one is 0."""

    y: Tensor
    observed: Tensor


class Older(NamedTuple):
    """Values before the latest rows, in four bytes each: how far they are from the first value of their series."""

    base: Float[Tensor, " series"]  # that first value, in double precision
    away: Float[Tensor, "series older"]  # in single precision; infinite where missing, NaN where held back
    codes: UInt8[Tensor, "series older column"]  # what else a model keeps of them (`Model.codes`)

    @property
    def values(self) -> Values:
        """The values themselves."""
        observed = self.away.isfinite()
        return Values(torch.where(observed, self.base.unsqueeze(1) + self.away.double(), 0.0), observed)

    def replaced(self, values: Values) -> Older:
        """The same series with other values."""
        away = torch.where(values.observed, values.y - self.base.unsqueeze(1), torch.inf)
        return Older(self.base, away.float(), self.codes)


class Context(NamedTuple):
    """What networks read of each series: its latest rows, and sums over its whole history."""

    rows: Rows  # (series, kept, ...)
    older: Older  # earlier values, as far back as a forecast reads
    static: Static
    total: Float[Tensor, " series"]  # sum of |y|
    count: Float[Tensor, " series"]  # type: ignore[assignment]  # number of observations; hides tuple.count


class Block(NamedTuple):
    """Padded rows of a batch of series. Rows that do not exist are unobserved and zero."""

    rows: Rows  # (batch, time, ...)
    lag: Values  # (batch, time, lags)
    static: Static
    total: Float[Tensor, " batch"]  # sum of |y| over all history up to origin 0
    count: Float[Tensor, " batch"]  # type: ignore[assignment]  # observations up to origin 0; hides tuple.count


class Grid(NamedTuple):
    """`count` origins: first, first + stride, ... The windows of the first `skipped` origins are not scored."""

    first: int
    stride: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    skipped: Int[Tensor, ""] | None = None


NOW = Grid(0, 1, 1)  # the one origin of a forecast: the end of the context


class Scaling(NamedTuple):
    """How the scale s(o) of an origin is computed: see `scales`."""

    prior: float | None  # weight of the overall mean, in values of the context; None: only the overall mean counts
    input_size: int
    unit: float
    typical: float
    enough: int  # observations that are needed to learn from an origin


def scales(
    block: Block, grid: Grid, scaling: Scaling
) -> tuple[Float[Tensor, "batch window"], Bool[Tensor, "batch window"]]:
    """The scale s(o) > 0 at each origin, and whether at least `enough` values were observed up to it.

    Without a prior it is unit + mean|y| over all values so far (the paper's 1 + mean|y|). With a prior it is mean|y|
    over the context, shrunk towards the overall mean, which counts as `prior` further values. Before the first
    observation it is the typical scale of the training data. It never uses values after the origin.
    """
    E = scaling.input_size
    y, observed = block.rows.y, block.rows.observed
    size = torch.where(observed, y.abs(), 0.0)
    total, count = block.total.unsqueeze(1), block.count.unsqueeze(1)
    if grid.first or grid.count > 1:
        totals = total + torch.nn.functional.pad(size[:, E:].cumsum(1), (1, 0))
        counts = count + torch.nn.functional.pad(observed[:, E:].double().cumsum(1), (1, 0))
        total, count = _at(totals, grid), _at(counts, grid)
    return _scale(contexts(size, grid, E), contexts(observed, grid, E), total, count, scaling)


def scale_now(block: Block, scaling: Scaling) -> tuple[Float[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """The same for a block without rows after the context, whose only origin is the end of the context."""
    size = torch.where(block.rows.observed, block.rows.y.abs(), 0.0)
    if scaling.input_size % 8:
        # In ONNX Runtime the order of summation depends on the alignment of a row. Rows padded to whole cache lines are
        # all aligned alike, so that no sum depends on the other series.
        size = torch.nn.functional.pad(size, (0, -scaling.input_size % 8))
    return _scale(size, block.rows.observed, block.total, block.count, scaling)


def _scale(size: Tensor, observed: Tensor, total: Tensor, count: Tensor, scaling: Scaling) -> tuple[Tensor, Tensor]:
    """From (..., row) sizes and masks of contexts, and the (...) sums of all values up to each origin."""
    overall = total / count.clamp(min=1)
    if scaling.prior is not None:
        near, n = size.sum(-1), observed.double().sum(-1)
        # The unit has a tiny weight: it only matters if all values so far were zero.
        scale = (near + scaling.prior * overall) / (n + scaling.prior) + 1e-3 * scaling.unit
    else:
        scale = scaling.unit + overall
    return torch.where(count > 0, scale, scaling.typical), count >= scaling.enough


def _at(x: Tensor, grid: Grid) -> Tensor:
    """Values at the origins of the grid, from (batch, origin)."""
    return x[:, grid.first : grid.first + (grid.count - 1) * grid.stride + 1 : grid.stride]


def contexts(x: Tensor, grid: Grid, input_size: int) -> Tensor:
    """The `input_size` rows up to each origin: (batch, time, ...) -> (batch, window, row, ...)."""
    last = grid.first + (grid.count - 1) * grid.stride + input_size
    return _unfold(_between(x, grid.first, last), input_size, grid)


def leads(x: Tensor, grid: Grid, input_size: int, n: int) -> Tensor:
    """The `n` rows after each origin: (batch, time, ...) -> (batch, window, row, ...)."""
    start = input_size + grid.first
    return _unfold(_between(x, start, start + (grid.count - 1) * grid.stride + n), n, grid)


def _between(x: Tensor, start: int, end: int) -> Tensor:
    """Rows start to end; x itself if these are all, which saves an exported network an operation."""
    return x if start == 0 and end == int(x.shape[1]) else x[:, start:end]


def _unfold(x: Tensor, size: int, grid: Grid) -> Tensor:
    return x.unsqueeze(1) if grid.count == 1 else x.unfold(1, size, grid.stride).movedim(-1, 2)


def all_values(context: Context, rows: Rows | None = None) -> Values:
    """All (series, row) values in the context of each series, followed by those of `rows`, if any."""
    parts = [Values(context.rows.y, context.rows.observed)]
    if context.older.away.shape[1]:
        parts.insert(0, context.older.values)
    if rows is not None:
        parts.append(Values(rows.y, rows.observed))
    return parts[0] if len(parts) == 1 else Values(*(torch.cat(part, 1) for part in zip(*parts, strict=True)))


def begun(context: Context, rows: Rows) -> Older:
    """The older values; series whose first value is in `rows` get their base."""
    if not (context.older.away.shape[1] and rows.y.shape[1]):
        return context.older
    first = rows.observed.to(torch.int8).argmax(1, keepdim=True)  # a row without a value has a y of 0
    base = torch.where(context.count > 0, context.older.base, rows.y.gather(1, first)[:, 0])
    return context.older._replace(base=base)


def sums_after(context: Context, rows: Rows) -> tuple[Float[Tensor, "series after"], Float[Tensor, "series after"]]:
    """Sum of |y| and number of observations of each series after 0, 1, 2, ... of its `rows`.

    Values are added in order: on a CPU, one call or several calls give the same bits.
    """
    size = torch.where(rows.observed, rows.y.abs(), 0.0)
    total, count = (
        torch.cat([old.unsqueeze(1), new], 1).cumsum(1)
        for old, new in ((context.total, size), (context.count, rows.observed))
    )
    return total, count


def join_block(context: Context, rows: Rows | None, input_size: int, lags: tuple[int, ...]) -> Block:
    """The block of the context of each series and the (series, row) rows that follow, if any."""
    kept, E = context.rows.y.shape[1], input_size
    both = Rows(*(_between(old, int(kept) - E, int(kept)) for old in context.rows))
    if rows is not None:
        both = Rows(*(torch.cat([old, new], 1) for old, new in zip(both, rows, strict=True)))
    if not lags:
        none = both.y.unsqueeze(-1)[..., :0]
        return Block(both, Values(none, none.bool()), context.static, context.total, context.count)
    y, observed = all_values(context, rows)
    n = both.y.shape[1]
    first = y.shape[1] - n
    lag = Values(*(torch.stack([v[:, first - lag : first - lag + n] for lag in lags], -1) for v in (y, observed)))
    return Block(both, lag, context.static, context.total, context.count)


def gather_block(
    rows: Rows,
    static: Static,
    starts: Tensor,
    lengths: Tensor,
    begin: Tensor,
    n: int,
    input_size: int,
    lags: tuple[int, ...],
    sums: Sums,
) -> Block:
    """Cut blocks out of encoded rows: from series b its rows begin[b] - input_size up to begin[b] + n.

    Positions before the first or after the last row of a series are padding. `static` holds the static covariates of
    these series, `sums` the running sums of the rows.
    """
    position = begin[:, None] + torch.arange(-input_size, n, device=begin.device)
    inside = (position >= 0) & (position < lengths[:, None])
    index = torch.where(inside, starts[:, None] + position, 0)

    def pick(x: Tensor) -> Tensor:
        mask = inside if x.ndim == 1 else inside.unsqueeze(-1)
        return torch.where(mask, x[index], torch.zeros((), dtype=x.dtype, device=x.device))

    lagged: list[tuple[Tensor, Tensor]] = []
    for back in lags:
        known = (position >= back) & (position - back < lengths[:, None])
        at = torch.where(known, starts[:, None] + position - back, 0)
        known = known & rows.observed[at]
        lagged.append((torch.where(known, rows.y[at], 0.0), known))
    none = rows.y.new_zeros(*position.shape, 0)
    lag = Values(*(torch.stack(part, -1) for part in zip(*lagged, strict=True))) if lags else Values(none, none.bool())
    passed = begin.minimum(lengths).clamp(min=0)
    last = (starts + passed - 1).clamp(min=0)
    total, count = torch.where((passed > 0).unsqueeze(-1), sums.through[last] - sums.before[starts], 0.0).unbind(-1)
    return Block(Rows(*map(pick, rows)), lag, static, total, count)


class Sums(NamedTuple):
    """Sum of |y| and number of observations of a series up to each of its rows: including the row, and before it."""

    through: Float[Tensor, "row 2"]
    before: Float[Tensor, "row 2"]


def running_sums(rows: Rows, starts: Tensor) -> Sums:
    """Running sums per series. Each starts at zero, so that huge values of one series do not swamp the next one."""
    n = len(rows.y)
    first = torch.zeros(n, dtype=torch.bool)
    first[starts[starts < n].cpu()] = True
    values = torch.stack([torch.where(rows.observed, rows.y.abs(), 0.0), rows.observed.double()], -1).cpu()
    through = torch.from_numpy(
        pd.DataFrame(values.numpy()).groupby(first.cumsum(0).numpy()).cumsum().to_numpy(copy=True)
    )
    before = torch.where(first.unsqueeze(-1), 0.0, through.roll(1, 0))
    return Sums(through.to(rows.y.device), before.to(rows.y.device))
