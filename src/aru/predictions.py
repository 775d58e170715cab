"""Forecasts of states as the columns of a frame: what every surface that forecasts shares."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from aru.engine import Engine, Forecast
from aru.errors import AruWarning, listing
from aru.frames import FrameStyle, forecast_columns, quantiles_of
from aru.frequency import Frequency, Times
from aru.ingest import future_rows
from aru.panel import Panel
from aru.schema import Rows
from aru.state import SeriesState


def predict_next(
    engine: Engine,
    freq: Frequency,
    ids: pd.Index[Any],
    state: SeriesState,
    futr: Panel | None,
    level: Sequence[float] | None,
) -> dict[str, Any]:
    """Columns of a forecast of the next h steps of series in these states; `futr` as `read_futr` gives it."""
    ds, rows = future_rows(engine, freq, ids, state.last.cpu().numpy(), futr)
    return predict_rows(engine, ids, state, ds, rows, level)


def predict_rows(
    engine: Engine,
    ids: pd.Index[Any],
    state: SeriesState,
    ds: Times,
    rows: Rows,
    level: Sequence[float] | None,
) -> dict[str, Any]:
    """The same for h given rows of each series, at (series, h) times."""
    forecast = engine.forecast(state, rows, quantiles_of(level)).cpu()
    warn_failed(forecast, ids)
    keys = {"unique_id": np.repeat(ids.to_numpy(), ds.shape[1]), "ds": ds.ravel()}
    return {**keys, **forecast_columns(forecast, engine.settings.name, level)}


def future_style(style: FrameStyle, futr_df: Any) -> FrameStyle:
    """Forecasts come as the kind of frame that `futr_df` is, if there is one."""
    return style if futr_df is None else FrameStyle.of(futr_df, style)


def warn_failed(forecast: Forecast, ids: pd.Index[Any]) -> None:
    """Name the series whose local fit failed, and those that have no finite forecast at all."""
    lost = ~(forecast.mean.isfinite().all(1) & forecast.quantiles.isfinite().all(2).all(0))
    for which, says in (
        (forecast.failed & ~lost, "The local fit of series {} failed numerically; the global forecast stands in."),
        (lost, "Series {} have no finite forecast."),
    ):
        if which.any():
            names = listing(list(ids[which.numpy()]))
            warnings.warn(f"{says.format(names)} Check their values.", AruWarning, stacklevel=4)
