"""Corrections of another model's forecasts, learned per series and block of leads as actual values arrive.

At origin o a frozen model issues f_k for the leads k = 1 .. h. Its errors are regressed on what is known at the origin:

    x_k = [last - f_k, level - f_k, seasonal_k - f_k, mean - f_k, step, turn, fast error, slow error]
    adapted_k = f_k + theta . [x_k, 1]

last is the latest value, level the mean of the latest season, seasonal_k the latest value a whole number of seasons
before the target, mean the mean of all values. step is last minus the value before it, turn is last minus the value a
season before. The errors are running means of past residuals of the same block of leads. All are differences: a
constant added to series and forecasts changes nothing. Leads of a block (1, 2-3, 4-7, 8-15, ...) share theta, the ARU
cell's ridge solution with aged statistics. Features are divided by their root mean square, so that the ridge is in
units of observations, and cut off at five times that. Overlapping forecasts of a time share the weight of one.

When a value arrives, lead k learns from the forecast issued k steps before. Until then forecasts wait in the state. All
functions work on many series and models at once: they take a state and return a new one.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aru.adapter_settings import AdapterSettings
from aru.data.columns import Ints
from aru.data.frequency import Frequency
from aru.data.jumps import untrained_jump
from aru.data.model_columns import Issued
from aru.data.rows import Ragged, Rows, Static
from aru.data.schema import Schema
from aru.nn.cell import ARUCell, ARUState
from aru.nn.tree import concat, put, take, tree_map
from aru.nn.windows import Context
from aru.runtime.engine import Engine
from aru.runtime.state import empty_context, move_on
from aru.runtime.truth import Judge, Learned, usable

FEATURES = 8
SPEEDS = (0.5, 0.05)  # weight of the newest residual in the fast and the slow running mean
FEATURE_LIMIT = 5.0  # root mean squares at which a feature is cut off
SAME_IN_FLOAT64 = 1e-12  # relative difference below which forecasts count as equal; corrections are float64


class Pending(NamedTuple):
    """Forecasts that wait for their actual values, of the latest h origins, latest first. NaN where there is none."""

    frozen: Tensor  # (series, model, origin, lead) float64: as given
    adapted: Tensor | tuple[()]  # with the full correction, for a gate
    mixed: Tensor | tuple[()]  # as mixed by the gate, for calibration
    ends: Tensor | tuple[()]  # (series, model, level, end, origin, lead): intervals before calibration

    def fill(self, function: Callable[..., Tensor], *others: Sequence[Tensor]) -> Pending:
        """Apply a function to each field that is kept, and to the same fields of `others`."""
        parts = zip(self, *others, strict=True)
        kept: Any = (function(old, *new) if isinstance(old, Tensor) else () for old, *new in parts)
        return Pending(*kept)


class Models(NamedTuple):
    """The state of each model's forecasts and their correction."""

    pending: Pending
    errors: Tensor  # (series, model, origin, block, speed) float64: running means of residuals as of each origin
    theta: Tensor  # (series, model, block, J, feature + 1) float64
    statistics: ARUState  # (series, model, block, J, ...)
    learned: Learned  # (series, model, ...)


class AdapterState(NamedTuple):
    """The state of several series in an adapter."""

    last: Tensor  # (series,) int64: time of the latest row
    steps: Tensor  # (series,) int64: rows since the first; -1 before it
    context: Context  # the latest values
    mean: Tensor  # (series, origin) float64: running mean of y
    models: Models


