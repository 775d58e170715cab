"""Solve many small ridge systems at once, and update their statistics.

The torch functions are the reference; they run on CUDA devices and where gradients are needed. On the CPU the compiled
`aru.nn.kernels` are used: a library call per matrix costs more than its arithmetic.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Statistics = tuple[Tensor, Tensor, Tensor, Tensor]  # sxx, sxy, sn, ss


class Solved(NamedTuple):
    """Solutions (zero where the solve failed), which systems failed, and the factor that `solve_again` needs."""

    theta: Float[Tensor, "*batch J dim"]
    failed: Bool[Tensor, "*batch J"]
    factor: Float[Tensor, "*batch J dim dim"]  # Cholesky factor, or sxx itself where factorising again is cheaper


def solve(
    sxx: Float[Tensor, "*batch J dim dim"], sxy: Float[Tensor, "*batch J dim"], ridge: Float[Tensor, " J"]
) -> Solved:
    """(sxx + ridge I)^-1 sxy by Cholesky, without gradients."""
    return Solved(*_compiled_solve(sxx, sxy, ridge), sxx) if _on_cpu(sxx) else solve_torch(sxx, sxy, ridge)


def solve_again(solved: Solved, sxy: Float[Tensor, "*batch J dim"], ridge: Float[Tensor, " J"]) -> Tensor:
    """Solutions for other right-hand sides; zero where the solve failed."""
    if _on_cpu(sxy):
        return _compiled_solve(solved.factor, sxy, ridge)[0]
    return torch.where(solved.failed.unsqueeze(-1), 0.0, _substitute(solved.factor, sxy))


def solve_torch(sxx: Tensor, sxy: Tensor, ridge: Tensor) -> Solved:
    """`solve` in torch."""
    eye = torch.eye(sxx.shape[-1], dtype=sxx.dtype, device=sxx.device)
    L, info = torch.linalg.cholesky_ex(sxx + ridge[:, None, None] * eye)
    answer = _substitute(L, sxy)
    failed = (info != 0) | ~answer.isfinite().all(-1)
    return Solved(torch.where(failed.unsqueeze(-1), 0.0, answer), failed, L)


def _substitute(L: Tensor, b: Tensor) -> Tensor:
    # Two triangular solves: torch.cholesky_solve falls back to MAGMA on CUDA and cannot be captured in a graph.
    half = torch.linalg.solve_triangular(L, b.unsqueeze(-1), upper=False)
    answer: Tensor = torch.linalg.solve_triangular(L.mT, half, upper=True).squeeze(-1)
    return answer


def absorb(
    state: Statistics,
    alphas: Float[Tensor, " J"],
    theta: Float[Tensor, "batch J dim"],
    h: Float[Tensor, "batch step size"],
    y: Float[Tensor, "batch step"],
    w: Float[Tensor, "batch step"],
    steps: Int[Tensor, " batch"],
    together: bool = False,
    fade: Float[Tensor, "batch step"] | None = None,
) -> Statistics:
    """Statistics after the first `steps` rows (h, y) of each series. Residuals are those of `theta`.

    The features are h and a constant. The statistics age with every row, or once if `together`: all rows then belong to
    one time step. Before a row is added they are multiplied by `fade`, too.
    """
    inputs = (*state, alphas, theta, h, y, w)
    fade = torch.ones_like(w, dtype=torch.float64) if fade is None else fade
    learning = torch.is_grad_enabled() and any(v.requires_grad for v in inputs)
    if len(h) == 0 or learning or not _on_cpu(theta):
        return absorb_torch(state, alphas, theta, h, y, w, steps, together, fade)
    from aru.nn import kernels  # Numba takes a moment to load

    return kernels.absorb(state, alphas, theta, h, y, w, steps, together, fade)


def absorb_torch(
    state: Statistics,
    alphas: Tensor,
    theta: Tensor,
    h: Tensor,
    y: Tensor,
    w: Tensor,
    steps: Tensor,
    together: bool,
    fade: Tensor,
) -> Statistics:
    """`absorb` in torch, with gradients."""
    x, y = with_one(h), y.double()
    later, all_rows = faded(fade, steps)
    aged = aged_weights(alphas, w.double(), steps, together) * later.unsqueeze(1)
    residual = y.unsqueeze(1) - theta @ x.mT
    wx = aged.unsqueeze(-1) * x.unsqueeze(1)
    kept = alphas ** (steps.clamp(max=1) if together else steps).unsqueeze(1) * all_rows.exp()
    sxx, sxy, sn, ss = state
    return (
        kept[..., None, None] * sxx + wx.mT @ x.unsqueeze(1),
        kept[..., None] * sxy + (wx * y[:, None, :, None]).sum(2),
        kept * sn + aged.sum(-1),
        kept * ss + (aged * residual.square()).sum(-1),
    )


def with_one(h: Tensor) -> Tensor:
    """x = [h, 1] in float64."""
    return torch.nn.functional.pad(h.double(), (0, 1), value=1.0)


def aged_weights(alphas: Tensor, w: Tensor, steps: Tensor, together: bool = False) -> Tensor:
    """(*, S) weights and (*) row counts -> (*, J, S): the weight of each row as seen from its window's end."""
    left = steps.unsqueeze(-1) - 1 - torch.arange(w.shape[-1], device=w.device)
    age = torch.zeros_like(left) if together else left.clamp(min=0)
    factor = alphas[:, None] ** age.unsqueeze(-2)
    return torch.where((left >= 0).unsqueeze(-2), factor * w.unsqueeze(-2), 0.0)


def faded(fade: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """What the rows after each row of a window leave of it, (*, S), and the logarithm of what all leave, (*, 1)."""
    exists = torch.arange(fade.shape[-1], device=fade.device) < steps.unsqueeze(-1)
    logs = torch.where(exists, fade.double(), 1.0).log().cumsum(-1)
    last = logs[..., -1:] if fade.shape[-1] else logs.sum(-1, keepdim=True)
    return (last - logs).exp(), last


def warm_up() -> None:
    """Load and compile everything that the first update and solve in double precision need."""
    one = torch.ones(1, 1, 2, dtype=torch.float64)
    statistics = (torch.zeros(1, 1, 2, 2, dtype=torch.float64), one, one[..., 0], one[..., 0])
    steps = torch.ones(1, dtype=torch.int64)
    sxx, sxy, *_ = absorb(statistics, one[0, 0, :1], one, one[..., :1], one[..., 0], one[..., 0], steps)
    solve(sxx, sxy, one[0, 0, :1])


def _on_cpu(value: Tensor) -> bool:
    return value.device.type == "cpu" and value.dtype == torch.float64


def _compiled_solve(sxx: Tensor, sxy: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    if sxy.numel() == 0:
        return torch.zeros_like(sxy), torch.zeros(sxy.shape[:-1], dtype=torch.bool)
    from aru.nn import kernels  # Numba takes a moment to load

    return kernels.solve(sxx, sxy, ridge)
