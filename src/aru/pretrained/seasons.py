"""The periods that a network is told: those of the frequency, or those found in the values of each series."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from aru.data.frequency import DAY, Frequency

LEAST_DIP = 0.3  # share of the change over a lag that must vanish at a period
DOUBT = 0.2  # how much more must vanish where the history holds hardly enough seasons
SEASONS_NEEDED = 2.5  # seasons that the history must hold
LONGER = 4  # main periods that the longer one must hold; where it was only two, telling it made forecasts worse
LONGEST_TOLD = 672  # rows; the network reads 1,024, so that it cannot compare longer seasons


def told_by(freq: Frequency, season_length: int | None) -> tuple[int, int] | None:
    """Main and longer period in rows, 0 for none, from the season that a user names or from the frequency.

    None if neither says anything: then they are looked for in each series.
    """
    if season_length is not None:
        return season_length, 0
    seasons = freq.seasons()
    if seasons == (7,):
        return 7, 365
    if seasons == (5,):
        return 5, 261
    if freq.yearly:
        return 1, 0
    fit = [season for season in seasons if season <= LONGEST_TOLD]
    hour = DAY // 24
    if not fit and seasons and freq.step is not None and hour % freq.step == 0:  # minutes: a day does not fit
        return hour // freq.step, 0
    return (fit[0], fit[1] if len(fit) > 1 else 0) if fit else None


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
    used = (
        SEASONS_NEEDED * lag / mask.sum(1, keepdim=True).clamp(min=1)
    )  # of the history, by the least number of seasons
    clear = depth > torch.clamp(3 / pairs.clamp(min=1).sqrt(), min=LEAST_DIP) + DOUBT * used
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
