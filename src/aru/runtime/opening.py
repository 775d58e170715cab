"""Runtimes of pretrained models. They know no series yet: the first frame decides the types of ids and times."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from aru.data.columns import as_frame, read_static
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.holiday_dates import check_country
from aru.data.jumps import untrained_jump
from aru.data.naming import Names
from aru.data.panel import read_panel
from aru.data.schema import Schema
from aru.errors import ConfigError
from aru.models import build
from aru.models.interface import Model
from aru.nn.device import choose_device
from aru.pretrained.design import design
from aru.pretrained.patches import CONTEXT
from aru.pretrained.traits import with_traits
from aru.pretrained.zero_shot import ROWS_KEPT, ZeroShot
from aru.runtime.engine import NetworkEngine
from aru.runtime.forecasting import ForecastRuntime
from aru.settings import PRETRAINED, Settings

LONGEST_LAG = CONTEXT - ROWS_KEPT  # rows that historic covariates may be late


def new_model(settings: Settings, schema: Schema) -> Model:
    """A model with the shapes of saved weights."""
    return ZeroShot(settings, schema) if settings.model == PRETRAINED else build(settings, schema)


def open_pretrained(settings: Settings) -> ForecastRuntime:
    """The shipped network that `settings.size` names, for series with strings as ids, until a frame says otherwise."""
    freq = Frequency(settings.freq)
    if settings.country is not None:
        check_country(settings.country, settings.freq)
    if settings.hist_exog_list and settings.h > LONGEST_LAG:
        raise ConfigError(
            f"Historic covariates are known h rows late, which may be {LONGEST_LAG} rows, but `h={settings.h}`",
            "Leave out `hist_exog_list`, or use a shorter horizon.",
        )
    datetime = not isinstance(settings.freq, int)
    schema = Schema(
        input_size=CONTEXT,
        lags=(),
        distribution="quantiles",
        datetime=datetime,
        integer_ids=False,
        nonnegative=settings.support in ("nonnegative", "count"),
        integer=settings.support == "count",
        unit=1.0,
        typical_scale=1.0,
        calendar=(),
        futr=((), ()),
        hist=((), ()),
        stat=((), ()),
        zone=None,
        jump=untrained_jump(settings.freq, datetime, CONTEXT),
        country=settings.country,
    )
    model = ZeroShot(settings, schema)
    model.load(str(settings.size))
    engine = NetworkEngine(settings, schema, [model], choose_device(settings.accelerator))
    return ForecastRuntime(engine, freq, FrameStyle("pandas", "ns" if datetime else "int"))


def is_open(runtime: ForecastRuntime) -> bool:
    """Whether the first frame is to decide about types and covariates: of a pretrained model that has seen none."""
    found = runtime.engine.learned_late and runtime.schema.regressors
    return runtime.settings.model == PRETRAINED and not found


def suit(
    runtime: ForecastRuntime, df: Any, static_df: Any = None, withheld: int = 0, names: Names | None = None
) -> ForecastRuntime:
    """The runtime of a pretrained model without series, for ids, times and covariates of the types in these frames.

    How covariates are read is found in the rows up to the first that is among the last `withheld` of its series.
    `names` are those of the user's columns, if they are not the runtime's.
    """
    frame = as_frame(df, "df")
    if not {"unique_id", "ds"} <= set(frame.columns):
        return runtime  # reading it will say so
    style = FrameStyle.of(frame)
    suited = with_types(runtime, frame["unique_id"].dtype.is_integer(), style.ds != "int", style.zone)
    if runtime.engine.learned_late:
        suited = _with_covariates(suited, df, static_df, withheld)
    own = dataclasses.replace(suited.style, backend=style.backend, ds=style.ds, names=names or suited.style.names)
    return ForecastRuntime(suited.engine, suited.freq, own)


def with_types(
    runtime: ForecastRuntime,
    integer_ids: bool,
    datetime: bool,
    zone: str | None,
    found: Mapping[str, Any] | None = None,
) -> ForecastRuntime:
    """The same for ids and times of these types, the latter in this time zone, and covariates as they were found."""
    if found is not None:  # the country is a setting: another one is another model
        runtime = _with_schema(runtime, dataclasses.replace(Schema.from_json(found), country=runtime.schema.country))
    engine, freq = runtime.engine, Frequency(runtime.freq.freq, zone)
    datetime = datetime or isinstance(freq.freq, str)  # integers as times are then refused
    schema = dataclasses.replace(
        runtime.schema,
        integer_ids=integer_ids,
        datetime=datetime,
        zone=zone if freq.clock.utc else None,
        jump=untrained_jump(freq.freq, datetime, CONTEXT),
    )
    if schema != runtime.schema:
        engine = _with_schema(runtime, schema).engine
        engine.common = runtime.engine.common  # whatever the types of ids and times
    return ForecastRuntime(engine, freq, dataclasses.replace(runtime.style, zone=zone).on(freq))


def _with_covariates(runtime: ForecastRuntime, df: Any, static_df: Any, withheld: int) -> ForecastRuntime:
    """The same for the covariates of the settings: their kinds, ranges and categories are those of the frames."""
    settings, schema = runtime.settings, runtime.schema
    panel = read_panel(df, runtime.freq, list(runtime.engine.columns), max_gap=runtime.engine.max_gap)
    last = np.maximum(panel.starts + panel.lengths - 1 - withheld, panel.starts)
    keep = panel.ds <= panel.ds[last].min() if withheld else np.ones(len(panel.ds), bool)
    schema = with_traits(schema, read_static(static_df, panel.ids, runtime.engine.static_columns))
    return _with_schema(runtime, design(panel, keep, schema, settings, runtime.freq))


def _with_schema(runtime: ForecastRuntime, schema: Schema) -> ForecastRuntime:
    """The same weights for another schema."""
    engine = runtime.engine
    (old,) = engine.models
    assert isinstance(old, ZeroShot)
    model = old.for_schema(engine.settings, schema)
    engine = NetworkEngine(engine.settings, schema, [model], engine.device, engine.networks)
    return ForecastRuntime(engine, runtime.freq, runtime.style)
