"""The compiled solve and update against their torch forms."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest
import torch
from torch import Tensor

from aru.nn import kernels, ridge
from aru.nn.cell import solve_ridge

RIDGE = torch.tensor([0.5, 2.0, 0.1], dtype=torch.float64)
ALPHAS = torch.tensor([1.0, 0.9, 0.3], dtype=torch.float64)


def systems(n: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, dim // 2 + 1, dim, generator=generator, dtype=torch.float64)  # singular without the ridge
    return x.mT @ x, torch.randn(n, 3, dim, generator=generator, dtype=torch.float64)


def rows(n: int, dim: int, steps: int, seed: int = 1) -> tuple[Tensor, ...]:
    """A state of some history, theta, h, y, w and how many of the rows exist."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    sxx, sxy = systems(n, dim, seed)
    state = (sxx, sxy, draw(n, 3).abs(), draw(n, 3).abs())
    exist = torch.randint(0, steps + 3, (n,), generator=generator)
    return (*state, draw(n, 3, dim), draw(n, steps, dim - 1), draw(n, steps), draw(n, steps).abs(), exist)


@pytest.mark.parametrize("dim", [1, 2, 7, 11, 16, 21, 33])
@pytest.mark.parametrize("n", [1, 21, 22, 65])
def test_solve_equals_torch(n: int, dim: int) -> None:
    sxx, sxy = systems(n, dim)
    theta, failed, _ = ridge.solve(sxx, sxy, RIDGE)
    expected, *_ = ridge.solve_torch(sxx, sxy, RIDGE)
    torch.testing.assert_close(theta, expected, rtol=1e-9, atol=1e-9)
    assert not failed.any()


def test_only_the_systems_that_have_no_answer_fail() -> None:
    sxx, sxy = systems(70, 5)
    good, *_ = ridge.solve(sxx, sxy, RIDGE)
    sxx[3, 1] = -3 * torch.eye(5, dtype=torch.float64)
    sxx[64, 0, 4, 4] = float("nan")
    sxy[65, 2, 0] = float("inf")
    theta, failed, _ = ridge.solve(sxx, sxy, RIDGE)
    _, failed_plain, _ = ridge.solve_torch(sxx, sxy, RIDGE)
    assert {tuple(i) for i in failed.nonzero().tolist()} == {(3, 1), (64, 0), (65, 2)}
    assert torch.equal(failed, failed_plain)
    assert (theta[failed] == 0).all()
    assert torch.equal(theta[~failed], good[~failed])


@pytest.mark.parametrize("compiled_ones", [True, False])
def test_the_same_systems_again(compiled_ones: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "_on_cpu", lambda value: compiled_ones)
    (sxx, sxy), (_, other) = systems(9, 4), systems(9, 4, seed=5)
    sxx[2, 1] = -3 * torch.eye(4, dtype=torch.float64)
    again = ridge.solve_again(ridge.solve(sxx, sxy, RIDGE), other, RIDGE)
    torch.testing.assert_close(again, ridge.solve_torch(sxx, other, RIDGE).theta, rtol=1e-9, atol=1e-9)
    assert (again[2, 1] == 0).all()
    assert (again[2, 0] != 0).all()


@pytest.mark.parametrize("compiled_ones", [True, False])
def test_gradients(compiled_ones: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "_on_cpu", lambda value: compiled_ones)
    sxx, sxy = (v.requires_grad_() for v in systems(2, 3))
    penalty = RIDGE.clone().requires_grad_()

    def theta(sxx: Tensor, sxy: Tensor, penalty: Tensor) -> Tensor:
        symmetric = (sxx + sxx.mT) / 2  # finite differences move single entries
        return solve_ridge(symmetric, sxy, penalty)[0]

    assert torch.autograd.gradcheck(theta, (sxx, sxy, penalty))


def test_a_kernel_is_compiled_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(function: Any, cache: bool = False, **_: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(kernels, "njit", njit)
    assert kernels.compiled(systems) is systems


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "FLOATS_A_PART", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    sxx, sxy = systems(400, 5)
    # With this the parent's threads have begun.
    expected = ridge.solve(sxx, sxy, RIDGE).theta

    def work() -> None:
        os._exit(0 if torch.equal(ridge.solve(sxx, sxy, RIDGE).theta, expected) else 1)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(30)
    child.kill()  # if it waits for threads that it does not have
    assert child.exitcode == 0


def test_an_answer_does_not_depend_on_its_neighbours() -> None:
    sxx, sxy = systems(130, 6)
    whole, *_ = ridge.solve(sxx, sxy, RIDGE)
    for i in (0, 21, 22, 129):
        alone, *_ = ridge.solve(sxx[i : i + 1], sxy[i : i + 1], RIDGE)
        assert torch.equal(alone[0], whole[i])


def test_solve_takes_views_and_further_dimensions() -> None:
    sxx, sxy = systems(8, 4)
    expected, *_ = ridge.solve(sxx, sxy, RIDGE)
    theta, failed, _ = ridge.solve(
        sxx.unflatten(0, (2, 4)).transpose(0, 1), sxy.unflatten(0, (2, 4)).transpose(0, 1), RIDGE
    )
    assert torch.equal(theta.transpose(0, 1).flatten(0, 1), expected)
    assert failed.shape == (4, 2, 3)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_absorb_equals_torch(steps: int, together: bool, dtype: torch.dtype) -> None:
    """Rows of a network in single precision, and those of a cell in double; the sums are always double."""
    *state, theta, h, y, w, exist = rows(40, 6, steps)
    h, y, w = (v.to(dtype) for v in (h, y, w))
    fade = torch.rand(w.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    new = ridge.absorb(tuple(state), ALPHAS, theta, h, y, w, exist, together, fade)
    expected = ridge.absorb_torch(tuple(state), ALPHAS, theta, h, y, w, exist, together, fade)
    for value, other in zip(new, expected, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-12, atol=1e-12)


def test_rows_in_one_call_or_in_several_give_the_same_bits() -> None:
    *state, theta, h, y, w, _ = rows(20, 6, 5)
    all_rows, one = torch.full((20,), 5), torch.ones(20, dtype=torch.int64)
    whole = ridge.absorb(tuple(state), ALPHAS, theta, h, y, w, all_rows)
    parts: Any = tuple(state)
    for t in range(5):
        at = slice(t, t + 1)
        parts = ridge.absorb(parts, ALPHAS, theta, h[:, at], y[:, at], w[:, at], one)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_absorb_leaves_gradients_to_torch() -> None:
    *state, theta, h, y, w, exist = rows(4, 3, 2)
    h.requires_grad_()
    new = ridge.absorb(tuple(state), ALPHAS, theta, h, y, w, exist)
    assert new[0].requires_grad


def test_threads_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sxx, sxy = systems(400, 5)
    *state, theta, h, y, w, exist = rows(400, 5, 2)
    alone = ridge.solve(sxx, sxy, RIDGE)[0], *ridge.absorb(tuple(state), ALPHAS, theta, h, y, w, exist)
    monkeypatch.setattr(kernels, "FLOATS_A_PART", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    shared = ridge.solve(sxx, sxy, RIDGE)[0], *ridge.absorb(tuple(state), ALPHAS, theta, h, y, w, exist)
    for one, other in zip(alone, shared, strict=True):
        assert torch.equal(one, other)


def test_no_series_at_all() -> None:
    theta, failed, _ = ridge.solve(*systems(0, 4), RIDGE)
    assert theta.shape == (0, 3, 4)
    assert failed.shape == (0, 3)
