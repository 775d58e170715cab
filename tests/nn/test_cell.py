"""The cell against its equations, written out here as loops over single observations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch import Tensor

from aru.errors import ConfigError, NumericalError
from aru.nn import cell as cell_module
from aru.nn import ridge as systems
from aru.nn.cell import ARUCell, ARUState, solve_ridge

D, ALPHAS, RIDGES = 3, (1.0, 0.9, 0.3), (0.5, 2.0, 0.1)
NAN = float("nan")


def make_cell(**options: Any) -> ARUCell:
    return ARUCell(**{"input_size": D, "alphas": ALPHAS, "ridge": RIDGES, **options})


def make_data(batch: int, *time: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(batch, *time, D, generator=generator, dtype=torch.float64)
    y = 3 * torch.randn(batch, *time, generator=generator, dtype=torch.float64) + h.sum(-1)
    return h.to(dtype), y.to(dtype)


def make_holes(y: Tensor, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Some values missing (NaN), the mask that says so, and weights that are NaN there too."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(y.shape, generator=generator) < 0.7
    weight = 3 * torch.rand(y.shape, generator=generator, dtype=torch.float64)
    return y.masked_fill(~mask, NAN), mask, weight.masked_fill(~mask, NAN)


def random_state(cell: ARUCell, batch: int, seed: int = 1) -> ARUState:
    """A state that some history could have left: sxx is positive semidefinite."""
    generator = torch.Generator().manual_seed(seed)
    J, dim = len(cell.raw_alpha), cell.input_size + 1
    x = torch.randn(batch, J, 7, dim, generator=generator, dtype=torch.float64)
    y = torch.randn(batch, J, 7, generator=generator, dtype=torch.float64)
    spread = torch.rand(batch, J, generator=generator, dtype=torch.float64)
    return ARUState(x.mT @ x, (x * y.unsqueeze(-1)).sum(2), 7 - spread, 5 * spread)


def reference(
    cell: ARUCell,
    state: ARUState,
    h: Tensor,
    y: Tensor,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    steps: Tensor | None = None,
) -> tuple[Tensor, Tensor, ARUState]:
    """The equations for h (B, W, K, D) and y (B, W, S), one series, aging factor and row at a time."""
    B, W, K, _ = h.shape
    S, J = y.shape[2], len(cell.raw_alpha)
    means, variances, finals = [], [], []
    for b in range(B):
        for j in range(J):
            alpha, ridge = cell.alphas[j], cell.ridge[j]
            sxx, sxy, sn, ss = (s[b, j] for s in state)
            for window in range(W):
                system = sxx + ridge * torch.eye(len(sxy), dtype=torch.float64)
                theta = torch.linalg.solve(system, sxy)
                variances.append(ss / sn if sn > 0 else torch.zeros((), dtype=torch.float64))
                x = torch.cat([h[b, window].double(), torch.ones(K, 1, dtype=torch.float64)], 1)
                means.append(x @ theta)
                for row in range(S if steps is None else int(steps[b, window])):
                    sxx, sxy, sn, ss = alpha * sxx, alpha * sxy, alpha * sn, alpha * ss
                    if mask is not None and not mask[b, window, row]:
                        continue
                    w = 1.0 if weight is None else weight[b, window, row].double()
                    value, at = y[b, window, row].double(), x[row]
                    sxx, sxy, sn = sxx + w * torch.outer(at, at), sxy + w * at * value, sn + w
                    ss = ss + w * (value - theta @ at) ** 2
            finals.append((sxx, sxy, sn, ss))
    final = ARUState(*(torch.stack(s).unflatten(0, (B, J)) for s in zip(*finals, strict=True)))
    mean = torch.stack(means).reshape(B, J, W, K).permute(0, 2, 3, 1)
    return mean, torch.stack(variances).reshape(B, J, W).transpose(1, 2), final


def step_loop(
    cell: ARUCell,
    state: ARUState,
    h: Tensor,
    y: Tensor,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, ARUState]:
    """`predict` then `update`, once for every row."""
    means, variances = [], []
    for t in range(h.shape[1]):
        mean, variance = cell.predict(state, h[:, t])
        state = cell.update(
            state,
            h[:, t],
            y[:, t],
            None if mask is None else mask[:, t],
            None if weight is None else weight[:, t],
        )
        means.append(mean)
        variances.append(variance)
    return torch.stack(means, 1), torch.stack(variances, 1), state


def close(actual: Sequence[Tensor], expected: Sequence[Tensor], rtol: float = 1e-9) -> None:
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=rtol, atol=rtol)


def flat(result: tuple[Tensor, Tensor, ARUState]) -> list[Tensor]:
    return [result[0], result[1], *result[2]]


Run = Callable[..., tuple[Tensor, Tensor, ARUState]]


def windowed_reference(cell: ARUCell, state: ARUState, h: Tensor, y: Tensor, *masks: Tensor | None) -> Any:
    """The bare cell is the window of one row."""
    rows = [None if m is None else m.unsqueeze(2) for m in masks]
    mean, variance, final = reference(cell, state, h.unsqueeze(2), y.unsqueeze(2), *rows)
    return mean.squeeze(2), variance, final


# Equivalence: the step, the scan and the equations.


@pytest.mark.parametrize("holes", [False, True], ids=["complete", "holes"])
@pytest.mark.parametrize("start", ["zero", "random"])
@pytest.mark.parametrize("time", [1, 2, 7, 13])
def test_scan_equals_step_loop_and_the_equations(time: int, start: str, holes: bool) -> None:
    cell = make_cell()
    h, y = make_data(2, time)
    y, *extra = make_holes(y) if holes else (y, None, None)
    state = cell.init_state(2) if start == "zero" else random_state(cell, 2)
    scanned = flat(cell.scan(state, h, y, *extra))
    close(scanned, flat(step_loop(cell, state, h, y, *extra)))
    close(scanned, flat(windowed_reference(cell, state, h, y, *extra)))


@pytest.mark.parametrize("holes", [False, True], ids=["complete", "holes"])
def test_all_gradients_of_scan_equal_those_of_the_step_loop_and_of_the_equations(holes: bool) -> None:
    cell = make_cell(learn_ridge=True, learn_alphas=True)
    h, y = make_data(2, 7)
    y, *extra = make_holes(y) if holes else (y, None, None)
    state = random_state(cell, 2)
    directions = [torch.randn_like(v) for v in flat(cell.scan(state, h, y, *extra))]

    def gradients(run: Run) -> list[Tensor]:
        inputs = [v.clone().requires_grad_() for v in (h, y, *state)]
        outputs = flat(run(cell, ARUState(*inputs[2:]), inputs[0], inputs[1], *extra))
        score = sum((o * d).sum() for o, d in zip(outputs, directions, strict=True))
        return list(torch.autograd.grad(score, [*inputs, cell.raw_ridge, cell.raw_alpha]))

    by_scan = gradients(ARUCell.scan)
    assert all(g.isfinite().all() and g.abs().max() > 0 for g in by_scan)
    close(by_scan, gradients(step_loop), rtol=1e-8)
    close(by_scan, gradients(windowed_reference), rtol=1e-8)


@pytest.mark.parametrize("cut", [1, 5, 10])
def test_a_sequence_cut_in_two_equals_the_whole_with_gradients_through_the_cut(cut: int) -> None:
    cell = make_cell()
    h, y = make_data(2, 11)
    y, mask, weight = make_holes(y)
    h.requires_grad_()
    whole = cell.scan(random_state(cell, 2), h, y, mask, weight)
    first = cell.scan(random_state(cell, 2), *(v[:, :cut] for v in (h, y, mask, weight)))
    second = cell.scan(first[2], *(v[:, cut:] for v in (h, y, mask, weight)))
    joined = [torch.cat([first[i], second[i]], 1) for i in (0, 1)]
    close([*joined, *second[2]], flat(whole))
    directions = [torch.randn_like(v) for v in flat(whole)]
    ways = [
        sum((o * d).sum() for o, d in zip(o_list, directions, strict=True))
        for o_list in (flat(whole), [*joined, *second[2]])
    ]
    close(*([torch.autograd.grad(way, h)[0]] for way in ways), rtol=1e-8)


@pytest.mark.parametrize("start", ["zero", "random"])
def test_windows_predict_and_judge_with_theta_at_their_origin(start: str) -> None:
    """Leads beyond the rows that are absorbed are predicted, too; the others may be missing."""
    cell = make_cell()
    (h, _), (_, y) = make_data(2, 4, 5), make_data(2, 4, 3)
    y, mask, weight = make_holes(y)
    state = cell.init_state(2) if start == "zero" else random_state(cell, 2)
    out = cell.scan_windows(state, h, y, mask, weight)
    mean, variance, final = reference(cell, state, h, y, mask, weight)
    close([out.mean, out.variance, *out.state], [mean, variance, *final])
    assert out.mean.shape == (2, 4, 5, 3)
    assert not out.failed.any()
    for w in range(4):  # sn and theta belong to the origin as well
        until = reference(cell, state, *(v[:, :w] for v in (h, y, mask, weight)))[2] if w else state
        close([out.sn[:, w], out.theta[:, w]], [until.sn, cell.solve(until)[0]])


def test_windows_with_missing_rows_at_their_end() -> None:
    """Ragged `steps`: rows past them add nothing, take no time, and may hold anything."""
    cell = make_cell(learn_alphas=True)
    (h, y), steps = make_data(3, 5, 4), torch.tensor([[4, 4, 4, 4, 1], [4, 0, 2, 0, 0], [0, 0, 0, 3, 4]])
    y, mask, weight = make_holes(y)
    past = torch.arange(4) >= steps.unsqueeze(-1)
    state = random_state(cell, 3)
    mean, variance, final = reference(cell, state, h, y, mask, weight, steps)
    out = cell.scan_windows(state, h, y.masked_fill(past, 99.0), mask | past, weight.masked_fill(past, 7.0), steps)
    close([out.mean, out.variance, *out.state], [mean, variance, *final])


def test_absorbing_windows_one_by_one_equals_running_them_at_once() -> None:
    cell = make_cell()
    (h, y), steps = make_data(3, 4, 3), torch.tensor([[3, 3, 3, 2], [3, 1, 0, 3], [0, 3, 2, 0]])
    y, mask, weight = make_holes(y)
    start = state = random_state(cell, 3)
    for w in range(4):
        theta, failed = cell.solve(state)
        assert not failed.any()
        state = cell.absorb(state, theta, h[:, w], y[:, w], mask[:, w], weight[:, w], steps[:, w])
    out = cell.scan_windows(start, h, y, mask, weight, steps)
    close(state, out.state)


def test_statistics_fade_at_rows_that_say_so() -> None:
    """At once, window by window, and as a loop over single rows that multiplies the statistics first."""
    cell, (h, y) = make_cell(), make_data(4, 5, 3)
    start = random_state(cell, 4)
    fade = torch.rand(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).clamp(min=0.01)
    out = cell.scan_windows(start, h, y, fade=fade)
    whole = rows = start
    for window in range(5):
        theta, _ = cell.solve(whole)
        at = (h[:, window], y[:, window])
        ones = torch.ones(4, 3, dtype=torch.float64)
        steps = torch.full((4,), 3)
        whole = ARUState(*systems.absorb(whole, cell.alphas, theta, *at, ones, steps, fade=fade[:, window]))
        for t in range(3):
            faded = ARUState(*(v * fade[:, window, t].reshape(-1, *(1,) * (v.ndim - 1)) for v in rows))
            rows = cell.absorb(faded, theta, at[0][:, t : t + 1], at[1][:, t : t + 1])
    for found, one, other in zip(out.state, whole, rows, strict=True):
        torch.testing.assert_close(found, other)
        torch.testing.assert_close(one, other)


def test_a_window_may_be_absorbed_in_pieces() -> None:
    """As rows arrive: theta stays that of the origin."""
    cell = make_cell()
    h, y = make_data(2, 6)
    state = random_state(cell, 2)
    theta, _ = cell.solve(state)
    whole = cell.absorb(state, theta, h, y)
    for lo, hi in ((0, 1), (1, 4), (4, 6)):
        state = cell.absorb(state, theta, h[:, lo:hi], y[:, lo:hi])
    close(state, whole)


def test_blocks_equal_one_block_in_values_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell(learn_ridge=True, learn_alphas=True)
    h, y = make_data(2, 11, 3)
    y, mask, weight = make_holes(y)
    steps = torch.randint(0, 4, (2, 11))
    state = random_state(cell, 2)

    def run() -> list[Tensor]:
        inputs = [v.clone().requires_grad_() for v in (h, *state)]
        out = cell.scan_windows(ARUState(*inputs[1:]), inputs[0], y, mask, weight, steps)
        values = [out.mean, out.variance, out.sn, out.theta, *out.state]
        score = sum((v * torch.linspace(-1, 2, v.numel()).reshape(v.shape)).sum() for v in values)
        return [*values, *torch.autograd.grad(score, [*inputs, cell.raw_ridge, cell.raw_alpha])]

    one_block = run()
    for name, value in (("PREFIX_WINDOWS", 4), ("PREFIX_WINDOWS", 1), ("FLOATS_AT_ONCE", 100)):
        with monkeypatch.context() as patch:
            patch.setattr(cell_module, name, value)
            close(run(), one_block, rtol=1e-8)


def test_a_batch_equals_its_series_one_by_one() -> None:
    cell = make_cell()
    h, y = make_data(4, 9)
    y, mask, weight = make_holes(y)
    state = random_state(cell, 4)
    batch = flat(cell.scan(state, h, y, mask, weight))
    for b in range(4):
        alone = cell.scan(ARUState(*(s[b : b + 1] for s in state)), *(v[b : b + 1] for v in (h, y, mask, weight)))
        close(flat(alone), [v[b : b + 1] for v in batch], rtol=1e-12)


def test_nothing_after_a_step_changes_its_prediction_by_one_bit() -> None:
    cell = make_cell()
    h, y = make_data(2, 12)
    before = cell.scan(cell.init_state(2), h, y)
    other_h, other_y = h.clone(), y.clone()
    other_h[:, 8:], other_y[:, 7:] = -5.0, 1e6
    after = cell.scan(cell.init_state(2), other_h, other_y)
    assert torch.equal(before[0][:, :8], after[0][:, :8])
    assert torch.equal(before[1][:, :8], after[1][:, :8])
    assert not torch.equal(before[0][:, 8:], after[0][:, 8:])


def test_predict_answers_one_lead_or_many() -> None:
    cell = make_cell()
    h, _ = make_data(2, 5)
    state = random_state(cell, 2)
    mean, variance = cell.predict(state, h)
    assert mean.shape == variance.shape == (2, 5, 3)
    close([variance], [(state.ss / state.sn).unsqueeze(1).expand(2, 5, 3)], rtol=1e-15)
    for k in range(5):
        close(cell.predict(state, h[:, k]), [mean[:, k], variance[:, k]], rtol=1e-15)


# Oracle: scikit-learn's ridge, and sums over all observations.


@pytest.mark.parametrize("alpha", [1.0, 0.97, 0.6])
@pytest.mark.parametrize("ridge", [0.01, 3.0])
def test_theta_is_a_ridge_regression_with_aged_sample_weights(alpha: float, ridge: float) -> None:
    cell = ARUCell(D, alphas=(alpha,), ridge=ridge)
    h, y = make_data(1, 40)
    weight = torch.rand(1, 40, dtype=torch.float64)
    _, _, state = cell.scan(cell.init_state(1), h, y, weight=weight)
    x = np.column_stack([h[0].numpy(), np.ones(40)])
    aged = alpha ** np.arange(39, -1, -1) * weight[0].numpy()
    oracle = Ridge(alpha=ridge, fit_intercept=False, solver="cholesky", tol=1e-12).fit(x, y[0].numpy(), aged)
    theta, _ = cell.solve(state)
    np.testing.assert_allclose(theta[0, 0].numpy(), oracle.coef_, rtol=1e-8)
    new = torch.randn(1, D, dtype=torch.float64)
    expected = oracle.predict(np.append(new[0].numpy(), 1.0)[None])
    np.testing.assert_allclose(cell.predict(state, new)[0][0].numpy(), expected, rtol=1e-8)


def test_variance_is_the_aged_mean_of_squared_errors_made_before_each_update() -> None:
    """ss and sn by brute force: a new ridge fit on all history before every single observation."""
    alpha, ridge, T = 0.8, 0.7, 15
    cell = ARUCell(D, alphas=(alpha,), ridge=ridge)
    h, y = make_data(1, T)
    means, variances, state = cell.scan(cell.init_state(1), h, y)
    x, target = np.column_stack([h[0].numpy(), np.ones(T)]), y[0].numpy()
    errors = np.zeros(T)
    for t in range(T):
        w = alpha ** np.arange(t - 1, -1, -1)
        system = (x[:t] * w[:, None]).T @ x[:t] + ridge * np.eye(D + 1)
        m = x[t] @ np.linalg.solve(system, (x[:t] * w[:, None]).T @ target[:t])
        assert means[0, t, 0].item() == pytest.approx(m, rel=1e-9, abs=1e-12)
        errors[t] = (target[t] - m) ** 2
        known = (w * errors[:t]).sum() / w.sum() if t else 0.0
        assert variances[0, t, 0].item() == pytest.approx(known, rel=1e-9)
    aged = alpha ** np.arange(T - 1, -1, -1)
    assert state.sn.item() == pytest.approx(aged.sum(), rel=1e-12)
    assert state.ss.item() == pytest.approx((aged * errors).sum(), rel=1e-9)


# Properties.

numbers = st.floats(-100, 100, allow_nan=False, width=32)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    time = draw(st.integers(1, 12))
    values = draw(st.lists(numbers, min_size=time * (D + 1), max_size=time * (D + 1)))
    data = torch.tensor(values, dtype=torch.float64).reshape(1, time, D + 1)
    return data[..., :D], data[..., D]


@given(data=histories(), factor=st.floats(-1e3, 1e3).filter(lambda c: abs(c) > 1e-3))
@hypothesis_settings(max_examples=30)
def test_scaling_y_scales_mean_and_standard_deviation(data: tuple[Tensor, Tensor], factor: float) -> None:
    cell, (h, y) = make_cell(), data
    mean, variance, _ = cell.scan(cell.init_state(1), h, y)
    scaled_mean, scaled_variance, _ = cell.scan(cell.init_state(1), h, factor * y)
    torch.testing.assert_close(scaled_mean, factor * mean, rtol=1e-7, atol=1e-7 * abs(factor))
    torch.testing.assert_close(scaled_variance, factor**2 * variance, rtol=1e-7, atol=1e-7 * factor**2)


@given(data=histories(), randomness=st.randoms(use_true_random=False))
@hypothesis_settings(max_examples=30)
def test_without_aging_the_order_of_observations_does_not_matter(data: tuple[Tensor, Tensor], randomness: Any) -> None:
    cell, (h, y) = ARUCell(D, alphas=(1.0,)), data
    order = list(range(h.shape[1]))
    randomness.shuffle(order)
    states = [cell.scan(cell.init_state(1), h[:, o], y[:, o])[2] for o in (order, sorted(order))]
    for name in ("sxx", "sxy", "sn"):  # ss is about errors on the way, which do depend on it
        torch.testing.assert_close(*(getattr(s, name) for s in states), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(*(cell.solve(s)[0] for s in states), rtol=1e-6, atol=1e-6)


@given(data=histories())
@hypothesis_settings(max_examples=30)
def test_data_twice_with_twice_the_ridge_leaves_theta(data: tuple[Tensor, Tensor]) -> None:
    (h, y), once, twice = data, ARUCell(D, ridge=1.5), ARUCell(D, ridge=3.0)
    theta, _ = once.solve(once.scan(once.init_state(1), h, y)[2])
    doubled = twice.scan(twice.init_state(1), torch.cat([h, h], 1), torch.cat([y, y], 1))[2]
    torch.testing.assert_close(twice.solve(doubled)[0], theta, rtol=1e-6, atol=1e-8)
    weighted = twice.scan(twice.init_state(1), h, y, weight=torch.full_like(y, 2.0))[2]
    torch.testing.assert_close(twice.solve(weighted)[0], theta, rtol=1e-6, atol=1e-8)


@given(
    data=histories(),
    scale=st.sampled_from([1e-150, 1e-20, 1.0, 1e6]),
    ridge=st.sampled_from([1e-3, 1.0, 1e12]),
    alpha=st.sampled_from([1e-300, 1e-8, 0.5, 1.0]),
    mask=st.lists(st.booleans(), min_size=12, max_size=12),
)
@hypothesis_settings(max_examples=60)
def test_always_finite(data: tuple[Tensor, Tensor], scale: float, ridge: float, alpha: float, mask: list[bool]) -> None:
    (h, y), cell = data, ARUCell(D, alphas=(alpha,), ridge=ridge)
    h = h.clone().requires_grad_()
    seen = torch.tensor([mask[: y.shape[1]]])
    mean, variance, state = cell.scan(cell.init_state(1), h, (scale * y).masked_fill(~seen, NAN), seen)
    assert all(v.isfinite().all() for v in (mean, variance, *state))
    assert (variance >= 0).all()
    (gradient,) = torch.autograd.grad(mean.sum() + variance.sum(), h)
    assert gradient.isfinite().all()


@given(steps=st.integers(1, 10), h_scale=st.sampled_from([0.0, 1.0, 1e3]))
@hypothesis_settings(max_examples=20)
def test_a_missing_value_only_ages(steps: int, h_scale: float) -> None:
    cell = make_cell()
    state = random_state(cell, 2)
    h, y = (
        h_scale * torch.randn(2, steps, D, dtype=torch.float64),
        torch.full((2, steps), NAN, dtype=torch.float64),
    )
    _, _, aged = cell.scan(state, h, y, torch.zeros(2, steps, dtype=torch.bool))
    for old, new in zip(state, aged, strict=True):
        kept = (cell.alphas**steps).reshape(-1, *(1,) * (old.ndim - 2))
        torch.testing.assert_close(new, kept * old, rtol=1e-13, atol=0)


def test_weight_zero_is_a_missing_value() -> None:
    cell = make_cell()
    h, y = make_data(2, 9)
    mask = torch.rand(2, 9) < 0.5
    state = random_state(cell, 2)
    close(flat(cell.scan(state, h, y, weight=mask.double())), flat(cell.scan(state, h, y, mask)), rtol=1e-14)


def test_the_size_of_a_state_does_not_depend_on_the_length_of_history() -> None:
    cell, dim, J = make_cell(), D + 1, len(ALPHAS)
    expected = [8 * 2 * J * n for n in (dim * dim, dim, 1, 1)]
    for time in (1, 7, 300):
        state = cell.scan(cell.init_state(2), *make_data(2, time))[2]
        assert [s.nbytes for s in state] == expected
        updated = cell.update(state, *(v[:, 0] for v in make_data(2, 1)))
        assert [s.untyped_storage().nbytes() for s in updated] == expected


def test_a_scanned_state_keeps_no_memory_of_the_origins_before_it() -> None:
    cell = make_cell()
    state = cell.scan(cell.init_state(2), *make_data(2, 60))[2]
    assert [s.untyped_storage().nbytes() for s in state] == [s.nbytes for s in cell.init_state(2)]


@pytest.mark.parametrize(("batch", "time"), [(2, 0), (0, 5)])
def test_nothing_to_scan_leaves_the_state(batch: int, time: int) -> None:
    cell = make_cell()
    state = random_state(cell, batch)
    mean, variance, final = cell.scan(state, *make_data(batch, time))
    assert mean.shape == variance.shape == (batch, time, 3)
    close(final, state)


def test_an_observation_whose_square_overflows_does_not_reach_back_in_time() -> None:
    cell = make_cell()
    h, y = make_data(1, 9)
    before = cell.scan(cell.init_state(1), h, y)[1]
    y[0, 5] = 1e160
    torch.testing.assert_close(cell.scan(cell.init_state(1), h, y)[1][:, :6], before[:, :6])


# An empty state, and one that has forgotten everything.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_state_predicts_exactly_zero_and_zero(dtype: torch.dtype) -> None:
    cell = make_cell()
    h, y = make_data(2, 3, dtype=dtype)
    zero = torch.zeros(2, 3, 3, dtype=dtype)
    for mean, variance in (cell.predict(cell.init_state(2), h), cell.scan(cell.init_state(2), h, y)[:2]):
        assert torch.equal(mean[:, :1], zero[:, :1])
        assert torch.equal(variance[:, :1], zero[:, :1])
    mean, variance = cell.predict(cell.init_state(2), 1e30 * h)
    assert torch.equal(mean, zero)
    assert torch.equal(variance, zero)


@pytest.mark.parametrize("gap", [2000, 50_000])
def test_a_gap_so_long_that_everything_underflows_leaves_an_empty_state(gap: int) -> None:
    cell = ARUCell(D, alphas=(0.5, 0.1))
    h, y = make_data(1, 5)
    _, _, state = cell.scan(cell.init_state(1), h, y)
    later = cell.age(state, torch.tensor([gap]))
    assert later.sn.max() == 0
    for mean, variance in (cell.predict(later, h), cell.scan(later, h, y)[:2]):
        assert torch.equal(mean[:, 0], torch.zeros(1, 2, dtype=torch.float64))
        assert torch.equal(variance[:, 0], torch.zeros(1, 2, dtype=torch.float64))
    close(cell.scan(later, h, y)[2], cell.scan(cell.init_state(1), h, y)[2], rtol=1e-12)


def test_on_the_way_to_underflow_the_variance_is_never_0_by_0() -> None:
    """alpha = 0.1 passes through subnormal numbers; ss and sn may reach 0 at different steps."""
    cell = ARUCell(1, alphas=(0.1,))
    state = ARUState(
        *(torch.full((1, 1, *s), v, dtype=torch.float64) for s, v in (((2, 2), 1.0), ((2,), 1.0), ((), 1.0), ((), 4.0)))
    )
    time, h = 340, torch.zeros(1, 340, 1, dtype=torch.float64)
    missing = torch.zeros(1, time, dtype=torch.bool)
    mean, variance, _ = cell.scan(state, h, torch.full((1, time), NAN, dtype=torch.float64), missing)
    assert mean.isfinite().all()
    assert variance[0, :300, 0].numpy() == pytest.approx(4.0)
    assert ((variance == 0) | ((variance - 4).abs() < 1e-6)).all()
    assert variance[0, -1, 0] == 0
    gone = state._replace(sn=torch.zeros_like(state.sn), ss=torch.full_like(state.ss, 1e-320))
    assert cell.variance(gone).item() == 0.0


# Precision.


def test_long_histories_with_collinear_units_do_not_fail() -> None:
    """The reason for float64: in float32 this factorisation fails."""
    time, ridge = 44_000, 0.01
    unit = 10 * torch.relu(torch.randn(1, time, 1))
    h, y = torch.cat([unit, unit], -1), unit.squeeze(-1) + torch.randn(1, time)
    cell = ARUCell(2, alphas=(1.0, 0.999), ridge=ridge)
    mean, variance, state = cell.scan(cell.init_state(1), h, y)
    assert mean.isfinite().all()
    assert variance[0, -1].numpy() == pytest.approx([1.0, 1.0], rel=0.1)
    theta, failed = cell.solve(state)
    assert not failed.any()
    np.testing.assert_allclose(theta[0, :, :2].numpy(), 0.5, atol=0.02)
    system = (state.sxx[0, 0] + ridge * torch.eye(3, dtype=torch.float64)).float()
    assert torch.linalg.cholesky_ex(system).info != 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_outputs_take_the_dtype_of_h_and_statistics_are_float64(dtype: torch.dtype) -> None:
    cell = make_cell()
    h, y = make_data(2, 6, dtype=dtype)
    state = cell.update(cell.init_state(2), h[:, 0], y[:, 0])
    mean, variance, final = cell.scan(state, h, y)
    out = cell.scan_windows(state, h.unsqueeze(2), y.unsqueeze(2))
    assert {v.dtype for v in (mean, variance, out.mean, out.variance, *cell.predict(state, h))} == {dtype}
    exact = {v.dtype for v in (*cell.init_state(2), *state, *final, out.theta, out.sn, cell.ridge, cell.alphas)}
    assert exact == {torch.float64}
    doubled = cell.scan(state, h.double(), y.double())
    close(final, doubled[2], rtol=1e-14)  # precision is raised before the first product, not after


def test_statistics_stay_float64_when_the_module_is_cast() -> None:
    cell = torch.nn.Sequential(make_cell()).float()[0]
    assert isinstance(cell, ARUCell)
    h, y = make_data(2, 6, dtype=torch.float32)
    expected = make_cell().scan(make_cell().init_state(2), h, y)
    close(flat(cell.scan(cell.init_state(2), h, y)), flat(expected), rtol=1e-6)


# Gradients.


def test_gradcheck_of_the_solve_through_x() -> None:
    x = torch.randn(2, 1, 6, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, 1, 6, dtype=torch.float64, requires_grad=True)
    ridge = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)

    def theta(x: Tensor, y: Tensor, ridge: Tensor) -> Tensor:
        return solve_ridge(x.mT @ x, (x * y.unsqueeze(-1)).sum(2), ridge)[0]

    assert torch.autograd.gradcheck(theta, (x, y, ridge))


def test_gradcheck_of_the_whole_scan() -> None:
    cell = ARUCell(2, alphas=(0.9,), ridge=0.5)
    h = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    y = torch.randn(1, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h, y: cell.scan(cell.init_state(1), h, y)[:2], (h, y))


def test_a_failed_system_passes_no_gradient_on() -> None:
    """One series that cannot be solved leaves the gradients of the others alone."""
    sxx = torch.eye(2, dtype=torch.float64).repeat(2, 1, 1, 1)
    sxx[0] *= -5
    sxy = torch.ones(2, 1, 2, dtype=torch.float64)
    sxx.requires_grad_(), sxy.requires_grad_()
    theta, failed = solve_ridge(sxx, sxy, torch.ones(1, dtype=torch.float64))
    assert failed.flatten().tolist() == [True, False]
    assert theta[0].abs().max() == 0
    theta.sum().backward()
    assert sxx.grad is not None
    assert sxx.grad[0].abs().max() == 0
    torch.testing.assert_close(sxx.grad[1], torch.full((1, 2, 2), -0.25, dtype=torch.float64))


class Detached(ARUCell):
    """A subclass that says otherwise how its fit is used."""

    def as_used(self, fitted: Tensor) -> Tensor:
        return fitted.detach()


def test_a_detached_fit_reaches_h_through_theta_times_x_alone() -> None:
    cell = Detached(D, ALPHAS, RIDGES, learn_ridge=True)
    h, y = make_data(2, 6, 4)
    direction = torch.randn(2, 6, 4, 3, dtype=torch.float64)
    h.requires_grad_()
    out = cell.scan_windows(cell.init_state(2), h, y)
    assert not out.variance.requires_grad
    assert not out.theta.requires_grad
    (gradient,) = torch.autograd.grad((direction * out.mean).sum(), h, retain_graph=True)
    theta = make_cell().scan_windows(cell.init_state(2), h.detach(), y).theta
    close([gradient], [torch.einsum("bwkj,bwjd->bwkd", direction, theta[..., :D])], rtol=1e-12)
    assert torch.autograd.grad(out.mean.sum(), cell.raw_ridge, allow_unused=True)[0] is None
    values = make_cell().scan_windows(cell.init_state(2), h.detach(), y)
    close([out.mean, out.variance, *out.state], [values.mean, values.variance, *values.state])


def test_a_detached_fit_means_the_same_step_by_step() -> None:
    cell = Detached(D, ALPHAS, RIDGES)
    h, y = make_data(2, 6)
    h.requires_grad_()
    by_scan = torch.autograd.grad(cell.scan(cell.init_state(2), h, y)[0].sum(), h)
    by_step = torch.autograd.grad(step_loop(cell, cell.init_state(2), h, y)[0].sum(), h)
    close(by_scan, by_step)


# Parameters.


def test_fixed_ridge_and_alphas_are_exact_and_not_trained() -> None:
    cell = make_cell()
    assert list(cell.parameters()) == []
    assert cell.alphas.tolist() == list(ALPHAS)
    assert (ARUCell(2).alphas.tolist(), ARUCell(2).ridge.tolist()) == ([1.0], [1.0])
    assert cell.ridge.tolist() == pytest.approx(RIDGES, rel=1e-15)
    assert set(cell.state_dict()) == {"raw_ridge", "raw_alpha"}


@given(value=st.floats(-50, 50))
@hypothesis_settings(max_examples=30)
def test_learned_ridge_is_positive_and_learned_alphas_lie_inside_0_1_wherever_training_goes(
    value: float,
) -> None:
    cell = make_cell(learn_ridge=True, learn_alphas=True)
    assert len(list(cell.parameters())) == 2
    assert cell.ridge.tolist() == pytest.approx(RIDGES)
    assert cell.alphas.tolist() == pytest.approx(ALPHAS, abs=2e-4)
    assert (cell.alphas < 1).all()
    with torch.no_grad():
        cell.raw_ridge.fill_(value)
        cell.raw_alpha.fill_(value / 2)
    assert (cell.ridge > 0).all()
    assert ((cell.alphas > 0) & (cell.alphas < 1)).all()


def test_a_learned_ridge_can_leave_its_floor_again() -> None:
    cell = make_cell(ridge=1e-5, learn_ridge=True)
    h, y = make_data(4, 30)
    cell.scan(cell.init_state(4), h, y)[0].square().sum().backward()
    assert cell.raw_ridge.grad is not None
    assert (cell.raw_ridge.grad != 0).all()


def test_a_learned_ridge_moves_towards_what_fits() -> None:
    """Noise-free data wants a small ridge: the gradient of the squared error points that way."""
    cell = make_cell(ridge=5.0, learn_ridge=True, learn_alphas=True)
    h, _ = make_data(4, 30)
    y = h.sum(-1) + 1
    mean, _, _ = cell.scan(cell.init_state(4), h, y)
    (mean - y.unsqueeze(-1)).square().mean().backward()
    assert cell.raw_ridge.grad is not None
    assert (cell.raw_ridge.grad > 0).all()
    assert cell.raw_alpha.grad is not None
    assert (cell.raw_alpha.grad < 0).all()  # and a long memory


# Errors.


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"input_size": 0}, "input_size"),
        ({"alphas": ()}, "alphas"),
        ({"alphas": (0.0,)}, "alphas"),
        ({"alphas": (1.0, 1.1)}, "alphas"),
        ({"alphas": (NAN,)}, "alphas"),
        ({"alphas": (-0.5,)}, "alphas"),
        ({"ridge": 0.0}, "ridge"),
        ({"ridge": -1.0}, "ridge"),
        ({"ridge": NAN}, "ridge"),
        ({"ridge": math.inf}, "ridge"),
        ({"ridge": (1.0, 2.0)}, "ridge"),
        ({"ridge": (1.0, 2.0, 0.0)}, "ridge"),
    ],
)
def test_bad_arguments_are_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make_cell(**options)


@pytest.mark.parametrize("bad", [NAN, math.inf])
def test_statistics_that_are_not_finite_name_their_batch_rows(bad: float) -> None:
    cell = make_cell()
    h, y = make_data(4, 3)
    y[1, 1] = y[3, 0] = bad
    with pytest.raises(NumericalError, match="batch rows 1, 3 "):
        cell.scan(cell.init_state(4), h, y)
    state = cell.update(cell.init_state(4), h[:, 0], y[:, 0])
    with pytest.raises(NumericalError, match="batch rows 3 "):
        cell.predict(state, h)
    with pytest.raises(NumericalError, match="batch rows 3 "):
        cell.update(state, h[:, 1], y[:, 1])


def test_a_failure_is_contained_where_windows_are_scanned() -> None:
    """One series fails; the others get their predictions."""
    cell = make_cell()
    h, y = make_data(3, 4, 2)
    good = cell.scan_windows(cell.init_state(3), h, y)
    y[1, 1, 0] = NAN
    out = cell.scan_windows(cell.init_state(3), h, y)
    assert out.failed.tolist() == [False, True, False]
    assert torch.equal(out.mean[[0, 2]], good.mean[[0, 2]])
    assert out.mean.isfinite().all()


@pytest.mark.parametrize("name", ["predict", "update", "scan", "absorb", "scan_windows"])
def test_inputs_are_left_alone(name: str) -> None:
    cell = make_cell()
    h, y = make_data(2, 4)
    y, mask, weight = make_holes(y)
    state = random_state(cell, 2)
    theta, _ = cell.solve(state)
    last = (v[:, 0] for v in (h, y, mask, weight))
    arguments: dict[str, tuple[Any, ...]] = {
        "predict": (state, h),
        "update": (state, *last),
        "scan": (state, h, y, mask, weight),
        "absorb": (state, theta, h, y, mask, weight, torch.tensor([2, 4])),
        "scan_windows": (
            state,
            *(v.unsqueeze(2) for v in (h, y, mask, weight)),
            torch.tensor([[1, 0, 1, 1]] * 2),
        ),
    }
    tensors = list(itertools.chain.from_iterable(a if isinstance(a, tuple) else (a,) for a in arguments[name]))
    before = [t.clone() for t in tensors]
    getattr(cell, name)(*arguments[name])
    assert all(torch.equal(t.nan_to_num(-7), b.nan_to_num(-7)) for t, b in zip(tensors, before, strict=True))


def test_rows_of_one_step_age_the_statistics_once() -> None:
    """One row is `update`; several are the sum of what each adds to the statistics, aged once."""
    cell, (h, y) = make_cell(), make_data(4, 3)
    state = random_state(cell, 4)
    theta, _ = cell.solve(state)
    single = cell.absorb(state, theta, h[:, :1], y[:, :1], together=True)
    for mine, theirs in zip(single, cell.update(state, h[:, 0], y[:, 0]), strict=True):
        torch.testing.assert_close(mine, theirs)
    y, mask, weight = make_holes(y)
    several = cell.absorb(state, theta, h, y, mask, weight, together=True)
    aged = cell.absorb(state, theta, h, y, torch.zeros_like(mask), together=True)
    parts = [
        cell.absorb(state, theta, h[:, [i]], y[:, [i]], mask[:, [i]], weight[:, [i]], together=True) for i in range(3)
    ]
    for mine, base, *each in zip(several, aged, *parts, strict=True):
        torch.testing.assert_close(mine, base + sum(part - base for part in each))
    torch.testing.assert_close(aged.sn, cell.alphas * state.sn)
