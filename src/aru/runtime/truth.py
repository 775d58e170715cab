"""Learns gate and calibration by comparing past forecasts with actual values.

    Judge      the gate weights and interval offsets, learned from forecasts and actual values. It serves a model's own
               forecasts (`Following`) and those of other models (`aru.runtime.correction`).
    what_came  the rows after an origin, to repeat the forecast from there.
    Following  compares a model's own forecasts with actual values. Every h rows, from a series' first value on, it
               keeps the state as an origin. After h more rows it makes the forecast that `predict` would have given at
               that origin, with the covariates that came with the rows, and compares it with their values. So it needs
               no future covariates, does not depend on calls of `predict`, and completes one window before the next.

All functions work on many series at once: they take a state and return a new one. `aru.runtime.gate` and
`aru.runtime.calibration` have the equations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aru.data.rows import Rows
from aru.data.schema import Schema
from aru.nn.tree import put, take, tree_map
from aru.runtime import calibration, gate
from aru.runtime.calibration import CalibrationState
from aru.runtime.gate import GateState
from aru.runtime.state import SeriesState
from aru.settings import Settings

FOLLOWED_LEVELS = (50.0, 80.0, 90.0, 95.0)  # central intervals that are calibrated
HUGE = 1e150  # squares of larger numbers overflow
SAME_IN_FLOAT32 = 1e-4  # relative difference below which forecasts of float32 networks count as equal: mostly rounding


def usable(values: Any) -> Any:
    """Which errors, values and forecasts can be learned from and scored: not NaN, infinite or absurdly large."""
    return abs(values) < HUGE


class Learned(NamedTuple):
    """What was learned by comparing forecasts with actual values."""

    gate: GateState | tuple[()]  # (*, block, expert)
    calibration: CalibrationState | tuple[()]  # (*, level, end, lead)


class Judge:
    """Gate and calibration of one horizon and set of levels. Of two experts the second is the adapted forecast.

    Experts whose relative difference is below `same`, which is mostly rounding, count as equal.
    """

    def __init__(self, h: int, levels: Sequence[float], gated: bool, calibrated: bool, same: float) -> None:
        self.gated, self.calibrated, self.h, self.same = gated, calibrated, h, same
        self.block = gate.blocks(h)
        self.blocks = int(self.block[-1]) + 1
        self.levels = tuple(levels)
        self.share = torch.tensor([(100 - level) / 200 for level in levels], dtype=torch.float64)[:, None, None]

    def empty(self, *shape: int) -> Learned:
        """The initial state: experts have equal weight, intervals are unchanged."""
        gates = gate.new_gate(*shape, self.blocks, 2)
        offsets = calibration.new_calibration(*shape, len(self.levels), self.h)
        return Learned(gates if self.gated else (), offsets if self.calibrated else ())

    def weight(self, learned: Learned) -> Tensor | None:
        """(*, lead) weight of the adapted forecast; None without a gate."""
        if not isinstance(learned.gate, GateState):
            return None
        weights: Tensor = gate.weights(learned.gate)[..., self.block.to(learned.gate.gain.device), 1]
        return weights

    def move(self, learned: Learned, ends: Tensor) -> Tensor:
        """Calibrated (*, level, end, lead) intervals. Intervals of higher levels contain those of lower levels."""
        if not isinstance(learned.calibration, CalibrationState) or not self.levels:
            return ends
        moved = calibration.move(learned.calibration, self.share.to(ends.device), ends)
        order = torch.tensor(self.levels).argsort()
        low, high = moved[..., order, :, :].unbind(-2)
        low = low.nan_to_num(nan=torch.inf).cummin(-2).values
        high = high.nan_to_num(nan=-torch.inf).cummax(-2).values
        nested = torch.stack([low, high], -2)[..., order.argsort(), :, :]
        return torch.where(moved.isnan(), moved, nested)

    def learn(
        self, learned: Learned, experts: Tensor, mixed: Tensor, given: Tensor, issued: Tensor, y: Tensor
    ) -> Learned:
        """Compare forecasts with actual values. NaN in either is skipped.

        `experts` are (*, lead, expert) forecasts and `mixed` their (*, lead) mixture. `given` and `issued` are the
        (*, level, end, lead) intervals before and after calibration, `y` the (*, lead) actual values.
        """
        y = torch.where(usable(y), y, torch.nan)
        if isinstance(learned.gate, GateState):
            r = gate.regret(mixed, experts, y)
            r = torch.where(self._differ(experts) | r.isnan(), r, 0.0)
            learned = learned._replace(gate=gate.update(learned.gate, self._by_block(r)))
        if isinstance(learned.calibration, CalibrationState):
            share = self.share.to(y.device)
            new = calibration.update(learned.calibration, share, given, issued, y[..., None, None, :])
            learned = learned._replace(calibration=new)
        return learned

    def _by_block(self, r: Tensor) -> Tensor:
        """(*, lead, expert) -> (*, block, expert): means over the leads that have an actual value."""
        known: Tensor = usable(r).all(-1, keepdim=True)
        member = torch.nn.functional.one_hot(self.block).T.to(r)  # (block, lead)
        return member @ torch.where(known, r, 0.0) / (member @ known.to(r)).clamp(min=1)

    def _differ(self, experts: Tensor) -> Tensor:
        """(*, lead, expert) -> (*, lead, 1): whether experts differ by more than rounding.

        A gate scales regrets by the largest one so far, so it must not learn from rounding errors.
        """
        size = experts.nan_to_num(nan=0.0).abs().amax((-2, -1), keepdim=True)
        return experts.amax(-1, keepdim=True) - experts.amin(-1, keepdim=True) > self.same * size


def what_came(origin: SeriesState, now: SeriesState, h: int) -> tuple[Rows, Tensor]:
    """The (series, h) rows after an origin as known at that origin, and their actual values, NaN where missing.

    They are read from the present context, which must reach back to the origin. Rows still to come are zero.
    """
    rows = now.context.rows
    kept = rows.y.shape[1]
    at = kept - (now.steps - origin.steps)[:, None] + torch.arange(h, device=now.steps.device)
    inside = (at >= 0) & (at < kept)
    each = torch.arange(len(at), device=at.device)[:, None]

    def pick(value: Tensor) -> Tensor:
        mask = inside.reshape(*inside.shape, *(1,) * (value.ndim - 2))
        picked = value[each, at.clamp(0, kept - 1)]
        return torch.where(mask, picked, torch.zeros((), dtype=value.dtype, device=value.device))

    came = Rows(*map(pick, rows))
    return came.ahead(), torch.where(came.observed, came.y, torch.nan)


class Experts(NamedTuple):
    """Forecasts before gate and calibration. With a gate there are two experts: unadapted, then adapted."""

    mean: Tensor  # (expert, series, h)
    quantiles: Tensor  # (expert, quantile, series, h)


Forecasting = Callable[[SeriesState, Rows, Sequence[float]], Experts]


class Followed(NamedTuple):
    """The origin whose forecast waits for actual values, and what was learned from earlier ones."""

    origin: SeriesState  # without observations (count 0) if no forecast is pending
    learned: Learned


class Following:
    """Learns gate and calibration from a model's own forecasts. `whole` and `nonnegative` describe the values of y."""

    def __init__(self, h: int, gated: bool, calibrated: bool, whole: bool, nonnegative: bool) -> None:
        self.h, self.whole, self.nonnegative = h, whole, nonnegative
        self.judge = Judge(h, FOLLOWED_LEVELS if calibrated else (), gated, calibrated, SAME_IN_FLOAT32)
        # Quantiles needed in addition to those of the user: low ends, then high ends.
        share = self.judge.share.flatten()
        self.quantiles = [*share.tolist(), *(1 - share).tolist()]

    @classmethod
    def of(cls, settings: Settings, schema: Schema) -> Following | None:
        """From a model's settings; None without gate and calibration."""
        if not settings.follows_forecasts:
            return None
        return cls(settings.h, settings.gate, settings.calibration is not None, schema.integer, schema.nonnegative)

    def begin(self, state: SeriesState) -> SeriesState:
        """Add the initial gate and calibration to states of series without observations."""
        learned = tree_map(lambda v: v.to(state.last.device), self.judge.empty(len(state.last)))
        return state._replace(followed=Followed(state, learned))

    def left(self, state: SeriesState) -> Tensor:
        """Rows until the window of each series is complete. Take in no more than these before `follow`."""
        return self.h - state.steps % self.h  # a series without any value is one row before its first origin

    def follow(self, state: SeriesState, forecast: Forecasting) -> SeriesState:
        """After rows were taken in: learn from windows that are complete."""
        return self._complete(state, state.steps % self.h == 0, forecast)

    def jump(self, state: SeriesState, steps: Tensor, forecast: Forecasting) -> SeriesState:
        """Before `steps` are skipped: learn from the rows of pending windows, then drop these.

        Skipped steps are followed by as many missing values as any forecast sees, so no pending forecast loses a value.
        """
        return self.forget(self._complete(state, steps > 0, forecast), steps > 0)

    def forget(self, state: SeriesState, which: Tensor | None = None) -> SeriesState:
        """Drop pending forecasts: rows up to the next origin are not learned from."""
        followed: Followed = state.followed
        context = followed.origin.context
        count = torch.zeros_like(context.count) if which is None else torch.where(which, 0.0, context.count)
        origin = followed.origin._replace(context=context._replace(count=count))
        return state._replace(followed=followed._replace(origin=origin))

    def _complete(self, state: SeriesState, which: Tensor, forecast: Forecasting) -> SeriesState:
        """Learn from the windows of series in `which`, and begin their next ones."""
        ended = which.nonzero().squeeze(-1)
        if len(ended) == 0:
            return state
        here = take(state, ended) if len(ended) < len(which) else state
        now = here._replace(followed=())
        fresh = Followed(now, self._learn(here.followed, now, forecast))
        return state._replace(followed=fresh if len(ended) == len(which) else put(state.followed, ended, fresh))

    def _learn(self, followed: Followed, now: SeriesState, forecast: Forecasting) -> Learned:
        """Compare pending forecasts with the rows after their origin."""
        begun = followed.origin.context.count > 0
        if not begun.any():
            return followed.learned
        ahead, y = what_came(followed.origin, now, self.h)
        made = forecast(followed.origin, ahead, self.quantiles or [0.5])
        mean, values = self._mix(followed.learned, made)
        given = _ends(values) if self.judge.calibrated else values.new_zeros(len(y), 0, 2, self.h)
        issued = self._possible(self.judge.move(followed.learned, given))
        y = torch.where(begun[:, None], y, torch.nan)
        return self.judge.learn(followed.learned, made.mean.movedim(0, -1), mean, given, issued, y)

    def issue(self, followed: Followed, made: Experts, quantiles: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Mean and quantiles after gate and calibration. `made` has the user's quantiles, then `self.quantiles`."""
        mean, values = self._mix(followed.learned, made)
        asked, tracked = values.split([len(quantiles), len(self.quantiles)])
        if self.judge.calibrated:
            given = _ends(tracked)
            moved = self.judge.move(followed.learned, given)
            asked = self._order(asked + self._between(moved - given, quantiles), moved, quantiles)
        return mean, asked

    def _mix(self, learned: Learned, made: Experts) -> tuple[Tensor, Tensor]:
        """Means and quantiles, mixed by the gate. Quantiles are averaged, as in an ensemble."""
        weight = self.judge.weight(learned)
        if weight is None:
            return made.mean[0], made.quantiles[0]
        mean, quantiles = (v[0] + weight * (v[1] - v[0]) for v in made)
        return mean, quantiles

    def _between(self, moved: Tensor, quantiles: Sequence[float]) -> Tensor:
        """Offset of each (quantile, series, lead), interpolated between calibrated levels; 0 for the median."""
        q = torch.tensor(quantiles, dtype=torch.float64, device=moved.device)
        z, known = torch.special.ndtri(q).abs(), torch.special.ndtri(1 - self.judge.share.flatten()).to(moved.device)
        above = torch.bucketize(z, known).clamp(1, len(known) - 1)
        part = ((z - known[above - 1]) / (known[above] - known[above - 1])).clamp(0, 1)[:, None, None]
        end = (q > 0.5).long()
        near, far = moved[:, above - 1, end].movedim(1, 0), moved[:, above, end].movedim(1, 0)
        return torch.where((q == 0.5)[:, None, None], 0.0, near + part * (far - near))

    def _order(self, values: Tensor, tracked: Tensor, quantiles: Sequence[float]) -> Tensor:
        """Sort quantiles and restrict them to values of y. Inner quantiles are moved into the narrowest interval."""
        q = torch.tensor(quantiles, dtype=torch.float64, device=values.device)
        low, high = tracked[:, 0].unbind(1)
        inside = ((q - 0.5).abs() < 0.5 - self.judge.share[0, 0, 0])[:, None, None]
        values = torch.where(inside, torch.minimum(torch.maximum(values, low), high), values)
        by_size = q.argsort()
        return self._possible(values.index_copy(0, by_size, values[by_size].sort(0).values))

    def _possible(self, values: Tensor) -> Tensor:
        values = values.clamp(min=0) if self.nonnegative else values
        return values.round() if self.whole else values


def _ends(values: Tensor) -> Tensor:
    """(low ends and then high ends, series, lead) -> (series, level, end, lead)."""
    ends: Tensor = values.double().unflatten(0, (2, -1))
    return ends.permute(2, 1, 0, 3)
