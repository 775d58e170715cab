"""The Adaptive Recurrent Unit: per-series ridge regression as a recurrent cell.

With x = [h, 1] and, for each aging factor alpha_j,

    sxx <- alpha sxx + w x x^T        sxy <- alpha sxy + w x y        sn <- alpha sn + w
    ss  <- alpha ss  + w (y - m)^2    with m the prediction made BEFORE this update

    theta = (sxx + lambda I)^-1 sxy,  m = theta . x,  a = ss / sn

w is an observation's weight: 1 unless given, 0 for a missing y, which therefore only ages the statistics.

The cell works on windows of rows: all rows of a window are predicted with theta at the window's origin, their residuals
are those of this theta, and they enter the statistics row by row. The paper's cell has windows of one row.

- `absorb` adds the rows of one window, given theta at its origin (streaming).
- `scan_windows` runs many windows at once: prefix sums of the statistics, then one batched Cholesky (training, replay).
- `predict`, `update` and `scan` are the paper's per-step interface on top of those two.

Statistics, alphas, ridge and solve are float64 whatever the module's dtype; outputs take h's dtype. A float32
factorisation fails on long histories with collinear units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from aru.checked import check_alphas
from aru.errors import REPORTED, ConfigError, NumericalError, Offending, listing
from aru.nn import ridge as systems

MIN_RIDGE = 1e-4  # a learned ridge stays above this
MAX_LEARNED_ALPHA = 1 - 1e-4  # largest initial value of a learned alpha, which must lie inside (0, 1)
PREFIX_WINDOWS = 128  # the prefix product costs the square of this
FLOATS_AT_ONCE = 2**24  # statistics of all windows held at once: 128 MiB


class ARUState(NamedTuple):
    """Aged sufficient statistics of each series, for each of J aging factors; initially zero."""

    sxx: Float[Tensor, "batch J dim dim"]
    sxy: Float[Tensor, "batch J dim"]
    sn: Float[Tensor, "batch J"]
    ss: Float[Tensor, "batch J"]


class Windows(NamedTuple):
    """Results of `scan_windows`: predictions and statistics at each window's origin, and the state after the last."""

    mean: Float[Tensor, "batch window lead J"]
    variance: Float[Tensor, "batch window J"]
    sn: Float[Tensor, "batch window J"]
    theta: Float[Tensor, "batch window J dim"]
    failed: Bool[Tensor, " batch"]
    state: ARUState


