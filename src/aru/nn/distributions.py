"""Output distributions, and the map between the network's scaled target z and the user's y.

A network emits two numbers a step, mu and a raw spread. y lives on the scale z = f(y / s), with s the causal
scale at the forecast's origin and f the target transform. Medians and quantiles map exactly through f, means
by quadrature.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

MIN_SIGMA = 1e-3
STUDENT_DF = 4.0  # heavy tails, finite variance, and a quantile function in closed form
QUADRATURE_TAIL = 0.01  # tails beyond this quantile are cut off: sinh and exp of a Student-t have no mean
QUADRATURE_NODES = 64
MEAN_REACH = 3.0  # values further than this from the median in z (a factor of e^3 = 20 in y) are cut off, too
SMALL_COUNT = 0.01  # c in `NegativeBinomial.params`, which keeps the mean of counts positive


class Params(NamedTuple):
    """Location and spread in units of z."""

    mu: Float[Tensor, "*shape"]
    sigma: Float[Tensor, "*shape"]


class Distribution(abc.ABC):
    """A location-spread family. Subclasses are final."""

    def params(self, mu: Tensor, raw: Tensor) -> Params:
        """From the network's two outputs to valid parameters."""
        return Params(mu, softplus(raw) + MIN_SIGMA)

    def spread(self, params: Params, scale: Tensor) -> Tensor:
        """Typical size of a residual z - mu, for robust weights."""
        return params.sigma

    @abc.abstractmethod
    def nll(self, params: Params, z: Tensor, scale: Tensor) -> Tensor:
        """Negative log likelihood of each z."""

    @abc.abstractmethod
    def quantile(self, params: Params, q: float | Tensor, scale: Tensor) -> Tensor:
        """Quantile of z; q may be a tensor (of random levels, say) that broadcasts against the parameters."""

    def mean(self, params: Params, scale: Tensor) -> Tensor:
        """Mean of z."""
        return params.mu


class Gaussian(Distribution):
    """The paper's choice."""

    def nll(self, params: Params, z: Tensor, scale: Tensor) -> Tensor:
        """-log N(z; mu, sigma)."""
        r = (z - params.mu) / params.sigma
        return 0.5 * r.square() + params.sigma.log() + 0.5 * math.log(2 * math.pi)

    def quantile(self, params: Params, q: float | Tensor, scale: Tensor) -> Tensor:
        """mu + sigma Phi^-1(q)."""
        return params.mu + params.sigma * _standard(torch.special.ndtri, q, params.mu)


class StudentT(Distribution):
    """Four degrees of freedom: robust, and everything in closed form."""

    def nll(self, params: Params, z: Tensor, scale: Tensor) -> Tensor:
        """-log t_4((z - mu) / sigma) / sigma."""
        r2 = ((z - params.mu) / params.sigma).square()
        return 2.5 * torch.log1p(r2 / STUDENT_DF) + params.sigma.log() - math.log(3 / 8)

    def quantile(self, params: Params, q: float | Tensor, scale: Tensor) -> Tensor:
        """Closed form for four degrees of freedom (Shaw, 2006)."""
        return params.mu + params.sigma * _standard(student_quantile, q, params.mu)


