"""Forecasts of plain arrays by a network: padding, scale, quantiles in the user's units."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from aru.pretrained.patches import CONTEXT, LEVELS, MEDIAN, PatchNetwork, PatchShape
from aru.pretrained.robust import credible, robust_scale
from aru.pretrained.seasons import found
from pretraining.clocks import HORIZON

Forecast = Callable[[list[np.ndarray], int, tuple[int, int] | None], np.ndarray]
"""From contexts, h and periods to the quantiles, of shape (series, h, levels)."""

FED = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Levels of the quantiles that are fed forward."""


def rows_of(contexts: list[np.ndarray], size: PatchShape) -> tuple[Tensor, Tensor]:
    """Values and mask of contexts, cut to the longest that the network reads, padded on the left to whole patches."""
    rows = size.rows(max(map(len, contexts)))
    values = np.full((len(contexts), rows), np.nan)
    for row, context in zip(values, contexts, strict=True):
        row[rows - min(rows, len(context)) :] = context[-rows:]
    mask = np.isfinite(values)
    return torch.from_numpy(np.where(mask, values, 0.0)), torch.from_numpy(mask)


@torch.no_grad()
def quantiles_of(
    network: PatchNetwork, contexts: list[np.ndarray], h: int, periods: tuple[int, int] | None
) -> np.ndarray:
    """Quantiles of the next h <= 64 values of each series in the user's units, (series, h, 15).

    Periods are those of the frequency, (0, 0) if there are none to tell, or None to find them in each series.
    """
    device = network.place.device
    values, mask = (part.to(device) for part in rows_of(contexts, network.size))
    scale = robust_scale(values, mask)
    mask = credible(values, mask, scale)
    z, known = torch.where(mask, scale.squash(values), 0.0).float(), mask.float()
    told = found(z, known) if periods is None else torch.tensor([periods], device=device)
    return scale.restore(network(z, known, told).double())[:, :h].cpu().numpy()


def pooled(quantiles: np.ndarray) -> np.ndarray:
    """Quantiles of the even mixture of some forecasts, (series, forecasts, h, levels) to (series, h, levels)."""
    levels, (n, count, h, _) = np.asarray(LEVELS), quantiles.shape
    weight = np.diff(np.concatenate([[0], (levels[1:] + levels[:-1]) / 2, [1]])) / count
    atoms = quantiles.transpose(0, 2, 1, 3).reshape(n, h, -1)
    order = atoms.argsort(-1)
    atoms, weights = np.take_along_axis(atoms, order, -1), np.tile(weight, count)[order]
    reached = weights.cumsum(-1) - weights / 2
    out = np.empty((n, h, len(levels)))
    for i, level in enumerate(levels):
        high = (reached < level).sum(-1, keepdims=True).clip(1, atoms.shape[-1] - 1)
        (x, y), (a, b) = ([np.take_along_axis(of, high - k, -1)[..., 0] for k in (1, 0)] for of in (reached, atoms))
        out[..., i] = a + (b - a) * ((level - x) / (y - x)).clip(0, 1)
    return out


def never_narrower(quantiles: np.ndarray, period: int) -> np.ndarray:
    """Beyond 64 steps each quantile is at least as far from the median as it was one period before."""
    median = quantiles[..., MEDIAN, None]
    away, lag = quantiles - median, period if 0 < period <= HORIZON else HORIZON
    for step in range(HORIZON, away.shape[1]):
        here, before = away[:, step], away[:, step - lag]
        away[:, step] = np.where(np.abs(before) > np.abs(here), before, here)
    return median + away


def far_quantiles_of(
    network: PatchNetwork, contexts: list[np.ndarray], h: int, periods: tuple[int, int] | None
) -> np.ndarray:
    """Quantiles of the next h values for any h: beyond 64 steps, five quantiles are fed forward, each as a past.

    What the network says about the five is pooled. Feeding the median alone makes later intervals far too narrow. The
    fed steps are smoother than real ones, so that the outer quantiles would close in; they may not.
    """
    fed, paths = [LEVELS.index(level) for level in FED], [context for context in contexts for _ in FED]
    blocks = [quantiles_of(network, contexts, HORIZON, periods)]
    while len(blocks) * HORIZON < h:
        steps = blocks[-1][..., fed].transpose(0, 2, 1).reshape(len(paths), HORIZON)
        paths = [np.append(path[-CONTEXT:], step) for path, step in zip(paths, steps, strict=True)]
        ahead = quantiles_of(network, paths, HORIZON, periods)
        blocks.append(pooled(ahead.reshape(len(contexts), len(fed), HORIZON, len(LEVELS))))
    return never_narrower(np.concatenate(blocks, 1)[:, :h], periods[0] if periods else 0)


def forecaster(network: PatchNetwork, batch: int = 1024) -> Forecast:
    """A network as `evaluate` wants it; series of similar length share a batch."""

    def forecast(contexts: list[np.ndarray], h: int, periods: tuple[int, int] | None) -> np.ndarray:
        network.eval()
        out = np.empty((len(contexts), h, len(LEVELS)))
        order = np.argsort([len(c) for c in contexts], kind="stable")
        for start in range(0, len(order), batch):
            which = order[start : start + batch]
            out[which] = quantiles_of(network, [contexts[i] for i in which], h, periods)
        return out

    return forecast