class _RidgeSolve(torch.autograd.Function):
    """theta = A^-1 b with A = sxx + ridge I and b = sxy. Backward is one more solve: g_b = A^-1 g, g_A = -g_b theta^T.

    `system` is the concatenation [sxx, sxy], and so is its gradient. A failed solve returns zero, as an empty state
    does, and passes no gradient on.
    """

    @staticmethod
    def forward(ctx: Any, system: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
        solved = systems.solve(system[..., :-1], system[..., -1], ridge)
        ctx.save_for_backward(*solved, ridge)
        ctx.mark_non_differentiable(solved.failed)
        return solved.theta, solved.failed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        *parts, ridge = ctx.saved_tensors
        solved = systems.Solved(*parts)
        g_b = systems.solve_again(solved, g, ridge)
        g_ridge = -(g_b * solved.theta).sum(-1)
        row = nn.functional.pad(-solved.theta, (0, 1), value=1.0).unsqueeze(-2)
        return g_b.unsqueeze(-1) * row, g_ridge.sum(tuple(range(g_ridge.ndim - 1)))


def solve_ridge(
    sxx: Float[Tensor, "*batch J dim dim"], sxy: Float[Tensor, "*batch J dim"], ridge: Float[Tensor, " J"]
) -> tuple[Float[Tensor, "*batch J dim"], Bool[Tensor, "*batch J"]]:
    """theta = (sxx + ridge I)^-1 sxy, and which systems could not be solved (theta is zero there)."""
    if not (torch.is_grad_enabled() and any(v.requires_grad for v in (sxx, sxy, ridge))):
        return systems.solve(sxx, sxy, ridge)[:2]
    return _solve(torch.cat([sxx, sxy.unsqueeze(-1)], -1), ridge)


def _solve(system: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    solved: tuple[Tensor, Tensor] = _RidgeSolve.apply(system, ridge)  # type: ignore[no-untyped-call]
    return solved


def local_variance(ss: Tensor, sn: Tensor) -> Tensor:
    """a = ss / sn, and 0 for an empty state, also when sn has underflowed."""
    empty = sn <= torch.finfo(sn.dtype).tiny
    return torch.where(empty, 0.0, ss / torch.where(empty, 1.0, sn))


class ARUCell(nn.Module):
    """Closed-form local regression with constant-size state. See the module's docstring for the equations."""

    def __init__(
        self,
        input_size: int,
        alphas: Sequence[float] = (1.0,),
        ridge: float | Sequence[float] = 1.0,
        learn_ridge: bool = False,
        learn_alphas: bool = False,
    ) -> None:
        super().__init__()
        ridges = [float(ridge)] * len(alphas) if isinstance(ridge, (int, float)) else [float(r) for r in ridge]
        if input_size < 1:
            raise ConfigError(f"input_size must be at least 1, got {input_size}")
        check_alphas(tuple(alphas))
        if len(ridges) != len(alphas) or not all(r > 0 and math.isfinite(r) for r in ridges):
            raise ConfigError(f"ridge must be positive, one number or one per alpha, got {ridge}")
        self.input_size = input_size
        start = torch.tensor(ridges, dtype=torch.float64)
        self.learn_ridge = learn_ridge
        if learn_ridge:
            self.raw_ridge = nn.Parameter((start - MIN_RIDGE).clamp(min=MIN_RIDGE).log())
        else:
            self.register_buffer("raw_ridge", start)
        self.learn_alphas = learn_alphas
        alpha = torch.tensor([float(a) for a in alphas], dtype=torch.float64)
        if learn_alphas:
            self.raw_alpha = nn.Parameter(alpha.clamp(max=MAX_LEARNED_ALPHA).logit())
        else:
            self.register_buffer("raw_alpha", alpha)

    @property
    def alphas(self) -> Float[Tensor, " J"]:
        """Aging factors in (0, 1]."""
        return self.raw_alpha.sigmoid() if self.learn_alphas else self.raw_alpha

    @property
    def ridge(self) -> Float[Tensor, " J"]:
        """lambda > 0, by construction."""
        return MIN_RIDGE + self.raw_ridge.exp() if self.learn_ridge else self.raw_ridge

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ARUCell:
        """Move to another device with the module, but stay float64 when the module is cast."""

        def move(value: Tensor) -> Tensor:
            moved = fn(value)
            return moved if moved.dtype == value.dtype else value.to(moved.device)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        return self

    def init_state(self, batch_size: int) -> ARUState:
        """The state of series without observations: all zero."""
        J, dim, device = len(self.raw_alpha), self.input_size + 1, self.raw_alpha.device
        shapes = (J, dim, dim), (J, dim), (J,), (J,)
        return ARUState(*(torch.zeros(batch_size, *s, dtype=torch.float64, device=device) for s in shapes))

    def solve(self, state: ARUState) -> tuple[Float[Tensor, "batch J dim"], Bool[Tensor, " batch"]]:
        """theta of each series, and which series could not be solved (their theta is zero)."""
        theta, failed = solve_ridge(state.sxx, state.sxy, self.ridge)
        return self.as_used(theta), failed.any(-1)

    def variance(self, state: ARUState) -> Float[Tensor, "batch J"]:
        """a = ss / sn, and 0 for an empty state, also when sn has underflowed."""
        return self.as_used(local_variance(state.ss, state.sn))

    def as_used(self, fitted: Tensor) -> Tensor:
        """theta or variance as everything after the fit uses it: gradients pass through it. A subclass may differ."""
        return fitted

    def predict(
        self, state: ARUState, h: Float[Tensor, "batch *lead dim"]
    ) -> tuple[Float[Tensor, "batch *lead J"], Float[Tensor, "batch *lead J"]]:
        """Local mean m = theta . x and variance a = ss / sn, both 0 for an empty state."""
        theta, failed = self.solve(state)
        raise_failed(failed)
        leads = h if h.ndim == 3 else h.unsqueeze(1)
        mean = systems.with_one(leads) @ theta.mT
        variance = self.variance(state).unsqueeze(1).expand_as(mean)
        shape = (*h.shape[:-1], mean.shape[-1])
        return mean.reshape(shape).to(h.dtype), variance.reshape(shape).to(h.dtype)

    def update(
        self,
        state: ARUState,
        h: Float[Tensor, "batch dim"],
        y: Float[Tensor, " batch"],
        mask: Bool[Tensor, " batch"] | None = None,
        weight: Float[Tensor, " batch"] | None = None,
    ) -> ARUState:
        """Take in one observation per series. Where `mask` is false y may be NaN, and the statistics only age."""
        theta, failed = self.solve(state)
        raise_failed(failed)
        mask, weight = (None if v is None else v.unsqueeze(1) for v in (mask, weight))
        return self.absorb(state, theta, h.unsqueeze(1), y.unsqueeze(1), mask, weight)

    def scan(
        self,
        state: ARUState,
        h: Float[Tensor, "batch time dim"],
        y: Float[Tensor, "batch time"],
        mask: Bool[Tensor, "batch time"] | None = None,
        weight: Float[Tensor, "batch time"] | None = None,
    ) -> tuple[Float[Tensor, "batch time J"], Float[Tensor, "batch time J"], ARUState]:
        """`predict` then `update` for every step of a sequence, in parallel: predictions made before each update."""
        column = [None if v is None else v.unsqueeze(2) for v in (mask, weight)]
        out = self.scan_windows(state, h.unsqueeze(2), y.unsqueeze(2), *column)
        raise_failed(out.failed)
        return out.mean.squeeze(2), out.variance, out.state

    def absorb(
        self,
        state: ARUState,
        theta: Float[Tensor, "batch J dim"],
        h: Float[Tensor, "batch step size"],
        y: Float[Tensor, "batch step"],
        mask: Bool[Tensor, "batch step"] | None = None,
        weight: Float[Tensor, "batch step"] | None = None,
        steps: Int[Tensor, " batch"] | None = None,
        together: bool = False,
    ) -> ARUState:
        """Add the rows of one window to the statistics; `theta` is that of the window's origin.

        Only the first `steps` rows of a series exist (all, if not given); later ones are ignored. With `together` all
        rows belong to one time step, so the statistics age only once.
        """
        y, w = _observed(y, mask, weight)
        if steps is None:
            steps = torch.full((h.shape[0],), h.shape[1], device=h.device)
        return ARUState(*systems.absorb(state, self.alphas, theta, h.double(), y, w, steps, together))

    def age(self, state: ARUState, steps: Int[Tensor, " batch"]) -> ARUState:
        """Age the statistics of each series by `steps` unobserved steps."""
        factor = self.alphas ** steps.unsqueeze(-1)
        return ARUState(*(factor.reshape(*factor.shape, *(1,) * (v.ndim - 2)) * v for v in state))

    def scan_windows(
        self,
        state: ARUState | None,
        h: Float[Tensor, "batch window lead size"],
        y: Float[Tensor, "batch window step"],
        mask: Bool[Tensor, "batch window step"] | None = None,
        weight: Float[Tensor, "batch window step"] | None = None,
        steps: Int[Tensor, "batch window"] | None = None,
        fade: Float[Tensor, "batch window step"] | None = None,
    ) -> Windows:
        """Run consecutive windows: predict every lead of each, then absorb its first rows (`step` <= `lead`).

        Without a state all series start empty. `steps` is how many rows of each window exist, as in `absorb`; `fade` is
        what is kept of the statistics at each row, besides their aging. Long sequences are computed block by block,
        which bounds memory.
        """
        floats = h.shape[0] * len(self.raw_alpha) * (self.input_size + 1) ** 2
        at_once = max(1, min(PREFIX_WINDOWS, FLOATS_AT_ONCE // max(1, floats)))
        blocks = []
        for lo in range(0, max(1, h.shape[1]), at_once):
            part = slice(lo, lo + at_once)
            inputs = [None if v is None else v[:, part] for v in (mask, weight, steps, fade)]
            blocks.append(self._scan_block(state, h[:, part], y[:, part], *inputs))
            state = blocks[-1].state
        if len(blocks) == 1:
            return blocks[0]
        return Windows(
            mean=torch.cat([b.mean for b in blocks], 1),
            variance=torch.cat([b.variance for b in blocks], 1),
            sn=torch.cat([b.sn for b in blocks], 1),
            theta=torch.cat([b.theta for b in blocks], 1),
            failed=torch.stack([b.failed for b in blocks]).any(0),
            state=blocks[-1].state,
        )

    def _scan_block(
        self,
        state: ARUState | None,
        h: Tensor,
        y: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
        steps: Tensor | None,
        fade: Tensor | None,
    ) -> Windows:
        (B, W, S), J = y.shape, len(self.raw_alpha)
        x_all = systems.with_one(h)
        x = _first(x_all, S)
        y, w = _observed(y, mask, weight)
        if steps is None:
            steps = torch.full((1, W), S, device=h.device)
        alphas = self.alphas
        aged = systems.aged_weights(alphas, w, steps)  # (B, W, J, S)

        # seen[w] rows precede origin w. Statistics at origin w:
        #   sum over windows v < w of alpha^(seen[w] - seen[v+1]) contribution[v]  +  alpha^seen[w] state
        seen = nn.functional.pad(steps.cumsum(1), (1, 0))  # (1 or B, W + 1)
        gap = seen[:, :, None] - seen[:, None, 1:]
        before = torch.ones(W + 1, W, dtype=torch.bool, device=h.device).tril(-1)
        decay = torch.where(before, alphas[:, None, None] ** gap.clamp(min=0).unsqueeze(1), 0.0)  # (., J, W + 1, W)
        kept = alphas ** seen.unsqueeze(-1)  # (., W + 1, J): of the initial state
        if fade is not None:
            later, window = systems.faded(fade, steps)
            aged = aged * later.unsqueeze(2)
            fades = nn.functional.pad(window.squeeze(-1).cumsum(1), (1, 0))  # logarithms, (B, W + 1)
            decay = decay * (fades[:, :, None] - fades[:, None, 1:]).clamp(max=0).exp().unsqueeze(1)
            kept = kept * fades.exp().unsqueeze(-1)

        def prefix(contribution: Tensor, initial: Tensor | None) -> Tensor:
            """From (B, W, J, *) and (B, J, *) to the statistics at each origin and after the last: (B, W + 1, J, *)."""
            size = math.prod(contribution.shape[3:])
            flat = contribution.reshape(B, W, J, size)
            if len(decay) == 1:  # the same for all series: one product for each alpha
                sums = torch.einsum("jvw,bwjs->bvjs", decay[0], flat)
            else:
                sums = torch.einsum("bjvw,bwjs->bvjs", decay, flat)
            if initial is not None:
                sums = sums + kept.unsqueeze(-1) * initial.reshape(B, 1, J, size)
            return sums.reshape(B, W + 1, *contribution.shape[2:])

        wx = aged.mT.unsqueeze(-1) * x.unsqueeze(3)  # (B, W, S, J, dim)
        products = (wx.flatten(3).mT @ torch.cat([x, y.unsqueeze(-1)], -1)).unflatten(2, wx.shape[3:])
        system = prefix(products, None if state is None else torch.cat([state.sxx, state.sxy.unsqueeze(-1)], -1))
        sn = prefix(aged.sum(-1), None if state is None else state.sn)

        theta, failed = _solve(system[:, :-1], self.ridge)
        theta = self.as_used(theta)
        mean = x_all @ theta.mT  # (B, W, lead, J)
        residual = y.unsqueeze(2) - _first(mean, S).mT
        # Clamped, because an infinite square times the zero weight that it has at earlier origins would be NaN.
        errors = (aged * residual.square()).sum(-1).clamp(max=torch.finfo(aged.dtype).max)
        ss = prefix(errors, None if state is None else state.ss)
        variance = self.as_used(local_variance(ss[:, :-1], sn[:, :-1]))
        last = [v[:, -1] for v in (system[..., :-1], system[..., -1], sn, ss)]  # copied: a view keeps all origins
        return Windows(
            mean=mean.to(h.dtype),
            variance=variance.to(h.dtype),
            sn=sn[:, :-1],
            theta=theta,
            failed=failed.any(-1).any(-1),
            state=ARUState(*(v.clone(memory_format=torch.contiguous_format) for v in last)),
        )


def _first(x: Tensor, n: int) -> Tensor:
    """The first n rows of each window; x itself if that is all, since the gradient of a slice costs a copy."""
    return x if x.shape[2] == n else x[:, :, :n]


def _observed(y: Tensor, mask: Tensor | None, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """y and weight in float64; a missing y becomes 0 with weight 0."""
    w = torch.ones_like(y, dtype=torch.float64) if weight is None else weight.double()
    y = y.double()
    return (y, w) if mask is None else (torch.where(mask, y, 0.0), torch.where(mask, w, 0.0))


def raise_failed(failed: Tensor) -> None:
    """Raise an error that names the rows of a batch whose solve failed."""
    if failed.any():
        rows = failed.nonzero().flatten().tolist()
        raise NumericalError(
            f"The ridge system of batch rows {listing(rows)} could not be solved: its statistics are not finite or not "
            "positive definite",
            "Check h, y and weight of these rows for infinite or enormous values.",
            rows=Offending({"row": rows[:REPORTED]}, len(rows)),
        )
