"""Updates states with new rows and forecasts from them; everything else uses this implementation.

An engine holds no series: it takes states and returns new ones. Work is batched over series with similar numbers of new
rows.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aru.data.rows import Ragged, Rows, Static, Whole
from aru.data.schema import Schema
from aru.data.target import Rule, rules_of
from aru.models.interface import Model
from aru.nn.envelope import Envelope, hold_back
from aru.nn.sessions import Sessions, export
from aru.nn.threads import torch_on_one_thread
from aru.nn.tree import put, take, tree_map
from aru.nn.windows import Context
from aru.runtime.epochs import Common, is_due, sampled
from aru.runtime.portions import gather_rows, groups, segments, skipped_first
from aru.runtime.state import SeriesState, empty_context, move_on
from aru.runtime.truth import Experts, Following
from aru.settings import PRETRAINED, Settings

ONE_THREAD_SERIES = 64  # up to this many series torch uses one thread anyway
SERIES_AT_ONCE = 2**14  # in one network pass, which bounds memory
ROWS_AT_ONCE = 2**22  # rows of contexts and horizons in one network pass
REPLAYED_WINDOWS = 2**14  # windows of all series together, when history is replayed


class Forecast(NamedTuple):
    """Forecasts of (series, h) in the user's units."""

    mean: Tensor
    quantiles: Tensor  # (quantile, series, h)
    failed: Tensor  # (series,) bool: the local solve failed, so that this is the global forecast

    def cpu(self) -> Forecast:
        """The same in CPU memory."""
        return Forecast(*(v.cpu() for v in self))

    def first(self, h: int) -> Forecast:
        """The first h steps."""
        return Forecast(self.mean[:, :h], self.quantiles[..., :h], self.failed)


class Engine(abc.ABC):
    """Updates the states of series with rows."""

    schema: Schema
    device: torch.device
    h: int
    max_gap: int  # longer gaps have the same effect as this one, but for aging
    columns: tuple[str, ...] = ()  # covariates of observations
    static_columns: tuple[str, ...] = ()  # covariates of series
    rules: tuple[Rule, ...] = ()  # restrictions of y
    said: set[str]  # warnings that were given, so that each is given once
    learned_late: bool = False  # whether the schema came with the first rows, not with the model

    @property
    @abc.abstractmethod
    def fingerprint(self) -> str:
        """Identifies compatible states: an engine can use those of any engine with the same fingerprint."""

    @abc.abstractmethod
    def empty(self, static: Static) -> Any:
        """States of series without observations."""

    def threads(self, n: int) -> contextlib.AbstractContextManager[None]:
        """Context manager that sets torch's threads for updates and forecasts of `n` series."""
        return torch_on_one_thread() if n > ONE_THREAD_SERIES else contextlib.nullcontext()

    def screen(self, state: Any, data: Ragged) -> tuple[Any, Ragged]:
        """Mark the rows that are held back as outliers (`Rows.held`), and take note of them in the states."""
        return state, data

    def take_in(self, state: Any, data: Ragged, adapt: bool = True) -> Any:
        """The rest of `advance`, after `screen`."""
        return self.advance(state, data, adapt)

    @abc.abstractmethod
    def advance(self, state: Any, data: Ragged, adapt: bool = True) -> Any:
        """Take in new rows of each series. A series without rows stays as it is.

        With `adapt=False` only contexts move on; what was learned about a series does not change.
        """