class CorrectionEngine(Engine):
    """The equations for one horizon, season and set of models and levels."""

    def __init__(
        self,
        settings: AdapterSettings,
        season: int | None,
        models: int,
        levels: tuple[float, ...],
        kinds: tuple[bool, bool],
        freq: Frequency,
    ) -> None:
        """`kinds`: whether ids are integers, and whether times are datetimes."""
        h = settings.h
        self.settings, self.models, self.h = settings, models, h
        self.device, self.said = torch.device("cpu"), set()
        calibrated = settings.calibration is not None
        self.judge = Judge(h, levels, 2 if settings.gate else 1, calibrated, SAME_IN_FLOAT64, by_lead=True)
        self.rounds = 0.5 ** torch.arange(self.judge.blocks).double()  # a step: forecasts overlap
        self.cell = ARUCell(FEATURES, settings.alphas, settings.ridge)
        self.window = season if season and season > 3 else max(h, 8)
        lead = torch.arange(1, h + 1)
        self.block, self.blocks = self.judge.block, self.judge.blocks
        back = lead if season is None else season * -(-lead // season)
        self.seasonal = lead - back  # position of the seasonal value, relative to the origin
        self.rows = max(h + self.window, int(back.max())) + 1
        self.max_gap = self.rows + h
        width = int(torch.bincount(self.block).max())
        members = 2 ** torch.arange(self.blocks)[:, None] - 1 + torch.arange(width)
        inside = members.clamp(max=h - 1)
        self.valid = (members < h) & (self.block[inside] == torch.arange(self.blocks)[:, None])
        self.members = torch.where(self.valid, inside, 0)  # (block, width): leads of each block, counted from 0
        self.schema = Schema(
            input_size=self.rows,
            lags=(),
            distribution="student-t",
            datetime=kinds[1],
            integer_ids=kinds[0],
            nonnegative=False,
            integer=False,
            unit=1.0,
            typical_scale=1.0,
            zone=freq.clock.zone if freq.clock.utc else None,
            jump=untrained_jump(freq.freq, kinds[1], self.max_gap),
            calendar=(),
            futr=((), ()),
            hist=((), ()),
            stat=((), ()),
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the settings. Models and levels are not part of it, since they may be added later."""
        return hashlib.sha256(json.dumps(self.settings.to_json(), sort_keys=True).encode()).hexdigest()[:32]

    def empty(self, static: Static) -> AdapterState:
        """States of series without observations."""
        n, h, M, B, L = len(static.numbers), self.h, self.models, self.blocks, len(self.judge.levels)
        statistics = ARUState(*(v.unflatten(0, (n, M, B)) for v in self.cell.init_state(n * M * B)))
        point, ends = _nan(n, M, h, h), _nan(n, M, L, 2, h, h)
        gated, calibrated = self.judge.gated, self.judge.calibrated
        return AdapterState(
            last=torch.zeros(n, dtype=torch.int64),
            steps=torch.full((n,), -1),
            context=empty_context(self.schema, static, self.rows, 0, self.device),
            mean=torch.zeros(n, h, dtype=torch.float64),
            models=Models(
                pending=Pending(
                    frozen=point,
                    adapted=point if gated else (),
                    mixed=point if calibrated else (),
                    ends=ends if calibrated else (),
                ),
                errors=torch.zeros(n, M, h, B, len(SPEEDS), dtype=torch.float64),
                theta=torch.zeros_like(statistics.sxy),
                statistics=statistics,
                learned=self.judge.empty(n, M),
            ),
        )

    def begin(self, state: AdapterState, cutoff: Tensor) -> AdapterState:
        """Let series without observations begin at the cutoff of their first forecasts."""
        new = state.steps < 0
        rows = state.context.rows
        ds = torch.where(new[:, None], torch.cat([rows.ds[:, 1:], cutoff[:, None]], 1), rows.ds)
        return state._replace(
            last=torch.where(new, cutoff, state.last),
            steps=torch.where(new, 0, state.steps),
            context=state.context._replace(rows=rows._replace(ds=ds)),
        )

    def advance(self, state: AdapterState, data: Ragged, adapt: bool = True) -> AdapterState:
        """Take in new rows of each series and learn from the forecasts that were issued for them."""
        return self.replay(state, data)[0]

    @torch.no_grad()
    def replay(
        self, state: AdapterState, data: Ragged, given: Issued | None = None, origin: Ints | None = None
    ) -> tuple[AdapterState, Issued | None]:
        """The states after all rows, and the forecasts in `given`, each adapted at its origin.

        `origin` is the index into `given` of the forecasts issued at each row, -1 for none. The loop is over time: all
        series advance by a step together.
        """
        order = torch.argsort(data.lengths, descending=True, stable=True)  # shortest series last
        state = take(state, order)
        starts, lengths = data.starts[order], data.lengths[order]
        out = None if given is None else Issued(*(torch.full_like(v, torch.nan) for v in given))
        done: list[AdapterState] = []
        for step in range(int(lengths.max()) if len(lengths) else 0):
            live = int((lengths > step).sum())
            if live < len(state.last):
                done.append(tree_map(lambda v, live=live: v[live:], state))
                state = tree_map(lambda v, live=live: v[:live], state)
            at = starts[:live] + step
            if data.skipped[at].any():
                state = self._age(state, data.skipped[at])
            state = self._observe(state, Rows(*(v[at].unsqueeze(1) for v in data.rows)))
            if given is None or out is None or origin is None:
                continue
            issued = torch.from_numpy(origin[at.numpy()])
            here = issued >= 0
            if here.any():
                now = Issued(*(torch.where(_as(here, v), v[issued], torch.nan) for v in given))
                state, adapted = self.issue(state, now)
                for values, new in zip(out, adapted, strict=True):
                    values[issued[here]] = new[here]
        return take(concat([state, *reversed(done)]), torch.argsort(order)), out

    @torch.no_grad()
    def issue(self, state: AdapterState, given: Issued) -> tuple[AdapterState, Issued]:
        """Adapt the forecasts of every series from its latest row, and keep them in the state as pending."""
        models, frozen, rows = state.models, given.point, state.context.rows
        now = torch.zeros(self.h, dtype=torch.int64)
        mean, errors = state.mean[:, :1].expand(-1, self.h), models.errors[:, :, 0, self.block]
        y = torch.where(rows.observed, rows.y, torch.nan)
        x = torch.nn.functional.pad(self._features(y, now, frozen, mean, errors), (0, 1), value=1.0)
        x = _within(x.unsqueeze(3), _root_mean_square(models.statistics)[:, :, self.block])
        correction = (models.theta[:, :, self.block] * x).sum(-1).mean(-1)
        weights = self.judge.weights(models.learned)
        part = correction if weights is None else weights[..., -1] * correction
        mixed, ends = frozen + part, given.ends + part[:, :, None, None]
        moved = self.judge.move(models.learned, None, mixed, ends)
        pending = models.pending.fill(_replace_first, (frozen, frozen + correction, mixed, ends))
        return state._replace(models=models._replace(pending=pending)), Issued(mixed, moved)

    def _observe(self, state: AdapterState, row: Rows) -> AdapterState:
        """Take in one (series, 1) row per series and learn from the forecasts that were issued for it."""
        models, pending = state.models, state.models.pending
        context = move_on(state.context, row)
        y = torch.where(row.observed, row.y, torch.nan)  # (series, 1)
        history = torch.where(context.rows.observed, context.rows.y, torch.nan)
        frozen = _matured(pending.frozen)
        then = models.errors[:, :, torch.arange(self.h), self.block]
        x = self._features(history, -torch.arange(1, self.h + 1), frozen, state.mean, then)
        overlap = pending.frozen.isfinite().any(3).cumsum(2).clamp(min=1)
        taught = self._learn(models, x, y.unsqueeze(1) - frozen, 1 / overlap)
        learned = self._judge(models.learned, pending, frozen, y)
        waiting = pending.fill(_shift)
        change = torch.where(row.observed, y - state.mean[:, :1], 0.0) / context.count.clamp(min=1).unsqueeze(1)
        mean = torch.cat([state.mean[:, :1] + change, state.mean[:, :-1]], 1)
        return AdapterState(
            row.ds[:, 0], state.steps + 1, context, mean, taught._replace(pending=waiting, learned=learned)
        )

    def _judge(self, learned: Learned, pending: Pending, frozen: Tensor, y: Tensor) -> Learned:
        """Compare the forecasts that were issued for a row with its (series, 1) value."""
        experts, knots = frozen.unsqueeze(-1), frozen.unsqueeze(-1)
        if isinstance(pending.adapted, Tensor):
            experts = torch.stack([frozen, _matured(pending.adapted)], -1)
        if isinstance(pending.mixed, Tensor) and isinstance(pending.ends, Tensor):
            knots = self.judge.knots(_matured(pending.mixed), _matured(pending.ends))
        return self.judge.learn(learned, experts, knots, y.unsqueeze(1).expand_as(frozen), self.rounds)

    def _age(self, state: AdapterState, steps: Tensor) -> AdapterState:
        """Age the statistics by skipped steps, after which no pending forecast has an actual value."""
        each = self.models * self.blocks
        flat = ARUState(*(v.flatten(0, 2) for v in state.models.statistics))
        aged = self.cell.age(flat, steps.repeat_interleave(each))
        statistics = ARUState(*(v.reshape(o.shape) for v, o in zip(aged, state.models.statistics, strict=True)))
        return state._replace(steps=state.steps + steps, models=state.models._replace(statistics=statistics))

    def _features(self, y: Tensor, back: Tensor, frozen: Tensor, mean: Tensor, errors: Tensor) -> Tensor:
        """Features x of (series, model, lead), from values up to the origin, which is row `back` <= 0 from the end."""
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
        """Add rows (series, model, lead) with their residuals to the statistics of their blocks."""
        e = residual[:, :, self.members]  # (series, model, block, width)
        mask = usable(e) & self.valid
        number = mask.sum(-1)
        share = weight[:, :, self.members] / number.clamp(min=1).unsqueeze(-1)
        features, target, known, weights = (v.flatten(0, 2) for v in (x[:, :, self.members], e, mask, share))
        old = ARUState(*(v.flatten(0, 2) for v in models.statistics))
        new = self.cell.absorb(old, models.theta.flatten(0, 2), features, target, known, weights, together=True)
        statistics = ARUState(*(v.unflatten(0, e.shape[:3]) for v in new))
        error = torch.where(mask, e, 0.0).sum(-1) / number.clamp(min=1)
        change = (error.unsqueeze(-1) - models.errors[:, :, 0]) * torch.tensor(SPEEDS, dtype=torch.float64)
        errors = models.errors[:, :, 0] + torch.where((number > 0).unsqueeze(-1), change, 0.0)
        return models._replace(
            errors=torch.cat([errors.unsqueeze(2), models.errors[:, :, :-1]], 2),
            theta=_solve(self.cell, new).reshape(models.theta.shape),
            statistics=statistics,
        )


def arrange(engine: CorrectionEngine, at: Ints, state: AdapterState, n: int) -> AdapterState:
    """States of `n` series: state i goes to position at[i] (-1: dropped); other positions are empty."""
    some = torch.from_numpy((at >= 0).nonzero()[0])
    return put(engine.empty(_no_static(n)), torch.from_numpy(at[at >= 0]), take(state, some))


def _no_static(n: int) -> Static:
    return Static(torch.zeros(n, 0), torch.zeros(n, 0, dtype=torch.int32))


def grow(old: AdapterState, room: AdapterState) -> AdapterState:
    """Copy states into `room`, larger empty states with place for new models or levels."""

    def fill(value: Tensor, new: Tensor) -> Tensor:
        filled = new.clone()
        filled[tuple(slice(size) for size in value.shape)] = value
        return filled

    return tree_map(fill, old, room)


def _as(which: Tensor, value: Tensor) -> Tensor:
    return which.reshape(-1, *(1,) * (value.ndim - 1))


def _root_mean_square(state: ARUState) -> Tensor:
    """Root mean square of every feature, for each J; zero for an empty state."""
    number = state.sn.clamp(min=torch.finfo(torch.float64).tiny).unsqueeze(-1)
    return (state.sxx.diagonal(dim1=-2, dim2=-1) / number).sqrt()


def _within(x: Tensor, size: Tensor) -> Tensor:
    """Cut features off at LIMIT times their root mean square: the regression does not extrapolate far."""
    return torch.maximum(torch.minimum(x, FEATURE_LIMIT * size), -FEATURE_LIMIT * size)


def _solve(cell: ARUCell, state: ARUState) -> Tensor:
    """theta with features divided by their root mean square, so that the ridge is in units of observations."""
    size = _root_mean_square(state)
    scale = torch.where(size > 0, 1 / size, 1.0)
    sxx = state.sxx * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    theta, _ = cell.solve(state._replace(sxx=sxx, sxy=state.sxy * scale))
    return theta * scale  # zero where the solve failed, which leaves the frozen forecast


def _nan(*shape: int) -> Tensor:
    return torch.full(shape, torch.nan, dtype=torch.float64)


def _matured(pending: Tensor) -> Tensor:
    """(*, origin, lead) -> (*, lead): for each lead k the forecast issued k steps ago."""
    return pending.diagonal(dim1=-2, dim2=-1)


def _shift(old: Tensor) -> Tensor:
    """Drop the oldest of h origins (second to last dimension) and put an empty one in front."""
    empty = torch.full_like(old[..., :1, :], torch.nan)
    return torch.cat([empty, old[..., :-1, :]], -2)


def _replace_first(old: Tensor, new: Tensor) -> Tensor:
    """Replace the latest origin."""
    return torch.cat([new.unsqueeze(-2), old[..., 1:, :]], -2)
