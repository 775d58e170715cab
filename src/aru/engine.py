"""Update and forecast: the one implementation behind library, command line, backtest and every other surface.

An engine is a trained model (or an ensemble of them) with its schema. It holds no series: states come in and go out.
Work is batched over series and windows; series with similar numbers of new rows go together.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aru.errors import ConfigError
from aru.models.aru import ARU
from aru.models.base import Model, Output
from aru.schema import Rows, Schema, Static
from aru.settings import Settings
from aru.state import SeriesState, concat, put, take, tree_map
from aru.tracking import Made, Tracking
from aru.windows import Block

if TYPE_CHECKING:
    from aru.models.compiled import CompiledModel

SERIES_AT_ONCE = 2**14  # in one network pass, which bounds memory
ROWS_AT_ONCE = 2**22  # of contexts and horizons on a GPU, which more series keep busy
WINDOWS_AT_ONCE = 2**14  # of all series together, when history is replayed


class Forecast(NamedTuple):
    """Forecasts of (series, h) in the user's units."""

    mean: Tensor
    quantiles: Tensor  # (quantile, series, h)
    failed: Tensor  # (series,) bool: the local solve failed and the global forecast stands in, or is not finite

    def cpu(self) -> Forecast:
        """The same in the host's memory."""
        return Forecast(*(v.cpu() for v in self))


class Ragged(NamedTuple):
    """Encoded rows and whose they are: series i owns rows starts[i] : starts[i] + lengths[i]."""

    rows: Rows
    starts: Tensor
    lengths: Tensor
    skipped: Tensor  # (row,) int64: unobserved steps left out just before a row


def choose_device(accelerator: str) -> torch.device:
    """A CUDA device if there is one, else the CPU, for "auto": MPS has no float64."""
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise ConfigError(f"accelerator={accelerator!r} needs a CUDA device, and there is none: use 'cpu' or 'auto'.")
    return torch.device("cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu")


