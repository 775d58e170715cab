"""A pretrained network as a forecasting method: it reads the past values of a series and needs no training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from aru.data.clock import Clock
from aru.data.frequency import Frequency
from aru.data.rows import Rows
from aru.data.schema import Schema
from aru.models.interface import Hindcast, Model, Output
from aru.nn.threads import in_parallel
from aru.nn.windows import Context, all_values
from aru.pretrained.ahead import forecast
from aru.pretrained.closed_form import ClosedForm, PastValues
from aru.pretrained.covariate_head import CovariateHead
from aru.pretrained.effect_learner import EffectLearner
from aru.pretrained.effects import PLAIN_VALUES, hidden
from aru.pretrained.hindsight_learner import HindsightLearner
from aru.pretrained.patches import CONTEXT, HORIZON, LEVELS, SHAPES, PatchNetwork
from aru.pretrained.problems import Problems, Reading
from aru.pretrained.quantiles import Quantiles, restrict
from aru.pretrained.regressors import Regressors
from aru.pretrained.restraint import UNKNOWN_SEASON, restrained
from aru.pretrained.seasons import found, told_by
from aru.pretrained.traits import Traits
from aru.pretrained.weights import read_weights, shape_name
from aru.settings import Settings

ROWS_KEPT = 16  # rows of a series with their times and in full precision; older values are kept in four bytes each


class Ahead(NamedTuple):
    """A network's output."""

    quantiles: Float[Tensor, "series step level"]  # in the network's units


