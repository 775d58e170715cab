"""Effects of covariates in closed form, beside a pretrained network: no gradient anywhere.

The record of a series (`EffectSums`) is made of aged sums over its deviations from a local level, of the values and of
their logarithms. It knows nothing of the panel. What series have in common (`CommonEffects`) is found from the sums of
all of them by a few rounds of EM: the mean of every coefficient, its spread between series, and the noise. The two meet
when a forecast is made: coefficients are the panel's, moved by the series' own sums as far as the spread allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aru.nn.kernels import EFFECT_AGE, absorb_effects
from aru.nn.threads import in_parallel
from aru.pretrained.newcomers import Newcomers

Array = NDArray[np.float64]
LOGS, PLAIN_VALUES = 0, 1  # the two ways to see a value: effects multiply, or they add

FIRST_ROUNDS, EM_ROUNDS = 4, 15  # to find out whether effects multiply or add; for those that do
NOISE_ROWS = 5.0  # rows of the panel's noise that a series' own noise starts with
PRIOR_SERIES, PRIOR_SPREAD = 3.0, 0.02  # series that the prior spread counts for, and it, as a share of the variance
SLACK = 0.25  # of the range of effects that a series has shown, by which a future effect may leave it
RARELY = 0.01  # share of the values of a series, and one, that may lack a logarithm where effects multiply
LEAST_VARIANCE = 1e-30
SERIES_A_PART = 32  # whose matrices are inverted by one thread


class EffectSums(NamedTuple):
    """Records of series with k regressors. `way` is LOGS or PLAIN_VALUES. Sums are rounded after each row."""

    xx: Float[Tensor, "series triangle"]  # sum of w x x', its lower triangle row by row
    xz: Float[Tensor, "series way k"]  # sum of w x z
    zz: Float[Tensor, "series way"]  # sum of w z z
    weight: Float[Tensor, " series"]  # sum of w
    slope: Float[Tensor, " series"]  # sum of w log(dz/dy) of the logarithm
    level: Float[Tensor, "series k_and_way"]  # aged means of regressors and of both values
    seen: Float[Tensor, " series"]  # aged number of rows in `level`
    size: Float[Tensor, "series way"]  # mean absolute deviation
    rows: Float[Tensor, " series"]  # deviations so far
    negative: Float[Tensor, " series"]  # aged number of values without a logarithm
    average: Float[Tensor, "series average"]  # moving averages of numbers (`aru.pretrained.regressors.Moving`)
    averaged: Float[Tensor, "series average"]

    @classmethod
    def empty(cls, n: int, k: int, averages: int = 0, device: torch.device | None = None) -> EffectSums:
        """Records of series without values."""
        shapes = ((k * (k + 1) // 2,), (2, k), (2,), (), (), (k + 2,), (), (2,), (), (), (averages,), (averages,))
        sums = cls(*(torch.zeros(n, *shape, device=device) for shape in shapes))
        exact = ("level", "size", "average", "averaged")
        return sums._replace(**{name: getattr(sums, name).double() for name in exact})


def absorb(sums: EffectSums, x: Tensor, y: Tensor, observed: Tensor, steps: Tensor) -> EffectSums:
    """Take in the first `steps` of the (series, row) rows with regressors (series, row, k).

    While few deviations are known, a value of eight times the level, or an eighth of it, begins another level, and
    nothing is learned from the step: it may be an outlier, or the way back from one.
    """
    device = sums.xx.device
    on_cpu = [value.cpu() for value in sums[:-2]]
    new = absorb_effects(on_cpu, *(value.cpu() for value in (x, y, observed, steps)))
    return EffectSums._make([*(value.to(device) for value in new), *sums[-2:]])


def aged(sums: EffectSums, steps: Tensor) -> EffectSums:
    """The same after some rows without a value."""
    factor = EFFECT_AGE ** steps.double()

    def by(value: Tensor) -> Tensor:
        return (value.double() * factor.reshape(-1, *(1,) * (value.ndim - 1))).float()

    return sums._replace(
        **{name: by(getattr(sums, name)) for name in ("xx", "xz", "zz", "weight", "slope", "negative")}
    )


def has_logarithms(sums: EffectSums) -> bool:
    """Whether effects may multiply: values without a logarithm, such as returned goods, are rare in every series."""
    return not bool((sums.negative > 1 + RARELY * sums.weight).any())


class CommonEffects(NamedTuple):
    """What the series of a panel have in common, in units of z for logarithms, of a typical deviation else."""

    mean: Float[Tensor, "k trait"]  # coefficients of a new series: those of an average one, and by trait
    spread: Float[Tensor, " k"]  # variance of the coefficients between series
    noise: Float[Tensor, ""]  # variance of what the regression leaves over
    unit: Float[Tensor, ""]  # typical deviation of a series
    way: int  # LOGS or PLAIN_VALUES
    newcomers: Newcomers | None = None  # how series begin

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        plain = {name: value.tolist() if isinstance(value, Tensor) else value for name, value in self._asdict().items()}
        return {**plain, "newcomers": None if self.newcomers is None else self.newcomers.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CommonEffects:
        """The inverse of `to_json`."""
        tensors, newcomers = ("mean", "spread", "noise", "unit"), values["newcomers"]
        found = {name: torch.tensor(values[name], dtype=torch.float64) for name in tensors}
        return cls(**found, way=values["way"], newcomers=None if newcomers is None else Newcomers.from_json(newcomers))


def unknown_effects(k: int, traits: int = 1) -> CommonEffects:
    """Before anything is known of a panel."""
    even = torch.ones((), dtype=torch.float64)
    spread = torch.full((k,), PRIOR_SPREAD, dtype=torch.float64)
    return CommonEffects(torch.zeros(k, traits, dtype=torch.float64), spread, even, even, PLAIN_VALUES)


def learn_effects(sums: EffectSums, traits: Array) -> CommonEffects:
    """EM over the records: theta_i ~ N(mean u_i, diag(spread)), mean_jt ~ N(0, relevance_jt), all learned.

    u_i are the (series, trait) traits of a series: 1, and its static covariates. A coefficient without use has a
    relevance and a spread that tend to zero, and so has a trait that says nothing about a coefficient. Whether effects
    multiply or add is decided by the likelihood.
    """
    whole = _Whole.of(sums, traits)
    way = PLAIN_VALUES
    if whole.n and has_logarithms(sums):
        rough = [whole.learn(way, FIRST_ROUNDS) for way in (LOGS, PLAIN_VALUES)]
        scores = [whole.likelihood(way, *rough[way]) for way in (LOGS, PLAIN_VALUES)]
        way = LOGS if scores[LOGS] > scores[PLAIN_VALUES] else PLAIN_VALUES
    mean, spread, noise, unit = (
        torch.from_numpy(np.asarray(value, dtype=np.float64)) for value in whole.learn(way, EM_ROUNDS)
    )
    return CommonEffects(mean, spread, noise, unit, way)


class _Whole(NamedTuple):
    """Records with rows in double precision, and in full matrices."""

    xx: Array
    xz: Array
    zz: Array
    weight: Array
    slope: Array
    traits: Array

    @classmethod
    def of(cls, sums: EffectSums, traits: Array) -> _Whole:
        ok = (sums.weight > 0).cpu()
        xx, xz, zz, weight, slope = (value.cpu()[ok].double().numpy() for value in sums[:5])
        return cls(full(xx, xz.shape[-1]), xz, zz, weight, slope, traits[ok.numpy()])

    @property
    def n(self) -> int:
        return len(self.weight)

    def units(self, way: int) -> Array:
        """Typical deviation of each series; of those that never moved, that of the others."""
        units = _units(self.zz[:, way], self.weight, way)
        moved = units[units > 0]
        return np.where(units > 0, units, np.median(moved) if len(moved) else 1.0)

    def learn(self, way: int, rounds: int) -> tuple[Array, Array, float, float]:
        k, traits = self.xz.shape[-1], self.traits.shape[1]
        if not self.n:
            return np.zeros((k, traits)), np.full(k, PRIOR_SPREAD), 1.0, 1.0
        unit = self.units(way)
        xz, zz = self.xz[:, way] / unit[:, None], self.zz[:, way] / unit**2
        variance = max(float(zz.sum() / self.weight.sum()), LEAST_VARIANCE)
        mean = np.zeros((k, traits))
        mean[:, 0] = np.linalg.solve(self.xx.sum(0) + 10 * np.eye(k), xz.sum(0))
        spread, relevance = np.full(k, PRIOR_SPREAD * variance), np.full((k, traits), PRIOR_SPREAD * variance)
        relevance[:, 0] = 100 * variance
        noise, pooled = self._noise(_left_over(self.xx, xz, zz, self.traits @ mean.T), variance)
        prior = PRIOR_SERIES * PRIOR_SPREAD * variance
        for _ in range(rounds):
            theta, cov = _posterior(self.xx, xz, noise, self.traits @ mean.T, spread)
            mean, unsure = self._by_traits(theta, spread, relevance)
            relevance = np.maximum(mean**2 + np.einsum("ktt->kt", unsure), 1e-9 * variance)
            square = ((theta - self.traits @ mean.T) ** 2).sum(0) + np.einsum("ikk->k", cov)
            square += np.einsum("ktu,tu->k", unsure, self.traits.T @ self.traits)
            # The prior counts fully for a few series, less where many agree that coefficients differ less.
            used = np.minimum(1.0, square / self.n / (PRIOR_SPREAD * variance)) if self.n > 10 * PRIOR_SERIES else 1.0
            spread = np.maximum((square + prior * used) / (self.n + PRIOR_SERIES), 1e-7 * variance)
            rest = _left_over(self.xx, xz, zz, theta) + (self.xx * cov).sum((1, 2))
            noise, pooled = self._noise(rest, variance)
        return mean, spread, pooled, float(np.median(unit))

    def _by_traits(self, theta: Array, spread: Array, relevance: Array) -> tuple[Array, Array]:
        """Regress each coefficient on the traits of series: (k, trait) means, and their covariances."""
        precision = (self.traits.T @ self.traits) / spread[:, None, None]
        t = np.arange(precision.shape[-1])
        precision[:, t, t] += 1 / relevance
        cov: Array = np.linalg.inv(precision).astype(np.float64)
        right = (theta.T @ self.traits / spread[:, None])[..., None]
        return np.matmul(cov, right)[..., 0], cov

    def _noise(self, rest: Array, variance: float) -> tuple[Array, float]:
        """Of each series, around the pooled one."""
        pooled = max(float(rest.sum() / self.weight.sum()), 1e-3 * variance)
        return np.maximum((rest + NOISE_ROWS * pooled) / (self.weight + NOISE_ROWS), 1e-3 * variance), pooled

    def likelihood(self, way: int, mean: Array, spread: Array, noise: float, unit: float) -> float:
        """Log-likelihood of the values, of all series together."""
        units = self.units(way)
        xz, zz = self.xz[:, way] / units[:, None], self.zz[:, way] / units**2
        theta = _solve(self.xx, xz, np.full(self.n, noise), self.traits @ mean.T, spread)
        rest = np.maximum(_left_over(self.xx, xz, zz, theta), 0) + 1e-3 * zz
        rest = rest * units**2 / self.weight
        slope = self.slope if way == LOGS else 0.0
        return float((-0.5 * self.weight * np.log(np.maximum(rest, LEAST_VARIANCE)) + slope).sum())


class LocalFits(NamedTuple):
    """Regressions of series around the panel's coefficients, in units of a typical deviation of each (`unit`)."""

    xx: Array
    xz: Array
    noise: Array
    mean: Array  # prior mean of the coefficients of each
    spread: Array  # and their variance
    unit: Array
    theta: Array  # posterior mean

    @classmethod
    def of(cls, sums: EffectSums, traits: Array, common: CommonEffects) -> LocalFits:
        """A series without values has the panel's coefficients for its (trait,) traits."""
        way, k = common.way, sums.xz.shape[-1]
        weight = sums.weight.cpu().double().numpy()
        xx = full(sums.xx.cpu().double().numpy(), k)
        zz = sums.zz[:, way].cpu().double().numpy()
        unit = _units(zz, np.maximum(weight, LEAST_VARIANCE), way)
        unit = np.where(unit > 0, unit, float(common.unit))  # of the panel, not of the other series of this call
        xz, zz = sums.xz[:, way].cpu().double().numpy() / unit[:, None], zz / unit**2
        mean, spread, pooled = traits @ common.mean.numpy().T, common.spread.numpy(), float(common.noise)
        noise = np.full(len(weight), pooled)
        for _ in range(2):
            theta = _solve(xx, xz, noise, mean, spread)
            rest = _left_over(xx, xz, zz, theta)
            noise = np.maximum((rest + NOISE_ROWS * pooled) / (weight + NOISE_ROWS), 1e-3 * pooled)
        return cls(xx, xz, noise, mean, spread, unit, theta)

    def variances(self, contrasts: Array) -> Array:
        """Posterior variances of (contrast, k) sums of coefficients, in units of z: (series, contrast)."""
        _, cov = _posterior(self.xx, self.xz, self.noise, self.mean, self.spread)
        out: Array = np.einsum("ck,ikl,cl->ic", contrasts, cov, contrasts) * self.unit[:, None] ** 2
        return out


