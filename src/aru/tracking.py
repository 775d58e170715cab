"""A forecaster's own forecasts, followed until their truth is known: what its gate and its calibration learn from.

From every h-th row of a series on, beginning with its first, the state as it was there waits beside the rows that
follow. When there are h of them, the forecast is made that `predict` would have given there, with the covariates that
came with the rows, and compared with what happened. So nothing needs to be known ahead, whoever asked for a forecast
changes nothing, and one window of truth is complete before the next one begins: feedback is never late.

    gate          mixes the forecast of an empty local state with the adapted one, per series and block of leads
    calibration   moves the ends of intervals, per series, level and lead; other levels lie between those tracked

Everything works on many series at once; a state goes in, a state comes out. See `aru.gate` and `aru.calibration`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from aru import calibration, gate
from aru.calibration import CalibrationState
from aru.gate import GateState
from aru.schema import Rows
from aru.state import SeriesState, put, take, tree_map

LEVELS = (50.0, 80.0, 90.0, 95.0)  # central intervals whose coverage is followed
HUGE = 1e150  # a regret whose square is no number teaches nothing
SAME = 1e-4  # experts that differ by less of their size are one: the difference is mostly rounding


class Waiting(NamedTuple):
    """What followed the origin of each series: (series, h, ...), zero from the present on."""

    y: Tensor
    observed: Tensor
    futr: Tensor
    futr_cat: Tensor


class TrackState(NamedTuple):
    """The forecast that waits for its truth, and what was learned from those before it."""

    origin: SeriesState  # itself without a track; one without observations where no forecast waits
    rows: Waiting
    gate: GateState | tuple[()]  # (series, block, expert)
    calibration: CalibrationState | tuple[()]  # (series, level, end, lead)


class Made(NamedTuple):
    """Forecasts as models make them. With a gate there are two experts: an empty local state first."""

    mean: Tensor  # (expert, series, h)
    quantiles: Tensor  # (expert, quantile, series, h)


Forecasting = Callable[[SeriesState, Rows, Sequence[float]], Made]


class Tracking:
    """Gate and calibration of one horizon. `whole` and `nonnegative` say which values y can take."""

    def __init__(self, h: int, gated: bool, calibrated: bool, whole: bool, nonnegative: bool) -> None:
        self.h, self.gated, self.calibrated, self.whole, self.nonnegative = h, gated, calibrated, whole, nonnegative
        self.block = gate.blocks(h)
        levels = LEVELS if calibrated else ()
        self.share = torch.tensor([(100 - level) / 200 for level in levels], dtype=torch.float64)[:, None, None]
        # Quantiles that are needed beside those a user asks for: low ends, then high ends.
        self.quantiles = [*self.share.flatten().tolist(), *(1 - self.share).flatten().tolist()]

    def begin(self, state: SeriesState) -> SeriesState:
        """States of series that have seen nothing, with room for what will be followed."""
        n, h, device = len(state.last), self.h, state.last.device
        like = Waiting(state.y, state.observed, state.futr, state.futr_cat)
        fresh = gate.new_gate(n, int(self.block[-1]) + 1, 2)
        offsets = calibration.new_calibration(n, len(LEVELS), h)
        track = TrackState(
            origin=state,
            rows=Waiting._make(v.new_zeros(n, h, *v.shape[2:]) for v in like),
            gate=tree_map(lambda v: v.to(device), fresh) if self.gated else (),
            calibration=tree_map(lambda v: v.to(device), offsets) if self.calibrated else (),
        )
        return state._replace(track=track)

    def left(self, state: SeriesState) -> Tensor:
        """Rows until the window of each series is complete: no more may be taken in before `follow`."""
        return self.h - state.steps % self.h  # a series without any value stands one row before its first origin

    def follow(self, state: SeriesState, rows: Rows, steps: Tensor, forecast: Forecasting) -> SeriesState:
        """States that have just taken in the first `steps` of (series, row) rows: learn where a window is complete."""
        track: TrackState = state.track
        track = track._replace(rows=_add(track.rows, (state.steps - steps) % self.h, rows, steps))
        return self._complete(state._replace(track=track), state.steps % self.h == 0, forecast)

    def jump(self, state: SeriesState, steps: Tensor, forecast: Forecasting) -> SeriesState:
        """`steps` without values are about to pass: what waits learns from the rows that it has."""
        # As many steps follow, one by one, as any forecast sees: the origins in between never meet a value.
        return self._complete(state, steps >= self.left(state), forecast)

    def forget(self, state: SeriesState) -> SeriesState:
        """Let go of forecasts that wait: rows are taken in without learning from them."""
        track: TrackState = state.track
        origin = track.origin._replace(count=torch.zeros_like(track.origin.count))
        return state._replace(track=track._replace(origin=origin))

    def _complete(self, state: SeriesState, which: Tensor, forecast: Forecasting) -> SeriesState:
        """Learn where a window is complete, and begin the next one."""
        ended = which.nonzero().squeeze(-1)
        if len(ended) == 0:
            return state
        here, origin = take(state.track, ended), take(state._replace(track=()), ended)
        rows = tree_map(torch.zeros_like, here.rows)
        fresh = self._learn(here, forecast)._replace(origin=origin, rows=rows)
        return state._replace(track=fresh if len(ended) == len(which) else put(state.track, ended, fresh))

    def issue(self, track: TrackState, made: Made, quantiles: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Mean and quantiles as a user gets them. `made` has the given quantiles first, then those of `self`."""
        mean, values = self._mix(track, made)
        asked, tracked = values.split([len(quantiles), len(self.quantiles)])
        if isinstance(track.calibration, CalibrationState):
            given = _ends(tracked)
            moved = self._move(track.calibration, given) - given
            asked = self._order(asked + self._between(moved, quantiles), given + moved, quantiles)
        return mean, asked

    def _learn(self, track: TrackState, forecast: Forecasting) -> TrackState:
        """Compare the forecasts that wait with the rows that followed them."""
        begun, rows, at = track.origin.count > 0, track.rows, track.origin
        if not begun.any():
            return track
        ds, hist, hist_cat = (v.new_zeros(len(v), self.h, *v.shape[2:]) for v in (at.ds, at.hist, at.hist_cat))
        none, unseen = torch.zeros_like(rows.y), torch.zeros_like(rows.observed)
        future = Rows(ds, none, unseen, rows.futr, rows.futr_cat.long(), hist, hist_cat.long())
        made = forecast(at, future, self.quantiles or [0.5])
        y = torch.where(rows.observed & begun[:, None], rows.y, torch.nan)
        mean, values = self._mix(track, made)
        if isinstance(track.gate, GateState):
            experts = made.mean.movedim(0, -1)
            r = gate.regret(mean, experts, y)
            r = torch.where(_differ(experts) | r.isnan(), r, 0.0)
            track = track._replace(gate=gate.update(track.gate, self._by_block(r)))
        if isinstance(track.calibration, CalibrationState):
            given = _ends(values)
            issued = self._possible(self._move(track.calibration, given))
            share = self.share.to(y.device)
            new = calibration.update(track.calibration, share, given, issued, y[:, None, None])
            track = track._replace(calibration=new)
        return track

    def _mix(self, track: TrackState, made: Made) -> tuple[Tensor, Tensor]:
        """Means, and quantiles: those of a mixture of two forecasts are mixed likewise, as in an ensemble."""
        if not isinstance(track.gate, GateState):
            return made.mean[0], made.quantiles[0]
        weight = gate.weights(track.gate)[:, self.block.to(track.rows.y.device), 1]
        mean, quantiles = (v[0] + weight * (v[1] - v[0]) for v in made)
        return mean, quantiles

    def _by_block(self, r: Tensor) -> Tensor:
        """(series, lead, expert) -> (series, block, expert): means over the leads that have feedback."""
        known = (r.abs() < HUGE).all(-1, keepdim=True)
        member = torch.nn.functional.one_hot(self.block).T.to(r)  # (block, lead)
        return member @ torch.where(known, r, 0.0) / (member @ known.to(r)).clamp(min=1)

    def _move(self, state: CalibrationState, given: Tensor) -> Tensor:
        """(series, level, end, lead) intervals after calibration; a wider one never ends inside a narrower one."""
        low, high = calibration.move(state, self.share.to(given.device), given).unbind(2)
        return torch.stack([low.cummin(1).values, high.cummax(1).values], 2)

    def _between(self, moved: Tensor, quantiles: Sequence[float]) -> Tensor:
        """How far each (quantile, series, lead) moves: as its end at the levels around it, the median not at all."""
        q = torch.tensor(quantiles, dtype=torch.float64, device=moved.device)
        z, known = torch.special.ndtri(q).abs(), torch.special.ndtri(1 - self.share.flatten()).to(moved.device)
        above = torch.bucketize(z, known).clamp(1, len(known) - 1)
        part = ((z - known[above - 1]) / (known[above] - known[above - 1])).clamp(0, 1)[:, None, None]
        end = (q > 0.5).long()
        near, far = moved[:, above - 1, end].movedim(1, 0), moved[:, above, end].movedim(1, 0)
        return torch.where((q == 0.5)[:, None, None], 0.0, near + part * (far - near))

    def _order(self, values: Tensor, tracked: Tensor, quantiles: Sequence[float]) -> Tensor:
        """In order, as values that y can take. A median outside the narrowest interval moves to its nearer end."""
        q = torch.tensor(quantiles, dtype=torch.float64, device=values.device)
        low, high = tracked[:, 0].unbind(1)
        inside = ((q - 0.5).abs() < 0.5 - self.share[0, 0, 0])[:, None, None]
        values = torch.where(inside, torch.minimum(torch.maximum(values, low), high), values)
        by_size = q.argsort()
        return self._possible(values.index_copy(0, by_size, values[by_size].sort(0).values))

    def _possible(self, values: Tensor) -> Tensor:
        values = values.clamp(min=0) if self.nonnegative else values
        return values.round() if self.whole else values


