"""Forecasts that wait for their truth, and what is learned when it comes.

    Judge      learns from forecasts and what came: the weights of a gate, the offsets of intervals. One set of rules
               for a model's own forecasts (`Following`) and for those of other models (`aru.runtime.correction`).
    what_came  the rows that followed an origin, for a forecast that is made again from the state as it was there.
    Following  the forecasts of a model, from every h-th row of a series on, beginning with its first: the state as it
               was there waits. When h rows have come, the forecast is made that `predict` would have given there, with
               the covariates that came with the rows, and compared with what happened. So nothing needs to be known
               ahead, whoever asked for a forecast changes nothing, and one window of truth is complete before the next
               one begins: feedback is never late.

Everything works on many series at once; a state goes in, a state comes out. See `aru.runtime.gate` and
`aru.runtime.calibration` for the equations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

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

LEVELS = (50.0, 80.0, 90.0, 95.0)  # central intervals whose coverage is followed
HUGE = 1e150  # a regret whose square is no number teaches nothing
SAME = 1e-4  # forecasts of float32 networks that differ by less of their size are one: the rest is mostly rounding


class Learned(NamedTuple):
    """What was learned from forecasts and their truth."""

    gate: GateState | tuple[()]  # (*, block, expert)
    calibration: CalibrationState | tuple[()]  # (*, level, end, lead)


class Judge:
    """Gate and calibration of one horizon and set of levels. Of two experts the second is the adapted forecast.

    Experts that differ by less than `same` of their size, which is mostly rounding, are one.
    """

    def __init__(self, h: int, levels: Sequence[float], gated: bool, calibrated: bool, same: float) -> None:
        self.gated, self.calibrated, self.h, self.same = gated, calibrated, h, same
        self.block = gate.blocks(h)
        self.blocks = int(self.block[-1]) + 1
        self.levels = tuple(levels)
        self.share = torch.tensor([(100 - level) / 200 for level in levels], dtype=torch.float64)[:, None, None]

    def empty(self, *shape: int) -> Learned:
        """Nothing learned yet: experts weigh the same, intervals stay as they are."""
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
        """Calibrated (*, level, end, lead) intervals, of which a wider one never ends inside a narrower one."""
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
        """Compare forecasts with what came; NaN of either teaches nothing.

        (*, lead, expert) forecasts and their (*, lead) mixture, (*, level, end, lead) intervals before calibration and
        as they were issued, (*, lead) truth.
        """
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
        """(*, lead, expert) -> (*, block, expert): means over the leads that have feedback."""
        known = (r.abs() < HUGE).all(-1, keepdim=True)
        member = torch.nn.functional.one_hot(self.block).T.to(r)  # (block, lead)
        return member @ torch.where(known, r, 0.0) / (member @ known.to(r)).clamp(min=1)

    def _differ(self, experts: Tensor) -> Tensor:
        """(*, lead, expert) -> (*, lead, 1): where there is something to choose.

        A gate takes its unit from the largest regret that it has seen: it must not learn from roundings.
        """
        size = experts.nan_to_num(nan=0.0).abs().amax((-2, -1), keepdim=True)
        return experts.amax(-1, keepdim=True) - experts.amin(-1, keepdim=True) > self.same * size


def what_came(origin: SeriesState, now: SeriesState, h: int) -> tuple[Rows, Tensor]:
    """The (series, h) rows after an origin as a forecast sees them ahead, and their values, NaN where there are none.

    They are read off the present context, which must reach back to the origin. Rows still to come are zero.
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
    """Forecasts as models make them. With a gate there are two experts: an empty local state first."""

    mean: Tensor  # (expert, series, h)
    quantiles: Tensor  # (expert, quantile, series, h)


Forecasting = Callable[[SeriesState, Rows, Sequence[float]], Experts]


class Followed(NamedTuple):
    """The origin whose forecast waits for its truth, and what was learned from those before it."""

    origin: SeriesState  # one without observations where no forecast waits
    learned: Learned


