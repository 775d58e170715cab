"""The grid of windows: what is cut out for each origin, and that it does not matter how rows were delivered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jaxtyping
import pandas as pd
import pytest
import torch
from torch import Tensor

from aru.data.panel import read_panel
from aru.data.rows import Rows, Static
from aru.models.aru import ARU
from aru.models.windowed import WindowedModel, window_contexts
from aru.nn.tree import concat, put, take, tree_map
from aru.nn.windows import NOW, Context, Grid, Older, Values, gather_block, leads, running_sums
from aru.runtime.state import move_on
from tests.making import flat, make
from tests.models.test_contract import BASE, NUMBERS, STATIC, rows, values

# How many rows each series has in all: of the windows that follow, some are open, some have just begun.
STEPS = torch.tensor([29, 1, 2, 4, 5, 17, 28])
T = int(STEPS.max())
IDS = [f"{c}{i}" for i, c in enumerate("abcdefg")]
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "stride 1": {"stride": 1, "lags": None},
    "lags and season": {"lags": (4, 9), "season_length": 3, "stride": 3},
    "long horizon, short context": {"input_size": 3, "gate": True, "lags": (4, 5)},
    "level": {"scaler": "level", "encoder": "gru", "encoder_layers": 2, "transform": "asinh"},
    "paper": {"integration": "paper", "robust": False, "scaler": "mean", "lags": None, "learn_ridge": False},
    "direct": {"model": "aru-direct", "encoder": "fru"},
    "finetuned": {"model": "baseline-finetuned", "stride": 3},
}


def no_codes(y: Tensor) -> Tensor:
    """No covariates of older rows."""
    return torch.zeros(*y.shape, 0, dtype=torch.uint8)


def draw_rows(n: int, length: int, generator: torch.Generator) -> Rows:
    """Rows of every kind, a third of them not observed."""
    observed = torch.rand(n, length, generator=generator) > 0.3
    y = torch.randn(n, length, generator=generator, dtype=torch.float64)
    return Rows(
        ds=torch.randint(1, 1000, (n, length), generator=generator),
        y=torch.where(observed, y, 0.0),
        observed=observed,
        held=torch.zeros_like(observed),
        futr=torch.randn(n, length, 2, generator=generator),
        futr_cat=torch.randint(0, 5, (n, length, 3), generator=generator, dtype=torch.int32),
        hist=torch.randn(n, length, 4, generator=generator),
        hist_cat=torch.randint(0, 5, (n, length, 0), generator=generator, dtype=torch.int32),
    )


def one_by_one(context: Context, new: Rows) -> list[Context]:
    """The contexts after none, one, two, ... rows."""
    found, one = [context], torch.ones(len(context.total), dtype=torch.int64)
    for t in range(new.y.shape[1]):
        found.append(move_on(found[-1], Rows(*(v[:, t : t + 1] for v in new)), one))
    return found


def assert_equal(first: Any, second: Any) -> None:
    """To the last bit; NaN equals NaN."""
    one, other = flat(first), flat(second)
    assert one.keys() == other.keys()
    for path, value in one.items():
        assert value.dtype == other[path].dtype, path
        torch.testing.assert_close(value, other[path], rtol=0, atol=0, equal_nan=True, msg=path)


@pytest.mark.parametrize("older", [0, 1, 4])
@pytest.mark.parametrize("kept", [1, 5, 8])
@pytest.mark.parametrize("stride", [1, 3])
def test_contexts_of_all_origins_are_those_of_moving_on_row_by_row(older: int, kept: int, stride: int) -> None:
    """Rows, values before them, sums; and the rows that follow each origin, which may lie beyond the last one."""
    n, new, windows = 4, 11, 5
    generator = torch.Generator().manual_seed(older + 10 * kept + stride)
    before = draw_rows(n, older, generator)
    context = Context(
        rows=draw_rows(n, kept, generator),
        older=Older(before.y.new_zeros(n), before.y, no_codes(before.y)).replaced(Values(before.y, before.observed)),
        static=Static(torch.randn(n, 2, generator=generator), torch.arange(n, dtype=torch.int32).unsqueeze(1)),
        total=torch.rand(n, generator=generator, dtype=torch.float64) * 100,
        count=torch.arange(n, dtype=torch.float64) + 3,
    )
    some = draw_rows(n, new, generator)
    begin = torch.tensor([1, 3, 2, 11]).unsqueeze(1) + stride * torch.arange(windows)
    cut, ahead = window_contexts(context, some, begin, stride)
    assert len(cut.total) == len(ahead.y) == n * windows
    nothing = Rows(*(v.new_zeros(n, int(begin.max()) + stride, *v.shape[2:]) for v in some))
    going_on = Rows(*(torch.cat(pair, 1) for pair in zip(some, nothing, strict=True)))
    after = one_by_one(context, going_on)
    for series in range(n):
        for window in range(windows):
            at, place = int(begin[series, window]), torch.tensor([series])
            assert_equal(take(cut, torch.tensor([series * windows + window])), take(after[at], place))
            following = Rows(*(v[place, at : at + stride] for v in going_on))
            assert_equal(take(ahead, torch.tensor([series * windows + window])), following)


@pytest.mark.parametrize("older", [0, 4])
def test_moving_on_by_many_rows_is_moving_on_row_by_row(older: int) -> None:
    """By other numbers of rows for each series; sums, too, to the last bit."""
    generator = torch.Generator().manual_seed(older)
    before, n = draw_rows(5, older, generator), 5
    context = Context(
        rows=draw_rows(n, 3, generator),
        older=Older(before.y.new_zeros(n), before.y, no_codes(before.y)).replaced(Values(before.y, before.observed)),
        static=Static(torch.zeros(n, 0), torch.zeros(n, 0, dtype=torch.int32)),
        total=torch.rand(n, generator=generator, dtype=torch.float64) * 100,
        count=torch.arange(n, dtype=torch.float64),
    )
    some = draw_rows(n, 40, generator)
    after = one_by_one(context, some)
    steps = torch.tensor([40, 0, 1, 7, 39])
    each = [take(after[int(k)], torch.tensor([i])) for i, k in enumerate(steps)]
    assert_equal(move_on(context, some, steps), concat(each))
    assert_equal(move_on(context, some, torch.full((n,), 40)), after[40])


class Setting(NamedTuple):
    """A trained model, series that have seen nothing, and their rows, also those after the ones to take in."""

    model: WindowedModel
    stride: int
    empty: Context
    rows: Rows


@pytest.fixture(scope="module", params=list(VARIANTS))
def setting(request: pytest.FixtureRequest) -> Setting:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        f = make(**{**BASE, "max_steps": 3, **VARIANTS[request.param]}).fit(NUMBERS.train, STATIC)
    engine = f.runtime.engine
    (model,) = engine.models
    assert isinstance(model, WindowedModel)
    assert model.sessions is not None
    frame = pd.concat([rows(uid, i, values(uid, T) + 0.1) for i, uid in enumerate(IDS)])
    panel = read_panel(frame, f.runtime.freq, engine.columns)
    encoded = Rows(*(v.unflatten(0, (len(IDS), T)) for v in engine.schema.encode(panel)))
    numbers, categories = (len(columns) for columns in engine.schema.stat)
    static = Static(torch.rand(len(IDS), 2 * numbers), torch.ones(len(IDS), categories, dtype=torch.int32))
    empty = engine.empty(static).context
    return Setting(model, f.settings.window_stride, empty, encoded)


class Learned(NamedTuple):
    """What is known of series after some rows."""

    state: Any
    context: Context


def take_in(setting: Setting, sizes: list[int]) -> Learned:
    """All rows that each series has, that many at a time."""
    model, n = setting.model, len(STEPS)
    known, done = Learned(model.init_state(n), setting.empty), 0
    for size in sizes:
        steps = (STEPS - done).clamp(0, size)
        live = steps.nonzero().squeeze(-1)
        new = Rows(*(v[live, done : done + size] for v in setting.rows))
        known = put(known, live, step(setting, take(known, live), new, (done - 1) % setting.stride, steps[live]))
        done += size
    assert done >= T
    return known


@torch.no_grad()
def step(setting: Setting, known: Learned, new: Rows, position: int, steps: Tensor) -> Learned:
    positions = torch.full_like(steps, position)
    after = move_on(known.context, new, steps)
    return Learned(setting.model.update(known.state, known.context, new, positions, steps, after), after)


def pieces(seed: int) -> Iterator[int]:
    generator = torch.Generator().manual_seed(seed)
    left = T
    while left > 0:
        size = min(left, int(torch.randint(1, 10, (), generator=generator)))
        yield size
        left -= size


@pytest.mark.usefixtures("as_users_run_it")
def test_rows_in_any_pieces_give_the_same_bits(setting: Setting) -> None:
    """Statistics, theta, now, g and scale: all rows at once, one at a time, and in random pieces."""
    whole = take_in(setting, [T])
    assert_equal(whole, take_in(setting, [1] * T))
    for seed in range(3):
        assert_equal(whole, take_in(setting, list(pieces(seed))))


@pytest.mark.usefixtures("as_users_run_it")
def test_a_series_alone_gives_the_same_bits(setting: Setting) -> None:
    """Whoever is updated in the same call, and however many rows others have."""
    together = take_in(setting, [T])
    for i, steps in enumerate(STEPS):
        one = torch.tensor([i])
        alone = Learned(setting.model.init_state(1), take(setting.empty, one))
        half = int(steps) // 2
        for lo, hi in ((0, half), (half, int(steps))):
            if hi > lo:
                new = Rows(*(v[one, lo:] for v in setting.rows))  # more than it takes in
                alone = step(setting, alone, new, (lo - 1) % setting.stride, torch.tensor([hi - lo]))
        assert_equal(take(together, one), alone)


@pytest.mark.usefixtures("as_users_run_it")
def test_what_comes_later_does_not_matter(setting: Setting) -> None:
    """Rows after the first `steps` may hold anything."""
    beyond = torch.arange(T) >= STEPS[:, None]
    other = setting.rows._replace(y=torch.where(beyond, 1e6, setting.rows.y), observed=setting.rows.observed | beyond)
    assert_equal(take_in(setting, [T]), take_in(setting._replace(rows=other), [T]))


@pytest.mark.usefixtures("as_users_run_it")
def test_updates_learn_what_training_learns(setting: Setting) -> None:
    """The statistics after whole windows are those of the scan over the same windows that training makes."""
    model, S = setting.model, setting.stride
    if not isinstance(model, ARU):
        pytest.skip("only ARU trains with local state")
    net, n, windows = model.network, len(STEPS), (T - 1) // S
    length = 1 + windows * S  # the first origin stands after the first row
    flat_rows, starts = tree_map(lambda v: v.flatten(0, 1), setting.rows), T * torch.arange(n)
    block = gather_block(
        flat_rows, setting.empty.static, starts, torch.full((n,), T), torch.zeros(n, dtype=torch.int64),
        T + net.h, net.input_size, net.lags, running_sums(flat_rows, starts),
    )  # fmt: skip
    grid = Grid(1, S, windows)
    with torch.no_grad():
        x, origins, h = net.run(block, grid)
        targets = net.targets(block, grid, origins.scale, net.h)
        lesson = model.lesson(h, leads(x, grid, 0, net.h), targets, origins.scale.unsqueeze(-1))
        informed = origins.informed.unsqueeze(-1).expand_as(targets.observed)
        h, u, seen, r = (v[:, :, :S] for v in (lesson.h, lesson.u, targets.observed & informed, lesson.r))
        weight, fade = model.influence(r, seen)
        wanted = model.cell.scan_windows(None, h, u, seen, weight, fade=fade).state
    new = Rows(*(v[:, :length] for v in setting.rows))
    nothing = Learned(model.init_state(n), setting.empty)
    found = step(setting, nothing, new, -1 % S, torch.full((n,), length)).state.local.stats
    for name, one, other in zip(wanted._fields, found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()), msg=name)


def test_a_forecast_reads_what_training_reads(setting: Setting) -> None:
    """The network at the end of a context, and the same origin as one of training's windows."""
    model, net = setting.model, setting.model.network
    at = STEPS.clamp(max=T - net.h)
    context = move_on(setting.empty, setting.rows, at)
    ahead = Rows(*(torch.stack([v[i, k : k + net.h] for i, k in enumerate(at.tolist())]) for v in setting.rows)).ahead()
    with torch.no_grad():
        now = net.run_now(context, ahead)
        window = net.run(model.block(context, ahead), NOW)
    assert torch.equal(now.x, window.x)
    assert torch.equal(now.origins.informed, window.origins.informed[:, 0])
    torch.testing.assert_close(now.origins.scale, window.origins.scale[:, 0])
    torch.testing.assert_close(now.origins.g, window.origins.g[:, 0])
    torch.testing.assert_close(now.h, window.h[:, 0])
