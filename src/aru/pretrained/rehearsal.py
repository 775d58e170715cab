"""Series of a panel begin anew: what level and network say after a few values, compared with what came then.

Stretches of the contexts of some series are read as if the series began there. So is learned how the level of a series
begins, how far it is off, and its weight beside the network. Everything comes from records, nothing from rows that a
record does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from aru.nn.tree import take, tree_map
from aru.nn.windows import Context, all_values
from aru.pretrained.closed_form import Network
from aru.pretrained.effects import (
    LOGS,
    Coefficients,
    CommonEffects,
    EffectSums,
    absorb,
    around_mean,
    coefficients,
    has_logarithms,
    hidden,
    shown,
)
from aru.pretrained.newcomers import KNOWN, Newcomers
from aru.pretrained.patches import HORIZON, LEVELS, MEDIAN
from aru.pretrained.regressors import Regressors
from aru.pretrained.young import NEARLY_NONE, YoungSeries, blend, level_ahead, sizes, spread, usual_level

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SERIES, REHEARSALS = 64, 192  # series that begin anew, and how often all of them together
SERIES_IN_MEMORY = 16  # whose regressors are in memory
BACK = KNOWN[-1]
SPREAD_OUT = 0.618  # of the way between two origins, by which those of the next series lie later
ROWS = torch.tensor([0.0, 0.03, 0.1, 0.2, 0.4, 0.8], dtype=torch.float64)  # of the usual level: one is chosen
FIRST = 3  # of `KNOWN`, which decide about it
CLEARLY = 0.999  # ratio of errors below which more of such rows are chosen
CAUTION = 0.5  # standard errors of a gain, from series to series, that are taken off it
SHARES = torch.linspace(0, 1, 11, dtype=torch.float64)  # weights of the level, of which one is chosen
LEVEL_ROUNDS, MOST_LEVERAGE = 20, 0.95


def rehearse(
    sums: EffectSums,
    context: Context,
    traits: Array,
    common: CommonEffects,
    regressors: Regressors,
    run: Network,
    h: int,
) -> Newcomers | None:
    """How series begin, from the records of a panel. None before two series have two values."""
    if int((context.count > 1).sum()) < 2:
        return None
    context = tree_map(lambda value: value.cpu(), context)
    logs = has_logarithms(sums)
    begun = (sums.seen > 0).cpu().numpy()
    usual, others = usual_levels(_levels(sums, traits, common, logs)[begun], traits[begun])
    left_out = torch.zeros(len(traits), dtype=torch.float64)
    left_out[torch.from_numpy(begun)] = torch.from_numpy(others)
    found = _stretches(take(context, torch.arange(min(SERIES, len(traits)))), regressors, min(h, HORIZON))
    scenes = [_scene(found, n, traits, left_out, common, regressors, logs) for n in (0, *KNOWN)]
    if scenes[0] is None or scenes[0].series < 2:
        return None
    y, observed = all_values(context)
    nonnegative = bool(((y >= 0) | ~observed).all())
    begin = Newcomers(
        usual=torch.from_numpy(usual),
        rows=_rows(scenes[1 : 1 + FIRST]),
        weight=torch.zeros(len(KNOWN), 2, dtype=torch.float64),
        errors=torch.zeros(len(scenes), len(LEVELS), dtype=torch.float64),
        size=_means(y, observed).quantile(0.5),
        logs=logs,
        nonnegative=nonnegative,
        whole=nonnegative and bool(((y == y.round()) | ~observed).all()),
    )
    begin = begin._replace(errors=_errors(scenes, begin))
    rivals = [s and s.rivals(run, begin, error) for s, error in zip(scenes[1:], begin.errors[1:], strict=True)]
    middle = _weights([_losses(pair, None) for pair in rivals])
    width = _weights([_losses(pair, share) for pair, share in zip(rivals, middle, strict=True)])
    return begin._replace(weight=torch.stack([middle, width], 1))


def usual_levels(z: Array, traits: Array) -> tuple[Array, Array]:
    """Regress levels (series,) on traits (series, trait): coefficients, and what they say of each without itself.

    EM, as for the coefficients of effects: a trait that says nothing has a relevance that tends to zero.
    """
    variance = max(float(z.var()), 1e-12)
    relevance = np.full(traits.shape[1], 0.1 * variance)
    relevance[0] = 1e6 * max(variance, float(z.mean()) ** 2)
    noise = variance
    for _ in range(LEVEL_ROUNDS):
        cov = np.linalg.inv(traits.T @ traits / noise + np.diag(1 / relevance))
        usual: Array = cov @ (traits.T @ z) / noise
        relevance[1:] = np.maximum(usual[1:] ** 2 + np.diag(cov)[1:], 1e-9 * variance)
        unsure = np.einsum("it,tu,iu->i", traits, cov, traits)
        rest = z - traits @ usual
        noise = max(float((rest**2 + unsure).mean()), 1e-6 * variance)
    left_out: Array = z - rest / (1 - np.minimum(unsure / noise, MOST_LEVERAGE))
    return usual, left_out


def _levels(sums: EffectSums, traits: Array, common: CommonEffects, logs: bool) -> Array:
    """The level of each series where its regressors are 0."""
    level = sums.level.cpu().double().numpy()
    k = level.shape[1] - 2
    z: Array = level[:, k + common.way] - (level[:, :k] * (traits @ common.mean.numpy().T)).sum(1) * float(common.unit)
    if logs and common.way != LOGS:
        z = np.log1p(np.maximum(z, NEARLY_NONE))
    return z


class _Stretches(NamedTuple):
    """Rows of series around some origin: `BACK` before it, and those ahead. Rows that do not exist are unobserved."""

    x: Array  # (stretch, row, k) regressors
    y: Float[Tensor, "stretch row"]
    observed: Bool[Tensor, "stretch row"]
    series: Ints
    before: Ints  # rows of the series before the origin


def _stretches(context: Context, regressors: Regressors, h: int) -> _Stretches:
    y, observed = (value.cpu() for value in all_values(context))
    n, rows = y.shape
    length = np.where(observed.any(1), rows - observed.to(torch.int8).argmax(1).numpy(), 0)
    each = -(-REHEARSALS // max(n, 1))
    part = (np.arange(each) + (SPREAD_OUT * np.arange(n)[:, None]) % 1) / each  # (series, origin)
    low = np.minimum(BACK, np.maximum(length - h, 1))[:, None]
    last = np.maximum(length - h, low[:, 0])[:, None]
    origin = np.minimum(low + np.floor(part * (last - low + 1)).astype(np.int64), length[:, None] - 1)
    pairs = [(i, o) for i in range(n) for o in np.unique(origin[i]).tolist() if o > 0]
    series, before = np.array(pairs, np.int64).reshape(-1, 2).T
    at = (rows - length[series] + before)[:, None] + np.arange(-BACK, h)
    there = (at >= (rows - length[series])[:, None]) & (at < rows)
    at = at.clip(0, rows - 1)
    x = np.empty((*at.shape, len(regressors)))
    for lo in range(0, n, SERIES_IN_MEMORY):
        own = (series >= lo) & (series < lo + SERIES_IN_MEMORY)
        some = take(context, torch.arange(lo, min(lo + SERIES_IN_MEMORY, n)))
        all_rows = regressors.values(regressors.known(some.older.codes, some.rows))
        x[own] = all_rows[series[own, None] - lo, at[own]]
    values, known = (v[torch.from_numpy(series)[:, None], torch.from_numpy(at)] for v in (y, observed))
    return _Stretches(x, values, known & torch.from_numpy(there), series, before)


class _Scene(NamedTuple):
    """Stretches of which some values are known."""

    y: Float[Tensor, "stretch row"]
    young: YoungSeries
    truth: Float[Tensor, "stretch step"]  # NaN where missing
    size: Float[Tensor, " stretch"]  # mean |y|
    of: Ints  # the series of each

    @property
    def series(self) -> int:
        """How many they are of."""
        return len(np.unique(self.of))

    def rivals(self, run: Network, begin: Newcomers, error: Tensor) -> _Rivals:
        """What the network says, and what the level says with these quantiles of its errors."""
        read, known, _, effect, way = self.young
        alone = shown(run(self.y, read, known, effect.shape[1]), effect.unsqueeze(-1), way)
        level = spread(
            level_ahead(self.young, begin.rows), error.unsqueeze(0), begin.logs, sizes(self.young, begin.size)
        )
        return _Rivals(self, *(v.clamp(min=0) if begin.nonnegative else v for v in (alone, level)))


class _Rivals(NamedTuple):
    """Forecasts of stretches by the network, and by their level."""

    scene: _Scene
    alone: Float[Tensor, "stretch step level"]
    level: Float[Tensor, "stretch step level"]


def _scene(
    found: _Stretches, n: int, traits: Array, usual: Tensor, common: CommonEffects, regressors: Regressors, logs: bool
) -> _Scene | None:
    """The last n rows before each origin are known, with the local fit that they lead to. None without a stretch."""
    known = found.observed[:, :BACK] & (torch.arange(BACK) >= BACK - n)
    ok = (torch.from_numpy(found.before) >= n) & (known.any(1) | (n == 0)) & found.observed[:, BACK:].any(1)
    if not bool(ok.any()):
        return None
    chosen = ok.numpy()
    x, series, known, y = found.x[chosen], found.series[chosen], known[ok], found.y[ok]
    steps = torch.full((len(x),), BACK)
    sums = absorb(EffectSums.empty(len(x), x.shape[2]), torch.from_numpy(x[:, :BACK]), y[:, :BACK], known, steps)
    fit: Coefficients = coefficients(sums, traits[series], common)
    out = n < regressors.stays
    own, new = (torch.from_numpy(np.where(out, v.numpy(), 0.0)).unsqueeze(-1) for v in (fit.own, fit.common))
    effects, ahead = (torch.from_numpy(x) @ own)[..., 0], (torch.from_numpy(x[:, BACK:]) @ new)[..., 0]
    past, ahead, middle = around_mean(effects, ahead, known)
    read = torch.where(known, hidden(y[:, :BACK], past, fit.way), 0.0)
    level = usual_level(usual[torch.from_numpy(series)], logs, middle, fit.way)
    truth = torch.where(found.observed[ok, BACK:], y[:, BACK:], torch.nan)
    young = YoungSeries(read, known, level, ahead, fit.way)
    return _Scene(y[:, :BACK], young, truth, _means(y, found.observed[ok]), series)


def _means(y: Tensor, observed: Tensor) -> Float[Tensor, " series"]:
    """Mean |y|."""
    return torch.where(observed, y.abs(), 0.0).sum(1) / observed.sum(1).clamp(min=1)


def _rows(scenes: Sequence[_Scene | None]) -> Float[Tensor, ""]:
    """With how many rows of the usual level the mean of a series should begin."""
    best, chosen = torch.inf, ROWS[0]
    for rows in ROWS:
        total = 0.0
        for scene in filter(None, scenes):
            error = (level_ahead(scene.young, rows) - scene.truth).abs().nanmean(1) / scene.size
            total += float(error[scene.size > 0].sum())
        if total < CLEARLY * best:
            best, chosen = total, rows
    return chosen


def _errors(scenes: Sequence[_Scene | None], begin: Newcomers) -> Float[Tensor, "none_and_known level"]:
    """Quantiles of the errors of the level around their median; where there are none, those after fewer values."""
    found: list[Tensor] = []
    for scene in scenes:
        if scene is None:
            found.append(found[-1])
            continue
        level = level_ahead(scene.young, begin.rows)
        if begin.logs:
            error = scene.truth.clamp(min=NEARLY_NONE).log1p() - level.clamp(min=NEARLY_NONE).log1p()
        else:
            error = (scene.truth - level) / sizes(scene.young, begin.size).unsqueeze(1)
        at = error[~error.isnan()].quantile(torch.tensor(LEVELS, dtype=torch.float64))
        found.append(at - at[MEDIAN])
    return torch.stack(found)


def _losses(rivals: _Rivals | None, middle: Tensor | None) -> Float[Tensor, " share"]:
    """Loss with each weight of the level, relative to that of the network alone. It is 1 without any evidence.

    A part of the standard error of the difference between the two is added: a few series, of which some gain and some
    lose, say little about the others. If the weight of the median is not known yet, the loss is that of the median,
    else that of all quantiles by the weight of the width.
    """
    if rivals is None or not bool((rivals.scene.size > 0).any()):  # zeros alone say nothing
        return torch.ones_like(SHARES)
    scene, alone, level = rivals
    some = scene.size > 0
    levels = torch.tensor([0.5] if middle is None else LEVELS, dtype=torch.float64)
    found = []
    for share in SHARES:
        values = blend(alone[some], level[some], torch.stack([share if middle is None else middle, share]))
        values = values[..., MEDIAN, None] if middle is None else values
        away = scene.truth[some].unsqueeze(-1) - values
        loss = torch.maximum(levels * away, (levels - 1) * away).flatten(1)
        found.append(loss.nanmean(1) / scene.size[some])
    each = _by_series(torch.stack(found), scene.of[some.numpy()])
    gain, n = each - each[:1], each.shape[1]
    error = CAUTION * gain.std(1) / math.sqrt(n) if n > 1 else gain[:, 0].abs()
    return (each.mean(1) + error) / each[0].mean().clamp(min=1e-30)


def _by_series(values: Float[Tensor, "share stretch"], of: Ints) -> Float[Tensor, "share series"]:
    """Means over the stretches of each series."""
    _, which = np.unique(of, return_inverse=True)
    member = F.one_hot(torch.from_numpy(which)).to(values)
    return values @ member / member.sum(0)


def _weights(losses: Sequence[Tensor]) -> Float[Tensor, " known"]:
    """The weights with the least loss, smoothed over neighbouring numbers of values."""
    found = torch.stack(list(losses))
    padded = torch.cat([found[:1], found, found[-1:]])
    smooth = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
    return SHARES[smooth.argmin(1)]