class Engine:
    """Trained networks with their schema, ready to take in observations and to forecast."""

    def __init__(self, settings: Settings, schema: Schema, models: Sequence[Model], device: torch.device) -> None:
        self.settings = settings
        self.schema = schema
        self.device = device
        self.models = [model.to(device).eval() for model in models]
        more = 0 if device.type == "cpu" else ROWS_AT_ONCE // (schema.input_size + settings.h)
        self.at_once = max(SERIES_AT_ONCE, more)
        self.max_gap = schema.history + settings.longest_window  # a longer gap cannot be told from this one
        tracking = Tracking(
            settings.h, settings.gate, settings.calibration is not None, schema.integer, schema.nonnegative
        )
        self._tracking = tracking if tracking.gated or tracking.calibrated else None
        self.said: set[str] = set()  # warnings that are given once

    @functools.cached_property
    def compiled(self) -> list[CompiledModel] | None:
        """The models as the kernels of the CPU compute them; None where torch is needed.

        That is by at least one of the models, or to follow forecasts window by window.
        """
        if self.device.type != "cpu" or self._tracking is not None:
            return None
        from aru.models.compiled import compile_model  # brings Numba, which takes a moment to load

        found = [model for model in map(compile_model, self.models) if model is not None]
        return found if len(found) == len(self.models) else None

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of weights, settings and schema. States belong to the model that computed them and to no other."""
        # As they were before there were such settings.
        off = {"gate": False, "calibration": None, "size_weight": 0.0, "support": "auto"}
        settings = {k: v for k, v in self.settings.to_json().items() if k not in ("accelerator", "alias")}
        settings = {k: v for k, v in settings.items() if not (k in off and v == off[k])}
        digest = hashlib.sha256(json.dumps([settings, self.schema.to_json()], sort_keys=True).encode())
        for model in self.models:
            for name, value in model.state_dict().items():
                digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:32]

    def empty(self, static: Static) -> SeriesState:
        """States of series that have seen nothing."""
        n, E, M = len(static.numbers), self.schema.input_size, self.schema.history
        schema, device = self.schema, self.device
        calendar = len(schema.calendar)
        zeros = functools.partial(torch.zeros, device=device)
        state = SeriesState(
            last=zeros(n, dtype=torch.int64),
            steps=zeros(n, dtype=torch.int64) - 1,
            total=zeros(n, dtype=torch.float64),
            count=zeros(n, dtype=torch.float64),
            y=zeros(n, M, dtype=torch.float64),
            observed=zeros(n, M, dtype=torch.bool),
            ds=zeros(n, E, dtype=torch.int64),
            futr=zeros(n, E, 2 * len(schema.futr[0])),
            futr_cat=zeros(n, E, len(schema.futr[1]) + calendar, dtype=torch.int32),
            hist=zeros(n, E, 2 * len(schema.hist[0])),
            hist_cat=zeros(n, E, len(schema.hist[1]), dtype=torch.int32),
            static=static.numbers.to(device),
            static_cat=static.categories.to(device=device, dtype=torch.int32),
            members=tuple(model.init_state(n) for model in self.models),
        )
        return state if self._tracking is None else self._tracking.begin(state)

    @torch.no_grad()
    def complete(self, flat: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """States by path, with what earlier versions did not keep: theta of all observations."""
        out = dict(flat)
        for key in flat:
            local, found, _ = key.partition(".stats.sxx")
            if found and f"{local}.now" not in flat:
                model = self.models[int(local.split(".")[-2])]
                assert isinstance(model, ARU)
                sxx, sxy = (flat[f"{local}.stats.{name}"].to(self.device) for name in ("sxx", "sxy"))
                out[f"{local}.now"] = model.fit_all(sxx, sxy)
        return out

    @torch.no_grad()
    def advance(self, state: SeriesState, data: Ragged, adapt: bool = True) -> SeriesState:
        """Take in new rows of each series. A series without rows stays as it is.

        With `adapt` false only contexts move on; what the models learned about a series is left alone.
        """
        if self.compiled is not None:
            return self._advance_compiled(self.compiled, state, data, adapt)
        data = Ragged(Rows._make(v.to(self.device) for v in data.rows), *(v.to(self.device) for v in data[1:]))
        for part in _segments(data):
            jump = torch.where(part.lengths > 0, _first(part), 0)
            if jump.any():
                state = self._jump(state, jump, adapt)
            for index in _groups(part.lengths, self.at_once):
                if len(index) == len(part.lengths):  # one group of all, in order
                    # Contiguous, as states from bytes are: equal states give equal results, to the bit.
                    state = tree_map(Tensor.contiguous, self._advance_group(state, part, index, adapt))
                else:
                    state = put(state, index, self._advance_group(take(state, index), part, index, adapt))
        return state

    @torch.no_grad()
    def forecast(self, state: SeriesState, future: Rows, quantiles: Sequence[float]) -> Forecast:
        """Forecast the next h steps of every series; `future` holds h rows for each, one series after the other."""
        if self.compiled is not None:
            outputs = self._outputs(self.compiled, state, future)
            return self._finish(*_combine(outputs, quantiles), _any_failed(outputs))
        n, h = len(state.last), self.settings.h
        future = Rows._make(v.to(self.device).unflatten(0, (n, h)) for v in future)
        parts = []
        for lo in range(0, max(n, 1), self.at_once):
            part = slice(lo, lo + self.at_once)
            here = tree_map(lambda v, part=part: v[part], state)
            parts.append(self._forecast_part(here, Rows._make(v[part] for v in future), quantiles))
        return Forecast(
            torch.cat([p.mean for p in parts]),
            torch.cat([p.quantiles for p in parts], 1),
            torch.cat([p.failed for p in parts]),
        )

    def _forecast_part(self, state: SeriesState, future: Rows, quantiles: Sequence[float]) -> Forecast:
        tracking = self._tracking
        made, failed = self._make(state, future, [*quantiles, *(() if tracking is None else tracking.quantiles)])
        if tracking is None:
            return self._finish(made.mean[0], made.quantiles[0], failed)
        return self._finish(*tracking.issue(state.track, made, quantiles), failed)

    def _finish(self, mean: Tensor, quantiles: Tensor, failed: Tensor) -> Forecast:
        if self.schema.integer:
            quantiles = quantiles.round()  # y = round(.): quantiles map exactly through it
        return Forecast(mean, quantiles, failed | ~mean.isfinite().all(1))

    def _experts(self, state: SeriesState, future: Rows, quantiles: Sequence[float]) -> Made:
        return self._make(state, future, quantiles)[0]

    def _make(self, state: SeriesState, future: Rows, quantiles: Sequence[float]) -> tuple[Made, Tensor]:
        """What the models forecast, before any gate and calibration, and which local solves failed."""
        block, members, n = self._block(state, future), state.members, len(state.last)
        experts = 2 if self._tracking is not None and self._tracking.gated else 1
        if experts == 2:  # beside each series one of which nothing was learned
            block = concat([block, block])
            members = tuple(concat([model.init_state(n), m]) for model, m in zip(self.models, members, strict=True))
        outputs = [model.forecast(member, block) for model, member in zip(self.models, members, strict=True)]
        mean, quantile = _combine(outputs, quantiles)
        made = Made(mean.unflatten(0, (experts, n)), quantile.unflatten(1, (experts, n)).movedim(1, 0))
        return made, _any_failed(outputs)[-n:]

    def _outputs(self, models: Sequence[CompiledModel], state: SeriesState, future: Rows) -> list[Output]:
        from aru.models.compiled import new_rows

        n, h = len(state.last), self.settings.h
        new = new_rows(future, torch.arange(0, n * h, h), torch.full((n,), h), torch.zeros(0, dtype=torch.int64))
        return [model.forecast(state, member, new, h) for model, member in zip(models, state.members, strict=True)]

    def _advance_compiled(
        self, models: Sequence[CompiledModel], state: SeriesState, data: Ragged, adapt: bool
    ) -> SeriesState:
        from aru.models.compiled import move_on, new_rows

        new, members = new_rows(*data), state.members
        if adapt:
            members = tuple(model.learn(state, m, new) for model, m in zip(models, members, strict=True))
        return move_on(state, data.rows, new, members)

    def _advance_group(self, state: SeriesState, data: Ragged, index: Tensor, adapt: bool) -> SeriesState:
        if self._tracking is not None and adapt:
            return self._advance_tracked(self._tracking, state, data, index)
        lengths = data.lengths[index]
        chunk = self.settings.window_stride * max(1, min(64, WINDOWS_AT_ONCE // len(index)))
        for lo in range(0, int(lengths.max()), chunk):
            steps = (lengths - lo).clamp(0, chunk)
            rows = _gather(data.rows, data.starts[index] + lo, steps)
            if bool((steps == 0).any()):  # the short ones of the group are done
                live = (steps > 0).nonzero().squeeze(-1)
                new = self._step(take(state, live), Rows._make(v[live] for v in rows), steps[live], adapt)
                state = put(state, live, new)
            else:
                state = self._step(state, rows, steps, adapt)
        return state

    def _advance_tracked(self, tracking: Tracking, state: SeriesState, data: Ragged, index: Tensor) -> SeriesState:
        """Window by window, since the forecast of each one is compared with its truth before the next is made."""
        lengths, done = data.lengths[index], torch.zeros_like(data.lengths[index])
        while bool((done < lengths).any()):
            steps = torch.minimum(lengths - done, tracking.left(state))
            live = steps.nonzero().squeeze(-1)
            rows = _gather(data.rows, (data.starts[index] + done)[live], steps[live])
            here = state if len(live) == len(steps) else take(state, live)
            new = self._step(here, rows, steps[live], adapt=True)
            new = tracking.follow(new, rows, steps[live], self._experts)
            state = new if len(live) == len(steps) else put(state, live, new)
            done = done + steps
        return state

    def _step(self, state: SeriesState, rows: Rows, steps: Tensor, adapt: bool) -> SeriesState:
        """Take in the first `steps` of (series, row) rows of every series."""
        block = self._block(state, rows)
        members = state.members
        if adapt:
            position = state.steps % self.settings.window_stride
            members = tuple(
                model.update(member, block, position, steps) for model, member in zip(self.models, members, strict=True)
            )
        n = rows.y.shape[1]
        seen = rows.observed & (torch.arange(n, device=steps.device) < steps[:, None])
        at = None if bool((steps == n).all()) else steps  # a series may have fewer rows than others
        ds = _latest(state.ds, rows.ds, at)
        if self._tracking is not None and not adapt:
            state = self._tracking.forget(state)
        return SeriesState(
            last=ds[:, -1],
            steps=state.steps + steps,
            total=state.total + torch.where(seen, rows.y.abs(), 0.0).sum(1),
            count=state.count + seen.sum(1),
            y=_latest(state.y, rows.y, at),
            observed=_latest(state.observed, rows.observed, at),
            ds=ds,
            futr=_latest(state.futr, rows.futr, at),
            futr_cat=_latest(state.futr_cat, rows.futr_cat, at),
            hist=_latest(state.hist, rows.hist, at),
            hist_cat=_latest(state.hist_cat, rows.hist_cat, at),
            static=state.static,
            static_cat=state.static_cat,
            members=members,
            track=state.track,
        )

    def _block(self, state: SeriesState, rows: Rows) -> Block:
        """Context of each series followed by (series, row) rows."""
        E, M = self.schema.input_size, self.schema.history
        y = torch.cat([state.y, rows.y], 1)
        observed = torch.cat([state.observed, rows.observed], 1)
        n = rows.y.shape[1]
        lag = [y[:, M - E - back : M + n - back] for back in self.schema.lags]
        lag_observed = [observed[:, M - E - back : M + n - back] for back in self.schema.lags]
        none = (*rows.y.shape[:1], E + n, 0)
        return Block(
            y=y[:, M - E :],
            observed=observed[:, M - E :],
            lag=torch.stack(lag, -1) if lag else y.new_zeros(none),
            lag_observed=torch.stack(lag_observed, -1) if lag else observed.new_zeros(none),
            futr=torch.cat([state.futr, rows.futr], 1),
            futr_cat=torch.cat([state.futr_cat.long(), rows.futr_cat], 1),
            hist=torch.cat([state.hist, rows.hist], 1),
            hist_cat=torch.cat([state.hist_cat.long(), rows.hist_cat], 1),
            static=state.static,
            static_cat=state.static_cat.long(),
            total=state.total,
            count=state.count,
        )

    def select(self, state: SeriesState, index: Tensor) -> SeriesState:
        """The states of some series."""
        return take(state, index.to(self.device))

    def _jump(self, state: SeriesState, steps: Tensor, adapt: bool) -> SeriesState:
        """Let steps pass that no later forecast can see."""
        members = state.members
        if adapt:
            members = tuple(m.age(s, steps) for m, s in zip(self.models, members, strict=True))
        if self._tracking is not None:
            state = self._tracking.jump(state, steps, self._experts) if adapt else self._tracking.forget(state)
        return state._replace(steps=state.steps + steps, members=members)


def _combine(outputs: Sequence[Output], quantiles: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Means and quantiles; an ensemble's quantiles are the averages of its members' quantiles."""
    mean = _average([out.forecast.mean() for out in outputs])
    return mean, _average([torch.stack([out.forecast.quantile(q) for q in quantiles]) for out in outputs])


