"""Forecasts of any length in the user's units, from past values and a network that forecasts 64 steps at once."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from aru.pretrained.patches import CONTEXT, HORIZON, LEVELS, MEDIAN, PatchShape
from aru.pretrained.robust import credible, robust_scale

# Scaled values and mask (series, rows), and covariates of the steps ahead, if any -> (series, HORIZON, levels)
Run = Callable[[Tensor, Tensor, Tensor | None], Tensor]
FED = (0.1, 0.3, 0.5, 0.7, 0.9)  # levels of the quantiles that are fed forward
WALK = 0.4  # power of time with which the intervals of a random walk widen at least; in theory it is .5


def forecast(
    run: Run,
    shape: PatchShape,
    y: Float[Tensor, "series rows"],
    observed: Bool[Tensor, "series rows"],
    h: int,
    periods: tuple[int, int] | None,
    x: Float[Tensor, "series h k"] | None = None,
) -> Float[Tensor, "series h level"]:
    """Quantiles of the next h values, with covariates x and the periods that the network is told, if any.

    Beyond 64 steps five quantiles are fed on, each as a past. What the network says about the five is pooled. Feeding
    the median alone makes later intervals far too narrow. The fed steps are smoother than real ones, so that the outer
    quantiles would close in; they may not, and those of a random walk go on spreading.
    """
    n, fed = len(y), [LEVELS.index(level) for level in FED]
    blocks = [_next_steps(run, shape, y, observed, min(h, HORIZON), periods, _block(x, 0))]
    paths, known = (v.repeat_interleave(len(fed), 0) for v in (y, observed)) if h > HORIZON else (y, observed)
    while len(blocks) * HORIZON < h:
        steps = blocks[-1][..., fed].transpose(1, 2).reshape(len(paths), HORIZON)
        paths = torch.cat([paths, steps], 1)[:, -CONTEXT:]
        known = F.pad(known, (0, HORIZON), value=True)[:, -CONTEXT:]
        later = _block(x, len(blocks))
        later = None if later is None else later.repeat_interleave(len(fed), 0)
        blocks.append(pool(_next_steps(run, shape, paths, known, HORIZON, periods, later).unflatten(0, (n, len(fed)))))
    return keep_width(torch.cat(blocks, 1), periods[0] if periods else 0)[:, :h]


def _block(x: Tensor | None, block: int) -> Tensor | None:
    """Covariates of the steps that a network forecasts at once; 0 beyond the last of several blocks."""
    if x is None or x.shape[1] <= HORIZON:
        return x
    part = x[:, block * HORIZON : (block + 1) * HORIZON]
    return F.pad(part, (0, 0, 0, HORIZON - part.shape[1]))


def _next_steps(
    run: Run,
    shape: PatchShape,
    y: Tensor,
    observed: Tensor,
    steps: int,
    periods: tuple[int, int] | None,
    x: Tensor | None,
) -> Tensor:
    """Quantiles of the next values, at most 64. A series is read from its first value on, padded to whole patches.

    Series that are padded to the same number of rows run together. The number depends on the series alone, so that a
    forecast does not depend on the others.
    """
    length = y.shape[1] - observed.to(torch.int8).argmax(1)
    rows = _padded(shape, y.shape[1], y.device)[length]
    told = None if periods is None else torch.tensor([periods], device=y.device)
    out = y.new_empty(len(y), steps, len(LEVELS))
    for count in rows.unique().tolist():
        index = (rows == count).nonzero().squeeze(-1)
        missing = max(count - y.shape[1], 0)
        values, mask = (F.pad(v[index, -count:], (missing, 0)) for v in (y, observed))
        scale = robust_scale(values, mask)
        mask = credible(values, mask, scale, told)
        z = torch.where(mask, scale.squash(values), 0.0)
        made = run(z, mask.float(), None if x is None else x[index])
        out[index] = scale.restore(made[:, :steps].double())
    return out


@functools.cache
def _padded(shape: PatchShape, longest: int, device: torch.device) -> Tensor:
    """The number of rows that a context of each length is padded to."""
    return torch.tensor([shape.rows(length) for length in range(longest + 1)], device=device)


def pool(quantiles: Float[Tensor, "series path step level"]) -> Float[Tensor, "series step level"]:
    """Quantiles of the even mixture of several forecasts."""
    levels = torch.tensor(LEVELS, dtype=quantiles.dtype, device=quantiles.device)
    between = (levels[1:] + levels[:-1]) / 2
    weight = torch.cat([between, levels.new_ones(1)]).diff(prepend=levels.new_zeros(1)) / quantiles.shape[1]
    atoms, order = quantiles.transpose(1, 2).flatten(2).sort(dim=-1, stable=True)
    weights = weight.repeat(quantiles.shape[1])[order]
    reached = weights.cumsum(-1) - weights / 2
    high = torch.searchsorted(reached, levels.expand(*reached.shape[:2], -1).contiguous()).clamp(1, atoms.shape[-1] - 1)
    (x, a), (y, b) = ([v.gather(-1, high - back) for v in (reached, atoms)] for back in (1, 0))
    return a + (b - a) * ((levels - x) / (y - x)).clamp(0, 1)


def keep_width(quantiles: Float[Tensor, "series step level"], period: int) -> Float[Tensor, "series step level"]:
    """Beyond 64 steps each quantile is at least as far from the median as it was one period before.

    Where a series walks at random, it is further away than that by the square root of time.
    """
    if quantiles.shape[1] <= HORIZON:
        return quantiles
    median = quantiles[..., MEDIAN, None]
    away, lag = quantiles - median, period if 0 < period <= HORIZON else HORIZON
    power = 0.5 * _walks(away, lag)
    for step in range(HORIZON, away.shape[1]):
        here, before = away[:, step], away[:, step - lag] * ((step + 1) / (step + 1 - lag)) ** power
        away[:, step] = torch.where(before.abs() > here.abs(), before, here)
    return median + away


def _walks(away: Tensor, lag: int) -> Bool[Tensor, "series 1"]:
    """Whether intervals widened towards the 64th step about as fast as those of a random walk, or faster.

    The last steps are compared with as many before them: whole seasons, at most 32 steps.
    """
    wide = away[:, :HORIZON, LEVELS.index(0.9)] - away[:, :HORIZON, LEVELS.index(0.1)]
    span = HORIZON // 2 // lag * lag or HORIZON // 2
    early, late = (wide[:, HORIZON - k * span :][:, :span].mean(1, keepdim=True) for k in (2, 1))
    return late > early * float(((HORIZON - span / 2) / (HORIZON - 3 * span / 2)) ** WALK)