class NegativeBinomial(Distribution):
    """Counts with mean s mu and variance mean + sigma mean^2."""

    def params(self, mu: Tensor, raw: Tensor) -> Params:
        """Make mu positive by (mu + sqrt(mu^2 + c)) / 2, which hardly changes larger values.

        For negative mu this is computed as c / (|mu| + sqrt(mu^2 + c)) / 2, which does not cancel to 0.
        """
        size = mu.abs() + (mu.square() + SMALL_COUNT).sqrt()
        return Params(0.5 * torch.where(mu > 0, size, SMALL_COUNT / size), softplus(raw) + MIN_SIGMA)

    def spread(self, params: Params, scale: Tensor) -> Tensor:
        """Standard deviation in units of z."""
        return (params.mu / scale + params.sigma * params.mu.square()).sqrt().to(params.mu.dtype)

    def nll(self, params: Params, z: Tensor, scale: Tensor) -> Tensor:
        """-log NB(y) with size r = 1 / sigma and mean m."""
        # In double precision: with little dispersion r is large, and large terms cancel.
        mu, sigma = params.mu.double(), params.sigma.double()
        y, m, r = (z * scale).round().double(), mu * scale, 1 / sigma
        log_choose = torch.lgamma(y + r) - torch.lgamma(r) - torch.lgamma(y + 1)
        nll = r * torch.log1p(m / r) + y * torch.log1p(r / m) - log_choose
        return nll.to(params.mu.dtype)

    def quantile(self, params: Params, q: float | Tensor, scale: Tensor) -> Tensor:
        """Smallest count whose distribution function reaches q."""
        from scipy.stats import nbinom  # slow to import, and only counts need it

        m, r = (params.mu * scale).double().cpu().numpy(), (1 / params.sigma).double().cpu().numpy()
        level = q.cpu().numpy() if isinstance(q, Tensor) else q
        counts = torch.from_numpy(np.asarray(nbinom.ppf(level, r, r / (r + m)), dtype=np.float64))
        return counts.to(params.mu.device) / scale


DISTRIBUTIONS: Mapping[str, Distribution] = MappingProxyType(
    {"gaussian": Gaussian(), "student-t": StudentT(), "negative-binomial": NegativeBinomial()}
)


def _standard(quantile: Callable[[Tensor], Tensor], q: float | Tensor, like: Tensor) -> float | Tensor:
    """Quantiles of a standard distribution, in the type of `like`."""
    return quantile(q.double()).to(like) if isinstance(q, Tensor) else _standard_number(quantile, q)


@functools.cache
def _standard_number(quantile: Callable[[Tensor], Tensor], q: float) -> float:
    return float(quantile(torch.tensor(q, dtype=torch.float64)))


def student_quantile(q: Tensor) -> Tensor:
    """Quantile of Student's t with four degrees of freedom."""
    a = (4 * q * (1 - q)).sqrt()
    return torch.copysign(2 * ((a.clamp(max=1).acos() / 3).cos() / a - 1).clamp(min=0).sqrt(), q - 0.5)


def transform(name: str | None, ratio: Tensor) -> Tensor:
    """z = f(y / s)."""
    if name is None:
        return ratio
    if name == "log1p":
        return ratio.clamp(min=0).log1p()
    size = ratio.abs()  # asinh, in operations that ONNX has in double precision
    return ratio.sign() * (size + size.square() / (1 + (size.square() + 1).sqrt())).log1p()


def inverse_transform(name: str | None, z: Tensor) -> Tensor:
    """y / s = f^-1(z)."""
    if name is None:
        return z
    if name == "log1p":
        return z.expm1()
    # sinh by expm1, because torch.sinh uses another formula for the last few numbers of a tensor than for the others.
    size = z.abs().expm1()
    return torch.copysign(torch.where(size.isinf(), size, (size + size / (size + 1)) / 2), z)


@functools.cache
def _quadrature() -> tuple[list[float], list[float]]:
    """Probabilities and weights of a Gauss-Legendre rule over the body of a distribution, and of its two tails."""
    nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    body = 1 - 2 * QUADRATURE_TAIL
    u = QUADRATURE_TAIL + body * (nodes + 1) / 2
    tail = QUADRATURE_TAIL
    return [tail, *u.tolist(), 1 - tail], [tail, *(body * weights / 2).tolist(), tail]


