"""The effects of covariates, learned in closed form around a network that sees what they leave over."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from aru.data.columns import Bools, Ints
from aru.data.columns import Floats as Array
from aru.data.rows import Rows
from aru.nn.threads import in_parallel
from aru.nn.windows import Context
from aru.pretrained.changes import LATEST_ROWS, Beliefs, find_changes
from aru.pretrained.closed_form import ClosedForm, Network, PastValues, Seen
from aru.pretrained.effects import (
    Coefficients,
    CommonEffects,
    EffectSums,
    absorb,
    aged,
    around_mean,
    coefficients,
    hidden,
    learn_effects,
    seen_as,
    shown,
    unknown_effects,
)
from aru.pretrained.newcomers import Newcomers
from aru.pretrained.regressors import KnownRows, Moving, Regressors
from aru.pretrained.rehearsal import rehearse
from aru.pretrained.traits import Traits
from aru.pretrained.young import YoungSeries, mixed, usual_level

EFFECT_SERIES = 32  # on one thread


class Met(NamedTuple):
    """What a forecast takes of series: their coefficients, and how they begin if that is known."""

    fit: Coefficients
    newcomers: Newcomers | None
    usual: Float[Tensor, " series"]  # level by their traits, as `Newcomers.usual` has it


class EffectLearner(ClosedForm):
    """Sums of regressions on covariates make up the record of a series. An update costs no pass of the network."""

    shares = True

    def __init__(self, regressors: Regressors, traits: Traits, h: int) -> None:
        self.regressors, self.traits, self._h = regressors, traits, h
        self.coded = regressors.bytes

    def empty(self, n: int, device: torch.device) -> EffectSums:
        """Records of series without rows."""
        return EffectSums.empty(n, len(self.regressors), self.regressors.averages, device)

    def codes(self, rows: Rows) -> UInt8[Tensor, "*rows coded"]:
        """Covariates and times in a byte each: the network is shown older values without their effects."""
        return self.regressors.codes(rows)

    def update(self, state: EffectSums, context: Context, rows: Rows, steps: Tensor, network: Network) -> EffectSums:
        """Rank-one updates of the sums."""
        x, moving = self.regressors.of(rows, context, Moving(state.average, state.averaged), steps)
        sums = absorb(state, x, rows.y, rows.observed, steps)
        return sums._replace(average=moving.mean, averaged=moving.weight)

    def aged(self, state: EffectSums, steps: Tensor) -> EffectSums:
        """Older sums."""
        return aged(state, steps)

    def learn_common(self, state: EffectSums, context: Context, network: Network) -> CommonEffects:
        """The panel's coefficients, and how its series begin."""
        traits, device = self.traits.of(context.static), context.total.device
        common = learn_effects(state, traits)

        def run(y: Tensor, read: Tensor, known: Tensor, steps: int) -> Tensor:
            return network(y.to(device), read.to(device), known.to(device), steps).cpu()

        newcomers = rehearse(state, context, traits, common, self.regressors, run, self._h)
        return common._replace(newcomers=newcomers)

    def cold_starts(self, common: CommonEffects | None) -> bool:
        """Only if it is known how series begin."""
        return common is not None and common.newcomers is not None

    def meet(self, state: EffectSums, context: Context, common: CommonEffects | None) -> Met:
        """Coefficients of each series, those of the panel, and how series begin."""
        traits = self.traits.of(context.static)
        known = common or unknown_effects(len(self.regressors), len(self.traits))
        newcomers = known.newcomers
        usual = np.zeros(len(traits)) if newcomers is None else traits @ newcomers.usual.numpy()
        return Met(coefficients(state, traits, known), newcomers, torch.from_numpy(usual).to(context.total.device))

    def show(
        self, met: Met, context: Context, future: Rows, past: PastValues, head: bool, trust: float | Tensor = 1
    ) -> Seen:
        """Past values without the effects of their covariates."""
        own, common, x = self._effects(met.fit, context, future, past, head)
        before, ahead, middle = around_mean(own, common, past.observed)
        read = torch.where(past.observed, hidden(past.y, trust * before, met.fit.way), 0.0)
        return Seen(read, trust * ahead, middle, x)

    def complete(self, values: Tensor, met: Met, seen: Seen, context: Context, past: PastValues) -> Tensor:
        """Effects of the rows ahead are added, or multiplied; young series are mixed with what is usual."""
        assert seen.ahead is not None
        assert seen.middle is not None
        values = shown(values, seen.ahead.unsqueeze(-1), met.fit.way)
        if met.newcomers is None:
            return values
        usual = usual_level(met.usual, met.newcomers.logs, seen.middle, met.fit.way)
        young = YoungSeries(seen.read, past.observed, usual, seen.ahead, met.fit.way)
        return mixed(values, young, context.count, met.newcomers)

    def unseen_support(self, met: Met) -> tuple[bool, bool]:
        """As all series of the panel."""
        known = met.newcomers
        return (False, False) if known is None else (known.nonnegative, known.whole)

    def _effects(
        self, fit: Coefficients, context: Context, future: Rows, past: PastValues, head: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Effects of all rows, those that the future ones have on a new series, and what a head reads of these."""
        spread, noise, moves = (value.cpu().numpy() for value in (fit.spread, fit.noise, fit.moves))
        own, common, count = (value.cpu().numpy() for value in (fit.own, fit.common, context.count))
        y, observed = (value.cpu().numpy() for value in (seen_as(past.y, fit.way), past.observed))
        h, device, traits = future.ds.shape[1], context.total.device, self.traits.of(context.static)

        def part(lo: int, hi: int) -> tuple[Any, ...]:
            rows, ahead = (Rows(*(v[lo:hi] for v in rows)) for rows in (context.rows, future))
            known = self.regressors.known(context.older.codes[lo:hi], rows, ahead)
            left_in = count[lo:hi, None] < self.regressors.stays
            beliefs = Beliefs(spread[lo:hi], noise[lo:hi], moves[lo:hi], self.regressors.kin)
            effects = self._changing(known, h, own[lo:hi], left_in, y[lo:hi], observed[lo:hi], beliefs)
            new = self.regressors.effects(known.rows(-h), np.where(left_in, common[lo:hi], 0.0))
            if not head:
                return effects, new
            x = self.regressors.values(known.rows(-h))
            of_series = np.broadcast_to(traits[lo:hi, None], (*x.shape[:2], traits.shape[1]))
            return effects, new, np.concatenate([x, of_series], -1).astype(np.float32)

        parts = in_parallel(part, len(own), EFFECT_SERIES) or [part(0, 0)]
        all_own, new, *x = (torch.from_numpy(np.concatenate(found)).to(device) for found in zip(*parts, strict=True))
        return all_own, new, x[0] if head else None

    def _changing(
        self, known: KnownRows, h: int, theta: Array, left_in: Bools, y: Array, observed: Bools, beliefs: Beliefs
    ) -> Array:
        """Effects of all rows, which differ since a change. Regressors that stay count where they are left in."""
        effects = self.regressors.effects(known, np.where(left_in, theta, 0.0))
        whole = effects
        if not left_in.all():
            whole = effects + self.regressors.effects(known, np.where(left_in, 0.0, theta))
        rows = y.shape[1]
        x = self.regressors.values(known.rows(max(rows - LATEST_ROWS, 0), rows))
        changes = find_changes(y - whole[:, :rows], observed, x, beliefs)
        some: Ints = np.flatnonzero(changes.rows)
        if len(some):
            delta = np.where(left_in[some], changes.delta[some], 0.0)
            since = np.arange(rows + h) >= rows - changes.rows[some, None]
            effects[some] += np.where(since, self.regressors.effects(known.series(some), delta), 0.0)
        return effects
