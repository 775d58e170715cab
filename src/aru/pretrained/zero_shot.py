"""A pretrained network as a forecasting method: it reads the past values of a series and needs no training."""

from __future__ import annotations

import functools
import itertools
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from aru.data.frequency import Frequency
from aru.data.rows import Rows
from aru.data.schema import Schema
from aru.models.interface import Empty, Model, Output
from aru.nn.threads import in_parallel
from aru.nn.windows import Context, all_values
from aru.pretrained.ahead import forecast
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
    shown,
    unknown_effects,
)
from aru.pretrained.patches import LEVELS, SHAPES, PatchNetwork
from aru.pretrained.regressors import Moving, Regressors
from aru.pretrained.seasons import found, told_by
from aru.pretrained.traits import Traits
from aru.pretrained.weights import read_weights, shape_name
from aru.settings import Settings

ROWS_KEPT = 48  # rows of a series with their times and in full precision; older values are kept in four bytes each


class Ahead(NamedTuple):
    """A network's output."""

    quantiles: Float[Tensor, "series step level"]  # in the network's units


class Quantiles(NamedTuple):
    """Forecast distribution of y by its quantiles at `LEVELS`."""

    values: Float[Tensor, "series lead level"]
    nonnegative: Bool[Tensor, "series 1"]
    whole: Bool[Tensor, "series 1"]

    def quantile(self, q: float) -> Tensor:
        """Between two levels, and beyond the outer ones, the quantile of a normal distribution through both."""
        at, part = _between(q)
        low, high = self.values[..., at], self.values[..., at + 1]
        return restrict(low + part * (high - low), self.nonnegative, self.whole)

    def mean(self) -> Tensor:
        """Mean of y. Beyond the outer levels the distribution ends."""
        possible = restrict(self.values, self.nonnegative.unsqueeze(-1))
        return (possible * torch.tensor(_weights(), dtype=possible.dtype, device=possible.device)).sum(-1)


def restrict(values: Tensor, nonnegative: Tensor, whole: Tensor | None = None) -> Tensor:
    """The nearest values that y can have."""
    values = torch.where(nonnegative, values.clamp(min=0), values)
    return values if whole is None else torch.where(whole, values.round(), values)


