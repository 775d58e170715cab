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

FOLLOWED_LEVELS = (50.0, 80.0, 90.0, 95.0)  # central intervals whose ends are the knots of calibration
HUGE = 1e150  # squares of larger numbers overflow
SAME_IN_FLOAT32 = 1e-4  # relative difference below which forecasts of float32 networks count as equal: mostly rounding


def usable(values: Any) -> Any:
    """Which errors, values and forecasts can be learned from and scored: not NaN, infinite or absurdly large."""
    return abs(values) < HUGE


class Learned(NamedTuple):
    """What was learned by comparing forecasts with actual values."""

    gate: GateState | tuple[()]  # (*, block, expert)
    calibration: CalibrationState | tuple[()]


class Judge:
    """Gate and calibration of one horizon. The last expert is the one with all that was learned.

    Experts whose relative difference is below `same`, which is mostly rounding, count as equal. Calibration knows a
    forecast by its median and the ends of central intervals of some levels: the knots, from low to high. `by_lead`: it
    keeps blocks of leads apart, which is for forecasts from every step. Where origins are h steps apart and h is a day,
    leads are hours, and what is learned of an hour would be said of a lead.
    """

    def __init__(
        self, h: int, levels: Sequence[float], experts: int, calibrated: bool, same: float, by_lead: bool
    ) -> None:
        self.experts, self.calibrated, self.h, self.same = experts, calibrated, h, same
        self.block = gate.blocks(h)
        self.blocks = int(self.block[-1]) + 1
        self.scored = self.block if by_lead else torch.zeros_like(self.block)  # block of calibration, by lead
        self.levels = tuple(levels)
        self.order = sorted(range(len(levels)), key=lambda i: levels[i])
        ends = [(100 + levels[i]) / 200 for i in self.order]
        self.quantiles = [*(1 - q for q in reversed(ends)), 0.5, *ends]  # of the knots
        self.z = torch.special.ndtri(torch.tensor(self.quantiles, dtype=torch.float64))

    @property
    def gated(self) -> bool:
        """Whether there are experts to choose from."""
        return self.experts > 1

    def empty(self, *shape: int) -> Learned:
        """The initial state: experts have their first weights, intervals are unchanged."""
        gates = gate.new_gate(*shape, self.blocks, self.experts)
        counts = calibration.new_calibration(self._k, *shape, int(self.scored[-1]) + 1)
        return Learned(gates if self.gated else (), counts if self.calibrated else ())

    def weights(self, learned: Learned) -> Tensor | None:
        """(*, lead, expert) weights; None without a gate."""
        if not isinstance(learned.gate, GateState):
            return None
        weights: Tensor = gate.weights(learned.gate)[..., self.block.to(learned.gate.gain.device), :]
        return weights

    def shift(self, learned: Learned, common: Tensor | None, knots: Tensor, quantiles: Sequence[float]) -> Tensor:
        """(*, lead, q): by how much calibration moves quantiles of forecasts with these (*, lead, knot) values.

        `common` (block, bin) is what series have in common; None: nothing is known of that.
        """
        if not isinstance(learned.calibration, CalibrationState) or not self.levels:
            return knots.new_zeros(*knots.shape[:-1], len(quantiles))
        z, knots = self.z.to(knots.device), calibration.tidy(knots, self.z.to(knots.device))
        at = torch.special.ndtri(torch.tensor(list(quantiles), dtype=torch.float64, device=knots.device))
        moved = self._calibrated(learned.calibration, common, at)[..., self.scored.to(knots.device), :]
        at = at.expand(*knots.shape[:-1], len(at))
        return calibration.value_at(knots, z, moved.expand_as(at)) - calibration.value_at(knots, z, at)

    def _calibrated(self, state: CalibrationState, common: Tensor | None, at: Tensor) -> Tensor:
        """(*, block, v) calibrated deviates of nominal ones (v,)."""
        counts, z = state.counts.double(), self.z.to(at.device)
        own = counts.sum(-1, keepdim=True)
        drift = self.knots(own.new_zeros(own.shape[:-1]), state.drift.double())  # (*, block, knot)
        at = at.expand(*counts.shape[:-1], len(at))
        drift = calibration.value_at(drift, z, at.clamp(z[0], z[-1]))
        if common is not None:
            counts = counts + common.to(counts)
            drift = drift * own / counts.sum(-1, keepdim=True).clamp(min=1)
        moved = calibration.calibrated(counts, at + at.sign() * drift)
        return at.sign() * (at.sign() * moved).clamp(min=0)  # ends stay on their side of the median, which stays

    def move(self, learned: Learned, common: Tensor | None, point: Tensor, ends: Tensor) -> Tensor:
        """Calibrated (*, level, end, lead) intervals. Intervals of higher levels contain those of lower levels."""
        if not isinstance(learned.calibration, CalibrationState) or not self.levels:
            return ends
        offset = self.shift(learned, common, self.knots(point, ends), self.quantiles).movedim(-1, -2)
        low, high = self._by_level(ends) + torch.stack([offset[..., : self._k, :].flip(-2), offset[..., -self._k :, :]])
        middle = (low + high) / 2
        low, high = torch.minimum(low, middle), torch.maximum(high, middle)
        low = low.nan_to_num(nan=torch.inf).cummin(-2).values
        high = high.nan_to_num(nan=-torch.inf).cummax(-2).values
        back = [self.order.index(i) for i in range(self._k)]
        nested = torch.stack([low[..., back, :], high[..., back, :]], -2)
        return torch.where(ends.isnan(), ends, nested)

    def knots(self, point: Tensor, ends: Tensor) -> Tensor:
        """(*, lead, knot) values, from (*, lead) medians and (*, level, end, lead) intervals."""
        low, high = self._by_level(ends)
        return torch.cat([low.flip(-2), point.unsqueeze(-2), high], -2).movedim(-2, -1)

    def learn(
        self, learned: Learned, experts: Tensor, knots: Tensor, y: Tensor, rounds: Tensor | None = None
    ) -> Learned:
        """Compare forecasts with actual values. NaN in either is skipped.

        `experts` are the (*, lead, expert) medians, `knots` the (*, lead, knot) values of what was forecast before
        calibration, `y` the (*, lead) actual values. Those of a block count for `rounds` (block,) rounds of feedback.
        """
        y = torch.where(usable(y), y, torch.nan)
        rounds = torch.ones(self.blocks, dtype=torch.float64, device=y.device) if rounds is None else rounds
        if isinstance(learned.gate, GateState):
            loss = (experts - y.unsqueeze(-1)).abs()
            loss = torch.where(self._differ(experts), loss, loss.mean(-1, keepdim=True))
            learned = learned._replace(gate=gate.update(learned.gate, self._by_block(loss), rounds))
        if isinstance(learned.calibration, CalibrationState) and self.levels:
            learned = learned._replace(calibration=self._learn_scores(learned.calibration, knots, y, rounds))
        return learned

    def _learn_scores(self, state: CalibrationState, knots: Tensor, y: Tensor, rounds: Tensor) -> CalibrationState:
        z, block = self.z.to(y.device), self.scored.to(y.device)
        rounds = rounds[: int(self.scored[-1]) + 1]
        own = self._calibrated(state, None, z)[..., block, :]  # what the series alone would have issued
        found = calibration.spans(calibration.tidy(knots, z), z, y, own[..., [0, -1]])
        below, number = found.below(own, block)
        low, high = below[..., : self._k].flip(-1), 1 - below[..., -self._k :]
        missed = torch.stack([low, high], -1)[..., [self.order.index(i) for i in range(self._k)], :].movedim(-3, -1)
        share = torch.tensor([(100 - level) / 200 for level in self.levels], device=y.device)[:, None, None]
        drift = (state.drift + calibration.MISS_RATE * rounds * (missed - share)).to(state.drift)
        drift = drift.clamp(-calibration.MOST_DRIFT, calibration.MOST_DRIFT)
        drift = torch.where((number > 0).squeeze(-1)[..., None, None, :], drift, state.drift)
        return CalibrationState(calibration.add(state.counts, found, block, rounds), drift)

    @property
    def _k(self) -> int:
        return len(self.levels)

    def _by_level(self, ends: Tensor) -> Tensor:
        """(end, *, level, lead) with rising levels."""
        return ends[..., self.order, :, :].movedim(-2, 0)

    def _by_block(self, loss: Tensor) -> Tensor:
        """(*, lead, expert) -> (*, block, expert): means over the leads that have an actual value; NaN without any."""
        known: Tensor = usable(loss).all(-1, keepdim=True)
        member = torch.nn.functional.one_hot(self.block).T.to(loss)  # (block, lead)
        return member @ torch.where(known, loss, 0.0) / (member @ known.to(loss))

    def _differ(self, experts: Tensor) -> Tensor:
        """(*, lead, expert) -> (*, lead, 1): whether experts differ by more than rounding.

        Where a series is forecast without any error, rounding would be all that a gate has to learn from.
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
    failed: Tensor  # (expert, series) bool: the local solve failed


Forecasting = Callable[[SeriesState, Rows, Sequence[float]], Experts]


class Followed(NamedTuple):
    """The origin whose forecast waits for actual values, and what was learned from earlier ones."""

    origin: SeriesState  # without observations (count 0) if no forecast is pending
    learned: Learned


class Following:
    """Learns gate and calibration from a model's own forecasts. `whole` and `nonnegative` describe the values of y."""

    def __init__(self, h: int, gated: bool, calibrated: bool, whole: bool, nonnegative: bool) -> None:
        self.h, self.whole, self.nonnegative = h, whole, nonnegative
        self.judge = Judge(
            h, FOLLOWED_LEVELS if calibrated else (), 2 if gated else 1, calibrated, SAME_IN_FLOAT32, by_lead=False
        )
        self.quantiles = self.judge.quantiles  # needed in addition to those of the user

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
        made = forecast(followed.origin, ahead, self.quantiles)
        _, values = self._mix(followed.learned, made)
        y = torch.where(begun[:, None], y, torch.nan)
        medians = made.quantiles[:, len(self.quantiles) // 2].double().movedim(0, -1)
        return self.judge.learn(followed.learned, medians, self._possible(values).double().movedim(0, -1), y)

    def pooled(self, followed: Followed) -> Tensor | None:
        """What series have in common, for the intervals of all of them; None without calibration."""
        learned = followed.learned.calibration
        return calibration.pooled(learned.counts) if isinstance(learned, CalibrationState) else None

    def issue(
        self, followed: Followed, common: Tensor | None, made: Experts, quantiles: Sequence[float]
    ) -> tuple[Tensor, Tensor]:
        """Mean and quantiles after gate and calibration. `made` has the user's quantiles, then `self.quantiles`."""
        mean, values = self._mix(followed.learned, made)
        asked, knots = values.split([len(quantiles), len(self.quantiles)])
        if self.judge.calibrated:
            knots = self._possible(knots).double().movedim(0, -1)
            wanted = [*quantiles, *self.quantiles]
            moved = self.judge.shift(followed.learned, common, knots, wanted).movedim(-1, 0)
            tracked = knots.movedim(-1, 0) + moved[len(quantiles) :]
            asked = self._order(asked + moved[: len(quantiles)], tracked, quantiles)
        return mean, asked

    def _mix(self, learned: Learned, made: Experts) -> tuple[Tensor, Tensor]:
        """Means and quantiles, mixed by the gate. Quantiles are averaged, as in an ensemble."""
        weights = self.judge.weights(learned)
        if weights is None:
            return made.mean[0], made.quantiles[0]
        by_expert = weights.movedim(-1, 0)  # (expert, series, lead)
        return (by_expert * made.mean).sum(0), (by_expert.unsqueeze(1) * made.quantiles).sum(0)

    def _order(self, values: Tensor, tracked: Tensor, quantiles: Sequence[float]) -> Tensor:
        """Sort quantiles and restrict them to values of y. Inner quantiles are moved into the narrowest interval."""
        q = torch.tensor(quantiles, dtype=torch.float64, device=values.device)
        middle = len(self.quantiles) // 2
        low, high = tracked[middle - 1], tracked[middle + 1]
        low, high = torch.minimum(low, high), torch.maximum(low, high)
        inside = ((q - 0.5).abs() < self.quantiles[middle + 1] - 0.5)[:, None, None]
        values = torch.where(inside, torch.minimum(torch.maximum(values, low), high), values)
        by_size = q.argsort()
        return self._possible(values.index_copy(0, by_size, values[by_size].sort(0).values))

    def _possible(self, values: Tensor) -> Tensor:
        values = values.clamp(min=0) if self.nonnegative else values
        return values.round() if self.whole else values