class Predictive(NamedTuple):
    """Forecast distribution of y: a distribution of z, its scale and the target transform."""

    family: Distribution
    params: Params  # in double precision
    scale: Tensor
    transform: str | None
    nonnegative: bool

    def quantile(self, q: float) -> Tensor:
        """Quantile of y; with `nonnegative`, of max(y, 0)."""
        y = self.scale * inverse_transform(self.transform, self.family.quantile(self.params, q, self.scale))
        return y.clamp(min=0) if self.nonnegative else y

    def mean(self) -> Tensor:
        """Mean of y; with a transform the winsorised one, since the far tails would dominate the mean."""
        if self.transform is None:
            ratio = self.family.mean(self.params, self.scale)
        else:
            median = self.family.quantile(self.params, 0.5, self.scale)
            low, high = median - MEAN_REACH, median + MEAN_REACH
            ratio = torch.zeros((), dtype=torch.float64)
            for u, w in zip(*_quadrature(), strict=True):
                z = self.family.quantile(self.params, u, self.scale).clamp(low, high)
                ratio = ratio + w * inverse_transform(self.transform, z)
        y = self.scale * ratio
        return y.clamp(min=0) if self.nonnegative else y


class Samples(NamedTuple):
    """Forecast distribution of y as equally likely sample paths, for methods without a closed form."""

    paths: Tensor  # (path, *shape)
    nonnegative: bool

    def quantile(self, q: float) -> Tensor:
        """Quantile of y at each step. The i-th smallest of n values, from 0, is the quantile of level (i + 1/2) / n."""
        n = len(self.paths)
        if self.paths.numel() == 0:  # of no series
            return self.paths[0]
        return torch.quantile(self._possible, min(max((q * n - 0.5) / max(n - 1, 1), 0.0), 1.0), dim=0)

    def mean(self) -> Tensor:
        """Mean of y."""
        return self._possible.mean(0)

    @property
    def _possible(self) -> Tensor:
        """Negative values are cut off if y is nonnegative, as in `Predictive`."""
        return self.paths.clamp(min=0) if self.nonnegative else self.paths


def student_weight(residual: Tensor) -> Tensor:
    """Weight of a standardised residual in a Student-t fit: (nu + 1) / (nu + r^2)."""
    return (STUDENT_DF + 1) / (STUDENT_DF + residual.square())


RECENT_KEPT = 0.5 ** (1 / 4)  # kept of the recent residuals at each row
CALM = 2.0  # recent residuals up to as many usual ones make nothing older
RECENT_ROWS = 256  # rows that are summed at once
LARGEST_RECENT = 10.0  # a residual counts for no more among the recent ones


def recent_after(recent: Tensor, residual: Tensor, seen: Tensor) -> Tensor:
    """Aged sum of |r| and number of the residuals so far, (..., 2), after one more row."""
    size = residual.abs().double().clamp(max=LARGEST_RECENT)
    return RECENT_KEPT * recent + torch.stack([size * seen, seen.to(size.dtype)], -1)


def unusual(recent: Tensor) -> Tensor:
    """By how much residuals have been larger than usual of late: u = max(1, mean |r|), one unit counted as known."""
    total, number = recent.unbind(-1)
    return (total / (number + 1)).clamp(min=1)


def fading(unit: Tensor) -> Tensor:
    """What is kept of older statistics at an observation: all, or sqrt(2 / u) while residuals are unusually large."""
    return (CALM / unit.clamp(min=CALM)).sqrt()


def recent_before(residual: Float[Tensor, "batch row"], seen: Bool[Tensor, "batch row"]) -> Tensor:
    """`recent_after` all rows before each row, from nothing: (batch, row, 2), in parallel."""
    size = residual.abs().double().clamp(max=LARGEST_RECENT)
    values = torch.stack([size * seen, seen.double()], -1)
    at = torch.arange(RECENT_ROWS, dtype=torch.float64, device=residual.device)
    age = (at[:, None] - at - 1).clamp(min=0)
    decay = torch.where(at[:, None] > at, RECENT_KEPT**age, 0.0)
    kept = (RECENT_KEPT**at).unsqueeze(-1)
    before, parts = values.new_zeros(len(values), 1, 2), []
    for part in values.split(RECENT_ROWS, 1):
        n = part.shape[1]
        here = decay[:n, :n] @ part + kept[:n] * before
        parts.append(here)
        before = RECENT_KEPT * here[:, -1:] + part[:, -1:]
    return torch.cat(parts, 1)
