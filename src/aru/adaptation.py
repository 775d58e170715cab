"""Corrections of another model's forecasts, learned per series and block of leads as the truth matures.

At origin o a frozen model issues f_k for the leads k = 1 .. h. What it will have missed is regressed on what is known:

    x_k = [last - f_k, level - f_k, seasonal_k - f_k, mean - f_k, step, turn, fast error, slow error]
    adapted_k = f_k + theta . [x_k, 1]

last is the latest value, level the mean of the latest season, seasonal_k the latest value whole seasons before the
target, mean that of all values; step and turn are how far last lies above the value before it and a season before it;
the errors are running means of matured residuals of the same block of leads. All are differences: a constant added to
series and forecasts changes nothing. Blocks (1, 2-3, 4-7, 8-15, ...) share theta, the ARU cell's ridge solution with
aged statistics. The ridge counts observations: features are divided by their root mean square, so that units do not
matter, and cut off at five times that; of forecasts that overlap each is a part of one.

A value that arrives teaches lead k with the forecast issued k steps before, never earlier: forecasts wait in the state.
Everything works on many series and models at once; a state goes in, a state comes out.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from aru import calibration, gate
from aru.calibration import CalibrationState
from aru.cell import ARUCell, ARUState
from aru.gate import GateState
from aru.state import tree_map

FEATURES = 8
SPEEDS = (0.5, 0.05)  # of the running means of residuals
LIMIT = 5.0  # root mean squares at which a feature is cut off


class Mixing(NamedTuple):
    """A gate between the frozen and the adapted forecast, and what it has let through: origins as in `Models`."""

    state: GateState  # (series, model, block, expert)
    adapted: Tensor  # (series, model, origin, lead) float64: before mixing
    mixed: Tensor  # (series, model, origin, lead) float64


class Intervals(NamedTuple):
    """Offsets of interval ends, and the intervals that wait for their truth: before and after calibration."""

    state: CalibrationState  # (series, model, level, end, lead)
    given: Tensor  # (series, model, level, end, origin, lead) float64
    issued: Tensor  # (series, model, level, end, origin, lead) float64


class Models(NamedTuple):
    """What is kept of each model's forecasts; origins are the latest h, the latest first."""

    frozen: Tensor  # (series, model, origin, lead) float64, NaN where nothing was issued
    errors: Tensor  # (series, model, origin, block, speed) float64: running means of residuals as of each origin
    theta: Tensor  # (series, model, block, J, feature + 1) float64
    statistics: ARUState  # (series, model, block, J, ...)
    mixing: Mixing | tuple[()]
    intervals: Intervals | tuple[()]


class AdapterState(NamedTuple):
    """Everything that is kept of some series."""

    last: Tensor  # (series,) int64: time of the latest row
    steps: Tensor  # (series,) int64: rows since the first; -1 before it
    count: Tensor  # type: ignore[assignment]  # (series,) float64: number of observations; hides tuple.count
    mean: Tensor  # (series, origin) float64: running mean of y
    y: Tensor  # (series, row) float64: the latest values, NaN where missing
    ds: Tensor  # (series, row) int64
    models: Models


class Issued(NamedTuple):
    """Forecasts of some origins, NaN where there are none."""

    point: Tensor  # (origin, model, lead) float64
    ends: Tensor  # (origin, model, level, end, lead) float64


