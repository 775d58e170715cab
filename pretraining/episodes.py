"""Panels with covariates, to train through the closed-form solve of their effects (`aru.pretrained.effects`).

A panel is a handful of synthetic series to which effects of made-up covariates are added: promotions, prices, a smooth
one such as temperature, feasts, and columns without any use. Effects differ between its series, and some change. The
rules of the solve are parameters. They and the network learn from how well the future is forecast when the effects were
taken out of the past by regression and added again: the gradient goes through the regression.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from aru.pretrained.effects import PRIOR_SERIES, SLACK
from aru.pretrained.robust import robust_scale
from pretraining.clocks import HORIZON
from pretraining.dice import Dice
from pretraining.generator import Batch, generate
from pretraining.parts import TAU, filtered

SERIES = 8  # of a panel
Effects = tuple[Tensor, Tensor]  # of past and of future rows, in the user's units
COLUMNS = 5  # covariates of a panel
WAVES = 2  # harmonics of the main period among the regressors, so that covariates do not stand in for the season
ROUNDS = 4  # of EM
LARGEST = 30.0  # scales of a series; nothing is learned beyond


class Episode(NamedTuple):
    """Series to learn from, panel by panel, with regressors of past and future rows: (n, T, COLUMNS + 2 WAVES)."""

    batch: Batch
    x: Tensor

    def part(self, i: int, parts: int) -> Episode:
        """Part i of so many equal ones."""
        return Episode(self.batch.part(i, parts), self.x.chunk(parts)[i])


def promotions(dice: Dice, n: int, steps: int) -> Tensor:
    """Runs of days of equal length, at random or in a rhythm."""
    length = dice.log_uniform(1, 14, n, 1).round()
    cycle = (length * dice.log_uniform(1.5, 15, n, 1)).round().clamp(min=2)
    time = torch.arange(steps, device=dice.device) + torch.floor(dice.uniform(n, 1) * cycle)
    number, phase = torch.floor(time / cycle).long(), torch.remainder(time, cycle)
    held = dice.chance(dice.uniform(n, 1, low=0.3), n, steps + 1).gather(1, number)
    late = torch.floor(dice.uniform(n, steps + 1) * (cycle - length)).gather(1, number) * dice.chance(0.5, n, 1)
    return ((phase >= late) & (phase < late + length) & held).float()


def prices(dice: Dice, n: int, steps: int) -> Tensor:
    """Constant for a while, then another price, often the usual one."""
    change = dice.chance(dice.log_uniform(0.01, 0.3, n, 1), n, steps).float()
    number = change.cumsum(1).long()
    usual = dice.chance(dice.uniform(n, 1), n, steps + 1)
    return torch.where(usual, 0.0, dice.normal(n, steps + 1)).gather(1, number)


def smooth(dice: Dice, n: int, steps: int) -> Tensor:
    """A number that wanders around a yearly or daily course, such as temperature."""
    memory = dice.log_uniform(2, 60, n, 1)
    age = torch.arange(steps, device=dice.device) / memory
    path = filtered(dice.normal(n, steps), torch.exp(-age)) / memory.sqrt()
    time = torch.arange(steps, device=dice.device) / dice.log_uniform(20, 800, n, 1) + dice.uniform(n, 1)
    return path + dice.uniform(n, 1, high=2) * torch.sin(TAU * time)


def feasts(dice: Dice, n: int, steps: int) -> Tensor:
    """Rare days."""
    return dice.chance(dice.log_uniform(0.004, 0.05, n, 1), n, steps).float()


def columns(dice: Dice, panels: int, steps: int) -> Tensor:
    """Covariates (panels, SERIES, steps, COLUMNS): some the same in all series, some in each its own."""
    makers = (promotions, promotions, prices, smooth, feasts)
    out = []
    for make in makers:
        own = make(dice, panels * SERIES, steps).view(panels, SERIES, steps)
        same = dice.chance(0.3 if make in (promotions, prices) else 0.8, panels, 1, 1)
        out.append(torch.where(same, own[:, :1], own))
    x = torch.stack(out, -1)
    middle = x.mean((1, 2), keepdim=True)
    return (x - middle) / ((x - middle).square().mean((1, 2), keepdim=True).sqrt() + 1e-3)


def effects(dice: Dice, panels: int, x: Tensor) -> Tensor:
    """What the covariates add, (panels, SERIES, steps), in scales of a series. Two of five columns add nothing."""
    shape = (panels, 1, 1, COLUMNS)
    useful = dice.chance(0.6, *shape)
    common = dice.log_uniform(0.05, 2, *shape) * torch.where(dice.chance(0.5, *shape), 1.0, -1.0)
    apart = common.abs() * dice.log_uniform(0.03, 1, *shape) * dice.normal(panels, SERIES, 1, COLUMNS)
    time = torch.linspace(0, 1, x.shape[2], device=x.device).view(1, 1, -1, 1)
    changes = (time > dice.uniform(panels, SERIES, 1, COLUMNS)) & dice.chance(0.1, panels, SERIES, 1, COLUMNS)
    theta = (common + apart) * useful * torch.where(changes, dice.uniform(panels, SERIES, 1, COLUMNS, high=2), 1.0)
    return (x * theta).sum(-1)


def waves(periods: Tensor, steps: int) -> Tensor:
    """Sines and cosines of the main period, (n, steps, 2 WAVES); 0 where it is not told."""
    period = periods[:, :1, None].float()
    time = torch.arange(steps, device=periods.device).view(1, -1, 1) / period.clamp(min=2)
    often = torch.arange(1, WAVES + 1, device=periods.device)
    angle = TAU * time * often
    seen = (period >= 2 * often).float()
    return torch.cat([torch.sin(angle) * seen, torch.cos(angle) * seen], -1) * math.sqrt(2)


def draw_episode(dice: Dice, panels: int, context: int, recipe: dict[str, float] | None = None) -> Episode:
    """Panels of series with effects."""
    batch = generate(dice, panels * SERIES, context, recipe)
    x = columns(dice, panels, context + HORIZON)
    added = effects(dice, panels, x).flatten(0, 1)
    scale = robust_scale(batch.values, batch.mask).scale
    values = torch.where(batch.mask, batch.values + scale * added[:, :context], 0.0)
    with_effects = batch._replace(values=values, future=batch.future + scale * added[:, context:])
    return Episode(with_effects, torch.cat([x.flatten(0, 1), waves(batch.periods, context + HORIZON)], -1))


class Rules(nn.Module):
    """The rules of the solve, all positive, as logarithms: those of the package to begin with."""

    def __init__(self) -> None:
        super().__init__()
        begin = {"half_life": 20.0, "memory": 2000.0, "spread": 0.02, "noise_rows": 5.0, "robust": 2.0}
        self.logs = nn.ParameterDict({name: nn.Parameter(torch.tensor(math.log(v))) for name, v in begin.items()})

    def __getitem__(self, name: str) -> Tensor:
        return self.logs[name].double().exp()

    def values(self) -> dict[str, float]:
        """As people read them."""
        return {name: round(float(value.detach().exp()), 5) for name, value in self.logs.items()}


def inverse(matrix: Tensor) -> Tensor:
    """Of positive definite matrices, by Gauss and Jordan: plain operations, which a CUDA graph can hold."""
    k = matrix.shape[-1]
    both = torch.cat([matrix, torch.eye(k, dtype=matrix.dtype, device=matrix.device).expand_as(matrix)], -1)
    for j in range(k):
        row = both[..., j : j + 1, :] / both[..., j : j + 1, j : j + 1]
        rest = both - both[..., :, j : j + 1] * row
        both = torch.cat([rest[..., :j, :], row, rest[..., j + 1 :, :]], -2)
    return both[..., k:]


class Sums(NamedTuple):
    """Sums of series over deviations from the local level; series of a panel stand together: (panel, SERIES, ...)."""

    xx: Tensor
    xz: Tensor
    zz: Tensor
    weight: Tensor


def sums_of(rules: Rules, x: Tensor, y: Tensor, mask: Tensor) -> Sums:
    """What `aru.pretrained.effects.absorb` keeps, in units of each series, over (n, rows) of history."""
    rows = y.shape[1]
    seen = mask.double()
    age = torch.arange(rows, device=y.device, dtype=torch.float64)
    apart = age[:, None] - age - 1
    before = torch.where(apart >= 0, torch.exp2(-apart.clamp(min=0) / rules["half_life"]), 0.0)
    both = torch.cat([x.double(), y.double().unsqueeze(-1)], -1) * seen.unsqueeze(-1)
    count = seen @ before.T
    away = both - torch.einsum("ts,nsk->ntk", before, both) / count.clamp(min=1e-9).unsqueeze(-1)
    weight = seen * torch.where(count > 0, count / (count + 1), 0.0)
    far = away[..., -1].abs()
    usual = (far * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True).clamp(min=1e-9)
    weight = weight * (rules["robust"] * usual / far.clamp(min=1e-12)).clamp(max=1.0)
    weight = weight * torch.exp(-(rows - 1 - age) / rules["memory"])
    dx, dz = away[..., :-1], away[..., -1]
    wx = dx * weight.unsqueeze(-1)
    parts = (wx.mT @ dx, (wx * dz.unsqueeze(-1)).sum(1), (weight * dz.square()).sum(1), weight.sum(1))
    return Sums(*(part.unflatten(0, (-1, SERIES)) for part in parts))


def solved(rules: Rules, sums: Sums) -> Tensor:
    """Coefficients of each series, (n, k): EM over the records of its panel (`aru.pretrained.effects`)."""
    total = sums.weight.clamp(min=1e-9)
    unit = (sums.zz / total).clamp(min=1e-12).sqrt()  # of a series that never moved, too, it has a gradient
    xx, xz, zz = sums.xx, sums.xz / unit.unsqueeze(-1), sums.zz / unit.square()
    k, few = xz.shape[-1], rules["noise_rows"]
    eye = torch.eye(k, dtype=xx.dtype, device=xx.device)
    mean = (inverse(xx.sum(1) + 10 * eye) @ xz.sum(1).unsqueeze(-1)).squeeze(-1)
    prior = rules["spread"]
    spread, relevance = prior.expand_as(mean), torch.full_like(mean, 100.0)

    def noise_of(rest: Tensor) -> Tensor:
        pooled = (rest.sum(1, keepdim=True) / total.sum(1, keepdim=True)).clamp(min=1e-3)
        return ((rest + few * pooled) / (total + few)).clamp(min=1e-3)

    def left_over(theta: Tensor) -> Tensor:
        return zz - 2 * (theta * xz).sum(-1) + ((xx @ theta.unsqueeze(-1)).squeeze(-1) * theta).sum(-1)

    noise = noise_of(left_over(mean.unsqueeze(1).expand_as(xz)))
    theta = mean.unsqueeze(1).expand_as(xz)
    for _ in range(ROUNDS):
        precision = xx / noise[..., None, None] + torch.diag_embed(1 / spread).unsqueeze(1)
        covariance = inverse(precision)
        right = xz / noise.unsqueeze(-1) + (mean / spread).unsqueeze(1)
        theta = (covariance @ right.unsqueeze(-1)).squeeze(-1)
        sure = SERIES / spread + 1 / relevance
        mean = theta.sum(1) / spread / sure
        relevance = (mean.square() + 1 / sure).clamp(min=1e-9)
        apart = (theta - mean.unsqueeze(1)).square().sum(1) + covariance.diagonal(dim1=-2, dim2=-1).sum(1)
        apart = apart + SERIES / sure
        spread = ((apart + PRIOR_SERIES * prior) / (SERIES + PRIOR_SERIES)).clamp(min=1e-7)
        noise = noise_of(left_over(theta) + (xx * covariance).sum((-2, -1)))
    return (theta * unit.unsqueeze(-1)).flatten(0, 1)


def taken_out(rules: Rules, episode: Episode) -> Effects:
    """Effects of past and of future rows, in the user's units.

    Effects of the season stay in the values, as those that the network is told do in the package.
    """
    batch, rows = episode.batch, episode.batch.values.shape[1]
    scale = robust_scale(batch.values, batch.mask)
    y = ((batch.values - scale.location) / scale.scale).clamp(-LARGEST, LARGEST)
    theta = solved(rules, sums_of(rules, episode.x[:, :rows], y, batch.mask))[:, :COLUMNS]
    effect = (episode.x[..., :COLUMNS].double() * theta.unsqueeze(1)).sum(-1)
    past, seen = effect[:, :rows], batch.mask.double()
    middle = (past * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True).clamp(min=1)
    low = torch.where(batch.mask, past, LARGEST).amin(1, keepdim=True)
    high = torch.where(batch.mask, past, -LARGEST).amax(1, keepdim=True)
    slack = SLACK * (high - low)
    ahead = torch.maximum(torch.minimum(effect[:, rows:], high + slack), low - slack)
    return ((past - middle) * scale.scale).float(), ((ahead - middle) * scale.scale).float()