class ZeroShot(Model):
    """A pretrained network, and in closed form the effects of covariates. An update costs no pass of the network."""

    cold_starts = False
    rows_kept = ROWS_KEPT
    part = 32
    long_inputs = ("z", "known")
    exported = MappingProxyType({"run_told": Ahead, "run_found": Ahead})

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__()
        self.shape = SHAPES[shape_name(str(settings.size))]
        with torch.random.fork_rng(devices=[]):  # its initial weights are not used
            self.patches = PatchNetwork(self.shape)
        self.support = settings.support
        self.regressors, self.traits = Regressors(schema, settings), Traits(schema)
        self.adapts = len(self.regressors) > 0
        self.periods = told_by(Frequency(settings.freq), settings.season_length)

    def for_schema(self, settings: Settings, schema: Schema) -> ZeroShot:
        """The same weights for series with other covariates."""
        twin = ZeroShot(settings, schema)
        twin.patches = self.patches
        return twin

    def load(self, name: str) -> None:
        """Take the shipped weights of this version."""
        self.patches.load_state_dict(read_weights(name))

    def init_state(self, n: int) -> Empty | EffectSums:
        """Without covariates there is no state beyond the context."""
        device = next(self.parameters()).device
        return EffectSums.empty(n, len(self.regressors), self.regressors.averages, device) if self.adapts else Empty()

    @property
    def shares(self) -> bool:
        """Effects of covariates have something in common."""
        return self.adapts

    @property
    def coded(self) -> int:
        """Covariates of older rows are needed, because the network is shown values without their effects."""
        return self.regressors.bytes if self.adapts else 0

    def codes(self, rows: Rows) -> UInt8[Tensor, "*rows coded"]:
        """Covariates and times in a byte each."""
        return self.regressors.codes(rows) if self.adapts else super().codes(rows)

    def update(
        self, state: Any, context: Context, rows: Rows, position: Tensor, steps: Tensor, after: Context
    ) -> Empty | EffectSums:
        """Take in rows: rank-one updates of the sums, no pass of the network."""
        if not self.adapts:
            return Empty()
        x, moving = self.regressors.of(rows, context, Moving(state.average, state.averaged), steps)
        sums = absorb(state, x, rows.y, rows.observed, steps)
        return sums._replace(average=moving.mean, averaged=moving.weight)

    def age(self, state: Any, steps: Tensor) -> Empty | EffectSums:
        """Age the sums."""
        return aged(state, steps) if self.adapts else state

    def learn_common(self, state: Any, context: Context) -> CommonEffects | None:
        """The panel's coefficients."""
        return learn_effects(state, self.traits.of(context.static)) if self.adapts else None

    def meet(self, state: Any, context: Context, common: CommonEffects | None) -> Any:
        """Coefficients of each series, and those of the panel."""
        if not self.adapts:
            return state
        return coefficients(state, self.traits.of(context.static), common or self._unknown())

    def _unknown(self) -> CommonEffects:
        return unknown_effects(len(self.regressors), len(self.traits))

    def run_told(self, z: Float[Tensor, "series rows"], known: Float[Tensor, "series rows"]) -> Ahead:
        """The network, told the periods of the frequency."""
        return Ahead(self.patches(z, known, torch.tensor([self.periods], device=z.device)))

    def run_found(self, z: Float[Tensor, "series rows"], known: Float[Tensor, "series rows"], periods: Tensor) -> Ahead:
        """The network, told the periods that were found in each series."""
        return Ahead(self.patches(z, known, periods))

    def samples(self, context: Context, future: Rows) -> dict[str, tuple[Any, ...]]:
        """Example arguments of the function that is used."""
        z = torch.zeros(len(context.total), self.shape.rows(2 * self.shape.fine), device=context.total.device)
        if self.periods is not None:
            return {"run_told": (z, z)}
        return {"run_found": (z, z, torch.zeros(len(z), 2, dtype=torch.int64, device=z.device))}

    def forecast(self, state: Any, context: Context, future: Rows) -> Output:
        """Quantiles of the (series, h) rows after the context. The network is shown what covariates leave over."""
        y, observed = all_values(context)
        h, period = future.ds.shape[1], (self.periods or (0,))[0]
        read, effect = (y, None) if not self.adapts else self._without_effects(state, context, future, y, observed)
        parts = in_parallel(
            lambda lo, hi: forecast(self._run, self.shape, read[lo:hi], observed[lo:hi], h, period),
            len(y),
            self.part if y.device.type == "cpu" else len(y) or 1,
        )
        values = torch.cat(parts) if parts else y.new_zeros(0, h, len(LEVELS))
        if effect is not None:
            values = shown(values, effect.unsqueeze(-1), state.way)
        failed = torch.zeros(len(y), dtype=torch.bool, device=y.device)
        return Output(Quantiles(values, *self._support(y, observed)), failed)

    def _without_effects(
        self, state: Coefficients, context: Context, future: Rows, y: Tensor, observed: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Past values without the effects of their covariates, and the effects of the future ones."""
        own, common = self._effects(state, context, future)
        past, ahead = around_mean(own, common, observed)
        return torch.where(observed, hidden(y, past, state.way), 0.0), ahead

    def _effects(self, state: Coefficients, context: Context, future: Rows) -> tuple[Tensor, Tensor]:
        """Effects of all past and future rows, and those that the future ones have on a new series."""
        theta, common = state.own.cpu().numpy(), state.common.cpu().numpy()
        codes, seen, device = context.older.codes, context.count.cpu().numpy(), context.total.device

        def part(lo: int, hi: int) -> tuple[Any, Any]:
            past, ahead = (Rows(*(v[lo:hi] for v in rows)) for rows in (context.rows, future))
            return self.regressors.effects(codes[lo:hi], past, ahead, theta[lo:hi], common[lo:hi], seen[lo:hi])

        parts = in_parallel(part, len(codes), self.part) or [part(0, 0)]
        own, new = (torch.from_numpy(np.concatenate(found)).to(device) for found in zip(*parts, strict=True))
        return own, new

    def possible(self, context: Context, values: Tensor, whole: bool) -> Tensor:
        """The nearest values that y can have."""
        nonnegative, integers = self._support(*all_values(context))
        return restrict(values, nonnegative, integers if whole else None)

    def _run(self, z: Tensor, known: Tensor) -> Tensor:
        if self.periods is not None:
            told: Ahead = self.call("run_told", z, known)
            return told.quantiles
        seen: Ahead = self.call("run_found", z, known, found(z, known))
        return seen.quantiles

    def _support(self, y: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Whether y is nonnegative, and whole, (series, 1). With "auto", as all values in the context are."""
        if self.support != "auto":
            each = torch.ones(len(y), 1, dtype=torch.bool, device=y.device)
            return each & (self.support != "real"), each & (self.support == "count")
        nonnegative = ((y >= 0) | ~observed).all(1, keepdim=True)
        return nonnegative, nonnegative & ((y == y.round()) | ~observed).all(1, keepdim=True)


@functools.cache
def _between(q: float) -> tuple[int, float]:
    """The level at or below q, and how far q is on the way to the next one, in standard normal deviates."""
    z, known = (torch.special.ndtri(torch.tensor(v, dtype=torch.float64)) for v in (q, LEVELS))
    at = int(torch.searchsorted(known, z, right=True).clamp(1, len(LEVELS) - 1)) - 1
    return at, float((z - known[at]) / (known[at + 1] - known[at]))


@functools.cache
def _weights() -> list[float]:
    """The weight of each quantile in the mean."""
    ends = [0.0, *((a + b) / 2 for a, b in itertools.pairwise(LEVELS)), 1.0]
    return [b - a for a, b in itertools.pairwise(ends)]
