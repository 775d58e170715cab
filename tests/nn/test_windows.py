"""Blocks, origins and scales against loops over single rows; and that nothing after an origin counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from aru.data.rows import Rows, Static
from aru.nn.tree import leaves
from aru.nn.windows import (
    Block,
    Context,
    Grid,
    Older,
    Scaling,
    Values,
    contexts,
    gather_block,
    join_block,
    leads,
    running_sums,
    scales,
)

E = 3
LENGTHS = (9, 1, 6, 14)
LAGS = (2, 5)
PRIORS = (None, 1.0, 16.0)


class Ragged(NamedTuple):
    """Encoded rows of several series, and where each begins."""

    rows: Rows
    static: Static
    starts: Tensor
    lengths: Tensor


@pytest.fixture
def data() -> Ragged:
    """Every value is different; rows that are not observed hold 0."""
    n, series = sum(LENGTHS), len(LENGTHS)
    observed = torch.rand(n) < 0.7
    lengths = torch.tensor(LENGTHS)
    rows = Rows(
        ds=torch.arange(n),
        y=torch.where(observed, torch.randn(n, dtype=torch.float64) * 10, 0.0),
        observed=observed,
        held=torch.zeros_like(observed),
        futr=torch.randn(n, 4),
        futr_cat=torch.randint(0, 9, (n, 2), dtype=torch.int32),
        hist=torch.randn(n, 2),
        hist_cat=torch.randint(0, 9, (n, 1), dtype=torch.int32),
    )
    static = Static(torch.randn(series, 2), torch.randint(0, 5, (series, 3)))
    return Ragged(rows, static, lengths.cumsum(0) - lengths, lengths)


def no_codes(y: Tensor) -> Tensor:
    """No covariates of older rows."""
    return torch.zeros(*y.shape, 0, dtype=torch.uint8)


def gather(
    data: Ragged, series: list[int], begin: list[int], n: int, lags: tuple[int, ...] = LAGS, **changes: Any
) -> Block:
    pick = torch.tensor(series)
    rows = data.rows._replace(**changes)
    static = Static._make(v[pick] for v in data.static)
    return gather_block(
        rows,
        static,
        data.starts[pick],
        data.lengths[pick],
        torch.tensor(begin),
        n,
        E,
        lags,
        running_sums(rows, data.starts),
    )


def random_block(batch: int, time: int) -> Block:
    observed = torch.rand(batch, time) < 0.7
    return Block(
        rows=Rows(
            ds=torch.arange(time).expand(batch, -1),
            y=torch.where(observed, torch.randn(batch, time, dtype=torch.float64) * 10, 0.0),
            observed=observed,
            held=torch.zeros_like(observed),
            futr=torch.randn(batch, time, 4),
            futr_cat=torch.randint(0, 9, (batch, time, 2), dtype=torch.int32),
            hist=torch.randn(batch, time, 2),
            hist_cat=torch.randint(0, 9, (batch, time, 1), dtype=torch.int32),
        ),
        lag=Values(torch.randn(batch, time, 2, dtype=torch.float64), torch.rand(batch, time, 2) < 0.5),
        static=Static(torch.randn(batch, 2), torch.randint(0, 5, (batch, 3), dtype=torch.int32)),
        total=torch.rand(batch, dtype=torch.float64) * 100,
        count=torch.randint(1, 50, (batch,)).double(),
    )


def with_values(block: Block, y: Tensor, observed: Tensor) -> Block:
    return block._replace(rows=block.rows._replace(y=y, observed=observed))


# Rows before and after the origins.


@pytest.mark.parametrize("grid", [Grid(0, 1, 1), Grid(0, 1, 8), Grid(2, 3, 3), Grid(1, 4, 2), Grid(5, 2, 1)])
@pytest.mark.parametrize("extra", [(), (4,), (2, 5)])
def test_contexts_and_leads_are_the_rows_up_to_and_after_each_origin(grid: Grid, extra: tuple[int, ...]) -> None:
    """Origin i stands after row E + i - 1 of the block."""
    x, n = torch.randn(2, E + 12, *extra), 4
    before, after = contexts(x, grid, E), leads(x, grid, E, n)
    assert before.shape == (2, grid.count, E, *extra)
    assert after.shape == (2, grid.count, n, *extra)
    for w in range(grid.count):
        last = E + grid.first + w * grid.stride  # the first row after the origin
        for row in range(E):
            assert torch.equal(before[:, w, row], x[:, last - E + row])
        for row in range(n):
            assert torch.equal(after[:, w, row], x[:, last + row])


# Blocks.


@pytest.mark.parametrize(
    ("series", "begin"),
    [([0, 1, 2, 3], [0, 0, 0, 0]), ([3, 0, 2, 1], [1, 4, 6, 1]), ([3, 3, 0], [14, 5, 20]), ([1, 2], [3, -2])],
    ids=["from the start", "inside", "at and past the end", "before the start"],
)
def test_gathered_blocks_equal_a_loop_over_rows(data: Ragged, series: list[int], begin: list[int]) -> None:
    n = 7
    block = gather(data, series, begin, n)
    rows = data.rows
    for b, (s, origin) in enumerate(zip(series, begin, strict=True)):
        first, length = int(data.starts[s]), LENGTHS[s]
        for i in range(E + n):
            position = origin - E + i
            exists = 0 <= position < length
            for name in Rows._fields:
                value = getattr(block.rows, name)[b, i]
                source = getattr(rows, name)[first + position] if exists else torch.zeros_like(value)
                assert torch.equal(value, source), (name, s, position)
            for j, back in enumerate(LAGS):
                known = 0 <= position - back < length and bool(rows.observed[first + position - back])
                assert bool(block.lag.observed[b, i, j]) == known
                assert block.lag.y[b, i, j] == (rows.y[first + position - back] if known else 0)
        past = slice(first, first + min(max(origin, 0), length))
        assert block.count[b] == rows.observed[past].sum()
        torch.testing.assert_close(
            block.total[b], rows.y[past][rows.observed[past]].abs().sum(), rtol=1e-12, atol=1e-12
        )
        assert torch.equal(block.static.numbers[b], data.static.numbers[s])
        assert torch.equal(block.static.categories[b], data.static.categories[s])
    for name in Rows._fields:
        assert getattr(block.rows, name).dtype == getattr(rows, name).dtype


def test_blocks_without_lags_have_lags_of_no_width(data: Ragged) -> None:
    block = gather(data, [0, 1], [2, 0], 5, lags=())
    assert block.lag.y.shape == block.lag.observed.shape == (2, E + 5, 0)
    assert block.lag.observed.dtype == torch.bool


def test_a_lag_is_known_in_the_future_as_far_as_it_reaches(data: Ragged) -> None:
    """Of the h rows after the end of a series the lag of h steps is known, without any row there."""
    complete = torch.ones_like(data.rows.observed)
    y = torch.arange(1.0, 1 + sum(LENGTHS), dtype=torch.float64)
    block = gather(data, [0], [LENGTHS[0]], 5, lags=(5,), y=y, observed=complete)
    assert not block.rows.observed[0, E:].any()
    assert block.lag.observed[0, E:, 0].all()
    assert block.lag.y[0, E:, 0].tolist() == [5, 6, 7, 8, 9]


def test_rows_after_a_series_are_not_those_of_the_next(data: Ragged) -> None:
    """Nor those before it the ones of the previous: blocks do not change with the neighbours."""
    block = gather(data, [2], [3], 8)
    other = torch.ones(sum(LENGTHS), dtype=torch.bool)
    other[int(data.starts[2]) : int(data.starts[2]) + LENGTHS[2]] = False
    neighbours = gather(
        data, [2], [3], 8, y=torch.where(other, 77.0, data.rows.y), futr=data.rows.futr.masked_fill(other[:, None], 5.0)
    )
    for (name, a), (_, b) in zip(leaves(block), leaves(neighbours), strict=True):
        if name != "rows.ds":
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-10, msg=name)


def test_running_sums_begin_anew_with_each_series(data: Ragged) -> None:
    through, before = running_sums(data.rows, data.starts)
    size = torch.where(data.rows.observed, data.rows.y.abs(), 0.0)
    for start, length in zip(data.starts.tolist(), data.lengths.tolist(), strict=True):
        total, count = 0.0, 0
        for row in range(start, start + length):
            assert before[row].tolist() == pytest.approx([total, count], rel=1e-12)
            total, count = total + float(size[row]), count + int(data.rows.observed[row])
            assert through[row].tolist() == pytest.approx([total, count], rel=1e-12)


@pytest.mark.parametrize("kept", [E, E + 2])
@pytest.mark.parametrize("lags", [(), LAGS])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_joined_block_equals_a_gathered_one(data: Ragged, kept: int, lags: tuple[int, ...], n: int) -> None:
    """What is kept of a series and the rows that follow are the block at that origin, whatever more is kept."""
    at = [9, 5]
    wide = gather(data, [3, 0], at, n, lags=())
    history = kept + max(E + max(lags, default=0) - kept, 0)
    before = [gather_before(data, s, origin, history) for s, origin in zip([3, 0], at, strict=True)]
    rows = Rows(*(torch.stack(v) for v in zip(*before, strict=True)))
    context = Context(
        rows=Rows(*(v[:, history - kept :] for v in rows)),
        older=Older(rows.y[:, 0], rows.y, no_codes(rows.y)).replaced(
            Values(*(v[:, : history - kept] for v in (rows.y, rows.observed)))
        ),
        static=wide.static,
        total=wide.total,
        count=wide.count,
    )
    ahead = Rows(*(v[:, E:] for v in wide.rows)) if n else None
    joined, expected = join_block(context, ahead, E, lags), gather(data, [3, 0], at, n, lags=lags)
    for (name, a), (_, b) in zip(leaves(joined), leaves(expected), strict=True):
        if name == "lag.y":  # older values are kept in single precision
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(a, b), name


def gather_before(data: Ragged, series: int, origin: int, n: int) -> Rows:
    """The `n` rows before an origin of a series, zero where it had not begun."""
    first = int(data.starts[series])

    def take(value: Tensor) -> Tensor:
        rows = [value[first + i] if i >= 0 else torch.zeros_like(value[0]) for i in range(origin - n, origin)]
        return torch.stack(rows)

    return Rows(*map(take, data.rows))


# Scales.


def naive_scale(scaling: Scaling, total: float, count: int, values: list[float], context: list[float]) -> float:
    """The docstring's two rules, from |y| after origin 0 (`values`) and in the context alone."""
    count += len(values)
    if count == 0:
        return scaling.typical
    overall = (total + sum(values)) / count
    if scaling.prior is None:
        return scaling.unit + overall
    return (sum(context) + scaling.prior * overall) / (len(context) + scaling.prior) + 1e-3 * scaling.unit


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("grid", [Grid(0, 1, 10), Grid(2, 3, 3), Grid(4, 1, 1)])
@pytest.mark.parametrize("enough", [1, 4])
def test_scales_equal_a_loop_over_observations(prior: float | None, grid: Grid, enough: int) -> None:
    block, scaling = random_block(3, E + 10), Scaling(prior, E, 0.7, 42.0, enough)
    block = block._replace(total=block.total * torch.tensor([1, 1, 0]), count=block.count * torch.tensor([1, 1, 0]))
    y, observed = block.rows.y, block.rows.observed.clone()
    observed[2, :5] = False  # a series that has not begun
    block = with_values(block, y, observed)
    found, informed = scales(block, grid, scaling)
    assert found.shape == informed.shape == (3, grid.count)
    assert (found > 0).all()
    for b in range(3):
        for w in range(grid.count):
            origin = E + grid.first + w * grid.stride
            new = [abs(float(y[b, i])) for i in range(E, origin) if observed[b, i]]
            near = [abs(float(y[b, i])) for i in range(origin - E, origin) if observed[b, i]]
            expected = naive_scale(scaling, float(block.total[b]), int(block.count[b]), new, near)
            assert found[b, w].item() == pytest.approx(expected, rel=1e-12)
            assert bool(informed[b, w]) == (block.count[b] + len(new) >= enough)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("change", [1e12, -3.0, float("nan")])