class NetworkEngine(Engine):
    """Trained networks with their schema: one model, or an ensemble whose forecasts are averaged."""

    def __init__(
        self,
        settings: Settings,
        schema: Schema,
        models: Sequence[Model],
        device: torch.device,
        networks: Sequence[Mapping[str, bytes]] | None = None,
    ) -> None:
        """`networks` are the models' exported functions, if they were exported before."""
        self.settings = settings
        self.schema = schema
        self.device = device
        self.h = settings.h
        self.models = [model.to(device).eval().requires_grad_(False) for model in models]
        fitting = max(ROWS_AT_ONCE // (schema.input_size + settings.h), 1)
        larger = max if device.type != "cpu" else min  # a GPU needs larger batches
        self.at_once = larger(SERIES_AT_ONCE, fitting)
        self.max_gap = schema.history + settings.longest_window
        rows_kept = self.models[0].rows_kept or schema.input_size
        self.kept = max(rows_kept, settings.h) if settings.follows_forecasts else rows_kept
        self.following = Following.of(settings, schema)
        self.columns = (*settings.futr_exog_list, *settings.hist_exog_list)
        self.static_columns = tuple(settings.stat_exog_list)
        self.rules = tuple(rules_of(settings, schema.distribution))
        self.said = set()
        found = self.columns or self.static_columns or schema.country
        self.learned_late = settings.model == PRETRAINED and bool(found)
        self.common = Common()  # what series have in common
        if networks is not None:
            self.networks = networks
        if device.type == "cpu":
            for model, functions in zip(self.models, self.networks, strict=True):
                model.sessions = Sessions(functions, model.part) if functions else None

    @property
    def shares(self) -> bool:
        """Whether something is learned that all series have in common."""
        return self.models[0].shares or (self.following is not None and self.following.judge.calibrated)

    def twin(self) -> NetworkEngine:
        """The same models, with a memory of their own for what series have in common."""
        return copy.copy(self)

    def learn_common(
        self, state: SeriesState, keys: Sequence[Any], observations: float | None = None, now: bool = False
    ) -> None:
        """Learn what series have in common, if it is time, or now. Of a sample, `observations` are those of all."""
        if not self.shares or not len(keys):
            return
        total = float(state.context.count.sum()) if observations is None else observations
        if now or is_due(self.common, total):
            some, before = sampled(state, keys, len(self.schema.regressors)), self.common
            effects = self.models[0].learn_common(some.members[0], some.context)
            scores = None if self.following is None else self.following.pooled(some.followed)
            self.common = Common(effects, scores, before.epoch + 1, total)

    @functools.cached_property
    def networks(self) -> Sequence[Mapping[str, bytes]]:
        """The exported functions of each model, by name. On a GPU only a save needs them."""
        return [self._exported(model) for model in self.models]

    def _exported(self, model: Model) -> dict[str, bytes]:
        if not model.exported:
            return {}
        model.sessions = None  # so that torch traces the functions
        return {
            name: export(model, getattr(model, name), arguments, model.long_inputs)
            for name, arguments in model.samples(*self.sample(2)).items()
        }

    def sample(self, n: int) -> tuple[Any, Rows]:
        """Empty contexts and future rows of `n` series. Only shapes and types matter."""
        numbers, categories = self.schema.stat
        static = Static(torch.zeros(n, 2 * len(numbers)), torch.zeros(n, len(categories), dtype=torch.int32))
        context = empty_context(self.schema, static, self.kept, self.models[0].coded, self.device)
        future = Rows(*(v.new_zeros(n, self.h, *v.shape[2:]) for v in context.rows))
        return context, future

    def warm_up(self) -> None:
        """Load and compile everything that the first update and forecast need."""
        context, future = self.sample(1)
        n = self.settings.window_stride + 1  # so that an origin is passed
        rows = Rows(*(v[0, :1].expand(n, *v.shape[2:]).contiguous() for v in future))
        each = torch.zeros(1, dtype=torch.int64)
        state = self.advance(self.empty(context.static), Ragged(rows, each, each + n, each.expand(n)))
        self.forecast(state, future, [0.5])

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of weights, settings and schema."""
        settings = {k: v for k, v in self.settings.to_json().items() if k not in ("accelerator", "alias")}
        digest = hashlib.sha256(json.dumps([settings, self.schema.to_json()], sort_keys=True).encode())
        for model in self.models:
            for name, value in model.state_dict().items():
                digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:32]

    def empty(self, static: Static) -> SeriesState:
        """States of series without observations."""
        context = empty_context(self.schema, static, self.kept, self.models[0].coded, self.device)
        steps = torch.full((len(context.total),), -1, device=self.device)
        members = tuple(model.init_state(len(steps)) for model in self.models)
        state = SeriesState(torch.zeros_like(steps), steps, context, members)
        state = state if self.following is None else self.following.begin(state)
        return state._replace(envelope=Envelope.empty(len(steps), self.device))

    def replay(self, part: Whole) -> SeriesState:
        """States of series that have consumed all of their rows."""
        return self.advance(self.empty(part.static), part.rows)

    def threads(self, n: int) -> contextlib.AbstractContextManager[None]:
        """Networks that run in torch keep its threads."""
        in_torch = self.device.type != "cpu" or any(model.sessions is None for model in self.models)
        return contextlib.nullcontext() if in_torch else super().threads(n)

    def unadapted(self, state: SeriesState) -> SeriesState:
        """The same series with empty local states, whose forecast is the global one."""
        return state._replace(members=tuple(model.init_state(len(state.last)) for model in self.models))

    def effective_sizes(self, state: SeriesState) -> tuple[Tensor, Tensor] | None:
        """Effective number of observations in each series' local statistics (series, J), and the aging factors (J,).

        Averaged over an ensemble; None if no model has local statistics.
        """
        found = [model.effective_sizes(member) for model, member in zip(self.models, state.members, strict=True)]
        pairs = [pair for pair in found if pair is not None]
        if not pairs:
            return None
        sizes, alphas = (torch.stack(v).mean(0) for v in zip(*pairs, strict=True))
        return sizes, alphas

    def advance(self, state: SeriesState, data: Ragged, adapt: bool = True) -> SeriesState:
        """Take in new rows of each series. Outliers are held back: they count as missing."""
        return self.take_in(*self.screen(state, data), adapt)

    def screen(self, state: SeriesState, data: Ragged) -> tuple[SeriesState, Ragged]:
        """Mark the rows that lie far outside the envelope of their series (`aru.nn.envelope`)."""
        assert isinstance(state.envelope, Envelope)
        envelope, data = hold_back(state.envelope, data)
        return state._replace(envelope=envelope), data

    def take_in(self, state: SeriesState, data: Ragged, adapt: bool = True) -> SeriesState:
        """Take in rows after `screen`."""
        # What is kept of an origin must not depend on how rows were delivered, so it has no envelope.
        return self._take_in(state._replace(envelope=()), data, adapt)._replace(envelope=state.envelope)

    def _take_in(self, state: SeriesState, data: Ragged, adapt: bool) -> SeriesState:
        n, each = len(data.lengths), data.each
        if self.device.type != "cpu":
            data = Ragged(*tree_map(lambda v: v.to(self.device), data[:4]))
        with self.threads(n):
            if 0 < each <= self.settings.window_stride and n <= self.at_once and self.following is None:
                rows = Rows(*(v.reshape(n, each, *v.shape[1:]) for v in data.rows))
                return self._step(state, rows, None, adapt)
            return self._advance(state, data, adapt)

    def _advance(self, state: SeriesState, data: Ragged, adapt: bool) -> SeriesState:
        for part in segments(data):
            jump = torch.where(part.lengths > 0, skipped_first(part), 0)
            if jump.any():
                state = self._jump(state, jump, adapt)
            for index in groups(part.lengths, self.at_once):
                if len(index) == len(part.lengths):  # one group of all, in order
                    state = self._advance_group(state, part, index, adapt)
                else:
                    state = put(state, index, self._advance_group(take(state, index), part, index, adapt))
        return state

    def forecast(self, state: SeriesState, future: Rows, quantiles: Sequence[float]) -> Forecast:
        """Forecast the next h steps of every series; `future` holds their (series, h) rows."""
        n = len(state.last)
        if self.device.type != "cpu":
            future = tree_map(lambda v: v.to(self.device), future)
        if n <= self.at_once:
            return self._forecast_part(state, future, quantiles)
        parts = []
        for lo in range(0, n, self.at_once):
            part = tree_map(lambda v, lo=lo: v[lo : lo + self.at_once], (state, future))
            parts.append(self._forecast_part(*part, quantiles))
        return Forecast(
            torch.cat([p.mean for p in parts]),
            torch.cat([p.quantiles for p in parts], 1),
            torch.cat([p.failed for p in parts]),
        )

    def _forecast_part(self, state: SeriesState, future: Rows, quantiles: Sequence[float]) -> Forecast:
        following, common = self.following, self.common
        with self.threads(len(state.last)):
            if following is None:
                mean, values, failed = self._average(state.members, state.context, future, quantiles, common.effects)
            else:
                made = self._make(state, future, [*quantiles, *following.quantiles], common.effects)
                failed = made.failed[-1]
                mean, values = following.issue(state.followed, common.scores, made, quantiles)
                mean, values = (self.models[0].possible(state.context, v, v is values) for v in (mean, values))
        if self.schema.integer:
            values = values.round()  # rounding is monotone, so these are the quantiles of the rounded y
        return Forecast(mean, values, failed | ~mean.isfinite().all(1))

    def _make(self, state: SeriesState, future: Rows, quantiles: Sequence[float], effects: Any = None) -> Experts:
        """Forecasts before gate and calibration. A series' record learns from those without common effects."""
        local = [(state.members, effects)]
        if self.settings.gate:  # the network alone before it
            local.insert(0, (self.unadapted(state).members, None))
        parts = [self._average(members, state.context, future, quantiles, common) for members, common in local]
        return Experts(*(torch.stack(values) for values in zip(*parts, strict=True)))

    def _average(
        self, members: Sequence[Any], context: Context, future: Rows, quantiles: Sequence[float], effects: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Means and quantiles, averaged over the ensemble, and which local solves failed."""
        parts = zip(self.models, members, strict=True)
        outputs = [model.forecast(model.meet(member, context, effects), context, future) for model, member in parts]
        mean = _mean([out.forecast.mean() for out in outputs])
        values = _mean([torch.stack([out.forecast.quantile(q) for q in quantiles]) for out in outputs])
        return mean, values, outputs[0].failed if len(outputs) == 1 else torch.stack([o.failed for o in outputs]).any(0)

    def _advance_group(self, state: SeriesState, data: Ragged, index: Tensor, adapt: bool) -> SeriesState:
        if self.following is not None and adapt:
            return self._advance_followed(self.following, state, data, index)
        lengths = data.lengths[index]
        chunk = self.settings.window_stride * max(1, min(64, REPLAYED_WINDOWS // len(index)))
        for lo in range(0, int(lengths.max()), chunk):
            steps = (lengths - lo).clamp(0, chunk)
            rows = gather_rows(data.rows, data.starts[index] + lo, steps)
            if bool((steps == 0).any()):  # short series of the group are done
                live = (steps > 0).nonzero().squeeze(-1)
                new = self._step(take(state, live), take(rows, live), steps[live], adapt)
                state = put(state, live, new)
            else:
                state = self._step(state, rows, steps, adapt)
        return state

    def _advance_followed(self, following: Following, state: SeriesState, data: Ragged, index: Tensor) -> SeriesState:
        """Advance window by window: each forecast is compared with its actual values before the next one is made."""
        lengths, done = data.lengths[index], torch.zeros_like(data.lengths[index])
        while bool((done < lengths).any()):
            steps = torch.minimum(lengths - done, following.left(state))
            live = steps.nonzero().squeeze(-1)
            rows = gather_rows(data.rows, (data.starts[index] + done)[live], steps[live])
            here = state if len(live) == len(steps) else take(state, live)
            new = following.follow(self._step(here, rows, steps[live], adapt=True), self._make)
            state = new if len(live) == len(steps) else put(state, live, new)
            done = done + steps
        return state

    def _step(self, state: SeriesState, rows: Rows, steps: Tensor | None, adapt: bool) -> SeriesState:
        """Take in (series, row) rows, or the first `steps` of them, of every series."""
        members, context = state.members, move_on(state.context, rows, steps, self.models[0].codes)
        if steps is None:
            steps = torch.full_like(state.steps, rows.y.shape[1])
        if adapt:
            position = state.steps % self.settings.window_stride
            members = tuple(
                model.update(member, state.context, rows, position, steps, context)
                for model, member in zip(self.models, members, strict=True)
            )
        elif self.following is not None:
            state = self.following.forget(state)
        return SeriesState(context.rows.ds[:, -1], state.steps + steps, context, members, state.followed)

    def _jump(self, state: SeriesState, steps: Tensor, adapt: bool) -> SeriesState:
        """Advance by skipped steps, which no later forecast can see."""
        members = state.members
        if adapt:
            members = tuple(m.age(s, steps) for m, s in zip(self.models, members, strict=True))
        if self.following is not None:
            state = self.following.jump(state, steps, self._make) if adapt else self.following.forget(state)
        return state._replace(steps=state.steps + steps, members=members)


def _mean(values: Sequence[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(list(values)).mean(0)
