"""A model with the states of its series, as a forecaster holds it and as a folder keeps it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from aru.data.clock import Times
from aru.data.columns import show_times
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.naming import Names
from aru.data.schema import Schema
from aru.data.scores import Scorecard
from aru.errors import AruError, StorageError, name_series, verbatim, warn
from aru.nn.device import choose_device
from aru.nn.tree import leaves, rebuild
from aru.runtime.engine import NetworkEngine
from aru.runtime.epochs import Common
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.opening import is_open, new_model, suit
from aru.runtime.records import Record
from aru.runtime.table import StateTable
from aru.runtime.update import UpdateResult
from aru.settings import PRETRAINED, AcceleratorName, Settings
from aru.store.exchange import index_of
from aru.store.folder import Saved, read_folder

MOST_REQUESTS = 1000  # files whose digests are kept


class Choice(NamedTuple):
    """Something that `fit` decided."""

    what: str
    choice: str
    why: str


class Trained(NamedTuple):
    """The result of training: model and states."""

    runtime: ForecastRuntime
    table: StateTable  # the states of all series
    ids: pd.Index[Any]  # the series that were trained on
    until: Times  # the latest training time of each of them
    requests: tuple[str, ...] = ()  # digests of the latest files that were consumed, latest first
    chosen: tuple[Choice, ...] = ()  # what training decided

    def copy(self) -> Trained:
        """The same; changes of one do not reach the other."""
        runtime = self.runtime
        if runtime.engine.shares:
            runtime = ForecastRuntime(runtime.engine.twin(), runtime.freq, runtime.style)
        return self._replace(runtime=runtime, table=self.table.copy())

    @property
    def open(self) -> bool:
        """Whether ids, times and covariates may be of any type: a pretrained model without series."""
        return is_open(self.runtime) and not len(self.table)

    def suited(self, df: Any, static_df: Any = None, withheld: int = 0) -> Trained:
        """The same for ids, times and covariates as in these frames, if that is open (`aru.runtime.opening.suit`)."""
        return begin_trained(suit(self.runtime, df, static_df, withheld)) if self.open else self

    def called(self, names: Names) -> Trained:
        """The same, whose frames have columns of these names."""
        runtime = self.runtime
        if runtime.style.names == names:
            return self
        return self._replace(runtime=ForecastRuntime(runtime.engine, runtime.freq, runtime.style.called(names)))

    def with_request(self, digest: str) -> Trained:
        """This file was consumed, too."""
        return self._replace(requests=(digest, *self.requests)[:MOST_REQUESTS])

    def to_saved(self, model: Mapping[str, Any], series: Mapping[str, Any]) -> Saved:
        """The contents of a folder. `model` and `series` are further facts that JSON can hold."""
        engine = self.runtime.engine
        parts = [(f"{i}.{k}", v) for i, m in enumerate(engine.models) for k, v in m.state_dict().items()]
        networks = {f"{i}-{name}": g for i, graphs in enumerate(engine.networks) for name, g in graphs.items()}
        weights, states = (  # copies: safetensors cannot write tensors that share memory
            {k: v.detach().cpu().contiguous().clone() for k, v in tensors}
            for tensors in (parts, leaves(self.table.states))
        )
        about = {
            "settings": engine.settings.to_json(),
            "schema": engine.schema.to_json(),
            "frame": self.runtime.style.to_json(),
            "members": len(engine.models),
            "chosen": [list(choice) for choice in self.chosen],
        }
        known = {
            "ids": self.table.ids,
            "trained_ids": self.ids.tolist(),
            "trained_until": self.until.tolist(),
            "requests": self.requests,
            "common": engine.common.to_json(),
        }
        return Saved({**about, **model}, weights, {**known, **series}, states, networks)


def warn_lost(before: Trained | None, after: Trained) -> None:
    """Warn about series that a model knew before a training and does not know any more."""
    if before is None:
        return
    kept = set(after.table.ids)
    lost = [name for name in before.table.ids if name not in kept]
    if lost:
        warn(f"{len(lost)} series that this model knew are not in `df`, and are forgotten: {name_series(lost)}.")


def take_in(
    trained: Trained,
    df: Any,
    static_df: Any,
    late: Literal["raise", "skip"],
    allow_jump: bool,
    request: bytes | None,
    names: Names,
) -> tuple[Trained, UpdateResult]:
    """The same after new observations, whose table is changed, and what became of the rows.

    The columns of the frames are named as inside; the user has these names for them.
    """
    known = trained
    if trained.open:
        trained = trained.suited(df, static_df).called(names)
    runtime, table, name = trained.runtime, trained.table, "" if request is None else request.hex()
    resent = name in trained.requests
    new = runtime.read(df)
    places = table.places(new.ids)
    old = places >= 0
    record = Record(table.take(places[old]))
    style = FrameStyle.of(df, runtime.style).called(names)
    update = runtime.update(
        new, new.ids[old], record, table.newest, static_df, late, style=style, allow_jump=allow_jump, resent=resent
    )
    if update.record is None:
        trained = known  # nothing was learned of types, either
    else:
        table.put(update.ids, update.record.now)
        runtime.engine.learn_common(table.states, table.ids)
    if name and not resent and len(update.result.left_out["ds"]) == 0:
        trained = trained.with_request(name)
    return trained, update.result


def facts_of(settings: Settings, trained: Trained | None) -> str:
    """A forecaster in one line."""
    told = {"model": repr(settings.model), "h": settings.h, "freq": repr(settings.freq)}
    if trained is None:
        return f"Forecaster({', '.join(f'{k}={v}' for k, v in told.items())}, not trained)"
    schema, series = trained.runtime.schema, f"{len(trained.table):,} series"
    if settings.model == PRETRAINED and not len(trained.until):
        facts = f"h={settings.h}, freq={settings.freq!r}, {series}"
        return f"Forecaster.from_pretrained({settings.size!r}, {facts})"
    if settings.model == PRETRAINED:
        told["size"] = repr(settings.size)
    else:
        more = {"input_size": schema.input_size, "lags": list(schema.lags), "distribution": repr(schema.distribution)}
        told |= more
    (until,) = show_times(trained.until.max(keepdims=True), schema.clock)
    return f"Forecaster({', '.join(f'{k}={v}' for k, v in told.items())}, {series}, trained until {until})"


def begin_trained(runtime: ForecastRuntime) -> Trained:
    """A model without series, trained on none."""
    ids = index_of([], runtime.schema.integer_ids)
    return Trained(runtime, StateTable([], runtime.no_records().now), ids, np.zeros(0, np.int64))


def from_saved(saved: Saved, accelerator: AcceleratorName) -> Trained:
    """The inverse of `to_saved`. What does not fit together is an error of any kind."""
    settings = dataclasses.replace(Settings.from_json(saved.model["settings"]), accelerator=accelerator)
    schema = Schema.from_json(saved.model["schema"])
    models, networks = [], []
    for i in range(saved.model["members"]):
        model = new_model(settings, schema)
        model.load_state_dict(_below(saved.weights, f"{i}."))
        models.append(model)
        networks.append(_below(saved.networks, f"{i}-"))
    engine = NetworkEngine(settings, schema, models, choose_device(accelerator), networks)
    # Copied into aligned memory: tensors of the file may be unaligned, which changes the last bits of results.
    flat = {key: value.clone() for key, value in saved.states.items()}
    states = rebuild(engine.empty(schema.no_static()), flat)
    if len(saved.series["ids"]) != len(states.last):
        raise ValueError(f"{len(saved.series['ids'])} series but {len(states.last)} states")
    style = FrameStyle.from_json(saved.model["frame"])
    runtime = ForecastRuntime(engine, Frequency(settings.freq, style.zone), style)
    runtime.check(states, saved.series["ids"])
    engine.common = Common.from_json(saved.series["common"])
    return Trained(
        runtime=runtime,
        table=StateTable(saved.series["ids"], states),
        ids=index_of(saved.series["trained_ids"], schema.integer_ids),
        until=np.array(saved.series["trained_until"], dtype=np.int64),
        requests=tuple(saved.series["requests"]),
        chosen=tuple(Choice(*row) for row in saved.model.get("chosen", ())),
    )


def read_trained(path: str | Path, accelerator: AcceleratorName) -> tuple[Trained, Scorecard | None, int]:
    """What a forecaster saved: model and states, the scorecard, and the rows since it was fitted."""
    saved = read_folder(path)
    try:
        trained, card = from_saved(saved, accelerator), saved.model["scorecard"]
        return trained, None if card is None else Scorecard.from_json(card), int(saved.series["rows_since_fit"])
    except AruError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise StorageError(
            f"{verbatim(path)} does not fit together ({verbatim(reason)})",
            "Read it with the version of aru that wrote it.",
        ) from error


def _below(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The items whose name begins with a prefix, named without it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
