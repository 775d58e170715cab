"""What a pretrained network's own errors teach, in closed form and without covariates: no gradient anywhere.

After every `stride` rows of a series the latest h of them are forecast again, from the rows before: a round. Its errors
z, in units of the network's spread, are explained in two ways:

    differences   z ~ theta . x by ridge regression, in each part of the season. x are differences between what the
                  series showed at the same phase (a season ago, the means of 7 and 28 seasons, of 4 longer ones) and
                  the network's median, and the change of the latest value within a season
    habits        the mean of z at each part of the longer season, such as the hours of a week, shrunk towards zero

Sums of both make up the record of a series (`HindsightSums`). Theta is the panel's, moved by the series' own sums.
Neither way is believed at its word. Each round first compares what the record would have said with what came. Over the
panel these comparisons give either way a weight, by least squares, that is near zero until there is evidence for it
(`CommonHindsight`): where a way does not help, the forecast is the network's. Sums are aged, errors and differences are
cut off, so that no round decides for long. `stride` has no divisor in common with the season, so that origins come to
lie at every phase of it: what holds at one hour of the day need not hold at another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from aru.pretrained.patches import LEVELS, MEDIAN

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

SEASON_COUNTS = (1, 7, 28)  # latest seasons whose mean at the same phase is compared with the forecast
LONGER_COUNT = 4  # and of the longer season
SEASON_PARTS = 5  # of a season, with coefficients of their own
MOST_SEASONS = 8  # in the longer season
LEAST_STRIDE = 8  # rows between two rounds: each costs a pass of the network
ROUND_AGE, TRUST_AGE = 0.998, 0.99  # weight of a round after the next one: in the sums, and in their evaluation
DIFFERENCE_RIDGE = 100.0  # penalty of coefficients, of the panel and of a series around it, in squared spreads
HABIT_ROWS = 10.0  # seasons without an error that habits begin with
DOUBT_ROUNDS = 20.0  # rounds without any use that trust begins with, also that a series is like the others
MOST_TRUST = 1.5
CUT_ERROR, CUT_CORRECTION = 1.5, 2.0  # in spreads of the network; errors are skewed, and the median is to be moved
USUAL_DIFFERENCE = 4.0  # differences above this count for less and less: after a break the past is no guide
LEAST_SPREAD = 0.1  # of a lead, as a share of the mean over leads
LOW, HIGH = LEVELS.index(0.1), LEVELS.index(0.9)
TO_SPREAD = 2.5631  # normal deviates between these two


class HindsightSums(NamedTuple):
    """Records of series, with k differences in each part of the season, and cells in the longer season, if any."""

    xx: Float[Tensor, "series part triangle"]  # aged sum of x x', its lower triangle row by row
    xz: Float[Tensor, "series part k"]  # and of x z
    z: Float[Tensor, "series cell"]  # aged sum of z
    known: Float[Tensor, " series"]  # aged number of errors
    use: Float[Tensor, "series way"]  # aged sum of the means of c z over a round; c: what was said before
    size: Float[Tensor, "series triangle_of_ways"]  # and of c c'
    rounds: Float[Tensor, " series"]  # their aged number
    passed: Int[Tensor, " series"]  # rows since the latest round was due


class CommonHindsight(NamedTuple):
    """What the series of a panel have in common."""

    theta: Float[Tensor, "part k"]
    weights: Float[Tensor, " way"]

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        return {name: value.tolist() for name, value in self._asdict().items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CommonHindsight:
        """The inverse of `to_json`."""
        return cls(**{name: torch.tensor(values[name], dtype=torch.float64) for name in cls._fields})


class LocalHindsight(NamedTuple):
    """What is believed of each series."""

    theta: Array  # (series, part, k)
    habit: Array  # (series, cell)
    weights: Array  # (way,)


class Window(NamedTuple):
    """Forecasts of n series beside what the regressions read. z is NaN where no value came."""

    x: Array  # (n, h, k) differences
    tick: Ints  # (n, h) steps since 1970
    z: Array  # (n, h) errors in spreads


class Hindsight:
    """The equations for one horizon. `periods` are those that the network is told; None: no season is known.

    `dated`: times tell the phase of a season, so that it has parts.
    """

    def __init__(self, h: int, periods: tuple[int, int] | None, dated: bool = True) -> None:
        self.h = h
        main, longer = periods or (1, 0)
        self.season = max(main, 1)
        seasons = longer // self.season if dated and longer % self.season == 0 else 0
        self.seasons = seasons if 1 < seasons <= MOST_SEASONS else 0  # in the longer season
        self.parts = min(SEASON_PARTS, self.season) if dated else 1
        self.cells = self.seasons * self.parts
        self.k = len(SEASON_COUNTS) + 1 + bool(self.seasons)
        self.ways = 1 + bool(self.seasons)
        self.stride = next(n for n in range(max(h, LEAST_STRIDE), 2**31) if math.gcd(n, self.season) == 1)

    def empty(self, n: int, device: torch.device | None = None) -> HindsightSums:
        """Records of series without rows."""
        k, ways = self.k, self.ways
        shapes = (
            (self.parts, k * (k + 1) // 2),
            (self.parts, k),
            (self.cells,),
            (),
            (ways,),
            (ways * (ways + 1) // 2,),
            (),
        )
        sums = (torch.zeros(n, *shape, device=device) for shape in shapes)
        return HindsightSums._make([*sums, torch.zeros(n, dtype=torch.int32, device=device)])

    def aged(self, sums: HindsightSums, steps: Tensor) -> HindsightSums:
        """The same after some rows without a value, none of which completes a round."""
        passed = sums.passed + steps
        rounds = (passed // self.stride).double()

        def by(value: Tensor, age: float) -> Tensor:
            return (value.double() * (age**rounds).reshape(-1, *(1,) * (value.ndim - 1))).float()

        learned = {name: by(getattr(sums, name), ROUND_AGE) for name in ("xx", "xz", "z", "known")}
        judged = {name: by(getattr(sums, name), TRUST_AGE) for name in ("use", "size", "rounds")}
        return sums._replace(**learned, **judged, passed=(passed % self.stride).to(sums.passed))

    def window(
        self, y: Array, observed: Bools, quantiles: Array, tick: Ints, truth: Array | None = None
    ) -> tuple[Window, Array]:
        """Differences between (n, rows) values and forecasts from their end, and the (n, h) spread of these.

        `tick` is the step of the last row, `truth` (n, h) what came, NaN where nothing did.
        """
        median = quantiles[..., MEDIAN]
        spread = (quantiles[..., HIGH] - quantiles[..., LOW]) / TO_SPREAD
        spread = np.maximum(spread, LEAST_SPREAD * spread.mean(1, keepdims=True))
        unit = np.where(spread > 0, spread, np.inf)
        x = self._differences(y, observed, median) / unit[..., None]
        z = np.full_like(median, np.nan)
        if truth is not None:
            z = np.where(spread > 0, (truth - median) / unit, np.nan).clip(-CUT_ERROR, CUT_ERROR)
        ticks = tick[:, None] + 1 + np.arange(self.h)
        return Window(x / (1 + (x / USUAL_DIFFERENCE) ** 2), ticks, z), spread

    def _differences(self, y: Array, observed: Bools, median: Array) -> Array:
        """(n, h, k), zero where there is nothing to compare with."""
        lead, rows, m = np.arange(self.h), y.shape[1], self.season
        out = [self._means(y, observed, m, max(SEASON_COUNTS))[..., np.array(SEASON_COUNTS) - 1]]
        if self.seasons:
            out.append(self._means(y, observed, m * self.seasons, LONGER_COUNT)[..., -1:])
        x = np.concatenate(out, -1) - median[..., None]
        change = np.zeros((len(y), 1))
        if rows > m:
            change[:, 0] = np.where(observed[:, -1] & observed[:, -1 - m], y[:, -1] - y[:, -1 - m], 0.0)
        faded = change * np.exp(-2 * lead / max(m, LEAST_STRIDE))
        return np.concatenate([np.where(np.isnan(x), 0.0, x), faded[..., None]], -1)

    def _means(self, y: Array, observed: Bools, period: int, most: int) -> Array:
        """(n, h, count) means of the latest 1, 2, ..., `most` values at the phase of each lead; NaN without any."""
        lead = np.arange(self.h)
        at = (y.shape[1] + lead - period * (lead // period + 1))[:, None] - period * np.arange(most)
        there = (at >= 0) & observed[:, at.clip(0)]
        count = there.cumsum(-1)
        total = np.where(there, y[:, at.clip(0)], 0.0).cumsum(-1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def places(self, tick: Ints) -> tuple[Ints, Ints]:
        """The part of the season, and the cell of the longer season, of each time."""
        part = tick % self.season * self.parts // self.season
        return part, tick // self.season % max(self.seasons, 1) * self.parts + part

    def learn(self, sums: HindsightSums, window: Window) -> HindsightSums:
        """A round: what the records would have said is compared with what came, then they learn from it."""
        xx, xz, z, known, use, size, rounds = (value.cpu().double().numpy() for value in sums[:7])
        there = ~np.isnan(window.z)
        errors = np.where(there, window.z, 0.0)
        alone = LocalHindsight(_solve(_whole(xx, self.k), xz), self._habit(z, known), np.ones(self.ways))
        said = np.where(there, self._said(alone, window), 0.0)
        here = np.maximum(there.sum(1), 1)
        judged = (said != 0).any((0, 2))
        use = TRUST_AGE * use + (said * errors).sum(2).T / here[:, None]
        row, column = np.tril_indices(self.ways)
        size = TRUST_AGE * size + (said[row] * said[column]).sum(2).T / here[:, None]
        rounds = TRUST_AGE * rounds + judged
        part, cell = self.places(window.tick)
        x = np.where(there[..., None], window.x, 0.0)
        member = (part[:, None] == np.arange(self.parts)[:, None]).astype(np.float64)  # (n, part, h)
        row, column = np.tril_indices(self.k)
        xx = ROUND_AGE * xx + member @ (x[..., row] * x[..., column])
        xz = ROUND_AGE * xz + member @ (x * errors[..., None])
        if self.cells:
            inside = cell[:, None] == np.arange(self.cells)[:, None]
            z = ROUND_AGE * z + (inside.astype(np.float64) @ errors[..., None])[..., 0]
        known = ROUND_AGE * known + there.sum(1)
        new = (torch.from_numpy(value).to(sums.xx) for value in (xx, xz, z, known, use, size, rounds))
        return HindsightSums._make([*new, sums.passed])

    def _said(self, local: LocalHindsight, window: Window) -> Array:
        """(way, n, h): what either way says about the errors."""
        part, cell = self.places(window.tick)
        theta = np.take_along_axis(local.theta, part[..., None], 1)
        said = [(theta * window.x).sum(-1)]
        if self.cells:
            said.append(np.take_along_axis(local.habit, cell, 1))
        return np.stack(said).clip(-CUT_CORRECTION, CUT_CORRECTION)

    def _habit(self, z: Array, known: Array) -> Array:
        """Mean of z in each cell. Cells see as many rows as each other."""
        rows = HABIT_ROWS * self.season / self.parts
        return z / (known / max(self.cells, 1) + rows)[:, None]

    def learn_common(self, sums: HindsightSums) -> CommonHindsight:
        """From the records of all series: coefficients of a new one, and how far either way is to be believed.

        Weights a are those of least squares, sum of (z - a . c)^2, none of them negative. Series of one panel err
        together, so that the rounds of a series, not of all, tell how much is known.
        """
        xx, xz, _, _, use, size, rounds = (value.cpu().double().numpy() for value in sums[:7])
        number = (rounds**2).sum() / max(rounds.sum(), 1e-9)
        theta = _solve(_whole(xx, self.k).sum(0), xz.sum(0))
        weights = np.zeros(self.ways)
        if number >= 1:
            system = _whole(size.sum(0), self.ways)
            system[np.diag_indices(self.ways)] *= 1 + DOUBT_ROUNDS / number
            weights = _nonnegative(system, use.sum(0)).clip(max=MOST_TRUST)
        return CommonHindsight(torch.from_numpy(theta), torch.from_numpy(weights))

    def meet(self, sums: HindsightSums, common: CommonHindsight) -> LocalHindsight:
        """Coefficients of each series: the panel's, moved by its own sums. A new series may be of another kind."""
        xx, xz, z, known, _, _, rounds = (value.cpu().double().numpy() for value in sums[:7])
        alike = rounds / (rounds + DOUBT_ROUNDS)
        theta = _solve(_whole(xx, self.k), xz, alike[:, None, None] * common.theta.numpy())
        return LocalHindsight(theta, self._habit(z, known), common.weights.numpy())

    def correction(self, local: LocalHindsight, window: Window, spread: Array) -> Array:
        """(n, h): what is added to forecasts."""
        believed = (local.weights[:, None, None] * self._said(local, window)).sum(0)
        out: Array = believed.clip(-CUT_CORRECTION, CUT_CORRECTION) * spread
        return np.where(np.isfinite(out), out, 0.0)


def _solve(xx: Array, xz: Array, around: Array | float = 0.0) -> Array:
    """(n, part, k) coefficients of ridge regressions around some."""
    around = np.broadcast_to(around, xz.shape)
    k = xz.shape[-1]
    moved = np.linalg.solve(xx + DIFFERENCE_RIDGE * np.eye(k), (xz - (xx @ around[..., None])[..., 0])[..., None])[
        ..., 0
    ]
    theta: Array = around + moved
    return theta


def _nonnegative(system: Array, right: Array) -> Array:
    """The solution of a small linear system, without the unknowns that would be negative."""
    out, active = np.zeros(len(right)), np.flatnonzero(np.diag(system) > 0)
    while len(active):
        found = np.linalg.solve(system[np.ix_(active, active)], right[active])
        if (found >= 0).all():
            out[active] = found
            break
        active = active[found > 0]
    return out


def _whole(triangle: Array, k: int) -> Array:
    """Symmetric matrices from their lower triangles."""
    out = np.empty((*triangle.shape[:-1], k, k))
    row, column = np.tril_indices(k)
    out[..., row, column] = triangle
    out[..., column, row] = triangle
    return out
