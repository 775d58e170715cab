"""Densities and quantiles against scipy, and the way from z back to y."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import Tensor

from aru.nn.distributions import (
    DISTRIBUTIONS,
    MEAN_REACH,
    MIN_SIGMA,
    QUADRATURE_TAIL,
    RECENT_ROWS,
    Distribution,
    Gaussian,
    NegativeBinomial,
    Params,
    Predictive,
    StudentT,
    fading,
    inverse_transform,
    recent_after,
    recent_before,
    student_quantile,
    student_weight,
    transform,
    unusual,
)

LEVELS = (0.001, 0.05, 0.25, 0.5, 0.6, 0.9, 0.995)
CONTINUOUS = {"gaussian": stats.norm, "student-t": stats.t(df=4).dist}


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def oracle(name: str, mu: float, sigma: float, scale: float = 1.0) -> Any:
    """scipy's distribution of z, or of the count y = s z."""
    if name == "gaussian":
        return stats.norm(mu, sigma)
    if name == "student-t":
        return stats.t(4, mu, sigma)
    return stats.nbinom(1 / sigma, 1 / (1 + sigma * mu * scale))


def test_there_is_one_instance_of_every_family() -> None:
    assert {k: type(v) for k, v in DISTRIBUTIONS.items()} == {
        "gaussian": Gaussian,
        "student-t": StudentT,
        "negative-binomial": NegativeBinomial,
    }
    assert all(isinstance(v, Distribution) for v in DISTRIBUTIONS.values())


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 1.0), (-2.5, 0.01), (3.0, 40.0)])
def test_densities_and_quantiles_against_scipy(name: str, mu: float, sigma: float) -> None:
    family, expected, params = DISTRIBUTIONS[name], oracle(name, mu, sigma), Params(double(mu), double(sigma))
    z = mu + sigma * torch.linspace(-8, 8, 33, dtype=torch.float64)
    many = Params(double(mu).expand(33), double(sigma).expand(33))
    np.testing.assert_allclose(family.nll(many, z, torch.ones(33)), -expected.logpdf(z.numpy()), rtol=1e-12)
    for q in LEVELS:
        assert family.quantile(params, q, double(1)).item() == pytest.approx(expected.ppf(q), rel=1e-10, abs=1e-10)
    assert family.mean(params, double(1)).item() == pytest.approx(expected.mean())
    mass, _ = integrate.quad(
        lambda v: math.exp(-family.nll(params, double(v), double(1)).item()), mu - 200 * sigma, mu + 200 * sigma,
        points=[mu], limit=500,
    )  # fmt: skip
    assert mass == pytest.approx(1, abs=1e-6)


@given(q=st.floats(1e-9, 1 - 1e-9))
def test_the_closed_form_quantile_of_student_t(q: float) -> None:
    low, middle, high = student_quantile(torch.tensor([q, 0.5, 1 - q], dtype=torch.float64)).tolist()
    assert low == pytest.approx(stats.t.ppf(q, 4), rel=1e-6, abs=1e-7)
    assert middle == 0
    assert high == pytest.approx(-low, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("mu", "sigma", "scale"), [(0.7, 0.5, 10.0), (2.0, 0.001, 3.0), (0.01, 3.0, 1.5), (1.0, 0.002, 500.0)]
)
def test_counts_against_scipy(mu: float, sigma: float, scale: float, dtype: torch.dtype) -> None:
    """With small dispersion large terms cancel, which float32 would not survive."""
    family = NegativeBinomial()
    params = Params(torch.tensor([mu], dtype=dtype), torch.tensor([sigma], dtype=dtype))
    exact = oracle("negative-binomial", params.mu.item(), params.sigma.item(), scale)
    s = double(scale)
    counts = np.arange(0, 60)
    many = Params(params.mu.expand(60), params.sigma.expand(60))
    nll = family.nll(many, torch.from_numpy(counts) / s, s)
    assert nll.dtype == dtype
    np.testing.assert_allclose(nll, -exact.logpmf(counts), rtol=1e-6 if dtype == torch.float32 else 1e-9, atol=1e-7)
    for q in LEVELS:
        assert (family.quantile(params, q, s) * s).item() == pytest.approx(exact.ppf(q))
    assert (family.mean(params, s) * s).item() == pytest.approx(exact.mean(), rel=1e-6)
    assert (family.spread(params, s) * s).item() == pytest.approx(exact.std(), rel=1e-6)