class Coefficients(NamedTuple):
    """Of each series, and of a new one with its traits, in units of y or of its logarithm."""

    own: Float[Tensor, "series k"]
    common: Float[Tensor, "series k"]
    way: int
    spread: Float[Tensor, "series k"]  # variance of the coefficients between series
    noise: Float[Tensor, " series"]  # variance of what the regression leaves over
    moves: Float[Tensor, "series k"]  # variance of the regressors around their local level


def coefficients(sums: EffectSums, traits: Array, common: CommonEffects) -> Coefficients:
    """Those with which series are forecast."""
    local, device = LocalFits.of(sums, traits, common), sums.xx.device
    unit, squares = local.unit[:, None], np.diagonal(local.xx, axis1=1, axis2=2)
    found = (
        local.theta * unit,
        local.mean * float(common.unit),
        local.spread * unit**2,
        local.noise * local.unit**2,
        squares / np.maximum(sums.weight.cpu().double().numpy(), LEAST_VARIANCE)[:, None],
    )
    own, new, spread, noise, moves = (torch.from_numpy(value).to(device) for value in found)
    return Coefficients(own, new, common.way, spread, noise, moves)


def full(triangle: Array, k: int) -> Array:
    """Symmetric matrices from their lower triangles."""
    out = np.empty((len(triangle), k, k))
    row, column = np.tril_indices(k)
    out[:, row, column] = triangle
    out[:, column, row] = triangle
    return out


