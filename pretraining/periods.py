"""Periods found in the values themselves, for series whose frequency is unknown or says nothing about seasons."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

LEAST = 0.3
"""Share of the change over a lag that must vanish at a period."""
DOUBT = 0.2
"""How much more must vanish where the history holds hardly enough seasons."""
SEASONS = 2.5
"""Seasons that the history must hold."""
LONGER = 4
"""Main periods that the longer one must hold; where it was only two, telling it made forecasts worse."""


def change_by_lag(z: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared change of the values over every lag, and over how many pairs of known values, (batch, rows)."""
    rows = z.shape[1]
    values, square, known = (torch.fft.rfft(x.double(), 2 * rows) for x in (z * mask, z**2 * mask, mask))
    pairs = torch.fft.irfft(known.abs() ** 2, 2 * rows)[:, :rows].round()
    both = 2 * (square * known.conj()).real - 2 * values.abs() ** 2
    return torch.fft.irfft(both, 2 * rows)[:, :rows].clamp(min=0) / pairs.clamp(min=1), pairs


def dips(z: Tensor, mask: Tensor) -> Tensor:
    """By how much, as a share, values change less over a lag than over the lags from half to one and a half of it.

    Where a season is, it is large; trends and wandering levels have none. 0 at lags that too few seasons support.
    """
    change, pairs = change_by_lag(z, mask)
    lag = torch.arange(z.shape[1], device=z.device)
    total = F.pad(change.cumsum(1), (1, 0))
    low, high = (lag + 1) // 2, (3 * lag // 2).clamp(max=z.shape[1] - 1)
    around = (total[:, high + 1] - total[:, low] - change) / (high - low).clamp(min=1)
    depth = 1 - change / around.clamp(min=1e-9)
    used = SEASONS * lag / mask.sum(1, keepdim=True).clamp(min=1)  # of the history, by the least number of seasons
    clear = depth > torch.clamp(3 / pairs.clamp(min=1).sqrt(), min=LEAST) + DOUBT * used
    bottom = change <= torch.minimum(change.roll(1, 1), change.roll(-1, 1))
    return torch.where(bottom & clear & (lag >= 2) & (used <= 1) & (around > 1e-9), depth, 0.0)


def found(z: Tensor, mask: Tensor) -> Tensor:
    """Main and longer period of each series as the network is told them, 0 for none, (batch, 2).

    The main period is the shortest whose dip is nearly the deepest; the longer one is the multiple with the deepest
    dip, if that is deeper.
    """
    depth = dips(z, mask)
    deepest = depth.amax(1, keepdim=True)
    main = ((depth >= 0.7 * deepest) & (depth > 0)).int().argmax(1, keepdim=True)
    lag = torch.arange(z.shape[1], device=z.device)
    multiple = torch.where((lag >= LONGER * main) & (main > 0) & (lag % main.clamp(min=1) == 0), depth, 0.0)
    best, longer = multiple.max(1, keepdim=True)
    deeper = best > depth.gather(1, main) + 0.05
    return torch.cat([main, torch.where(deeper, longer, 0)], 1)