@pytest.mark.parametrize(("mu", "sigma", "scale"), [(0.7, 0.5, 10.0), (0.01, 3.0, 1.5), (2.0, 0.001, 3.0)])
def test_probabilities_of_counts_sum_to_one(mu: float, sigma: float, scale: float) -> None:
    y = torch.arange(0, 2000, dtype=torch.float64)
    params = Params(double(mu).expand(2000), double(sigma).expand(2000))
    assert (-NegativeBinomial().nll(params, y / scale, double(scale))).exp().sum().item() == pytest.approx(1, abs=1e-9)


def test_a_count_survives_the_division_by_its_scale_in_float32() -> None:
    """z = y / s is kept in float32; s z must be the count again."""
    scale = double(7.3, 1234.5, 0.37)
    y = double(5.0, 100_001.0, 2.0)
    params = Params(torch.ones(3), torch.full((3,), 0.5))
    exact = NegativeBinomial().nll(params, y / scale, scale)
    assert torch.equal(NegativeBinomial().nll(params, (y / scale).float(), scale), exact)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_two_outputs_of_a_network_are_valid_parameters(name: str, dtype: torch.dtype) -> None:
    mu = torch.tensor([-1e6, -600.0, -3.0, 0.0, 0.4, 100.0, 1e6], dtype=dtype, requires_grad=True)
    raw = torch.tensor([-1e4, -20.0, 0.0, 1.0, 5.0, 50.0, 0.3], dtype=dtype, requires_grad=True)
    family = DISTRIBUTIONS[name]
    params = family.params(mu, raw)
    assert (params.sigma >= MIN_SIGMA).all()
    expected = raw.detach()[2:].double().exp().log1p() + MIN_SIGMA
    torch.testing.assert_close(params.sigma.detach()[2:].double(), expected, rtol=1e-6, atol=0)
    assert (params.mu > 0).all() or name != "negative-binomial"
    nll = family.nll(params, torch.zeros_like(mu), double(2.0))
    assert nll.isfinite().all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(nll.sum(), (mu, raw)))


def test_the_mean_of_counts_is_the_networks_output_but_for_small_ones() -> None:
    mu = torch.linspace(-5, 5, 101, dtype=torch.float64)
    positive = NegativeBinomial().params(mu, torch.zeros_like(mu)).mu
    torch.testing.assert_close(positive, (mu + (mu**2 + 0.01).sqrt()) / 2, rtol=1e-10, atol=0)
    assert (positive[1:] > positive[:-1]).all()
    assert positive[-1].item() == pytest.approx(5, abs=1e-3)
    assert StudentT().params(mu, mu).mu is mu


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_likelihood_is_best_where_the_data_is(name: str) -> None:
    z = double(1.0, 2.0, 3.0)
    mu = torch.full((3,), 1.2, dtype=torch.float64, requires_grad=True)
    loss = DISTRIBUTIONS[name].nll(Params(mu, torch.ones(3, dtype=torch.float64)), z, double(1)).sum()
    assert torch.autograd.grad(loss, mu)[0].sum() < 0  # move up


def test_spread_is_sigma_for_location_scale_families() -> None:
    params = Params(double(1.0), double(0.3))
    for name in CONTINUOUS:
        assert torch.equal(DISTRIBUTIONS[name].spread(params, double(5)), params.sigma)


# Robust weights.


