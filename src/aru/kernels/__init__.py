"""Many small problems at once, where a general library call per matrix costs more than the arithmetic.

Each function has a plain torch form, which says what it computes. On the CPU a compiled one takes its place; on CUDA
devices torch's batched routines are hard to beat (docs/log.md).
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def solve(
    sxx: Float[Tensor, "*batch J dim dim"], sxy: Float[Tensor, "*batch J dim"], ridge: Float[Tensor, " J"]
) -> tuple[Float[Tensor, "*batch J dim"], Bool[Tensor, "*batch J"]]:
    """(sxx + ridge I)^-1 sxy by Cholesky, without gradients; and which systems have no answer (it is zero there)."""
    if sxx.numel() == 0:
        return torch.zeros_like(sxy), torch.zeros(sxy.shape[:-1], dtype=torch.bool, device=sxy.device)
    if sxx.device.type == "cpu" and sxx.dtype == torch.float64:
        return _cpu().solve(sxx, sxy, ridge)  # type: ignore[no-any-return]
    return solve_plain(sxx, sxy, ridge)


def solve_plain(sxx: Tensor, sxy: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """The same in torch."""
    eye = torch.eye(sxx.shape[-1], dtype=sxx.dtype, device=sxx.device)
    L, info = torch.linalg.cholesky_ex(sxx + ridge[:, None, None] * eye)
    # Two triangular solves: torch.cholesky_solve falls back to MAGMA on CUDA and cannot be captured in a graph.
    half = torch.linalg.solve_triangular(L, sxy.unsqueeze(-1), upper=False)
    answer: Tensor = torch.linalg.solve_triangular(L.mT, half, upper=True).squeeze(-1)
    failed = (info != 0) | ~answer.isfinite().all(-1)
    return torch.where(failed.unsqueeze(-1), 0.0, answer), failed


def absorb(
    state: tuple[Tensor, Tensor, Tensor, Tensor],
    alphas: Float[Tensor, " J"],
    theta: Float[Tensor, "batch J dim"],
    x: Float[Tensor, "batch step dim"],
    y: Float[Tensor, "batch step"],
    w: Float[Tensor, "batch step"],
    steps: Int[Tensor, " batch"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Statistics (sxx, sxy, sn, ss) after the first `steps` rows, whose residuals are those of `theta`."""
    inputs = (*state, alphas, theta, x, y, w)
    if x.device.type == "cpu" and len(x) and not (torch.is_grad_enabled() and any(v.requires_grad for v in inputs)):
        return _cpu().absorb(state, alphas, theta, x, y, w, steps)  # type: ignore[no-any-return]
    return absorb_plain(state, alphas, theta, x, y, w, steps)


def absorb_plain(
    state: tuple[Tensor, Tensor, Tensor, Tensor],
    alphas: Tensor,
    theta: Tensor,
    x: Tensor,
    y: Tensor,
    w: Tensor,
    steps: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same in torch, with gradients."""
    aged = aged_weights(alphas, w, steps)
    residual = y.unsqueeze(1) - theta @ x.mT
    wx = aged.unsqueeze(-1) * x.unsqueeze(1)
    kept = alphas ** steps.unsqueeze(1)
    sxx, sxy, sn, ss = state
    return (
        kept[..., None, None] * sxx + wx.mT @ x.unsqueeze(1),
        kept[..., None] * sxy + (wx * y[:, None, :, None]).sum(2),
        kept * sn + aged.sum(-1),
        kept * ss + (aged * residual.square()).sum(-1),
    )


def aged_weights(alphas: Tensor, w: Tensor, steps: Tensor) -> Tensor:
    """(*, S) weights and (*) row counts -> (*, J, S): the weight of each row as seen from its window's end."""
    left = steps.unsqueeze(-1) - 1 - torch.arange(w.shape[-1], device=w.device)
    factor = alphas[:, None] ** left.clamp(min=0).unsqueeze(-2)
    return torch.where((left >= 0).unsqueeze(-2), factor * w.unsqueeze(-2), 0.0)


@functools.cache
def _cpu() -> ModuleType:
    from aru.kernels import compiled

    return compiled