class ZeroShot(Model):
    """A pretrained network, and in closed form the effects of covariates, or without these what its errors teach."""

    rows_kept = ROWS_KEPT
    part = 32
    long_inputs = ("z", "known")
    exported = MappingProxyType(dict.fromkeys(("run_told", "run_found", "run_told_with", "run_found_with"), Ahead))

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__()
        self.settings, self.schema = settings, schema
        self.shape = SHAPES[shape_name(str(settings.size))]
        self.support = settings.support
        freq = Frequency(settings.freq)
        self.periods = told_by(freq, settings.season_length)
        self.learner, self.covariates = _learner(settings, schema, freq, self.periods)
        self.adapts = self.learner.shares
        with torch.random.fork_rng(devices=[]):  # initial weights are not used
            self.patches = PatchNetwork(self.shape)
            self.head = CovariateHead(self.shape, self.covariates) if self.covariates else None
        self.trust: Tensor  # in the effects of covariates: 1, or 0 where they were found to be useless
        self.register_buffer("trust", torch.ones(()))

    @property
    def headed(self) -> bool:
        """Whether a head was tuned."""
        return self.head is not None and not self.head.idle

    def retuned(self, network: PatchNetwork, head: CovariateHead | None, effects: bool) -> ZeroShot:
        """The same with other weights, and with effects of covariates or without. No head is an idle one."""
        twin = ZeroShot(self.settings, self.schema)
        twin.patches = network
        if head is not None:
            twin.head = head
        twin.trust = torch.full_like(self.trust, float(effects))
        return twin

    def without_hindsight(self) -> ZeroShot:
        """The same weights, but nothing is learned from errors."""
        twin = ZeroShot(dataclasses.replace(self.settings, hindsight=False), self.schema)
        twin.patches, twin.head, twin.trust = self.patches, self.head, self.trust
        return twin

    def for_schema(self, settings: Settings, schema: Schema) -> ZeroShot:
        """The same weights for series with other covariates."""
        twin = ZeroShot(settings, schema)
        twin.patches = self.patches
        return twin

    def load(self, name: str) -> None:
        """Take the shipped weights of this version."""
        self.patches.load_state_dict(read_weights(name))

    def init_state(self, n: int) -> Any:
        """Sums of regressions on covariates, or those of hindsight."""
        return self.learner.empty(n, next(self.parameters()).device)

    @property
    def shares(self) -> bool:
        """Effects of covariates have something in common, and so have the network's errors."""
        return self.learner.shares

    @property
    def coded(self) -> int:
        """Covariates of older rows are needed, because the network is shown values without their effects."""
        return self.learner.coded

    def codes(self, rows: Rows) -> UInt8[Tensor, "*rows coded"]:
        """Covariates and times in a byte each."""
        return self.learner.codes(rows)

    def update(self, state: Any, context: Context, rows: Rows, position: Tensor, steps: Tensor, after: Context) -> Any:
        """Take in rows. Only a round of hindsight runs the network."""
        return self.learner.update(state, context, rows, steps, self._quantiles)

    def age(self, state: Any, steps: Tensor) -> Any:
        """Age the sums."""
        return self.learner.aged(state, steps)

    def learn_common(self, state: Any, context: Context) -> Any:
        """What the series of a panel have in common."""
        return self.learner.learn_common(state, context, self._quantiles)

    def cold_starts(self, common: Any) -> bool:
        """Only if it is known how series begin."""
        return self.learner.cold_starts(common)

    def meet(self, state: Any, context: Context, common: Any) -> Any:
        """What forecasts take from series and panel."""
        return self.learner.meet(state, context, common)

    def run_told(self, z: Float[Tensor, "series rows"], known: Float[Tensor, "series rows"]) -> Ahead:
        """The network, told the periods of the frequency."""
        return Ahead(self.patches(z, known, torch.tensor([self.periods], device=z.device)))

    def run_found(self, z: Float[Tensor, "series rows"], known: Float[Tensor, "series rows"], periods: Tensor) -> Ahead:
        """The network, told the periods that were found in each series."""
        return Ahead(self.patches(z, known, periods))

    def run_told_with(self, z: Tensor, known: Tensor, x: Float[Tensor, "series step k"]) -> Ahead:
        """The same with the head for covariates."""
        return self._headed(z, known, torch.tensor([self.periods], device=z.device), x)

    def run_found_with(self, z: Tensor, known: Tensor, periods: Tensor, x: Float[Tensor, "series step k"]) -> Ahead:
        """The same with the head for covariates."""
        return self._headed(z, known, periods, x)

    def _headed(self, z: Tensor, known: Tensor, periods: Tensor, x: Tensor) -> Ahead:
        head = self.head
        assert head is not None
        return Ahead(head.widened(self.patches(z, known, periods, lambda *step: head(x, *step))))

    def samples(self, context: Context, future: Rows) -> dict[str, tuple[Any, ...]]:
        """Example arguments of the functions that are used: without a head, and with one if there is one."""
        n, device = len(context.total), context.total.device
        z = torch.zeros(n, self.shape.rows(2 * self.shape.fine), device=device)
        periods = [] if self.periods is not None else [torch.zeros(n, 2, dtype=torch.int64, device=device)]
        used = {self._function: (z, z, *periods)}
        if self.headed:
            x = torch.zeros(n, min(future.ds.shape[1], HORIZON), self.covariates, device=device)
            used[f"{self._function}_with"] = (z, z, *periods, x)
        return used

    @property
    def _function(self) -> str:
        """The exported function that is used without a head."""
        return "run_told" if self.periods is not None else "run_found"

    def forecast(self, state: Any, context: Context, future: Rows) -> Output:
        """Quantiles of the (series, h) rows after the context. The network is shown what covariates leave over."""
        past = PastValues(*all_values(context))
        seen = self.learner.show(state, context, future, past, self.headed, self.trust)
        h = future.ds.shape[1]
        values = self._quantiles(past.y, seen.read, past.observed, max(h, self.learner.steps), seen.x)
        values = self.learner.complete(values, state, seen, context, past)[:, :h]
        nonnegative, whole = self._support(*past)
        if self.support == "auto":
            none = ~past.observed.any(1, keepdim=True)
            usual = self.learner.unseen_support(state)
            nonnegative, whole = nonnegative | (none & usual[0]), whole | (none & usual[1])
        return Output(Quantiles(values, nonnegative, whole), torch.zeros_like(nonnegative[:, 0]))

    def hindcast(self, state: Any, context: Context, back: Tensor, h: int, levels: Sequence[float]) -> Hindcast:
        """The same from earlier origins, of what covariates leave over, by the present coefficients."""
        latest = Rows(*(v[:, -1:] for v in context.rows)).ahead()  # a row ahead is needed, and not used
        past = PastValues(*all_values(context))
        y, observed = self.learner.show(state, context, latest, past, False, self.trust).read, past.observed
        row = torch.arange(y.shape[1], device=y.device) - back[:, None]
        known = observed.gather(1, row.clamp(min=0)) & (row >= 0)
        read = torch.where(known, y.gather(1, row.clamp(min=0)), 0.0)
        values = self._quantiles(read, read, known, h)
        came = y.shape[1] - back[:, None] + torch.arange(h, device=y.device)
        at, inside = came.clamp(0, y.shape[1] - 1), (came >= 0) & (came < y.shape[1])
        anything = torch.zeros(len(y), 1, dtype=torch.bool, device=y.device)
        quantiles = Quantiles(values, anything, anything)
        return Hindcast(
            torch.stack([quantiles.quantile(q) for q in levels], -1),
            torch.where(inside & observed.gather(1, at), y.gather(1, at), torch.nan),
        )

    def problems(self, state: Any, context: Context, rows: Rows) -> Problems:
        """What the network was to forecast, had it been asked before these (series, h) rows came."""
        past = PastValues(*all_values(context))
        came = torch.where(rows.observed, rows.y, torch.nan)
        plain = Reading.of(*past, rows.y, rows.observed)
        if not self.covariates:
            none = torch.zeros_like(rows.y)
            return Problems.of(plain, plain, came, none, none[..., None][..., :0].float(), PLAIN_VALUES)
        seen, way = self.learner.show(state, context, rows.ahead(), past, True), state.fit.way
        assert seen.ahead is not None
        assert seen.x is not None
        without = Reading.of(seen.read, past.observed, hidden(rows.y, seen.ahead, way), rows.observed)
        return Problems.of(plain, without, came, seen.ahead, seen.x, way)

    def _quantiles(
        self, y: Tensor, read: Tensor, observed: Tensor, h: int, x: Tensor | None = None
    ) -> Float[Tensor, "series step level"]:
        """The network's quantiles of the next h values, of what it reads; kept within reason where series are short."""
        season = self.periods[0] if self.periods else UNKNOWN_SEASON
        nonnegative, _ = self._support(y, observed)

        def part(lo: int, hi: int) -> Tensor:
            covariates = None if x is None else x[lo:hi]
            values = forecast(self._run, self.shape, read[lo:hi], observed[lo:hi], h, self.periods, covariates)
            return restrained(values, read[lo:hi], observed[lo:hi], nonnegative[lo:hi], season)

        parts = in_parallel(part, len(read), self.part if read.device.type == "cpu" else len(read) or 1)
        return torch.cat(parts) if parts else read.new_zeros(0, h, len(LEVELS))

    def possible(self, context: Context, values: Tensor, whole: bool) -> Tensor:
        """The nearest values that y can have."""
        nonnegative, integers = self._support(*all_values(context))
        return restrict(values, nonnegative, integers if whole else None)

    def _run(self, z: Tensor, known: Tensor, x: Tensor | None) -> Tensor:
        periods = [] if self.periods is not None else [found(z, known)]
        if x is None:
            plain: Ahead = self.call(self._function, z, known, *periods)
            return plain.quantiles
        ahead: Ahead = self.call(f"{self._function}_with", z, known, *periods, x)
        return ahead.quantiles

    def _support(self, y: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Whether y is nonnegative, and whole, (series, 1). With "auto", as all values in the context are, if any."""
        if self.support != "auto":
            each = torch.ones(len(y), 1, dtype=torch.bool, device=y.device)
            return each & (self.support != "real"), each & (self.support == "count")
        nonnegative = ((y >= 0) | ~observed).all(1, keepdim=True) & observed.any(1, keepdim=True)
        return nonnegative, nonnegative & ((y == y.round()) | ~observed).all(1, keepdim=True)


def _learner(
    settings: Settings, schema: Schema, freq: Frequency, periods: tuple[int, int] | None
) -> tuple[ClosedForm, int]:
    """What is learned in closed form, and how many numbers a head reads of each step ahead."""
    regressors, traits = Regressors(schema, settings), Traits(schema)
    if len(regressors):
        return EffectLearner(regressors, traits, settings.h), len(regressors) + len(traits)
    named = (settings.futr_exog_list, settings.hist_exog_list, settings.stat_exog_list, schema.country)
    if settings.hindsight and settings.h <= CONTEXT // 2 and not any(named):
        return HindsightLearner(settings.h, freq, Clock(schema.zone), periods), 0
    return ClosedForm(), 0
