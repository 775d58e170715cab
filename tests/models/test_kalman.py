"""The filter against a textbook's, against the density of the whole vector, and its gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from aru.models.kalman import Filtered, Latent, System, kalman_filter

Array = np.ndarray[Any, Any]


def system_of(T: int, L: int, N: int, seed: int = 0) -> System:
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> Tensor:
        return torch.from_numpy(random.normal(size=shape))

    return System(
        a=draw(T, L, N),
        b=draw(T, N),
        g=0.5 * draw(T, L, N),
        sigma=draw(T, N).abs() + 0.2,
        drift=1 + 0.2 * draw(T, N),
        damping=1 - 0.3 * draw(T, N).abs().clamp(max=1),
    )


def state_of(L: int, N: int, seed: int = 1) -> Latent:
    random = np.random.default_rng(seed)
    root = torch.from_numpy(random.normal(size=(L, L, N)))
    return Latent(torch.from_numpy(random.normal(size=(L, N))), torch.einsum("ijn,kjn->ikn", root, root))


def values_of(T: int, N: int, seed: int = 2) -> tuple[Tensor, Tensor]:
    """Values, a third of them missing; a long gap in the first series."""
    random = np.random.default_rng(seed)
    observed = torch.from_numpy(random.random((T, N)) > 0.3)
    observed[T // 3 : 2 * T // 3, 0] = False
    return torch.from_numpy(random.normal(size=(T, N))), observed


def transition(system: System, t: int, n: int) -> Array:
    """F_t of one series as the full matrix that it is."""
    F = np.eye(system.a.shape[1])
    F[0, 1], F[1, 1] = float(system.drift[t, n]), float(system.damping[t, n])
    return F


class Textbook(NamedTuple):
    """What a plain Kalman filter of one series gives: predictions and states after every row."""

    mean: Array
    variance: Array
    m: list[Array]
    P: list[Array]
    log_likelihood: float


def textbook(system: System, state: Latent, z: Tensor, observed: Tensor, n: int) -> Textbook:
    """Prediction and correction with full matrices and an explicit gain, one row after the other."""
    m, P = state.m[:, n].numpy(), state.P[..., n].numpy()
    means, variances, ms, Ps, total = [], [], [], [], 0.0
    for t in range(len(z)):
        a, g = system.a[t, :, n].numpy(), system.g[t, :, n].numpy()
        mean, variance = a @ m + float(system.b[t, n]), a @ P @ a + float(system.sigma[t, n]) ** 2
        if observed[t, n]:
            error = float(z[t, n]) - mean
            total += -0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
            gain = P @ a / variance
            m = m + gain * error
            left = np.eye(len(a)) - np.outer(gain, a)
            P = left @ P @ left.T + np.outer(gain, gain) * float(system.sigma[t, n]) ** 2
        F = transition(system, t, n)
        m, P = F @ m, F @ P @ F.T + np.outer(g, g)
        means.append(mean)
        variances.append(variance)
        ms.append(m)
        Ps.append(P)
    return Textbook(np.array(means), np.array(variances), ms, Ps, total)


def log_likelihood(out: Filtered, z: Tensor, observed: Tensor) -> Tensor:
    density = torch.distributions.Normal(out.mean, out.variance.sqrt()).log_prob(torch.where(observed, z, 0.0))
    return torch.where(observed, density, 0.0).sum(0)


@pytest.mark.parametrize("L", [2, 7])
def test_it_is_the_textbooks_filter(L: int) -> None:
    T, N = 20, 3
    system, state, (z, observed) = system_of(T, L, N), state_of(L, N), values_of(T, N)
    out = kalman_filter(system, state, z, observed)
    likelihood = log_likelihood(out, z, observed)
    for n in range(N):
        expected = textbook(system, state, z, observed, n)
        np.testing.assert_allclose(out.mean[:, n], expected.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(out.variance[:, n], expected.variance, rtol=1e-9)
        assert float(likelihood[n]) == pytest.approx(expected.log_likelihood, rel=1e-10)
        for t in range(T):  # the state after every row: that of the filter which stops there
            short = kalman_filter(System._make(v[: t + 1] for v in system), state, z[: t + 1], observed[: t + 1])
            np.testing.assert_allclose(short.state.m[:, n], expected.m[t], rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(short.state.P[..., n], expected.P[t], rtol=1e-8, atol=1e-8)


def test_the_likelihood_is_the_density_of_all_observed_values_together() -> None:
    """Mean and covariance of the whole vector, from the equations of the model alone."""
    T, L, N = 6, 4, 2
    system, state, (z, observed) = system_of(T, L, N), state_of(L, N), values_of(T, N)
    likelihood = log_likelihood(kalman_filter(system, state, z, observed), z, observed)
    for n in range(N):
        # z = M [l_0, shocks] + b + noise: propagate the coefficients of every source of randomness.
        sources = np.hstack([np.eye(L), np.zeros((L, T))])
        rows = []
        for t in range(T):
            rows.append(system.a[t, :, n].numpy() @ sources)
            sources = transition(system, t, n) @ sources
            sources[:, L + t] += system.g[t, :, n].numpy()
        M = np.array(rows)
        prior = np.eye(L + T)
        prior[:L, :L] = state.P[..., n].numpy()
        mean = M[:, :L] @ state.m[:, n].numpy() + system.b[:, n].numpy()
        covariance = M @ prior @ M.T + np.diag(system.sigma[:, n].numpy() ** 2)
        seen = observed[:, n].numpy()
        expected = multivariate_normal.logpdf(z[seen, n].numpy(), mean[seen], covariance[np.ix_(seen, seen)])
        assert float(likelihood[n]) == pytest.approx(expected, rel=1e-10)


def test_forecasts_are_the_filtered_state_moved_on() -> None:
    """Mean and variance of every lead in closed form: the filter over rows that are missing."""
    T, h, L, N = 9, 5, 5, 2
    system, state, (z, observed) = system_of(T + h, L, N), state_of(L, N), values_of(T + h, N)
    observed[T:] = False
    out = kalman_filter(system, state, z, observed)
    origin = kalman_filter(System._make(v[:T] for v in system), state, z[:T], observed[:T]).state
    for n in range(N):
        for k in range(h):
            power, covariance = np.eye(L), np.zeros((L, L))
            for j in range(T, T + k):
                F, g = transition(system, j, n), system.g[j, :, n].numpy()
                power, covariance = F @ power, F @ covariance @ F.T + np.outer(g, g)
            a = system.a[T + k, :, n].numpy()
            covariance = covariance + power @ origin.P[..., n].numpy() @ power.T
            mean = a @ power @ origin.m[:, n].numpy() + float(system.b[T + k, n])
            assert float(out.mean[T + k, n]) == pytest.approx(mean, rel=1e-9)
            variance = a @ covariance @ a + float(system.sigma[T + k, n]) ** 2
            assert float(out.variance[T + k, n]) == pytest.approx(variance, rel=1e-9)


def test_gradients() -> None:
    """By finite differences, for every input that learns, through predictions and through the final state."""
    T, L, N = 4, 3, 2
    system, state, (z, observed) = system_of(T, L, N), state_of(L, N), values_of(T, N)
    assert not observed.all()

    def run(z: Tensor, m: Tensor, root: Tensor, *learned: Tensor) -> tuple[Tensor, ...]:
        P = torch.einsum("ijn,kjn->ikn", root, root)
        out = kalman_filter(System(system.a, *learned), Latent(m, P), z, observed)
        return out.mean, out.variance, *out.state

    root = torch.linalg.cholesky(state.P.movedim(-1, 0)).movedim(0, -1)
    inputs = tuple(v.clone().requires_grad_() for v in (z, state.m, root, *system[1:]))
    assert torch.autograd.gradcheck(run, inputs)


def test_a_sequence_cut_in_two_is_the_whole_one() -> None:
    """States, predictions and gradients."""
    T, L, N, cut = 11, 5, 3, 4
    whole, state, (z, observed) = system_of(T, L, N), state_of(L, N), values_of(T, N)
    learned = [v.requires_grad_() for v in (*whole[1:], *state)]

    def gradients(mean: Tensor, variance: Tensor, last: Latent) -> tuple[Tensor, ...]:
        loss = mean.sin().sum() + variance.log().sum() + last.m.square().sum() + last.P.cos().sum()
        return torch.autograd.grad(loss, learned)

    out = kalman_filter(whole, state, z, observed)
    first = kalman_filter(System._make(v[:cut] for v in whole), state, z[:cut], observed[:cut])
    second = kalman_filter(System._make(v[cut:] for v in whole), first.state, z[cut:], observed[cut:])
    mean, variance = torch.cat([first.mean, second.mean]), torch.cat([first.variance, second.variance])
    for one, other in zip((out.mean, out.variance, *out.state), (mean, variance, *second.state), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    for one, other in zip(gradients(*out), gradients(mean, variance, second.state), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_what_is_missing_does_not_matter() -> None:
    """Not even if it is NaN: neither to predictions nor to gradients."""
    T, L, N = 8, 3, 2
    system, state, (z, observed) = system_of(T, L, N), state_of(L, N), values_of(T, N)
    other = torch.where(observed, z, torch.nan)
    results = []
    for values in (z, other):
        g = system.g.clone().requires_grad_()
        out = kalman_filter(system._replace(g=g), state, values, observed)
        (d_g,) = torch.autograd.grad(out.mean.sum() + out.variance.sum(), g)
        results.append((out.mean, out.variance, *out.state, d_g))
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_the_batch_is_its_series() -> None:
    T, L, N = 10, 4, 5
    system, state, (z, observed) = system_of(T, L, N), state_of(L, N), values_of(T, N)
    together = kalman_filter(system, state, z, observed)
    for n in range(N):
        one = slice(n, n + 1)
        alone = kalman_filter(
            System._make(v[..., one] for v in system),
            Latent(*(v[..., one] for v in state)),
            z[:, one],
            observed[:, one],
        )
        torch.testing.assert_close(alone.mean, together.mean[:, one], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(alone.state.P, together.state.P[..., one], rtol=1e-12, atol=1e-12)


def test_networks_of_any_type_are_filtered_in_double_precision() -> None:
    T, L, N = 6, 3, 2
    system, state, (z, observed) = system_of(T, L, N), state_of(L, N), values_of(T, N)
    low = System._make(v.float() for v in system)
    low = low._replace(sigma=low.sigma.requires_grad_())
    out = kalman_filter(low, Latent(*(v.float() for v in state)), z.float(), observed)
    assert out.mean.dtype == out.variance.dtype == out.state.P.dtype == torch.float64
    out.variance.sum().backward()
    assert low.sigma.grad is not None
    assert low.sigma.grad.dtype == torch.float32


@pytest.mark.parametrize("spread", [1e-6, 1e3])
def test_long_gaps_constants_and_extreme_spreads(spread: float) -> None:
    """Vague and certain priors, hardly any noise, a thousand rows: finite, and no variance below the noise."""
    T, L, levels = 1200, 4, torch.tensor([0.0, 1.0, 1e9]).repeat(2)
    N = len(levels)
    observed = torch.ones(T, N, dtype=torch.bool)
    observed[:, N // 2 :] = (torch.arange(T) % 599 == 0).unsqueeze(-1)
    phase = torch.arange(T) * 2 * torch.pi / 7
    a = torch.stack([torch.ones(T), torch.zeros(T), phase.cos(), phase.sin()], 1).unsqueeze(-1).expand(T, L, N)
    ones = torch.ones(T, N)
    sigma = (1e-3 * ones).requires_grad_()
    system = System(a, 0 * ones, 1e-3 * torch.ones(T, L, N), sigma, 0.9 * ones, 0.9 * ones)
    state = Latent(torch.zeros(L, N), spread**2 * torch.eye(L).unsqueeze(-1).expand(L, L, N))
    out = kalman_filter(system, state, levels.expand(T, N), observed)
    assert out.mean.isfinite().all()
    assert (out.variance >= sigma.detach().double().square()).all()
    torch.testing.assert_close(out.state.P, out.state.P.transpose(0, 1), rtol=1e-9, atol=1e-12)
    smallest = torch.linalg.eigvalsh(out.state.P.movedim(-1, 0)).min()
    assert smallest > -1e-9 * out.state.P.abs().max()
    out.variance.log().mean().backward()
    assert sigma.grad is not None
    assert sigma.grad.isfinite().all()