def around_mean(effects: Tensor, common: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Effects of past and of future rows, from those of both (series, rows), less the mean of the known past ones.

    Future ones are bounded: `common` (series, h) are those that the panel's coefficients say. And that mean (series,).
    """
    rows = known.shape[1]
    past, ahead = effects[:, :rows], effects[:, rows:]
    ahead = bounded(ahead, past, known, common)
    middle = torch.where(known, past, 0.0).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp(min=1)
    return past - middle, ahead - middle, middle[:, 0]


def bounded(ahead: Tensor, past: Tensor, known: Tensor, common: Tensor) -> Tensor:
    """Effects of future rows (series, h): what a series has shown, or the panel's coefficients say, not more."""
    low = torch.where(known, past, torch.inf).amin(1, keepdim=True)
    high = torch.where(known, past, -torch.inf).amax(1, keepdim=True)
    low, high = (torch.where(v.isfinite(), v, 0.0) for v in (low, high))
    slack = SLACK * (high - low)
    return ahead.clamp(torch.minimum(low - slack, common), torch.maximum(high + slack, common))


def seen_as(y: Tensor, way: int) -> Tensor:
    """Values as the regression sees them."""
    return torch.log1p(y.clamp(min=-0.999)) if way == LOGS else y


def hidden(y: Tensor, effect: Tensor, way: int) -> Tensor:
    """What the network is shown: values without the effects, in the units of y."""
    return (y + 1) * torch.exp(-effect) - 1 if way == LOGS else y - effect


def shown(values: Tensor, effect: Tensor, way: int) -> Tensor:
    """What the user is shown: values with the effects."""
    return (values + 1) * torch.exp(effect) - 1 if way == LOGS else values + effect


def _units(zz: Array, weight: Array, way: int) -> Array:
    """Typical deviation of each series; 1 for logarithms, which need none."""
    return np.ones_like(zz) if way == LOGS else np.sqrt(zz / weight)


def _posterior(xx: Array, xz: Array, noise: Array, mean: Array, spread: Array) -> tuple[Array, Any]:
    """Mean and covariance of each series' coefficients."""
    precision, right = _system(xx, xz, noise, mean, spread)
    parts = in_parallel(lambda lo, hi: np.linalg.inv(precision[lo:hi]), len(precision), SERIES_A_PART)
    cov = np.concatenate(parts) if parts else precision
    return np.matmul(cov, right)[..., 0], cov


def _solve(xx: Array, xz: Array, noise: Array, mean: Array, spread: Array) -> Array:
    """The mean alone."""
    theta: Array = np.linalg.solve(*_system(xx, xz, noise, mean, spread))[..., 0].astype(np.float64)
    return theta


def _system(xx: Array, xz: Array, noise: Array, mean: Array, spread: Array) -> tuple[Array, Array]:
    """Precision, and what it is multiplied with the mean to give, of each series' coefficients."""
    precision = xx / noise[:, None, None]
    k = np.arange(xz.shape[1])
    precision[:, k, k] += 1 / spread
    return precision, (xz / noise[:, None] + mean / spread)[..., None]


def _left_over(xx: Array, xz: Array, zz: Array, theta: Array) -> Array:
    rest: Array = zz - 2 * (theta * xz).sum(1) + (np.matmul(xx, theta[..., None])[..., 0] * theta).sum(1)
    return rest