def _any_failed(outputs: Sequence[Output]) -> Tensor:
    failed = outputs[0].failed
    for out in outputs[1:]:
        failed = failed | out.failed
    return failed


def _average(values: Sequence[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(list(values)).mean(0)


def _latest(old: Tensor, new: Tensor, steps: Tensor | None) -> Tensor:
    """As many rows as `old` has, after the first `steps` of `new`, or after all of them: (series, row, ...)."""
    both = torch.cat([old, new.to(old.dtype)], 1)
    if steps is None:
        return both[:, new.shape[1] :]
    at = steps[:, None] + torch.arange(old.shape[1], device=steps.device)
    return both[torch.arange(len(at), device=steps.device)[:, None], at]


def _gather(rows: Rows, starts: Tensor, lengths: Tensor) -> Rows:
    """(series, row) rows, left-aligned; rows past a series' end are zero and unobserved."""
    n = int(lengths.max())
    at = torch.arange(n, device=starts.device)
    inside = at < lengths[:, None]
    index = torch.where(inside, starts[:, None] + at, 0)
    return Rows._make(v[index].masked_fill_(~inside.reshape(*inside.shape, *(1,) * (v.ndim - 1)), 0) for v in rows)


def _groups(lengths: Tensor, at_most: int) -> list[Tensor]:
    """Indices of series with rows, grouped by the power of two of their number of rows."""
    count = lengths.cpu().numpy()
    order = np.log2(np.maximum(count, 1)).astype(int)
    groups = []
    for power in np.unique(order[count > 0]):
        index = np.flatnonzero((order == power) & (count > 0))
        groups += [torch.from_numpy(index[i : i + at_most]).to(lengths.device) for i in range(0, len(index), at_most)]
    return groups


def _first(data: Ragged) -> Tensor:
    """Steps skipped before the first row of each series."""
    if len(data.skipped) == 0:
        return torch.zeros_like(data.lengths)
    return data.skipped[data.starts.clamp(max=len(data.skipped) - 1)]


def _segments(data: Ragged) -> list[Ragged]:
    """Cut the rows of each series where steps were skipped: segment i of every series, for i = 0, 1, ..."""
    if not data.skipped.any():
        return [data]
    cuts = data.skipped.nonzero().squeeze(-1).cpu().numpy()
    starts, ends = data.starts.cpu().numpy(), (data.starts + data.lengths).cpu().numpy()
    live = np.flatnonzero(ends > starts)
    if len(live) == 0:
        return [data]
    live = live[np.argsort(starts[live])]  # series come in any order
    owner = live[np.searchsorted(starts[live], cuts, side="right") - 1]
    # A cut before the first row is a jump; one outside the rows belongs to rows that are not taken in now.
    inside = (starts[owner] < cuts) & (cuts < ends[owner])
    owner, cuts = owner[inside], cuts[inside]
    order = np.argsort(owner, kind="stable")
    owner, cuts = owner[order], cuts[order]
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    bounds = np.repeat(ends[None], int(rank.max(initial=-1)) + 3, 0)
    bounds[0], bounds[rank + 1, owner] = starts, cuts
    edges = torch.from_numpy(bounds).to(data.starts.device)
    return [Ragged(data.rows, lo, hi - lo, data.skipped) for lo, hi in itertools.pairwise(edges)]