class Following:
    """A model's own forecasts. `whole` and `nonnegative` say which values y can take."""

    def __init__(self, h: int, gated: bool, calibrated: bool, whole: bool, nonnegative: bool) -> None:
        self.h, self.whole, self.nonnegative = h, whole, nonnegative
        self.judge = Judge(h, LEVELS if calibrated else (), gated, calibrated, SAME)
        # Quantiles that are needed beside those a user asks for: low ends, then high ends.
        share = self.judge.share.flatten()
        self.quantiles = [*share.tolist(), *(1 - share).tolist()]

    @classmethod
    def of(cls, settings: Settings, schema: Schema) -> Following | None:
        """What a model's settings ask for; None where its forecasts are not followed."""
        if not settings.follows_forecasts:
            return None
        return cls(settings.h, settings.gate, settings.calibration is not None, schema.integer, schema.nonnegative)

    def begin(self, state: SeriesState) -> SeriesState:
        """States of series that have seen nothing, with room for what will be followed."""
        learned = tree_map(lambda v: v.to(state.last.device), self.judge.empty(len(state.last)))
        return state._replace(followed=Followed(state, learned))

    def left(self, state: SeriesState) -> Tensor:
        """Rows until the window of each series is complete: no more may be taken in before `follow`."""
        return self.h - state.steps % self.h  # a series without any value stands one row before its first origin

    def follow(self, state: SeriesState, forecast: Forecasting) -> SeriesState:
        """States that have just taken in rows: learn where a window is complete."""
        return self._complete(state, state.steps % self.h == 0, forecast)

    def jump(self, state: SeriesState, steps: Tensor, forecast: Forecasting) -> SeriesState:
        """`steps` without values are about to pass: what waits learns from the rows that it has, and is let go of.

        As many steps follow, one by one, as any forecast sees: no origin before them would meet a value.
        """
        return self.forget(self._complete(state, steps > 0, forecast), steps > 0)

    def forget(self, state: SeriesState, which: Tensor | None = None) -> SeriesState:
        """Let go of forecasts that wait: the rows to come are taken in without learning from them."""
        followed: Followed = state.followed
        context = followed.origin.context
        count = torch.zeros_like(context.count) if which is None else torch.where(which, 0.0, context.count)
        origin = followed.origin._replace(context=context._replace(count=count))
        return state._replace(followed=followed._replace(origin=origin))

    def _complete(self, state: SeriesState, which: Tensor, forecast: Forecasting) -> SeriesState:
        """Learn where a window is complete, and begin the next one."""
        ended = which.nonzero().squeeze(-1)
        if len(ended) == 0:
            return state
        here = take(state, ended) if len(ended) < len(which) else state
        now = here._replace(followed=())
        fresh = Followed(now, self._learn(here.followed, now, forecast))
        return state._replace(followed=fresh if len(ended) == len(which) else put(state.followed, ended, fresh))

    def _learn(self, followed: Followed, now: SeriesState, forecast: Forecasting) -> Learned:
        """Compare the forecasts that wait with the rows that followed them."""
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
        """Mean and quantiles as a user gets them. `made` has the given quantiles first, then those of `self`."""
        mean, values = self._mix(followed.learned, made)
        asked, tracked = values.split([len(quantiles), len(self.quantiles)])
        if self.judge.calibrated:
            given = _ends(tracked)
            moved = self.judge.move(followed.learned, given)
            asked = self._order(asked + self._between(moved - given, quantiles), moved, quantiles)
        return mean, asked

    def _mix(self, learned: Learned, made: Experts) -> tuple[Tensor, Tensor]:
        """Means, and quantiles: those of a mixture of two forecasts are mixed likewise, as in an ensemble."""
        weight = self.judge.weight(learned)
        if weight is None:
            return made.mean[0], made.quantiles[0]
        mean, quantiles = (v[0] + weight * (v[1] - v[0]) for v in made)
        return mean, quantiles

    def _between(self, moved: Tensor, quantiles: Sequence[float]) -> Tensor:
        """How far each (quantile, series, lead) moves: as its end at the levels around it, the median not at all."""
        q = torch.tensor(quantiles, dtype=torch.float64, device=moved.device)
        z, known = torch.special.ndtri(q).abs(), torch.special.ndtri(1 - self.judge.share.flatten()).to(moved.device)
        above = torch.bucketize(z, known).clamp(1, len(known) - 1)
        part = ((z - known[above - 1]) / (known[above] - known[above - 1])).clamp(0, 1)[:, None, None]
        end = (q > 0.5).long()
        near, far = moved[:, above - 1, end].movedim(1, 0), moved[:, above, end].movedim(1, 0)
        return torch.where((q == 0.5)[:, None, None], 0.0, near + part * (far - near))

    def _order(self, values: Tensor, tracked: Tensor, quantiles: Sequence[float]) -> Tensor:
        """In order, as values that y can take. A median outside the narrowest interval moves to its nearer end."""
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