def test_nothing_after_an_origin_changes_its_scale_by_one_bit(prior: float | None, change: float) -> None:
    block, grid, scaling = random_block(4, E + 40), Grid(0, 1, 41), Scaling(prior, E, 1.0, 42.0, 1)
    before, informed = scales(block, grid, scaling)
    for origin in (0, 1, 17, 39):
        y, observed = block.rows.y.clone(), block.rows.observed.clone()
        y[:, E + origin :] = change
        observed[:, E + origin :] = True
        after, still = scales(with_values(block, y, observed), grid, scaling)
        assert torch.equal(after[:, : origin + 1], before[:, : origin + 1])
        assert torch.equal(still[:, : origin + 1], informed[:, : origin + 1])
        if change == change:
            assert not torch.equal(after[:, origin + 1 :], before[:, origin + 1 :])


@pytest.mark.parametrize("prior", PRIORS)
def test_values_that_were_not_observed_do_not_count(prior: float | None) -> None:
    block, scaling = random_block(2, E + 6), Scaling(prior, E, 1.0, 42.0, 1)
    y, observed = block.rows.y, block.rows.observed
    garbage = with_values(block, torch.where(observed, y, 1e9), observed)
    assert torch.equal(scales(block, Grid(0, 1, 7), scaling)[0], scales(garbage, Grid(0, 1, 7), scaling)[0])