def _differ(experts: Tensor) -> Tensor:
    """(series, lead, expert) -> (series, lead, 1): where there is something to choose.

    Networks round differently beside other series, and a gate takes its unit from the largest regret that it has seen.
    """
    size = experts.abs().amax((1, 2), keepdim=True)
    return experts.amax(-1, keepdim=True) - experts.amin(-1, keepdim=True) > SAME * size


def _ends(values: Tensor) -> Tensor:
    """(low ends and then high ends, series, lead) -> (series, level, end, lead)."""
    ends: Tensor = values.double().unflatten(0, (2, -1))
    return ends.permute(2, 1, 0, 3)


def _add(old: Waiting, since: Tensor, rows: Rows, steps: Tensor) -> Waiting:
    """The first `steps` of (series, row) rows behind the `since` rows that wait already."""
    at = torch.arange(old.y.shape[1], device=since.device) - since[:, None]
    new = (at >= 0) & (at < steps[:, None])
    at = at.clamp(0, rows.y.shape[1] - 1)
    pick = torch.arange(len(at), device=at.device)[:, None]

    def fill(before: Tensor, value: Tensor) -> Tensor:
        mask = new.reshape(*new.shape, *(1,) * (before.ndim - 2))
        return torch.where(mask, value[pick, at].to(before.dtype), before)

    return Waiting._make(
        fill(b, v) for b, v in zip(old, (rows.y, rows.observed, rows.futr, rows.futr_cat), strict=True)
    )
