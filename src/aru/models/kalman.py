"""The exact filter of linear Gaussian state space models: level, damped trend, and any number of further components.

    z_t = a_t . l_{t-1} + b_t + sigma_t e_t        e_t, eps_t ~ N(0, 1), independent
    l_t = F_t l_{t-1} + g_t eps_t                  l_0 ~ N(m, P)

F_t is the identity except for level and trend, the first two components: level + drift_t trend, damping_t trend. At a
missing value the state is predicted but not corrected. The forecast of h steps is the filter over h missing values.

Everything is float64. P is symmetric by construction (products w w' are added and subtracted) and stays a covariance
while its entries are below some 1e13 sigma^2; the variance of a prediction is never below sigma^2. The batch is the
last dimension, for contiguous memory. The backward pass is written by hand: it stores a few vectors per row, where
autograd would store several matrices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class System(NamedTuple):
    """The model of each row. `a` is structure, not learned: it gets no gradient."""

    a: Float[Tensor, "time latent batch"]
    b: Float[Tensor, "time batch"]
    g: Float[Tensor, "time latent batch"]
    sigma: Float[Tensor, "time batch"]
    drift: Float[Tensor, "time batch"]
    damping: Float[Tensor, "time batch"]


class Latent(NamedTuple):
    """Mean and covariance of l."""

    m: Float[Tensor, "latent batch"]
    P: Float[Tensor, "latent latent batch"]


class Filtered(NamedTuple):
    """Each row's z as predicted from the observed rows before it, and the state after the last row."""

    mean: Float[Tensor, "time batch"]
    variance: Float[Tensor, "time batch"]
    state: Latent


def kalman_filter(
    system: System, state: Latent, z: Float[Tensor, "time batch"], observed: Bool[Tensor, "time batch"]
) -> Filtered:
    """Run the filter over all rows. The log likelihood is the sum over the predictions of observed rows."""
    a, b, g, sigma, drift, damping, m, P = (v.double().contiguous() for v in (*system, *state))
    u = torch.where(observed, z - b, 0.0)
    inputs = (observed, a, u, g, sigma.square(), drift, damping, m, P)
    mean, variance, m, P = _Filter.apply(*inputs)  # type: ignore[no-untyped-call]
    return Filtered(mean + b, variance, Latent(m, P))


class _Filter(torch.autograd.Function):
    """The recursion and its gradient. For each row, with u = z - b, r = sigma^2 and o whether it was observed.

    v = P a     S = a . v + r     k = o / S     e = u - a . m
    m <- F (m + k e v)            P <- F (P - k v v') F' + g g'
    """

    @staticmethod
    def forward(
        ctx: Any,
        observed: Tensor,
        a: Tensor,
        u: Tensor,
        g: Tensor,
        r: Tensor,
        drift: Tensor,
        damping: Tensor,
        m: Tensor,
        P: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        m, P = m.clone(), P.clone()
        mean, S, trend = torch.empty_like(u), torch.empty_like(u), torch.empty_like(u)
        v, trend_P = torch.empty_like(a), torch.empty_like(a)
        for t in range(len(u)):
            v[t] = (P * a[t]).sum(1)
            S[t] = (a[t] * v[t]).sum(0).clamp(min=0) + r[t]
            mean[t] = (a[t] * m).sum(0)
            k = observed[t] / S[t]
            m += k * (u[t] - mean[t]) * v[t]
            _add_product(P, k.sqrt() * v[t], -1)
            trend[t], trend_P[t] = m[1], P[1]
            _move(m, drift[t], damping[t])
            _move(P, drift[t], damping[t])
            _move(P.transpose(0, 1), drift[t], damping[t])
            _add_product(P, g[t], 1)
        ctx.save_for_backward(observed, a, u, g, drift, damping, mean, S, v, trend, trend_P)
        return mean, S, m, P

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """From the last row to the first. d_x is the gradient of x. Of P only v and the row of the trend are needed."""
        observed, a, u, g, drift, damping, mean, S, v, trend, trend_P = ctx.saved_tensors
        d_mean, d_S, d_m, d_P = outputs
        d_m, d_P = d_m.clone(), (d_P + d_P.transpose(0, 1)) / 2
        d_u, d_r, d_drift, d_damping = (torch.empty_like(u) for _ in range(4))
        d_g = torch.empty_like(g)
        for t in reversed(range(len(u))):
            d_g[t] = 2 * (d_P * g[t]).sum(1)
            moved = trend_P[t].clone()  # becomes the trend's column of F P
            _move(moved, drift[t], damping[t])
            d_drift[t] = d_m[0] * trend[t] + 2 * (d_P[0] * moved).sum(0)
            d_damping[t] = d_m[1] * trend[t] + 2 * (d_P[1] * moved).sum(0)
            _move_back(d_m, drift[t], damping[t])
            _move_back(d_P, drift[t], damping[t])
            _move_back(d_P.transpose(0, 1), drift[t], damping[t])

            k, e = observed[t] / S[t], u[t] - mean[t]
            d_Pv, d_mv = (d_P * v[t]).sum(1), (d_m * v[t]).sum(0)
            d_k = e * d_mv - (d_Pv * v[t]).sum(0)
            d_r[t] = d_S[t] - d_k * k / S[t]
            d_v = k * (e * d_m - 2 * d_Pv) + d_r[t] * a[t]
            d_u[t] = k * d_mv
            d_m += (d_mean[t] - d_u[t]) * a[t]
            half = d_v.unsqueeze(1) * (a[t] / 2)
            d_P += half + half.transpose(0, 1)
        return None, None, d_u, d_g, d_r, d_drift, d_damping, d_m, d_P


def _add_product(P: Tensor, w: Tensor, sign: int) -> None:
    """P <- P + sign w w'."""
    P.addcmul_(w.unsqueeze(1), w.unsqueeze(0), value=sign)


def _move(x: Tensor, drift: Tensor, damping: Tensor) -> None:
    """x <- F x."""
    x[0] += drift * x[1]
    x[1] *= damping


def _move_back(x: Tensor, drift: Tensor, damping: Tensor) -> None:
    """x <- F' x."""
    x[1] *= damping
    x[1] += drift * x[0]