class Adaptation:
    """The equations for one horizon, season and set of models and levels."""

    def __init__(
        self,
        h: int,
        season: int | None,
        alphas: tuple[float, ...],
        ridge: float,
        models: int,
        levels: tuple[float, ...] = (),
        gated: bool = False,
        calibrated: bool = False,
    ) -> None:
        self.h, self.models, self.levels, self.gated, self.calibrated = h, models, levels, gated, calibrated
        self.cell = ARUCell(FEATURES, alphas, ridge)
        self.window = season if season and season > 3 else max(h, 8)
        lead = torch.arange(1, h + 1)
        self.block = gate.blocks(h)
        self.blocks = int(self.block[-1]) + 1
        back = lead if season is None else season * -(-lead // season)
        self.seasonal = lead - back  # of the value that repeats at the target, counted from the origin
        self.rows = max(h + self.window, int(back.max())) + 1
        width = int(torch.bincount(self.block).max())
        members = 2 ** torch.arange(self.blocks)[:, None] - 1 + torch.arange(width)
        inside = members.clamp(max=h - 1)
        self.valid = (members < h) & (self.block[inside] == torch.arange(self.blocks)[:, None])
        self.members = torch.where(self.valid, inside, 0)  # (block, width): leads of each block, counted from 0
        self.share = torch.tensor([(100 - level) / 200 for level in levels], dtype=torch.float64)[:, None, None]

    def empty(self, n: int) -> AdapterState:
        """States of series that have seen nothing."""
        h, M, B, L = self.h, self.models, self.blocks, len(self.levels)
        fresh = self.cell.init_state(n * M * B)
        statistics = ARUState(*(v.reshape(n, M, B, *v.shape[1:]) for v in fresh))
        mixing = Mixing(gate.new_gate(n, M, B, 2), _nan(n, M, h, h), _nan(n, M, h, h))
        waiting = _nan(n, M, L, 2, h, h)
        intervals = Intervals(calibration.new_calibration(n, M, L, h), waiting, waiting)
        return AdapterState(
            last=torch.zeros(n, dtype=torch.int64),
            steps=torch.full((n,), -1),
            count=torch.zeros(n, dtype=torch.float64),
            mean=torch.zeros(n, h, dtype=torch.float64),
            y=_nan(n, self.rows),
            ds=torch.zeros(n, self.rows, dtype=torch.int64),
            models=Models(
                frozen=_nan(n, M, h, h),
                errors=torch.zeros(n, M, h, B, len(SPEEDS), dtype=torch.float64),
                theta=torch.zeros_like(statistics.sxy),
                statistics=statistics,
                mixing=mixing if self.gated else (),
                intervals=intervals if self.calibrated else (),
            ),
        )

    @torch.no_grad()
    def observe(self, state: AdapterState, ds: Tensor, y: Tensor) -> AdapterState:
        """One row of every series, NaN where the value is missing: what was forecast for it matures."""
        models = state.models
        frozen = _matured(models.frozen)
        history = _push(state.y, y)
        then = models.errors[:, :, torch.arange(self.h), self.block]
        x = self._features(history, -torch.arange(1, self.h + 1), frozen, state.mean, then)
        overlap = models.frozen.isfinite().any(3).cumsum(2).clamp(min=1)
        learned = self._learn(models, x, y[:, None, None] - frozen, 1 / overlap)
        seen = ~y.isnan()
        count = state.count + seen
        mean = state.mean[:, 0] + torch.where(seen, y - state.mean[:, 0], 0.0) / count.clamp(min=1)
        return AdapterState(
            last=ds,
            steps=state.steps + 1,
            count=count,
            mean=_shift(state.mean, mean, 1),
            y=history,
            ds=_push(state.ds, ds),
            models=learned._replace(
                mixing=self._mature_mixing(models.mixing, frozen, y) if isinstance(models.mixing, Mixing) else (),
                intervals=self._mature_intervals(models.intervals, y)
                if isinstance(models.intervals, Intervals)
                else (),
            ),
        )

    @torch.no_grad()
    def issue(self, state: AdapterState, given: Issued) -> tuple[AdapterState, Issued]:
        """Forecasts of every series from its latest row: remembered, and as they are after adaptation."""
        models, frozen = state.models, given.point
        now = torch.zeros(self.h, dtype=torch.int64)
        mean, errors = state.mean[:, :1].expand(-1, self.h), models.errors[:, :, 0, self.block]
        x = torch.nn.functional.pad(self._features(state.y, now, frozen, mean, errors), (0, 1), value=1.0)
        x = _within(x.unsqueeze(3), _root_mean_square(models.statistics)[:, :, self.block])
        correction = (models.theta[:, :, self.block] * x).sum(-1).mean(-1)
        mixing, intervals = models.mixing, models.intervals
        if isinstance(mixing, Mixing):
            adapted = frozen + correction
            correction = gate.weights(mixing.state)[:, :, self.block, 1] * correction
            mixing = mixing._replace(
                adapted=_replace_first(mixing.adapted, adapted, 2),
                mixed=_replace_first(mixing.mixed, frozen + correction, 2),
            )
        point, ends = frozen + correction, given.ends + correction[:, :, None, None]
        if isinstance(intervals, Intervals):
            moved = self._nested(calibration.move(intervals.state, self.share, ends))
            before, after = _replace_first(intervals.given, ends, 4), _replace_first(intervals.issued, moved, 4)
            intervals, ends = intervals._replace(given=before, issued=after), moved
        remembered = _replace_first(models.frozen, frozen, 2)
        models = models._replace(frozen=remembered, mixing=mixing, intervals=intervals)
        return state._replace(models=models), Issued(point, ends)

    def age(self, state: AdapterState, steps: Tensor) -> AdapterState:
        """Let steps pass that no pending forecast can see the end of: statistics age."""
        factor = self.cell.alphas ** steps[:, None]
        aged = (v * factor.reshape(len(v), 1, 1, -1, *(1,) * (v.ndim - 4)) for v in state.models.statistics)
        models = state.models._replace(statistics=ARUState(*aged))
        return state._replace(steps=state.steps + steps, models=models)

    def _features(self, y: Tensor, back: Tensor, frozen: Tensor, mean: Tensor, errors: Tensor) -> Tensor:
        """x of (series, model, lead) from values up to the origin, which lies `back` (at most 0) rows from the end."""
        at = self.rows - 1 + back
        known = ~y.isnan()
        total, number = torch.where(known, y, 0.0).cumsum(1), known.cumsum(1)
        number = number[:, at] - number[:, at - self.window]
        level = (total[:, at] - total[:, at - self.window]) / number
        values = torch.stack([y[:, at], level, y[:, at + self.seasonal], mean], -1)  # (series, lead, .)
        changes = y[:, at, None] - torch.stack([y[:, at - 1], y[:, at - self.window]], -1)
        changes = changes.unsqueeze(1).expand(*frozen.shape, 2)
        x = torch.cat([values.unsqueeze(1) - frozen.unsqueeze(-1), changes, errors], -1)
        return torch.nan_to_num(x, nan=0.0)

    def _learn(self, models: Models, x: Tensor, residual: Tensor, weight: Tensor) -> Models:
        """Rows (series, model, lead) that have matured enter the statistics of their blocks."""
        e = residual[:, :, self.members]  # (series, model, block, width)
        mask = ~e.isnan() & self.valid
        number = mask.sum(-1)
        share = weight[:, :, self.members] / number.clamp(min=1).unsqueeze(-1)
        flat = [v.flatten(0, 2) for v in (x[:, :, self.members], e, mask, share)]
        old = ARUState(*(v.flatten(0, 2) for v in models.statistics))
        new = self.cell.absorb_step(old, models.theta.flatten(0, 2), *flat)
        shape = e.shape[:3]
        theta = _solve(self.cell, new).reshape(models.theta.shape)
        statistics = ARUState(*(v.reshape(*shape, *v.shape[1:]) for v in new))
        error = torch.where(mask, e, 0.0).sum(-1) / number.clamp(min=1)
        change = (error.unsqueeze(-1) - models.errors[:, :, 0]) * torch.tensor(SPEEDS, dtype=torch.float64)
        errors = models.errors[:, :, 0] + torch.where((number > 0).unsqueeze(-1), change, 0.0)
        frozen = _shift(models.frozen, torch.full_like(models.frozen[:, :, 0], torch.nan), 2)
        return models._replace(
            frozen=frozen, errors=_shift(models.errors, errors, 2), theta=theta, statistics=statistics
        )

    def _mature_mixing(self, mixing: Mixing, frozen: Tensor, y: Tensor) -> Mixing:
        """The gates learn from the mean over the leads of a block that matured."""
        experts = torch.stack([frozen, _matured(mixing.adapted)], -1)
        r = gate.regret(_matured(mixing.mixed), experts, y[:, None, None])[:, :, self.members]
        mask = self.valid & ~r.isnan().any(-1)
        r = torch.where(mask.unsqueeze(-1), r, 0.0).sum(3) / mask.sum(-1, keepdim=True).clamp(min=1)
        none = torch.full_like(frozen, torch.nan)
        return Mixing(gate.update(mixing.state, r), _shift(mixing.adapted, none, 2), _shift(mixing.mixed, none, 2))

    def _nested(self, ends: Tensor) -> Tensor:
        """Calibrated (*, level, end, lead) intervals, of which a wider one never ends inside a narrower one."""
        order = sorted(range(len(self.levels)), key=self.levels.__getitem__)
        low, high = ends[:, :, order].unbind(3)
        low = low.nan_to_num(nan=torch.inf).cummin(2).values
        high = high.nan_to_num(nan=-torch.inf).cummax(2).values
        nested = torch.stack([low, high], 3)[:, :, torch.tensor(order).argsort()]
        return torch.where(ends.isnan(), ends, nested)

    def _mature_intervals(self, intervals: Intervals, y: Tensor) -> Intervals:
        given, issued = _matured(intervals.given), _matured(intervals.issued)
        state = calibration.update(intervals.state, self.share, given, issued, y.reshape(-1, 1, 1, 1, 1))
        none = torch.full_like(given, torch.nan)
        return Intervals(state, _shift(intervals.given, none, 4), _shift(intervals.issued, none, 4))


def grow(old: AdapterState, room: AdapterState) -> AdapterState:
    """States with room for models or levels that came after those they have; `room` is as large, and empty."""

    def fill(value: Tensor, new: Tensor) -> Tensor:
        filled = new.clone()
        filled[tuple(slice(size) for size in value.shape)] = value
        return filled

    return tree_map(fill, old, room)


def _root_mean_square(state: ARUState) -> Tensor:
    """Of every feature, for each J: zero where nothing was seen."""
    number = state.sn.clamp(min=torch.finfo(torch.float64).tiny).unsqueeze(-1)
    return (state.sxx.diagonal(dim1=-2, dim2=-1) / number).sqrt()


def _within(x: Tensor, size: Tensor) -> Tensor:
    """Features no larger than what the statistics know: no correction from far outside."""
    return torch.maximum(torch.minimum(x, LIMIT * size), -LIMIT * size)


def _solve(cell: ARUCell, state: ARUState) -> Tensor:
    """theta with the ridge in units of observations: every feature is divided by its root mean square."""
    size = _root_mean_square(state)
    scale = torch.where(size > 0, 1 / size, 1.0)
    sxx = state.sxx * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    theta, _ = cell.solve(state._replace(sxx=sxx, sxy=state.sxy * scale))
    return theta * scale  # zero where the solve failed: the frozen forecast stands


def _nan(*shape: int) -> Tensor:
    return torch.full(shape, torch.nan, dtype=torch.float64)


def _matured(pending: Tensor) -> Tensor:
    """(*, origin, lead) -> (*, lead): lead k was issued k steps ago."""
    return pending.diagonal(dim1=-2, dim2=-1)


def _push(old: Tensor, new: Tensor) -> Tensor:
    """(series, row) with one row added at the end and the first one dropped."""
    return torch.cat([old[:, 1:], new[:, None]], 1)


def _shift(old: Tensor, new: Tensor, dim: int) -> Tensor:
    """The latest h origins with a new one in front."""
    return torch.cat([new.unsqueeze(dim), old.narrow(dim, 0, old.shape[dim] - 1)], dim)


def _replace_first(old: Tensor, new: Tensor, dim: int) -> Tensor:
    """The latest origin replaced."""
    return torch.cat([new.unsqueeze(dim), old.narrow(dim, 1, old.shape[dim] - 1)], dim)
