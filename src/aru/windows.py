"""Blocks of rows, the grid of origins on them, and the causal scale at each origin.

A `Block` is a batch of series: `input_size` rows of context, then the rows to work on. Origin i of a block
stands after i of those rows (origin 0 at the end of the context): it may look at everything before it and at
nothing after it.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aru.schema import Rows, Static


class Block(NamedTuple):
    """Padded rows of a batch of series. Rows that do not exist are unobserved and zero."""

    y: Float[Tensor, "batch time"]
    observed: Bool[Tensor, "batch time"]
    lag: Float[Tensor, "batch time lags"]
    lag_observed: Bool[Tensor, "batch time lags"]
    futr: Float[Tensor, "batch time _"]
    futr_cat: Tensor
    hist: Float[Tensor, "batch time _"]
    hist_cat: Tensor
    static: Float[Tensor, "batch _"]
    static_cat: Tensor
    total: Float[Tensor, " batch"]  # sum of |y| over all history up to origin 0
    count: Float[Tensor, " batch"]  # type: ignore[assignment]  # observations up to origin 0; hides tuple.count


ROW_FIELDS = Block._fields.index("static")  # the fields before it have a time dimension


class Grid(NamedTuple):
    """Origins first, first + stride, ...: `count` of them. The rows after the first `skipped` ones are no targets."""

    first: int
    stride: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    skipped: Int[Tensor, ""] | None = None


class Scaling(NamedTuple):
    """How s(o) is computed: see `scales`."""

    prior: float | None  # values of the context that the overall mean counts as; None: it is all that counts
    input_size: int
    unit: float
    typical: float
    enough: int  # observations


def scales(
    block: Block, grid: Grid, scaling: Scaling
) -> tuple[Float[Tensor, "batch window"], Bool[Tensor, "batch window"]]:
    """The scale s(o) > 0 at each origin, from observations up to it alone, and whether they were enough.

    Without a prior: unit + mean|y| over all of them (the paper's 1 + mean|y|). Else mean|y| over the context, shrunk
    towards the overall mean as if that had been observed `prior` times more.
    Before the first observation it is the typical scale of the training data.
    """
    E = scaling.input_size
    size = torch.where(block.observed, block.y.abs(), 0.0)
    new, seen = size[:, E:], block.observed[:, E:].double()
    totals = block.total.unsqueeze(1) + torch.nn.functional.pad(new.cumsum(1), (1, 0))
    counts = block.count.unsqueeze(1) + torch.nn.functional.pad(seen.cumsum(1), (1, 0))
    total, count = _at(totals, grid), _at(counts, grid)
    overall = total / count.clamp(min=1)
    if scaling.prior is not None:
        near = contexts(size, grid, E).sum(-1)
        n = contexts(block.observed.double(), grid, E).sum(-1)
        # The unit enters so lightly that it only matters where everything seen so far was zero.
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
    return _unfold(x[:, grid.first : last], input_size, grid.stride)


def leads(x: Tensor, grid: Grid, input_size: int, n: int) -> Tensor:
    """The `n` rows after each origin: (batch, time, ...) -> (batch, window, row, ...)."""
    start = input_size + grid.first
    return _unfold(x[:, start : start + (grid.count - 1) * grid.stride + n], n, grid.stride)


def _unfold(x: Tensor, size: int, step: int) -> Tensor:
    return x.unfold(1, size, step).movedim(-1, 2)


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
    """Cut blocks out of encoded rows: of series b its own rows from begin[b] - input_size up to begin[b] + n.

    Positions before its first or after its last row are padding. `static` belongs to these series already;
    `sums` are those of the rows.
    """
    position = begin[:, None] + torch.arange(-input_size, n, device=begin.device)
    inside = (position >= 0) & (position < lengths[:, None])
    index = torch.where(inside, starts[:, None] + position, 0)

    def pick(x: Tensor) -> Tensor:
        mask = inside if x.ndim == 1 else inside.unsqueeze(-1)
        return torch.where(mask, x[index], torch.zeros((), dtype=x.dtype, device=x.device))

    y, observed, lag, lag_observed = rows.y, pick(rows.observed), [], []
    for back in lags:
        known = (position >= back) & (position - back < lengths[:, None])
        at = torch.where(known, starts[:, None] + position - back, 0)
        known = known & rows.observed[at]
        lag.append(torch.where(known, y[at], 0.0))
        lag_observed.append(known)
    passed = begin.minimum(lengths).clamp(min=0)
    last = (starts + passed - 1).clamp(min=0)
    total, count = torch.where((passed > 0).unsqueeze(-1), sums.through[last] - sums.before[starts], 0.0).unbind(-1)
    shape = (*position.shape, 0)
    return Block(
        y=pick(y),
        observed=observed,
        lag=torch.stack(lag, -1) if lags else y.new_zeros(shape),
        lag_observed=torch.stack(lag_observed, -1) if lags else observed.new_zeros(shape),
        futr=pick(rows.futr),
        futr_cat=pick(rows.futr_cat),
        hist=pick(rows.hist),
        hist_cat=pick(rows.hist_cat),
        static=static.numbers,
        static_cat=static.categories,
        total=total,
        count=count,
    )


class Sums(NamedTuple):
    """Sum of |y| and number of observations of a series up to each of its rows: with the row, and without it."""

    through: Float[Tensor, "row 2"]
    before: Float[Tensor, "row 2"]


def running_sums(rows: Rows, starts: Tensor) -> Sums:
    """Running sums that begin anew with each series: enormous values of one must not swallow those of the next."""
    n = len(rows.y)
    first = torch.zeros(n, dtype=torch.bool)
    first[starts[starts < n].cpu()] = True
    values = torch.stack([torch.where(rows.observed, rows.y.abs(), 0.0), rows.observed.double()], -1).cpu()
    through = torch.from_numpy(
        pd.DataFrame(values.numpy()).groupby(first.cumsum(0).numpy()).cumsum().to_numpy(copy=True)
    )
    before = torch.where(first.unsqueeze(-1), 0.0, through.roll(1, 0))
    return Sums(through.to(rows.y.device), before.to(rows.y.device))


def shift_block(block: Block, by: Tensor, n: int, input_size: int) -> Block:
    """Move origin 0 of each series `by` rows on and keep `n` rows after it; rows past the end are padding."""
    T = block.y.shape[1]
    index = by[:, None] + torch.arange(input_size + n, device=by.device)
    inside = index < T
    index = index.clamp(max=T - 1)

    def pick(x: Tensor) -> Tensor:
        shape = index.reshape(*index.shape, *(1,) * (x.ndim - 2)).expand(*index.shape, *x.shape[2:])
        mask = inside.reshape(*index.shape, *(1,) * (x.ndim - 2))
        return torch.where(mask, x.gather(1, shape), torch.zeros((), dtype=x.dtype, device=x.device))

    passed = block.observed[:, input_size:] & (torch.arange(T - input_size, device=by.device) < by[:, None])
    rows = Block._make(v if i >= ROW_FIELDS else pick(v) for i, v in enumerate(block))
    return rows._replace(
        total=block.total + torch.where(passed, block.y[:, input_size:].abs(), 0.0).sum(1),
        count=block.count + passed.sum(1),
    )