def test_student_weights_make_the_weighted_mean_the_maximum_likelihood_estimate() -> None:
    """Iterating mu = sum(w z) / sum(w) with these weights solves the likelihood equation of Student's t."""
    z, mu = double(0.1, -0.4, 0.3, 9.0), double(0.0)
    for _ in range(200):
        w = student_weight((z - mu) / 0.5)
        mu = (w * z).sum() / w.sum()
    at = mu.expand(4).clone().requires_grad_()
    nll = StudentT().nll(Params(at, torch.full((4,), 0.5, dtype=torch.float64)), z, double(1)).sum()
    assert torch.autograd.grad(nll, at)[0].sum().abs() < 1e-9
    assert mu.item() < 1  # the outlier is hardly heard


def test_student_weights_are_even_decreasing_and_bounded() -> None:
    r = torch.linspace(0, 50, 200, dtype=torch.float64)
    w = student_weight(r)
    assert w[0].item() == pytest.approx(5 / 4)
    assert student_weight(double(1.0)).item() == pytest.approx(1)
    assert (w[1:] < w[:-1]).all()
    assert torch.equal(w, student_weight(-r))
    assert (w * r.square() < 5).all()  # what an observation adds to ss is bounded, however far off it is


# From z to y.


@given(name=st.sampled_from([None, "log1p", "asinh"]), ratio=st.floats(0, 1e6))
@hypothesis_settings(max_examples=60)
def test_transforms_are_inverted(name: str | None, ratio: float) -> None:
    there = transform(name, double(ratio))
    assert inverse_transform(name, there).item() == pytest.approx(ratio, rel=1e-9, abs=1e-12)
    expected = {None: ratio, "log1p": math.log1p(ratio), "asinh": math.asinh(ratio)}[name]
    assert there.item() == pytest.approx(expected, rel=1e-12)


def test_negative_values_through_the_transforms() -> None:
    assert transform("asinh", double(-3.0)).item() == pytest.approx(math.asinh(-3))
    assert inverse_transform("asinh", double(-2.0)).item() == pytest.approx(math.sinh(-2))
    assert transform("log1p", double(-3.0)).item() == 0  # log1p is for y >= 0