@pytest.mark.parametrize("prior", PRIORS)
def test_a_series_of_zeros_has_a_positive_scale(prior: float | None) -> None:
    block = random_block(1, E + 4)
    zeros = with_values(block, torch.zeros_like(block.rows.y), torch.ones_like(block.rows.observed))
    zeros = zeros._replace(total=block.total * 0)
    scale, informed = scales(zeros, Grid(0, 1, 5), Scaling(prior, E, 0.5, 42.0, 1))
    assert (scale > 0).all()
    assert informed.all()


def test_the_level_follows_a_trend_and_the_mean_does_not() -> None:
    y = torch.linspace(1, 1000, E + 60, dtype=torch.float64).unsqueeze(0)
    block = with_values(random_block(1, E + 60), y, torch.ones(1, E + 60, dtype=torch.bool))
    block = block._replace(total=y[:, :E].sum(1), count=torch.tensor([float(E)], dtype=torch.float64))
    last = Grid(60, 1, 1)
    level, mean = (scales(block, last, Scaling(prior, E, 1.0, 42.0, 1))[0].item() for prior in (1.0, None))
    assert mean == pytest.approx(501.5, rel=1e-3)
    assert level > 0.85 * 1000


def test_the_scale_at_an_origin_is_the_same_however_the_block_was_cut(data: Ragged) -> None:
    """Training cuts blocks anywhere; streaming begins each where the last one ended."""
    for prior in PRIORS:
        scaling = Scaling(prior, E, 1.0, 42.0, 1)
        whole, _ = scales(gather(data, [3], [0], 14), Grid(0, 1, 15), scaling)
        for begin in (1, 4, 13):
            part, _ = scales(gather(data, [3], [begin], 14 - begin), Grid(0, 1, 15 - begin), scaling)
            torch.testing.assert_close(part, whole[:, begin:], rtol=1e-12, atol=1e-12)


def test_blocks_are_left_alone(data: Ragged) -> None:
    block = gather(data, [3, 0], [4, 2], 6)
    before = [v.clone() for _, v in leaves(block)]
    scales(block, Grid(0, 2, 3), Scaling(1.0, E, 1.0, 42.0, 1))
    assert all(torch.equal(a, b) for (_, a), b in zip(leaves(block), before, strict=True))