def predictive(name: str, transform: str | None = None, nonnegative: bool = False, **params: float) -> Predictive:
    given = {"mu": 0.5, "sigma": 0.4, "scale": 20.0, **params}
    return Predictive(
        DISTRIBUTIONS[name],
        Params(double(given["mu"]), double(given["sigma"])),
        double(given["scale"]),
        transform,
        nonnegative,
    )


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize(("f", "back"), [(None, lambda z: z), ("log1p", np.expm1), ("asinh", np.sinh)])
def test_quantiles_of_y_map_exactly(name: str, f: str | None, back: Any) -> None:
    forecast = predictive(name, f)
    for q in LEVELS:
        z = oracle(name, 0.5, 0.4).ppf(q)
        assert forecast.quantile(q).item() == pytest.approx(20 * back(z), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize(("f", "back"), [("log1p", np.expm1), ("asinh", np.sinh)])
@pytest.mark.parametrize("mu", [-0.3, 1.5])
def test_means_of_y_are_winsorised_integrals(name: str, f: str, back: Any, mu: float) -> None:
    dist = oracle(name, mu, 0.4)
    low, high = dist.ppf(QUADRATURE_TAIL), dist.ppf(1 - QUADRATURE_TAIL)
    integral, _ = integrate.quad(lambda z: back(z) * dist.pdf(z), low, high, epsabs=1e-12)
    expected = 20 * (integral + QUADRATURE_TAIL * (back(low) + back(high)))
    assert predictive(name, f, mu=mu).mean().item() == pytest.approx(expected, rel=1e-4)


def test_mean_by_quadrature_against_monte_carlo() -> None:
    """Gaussian and asinh: close to a plain average of a million draws, and to the exact e^(s^2/2) sinh(mu)."""
    draws = np.sinh(np.random.default_rng(0).normal(0.5, 0.4, 1_000_000)).mean()
    assert predictive("gaussian", "asinh").mean().item() == pytest.approx(20 * draws, rel=1e-2)
    exact = 20 * math.exp(0.4**2 / 2) * math.sinh(0.5)
    assert predictive("gaussian", "asinh").mean().item() == pytest.approx(exact, rel=1e-2)


def test_a_wide_distribution_keeps_a_mean_that_is_no_matter_of_its_tails() -> None:
    """exp of a Student-t has no mean; a quadrature far into the tail would find thousands of times the median."""
    wide = predictive("student-t", "log1p", mu=0.0, sigma=1.75, nonnegative=True)
    assert 0 < wide.mean().item() < 20 * 20


@pytest.mark.parametrize("f", ["log1p", "asinh"])
@pytest.mark.parametrize("sigma", [4.0, 40.0])
def test_no_spread_takes_the_mean_beyond_a_factor_of_the_median(f: str, sigma: float) -> None:
    """A network may call a series it does not understand uncertain by any factor; its mean stays a number to use."""
    forecast = predictive("student-t", f, mu=2.0, sigma=sigma, nonnegative=True)
    assert forecast.quantile(0.5) < forecast.mean() < math.exp(MEAN_REACH) * (forecast.quantile(0.5) + 20)


def test_without_a_transform_the_mean_is_that_of_the_distribution() -> None:
    for name in CONTINUOUS:
        assert predictive(name).mean().item() == pytest.approx(10.0)
    counts = predictive("negative-binomial", mu=0.35, nonnegative=True)
    assert counts.mean().item() == pytest.approx(7.0)
    assert counts.quantile(0.5).item() == oracle("negative-binomial", 0.35, 0.4, 20.0).ppf(0.5)


@pytest.mark.parametrize("f", [None, "log1p", "asinh"])
def test_what_cannot_be_negative_is_cut_off_at_zero(f: str | None) -> None:
    below, free = predictive("student-t", f, True, mu=-1.0), predictive("student-t", f, False, mu=-1.0)
    assert below.mean().item() == 0
    assert free.mean().item() < 0
    for q in LEVELS:
        assert below.quantile(q).item() == max(0.0, free.quantile(q).item())


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_forecasts_keep_their_shape_and_quantiles_their_order(name: str) -> None:
    params = DISTRIBUTIONS[name].params(torch.randn(3, 4), torch.randn(3, 4))
    scale = torch.tensor([[1.0], [20.0], [300.0]], dtype=torch.float64)
    forecast = Predictive(DISTRIBUTIONS[name], params, scale, None, False)
    values = torch.stack([forecast.quantile(q) for q in sorted(LEVELS)])
    assert values.shape == (len(LEVELS), 3, 4)
    assert values.dtype == forecast.mean().dtype == torch.float64
    assert forecast.mean().shape == (3, 4)
    assert (values.diff(dim=0) >= 0).all()


def test_recent_residuals_of_a_whole_history_are_those_of_one_row_after_the_other() -> None:
    generator = torch.Generator().manual_seed(0)
    r = 3 * torch.randn(3, 2 * RECENT_ROWS + 7, generator=generator)
    seen = torch.rand(r.shape, generator=generator) < 0.8
    found, recent = recent_before(r, seen), torch.zeros(3, 2, dtype=torch.float64)
    for t in range(r.shape[1]):
        torch.testing.assert_close(found[:, t], recent)
        recent = recent_after(recent, r[:, t], seen[:, t])


def test_a_lasting_change_is_soon_no_outlier_and_an_outlier_stays_one() -> None:
    def influence(r: list[float]) -> tuple[list[float], list[float]]:
        values = torch.tensor([r])
        unit = unusual(recent_before(values, torch.ones_like(values, dtype=torch.bool)))
        return student_weight(values / unit)[0].tolist(), fading(unit)[0].tolist()

    weight, fade = influence([0.8] * 20 + [6.0] * 10)
    assert weight[20] < 0.2
    assert min(weight[26:]) > 0.5
    assert max(fade[:21]) == min(fade[:21]) == 1
    assert max(fade[24:]) < 0.9
    weight, fade = influence([0.8] * 20 + [1e6] + [0.8] * 10)
    assert weight[20] < 1e-6
    assert min(weight[21:]) > 0.9
    assert min(fade) > 0.9
