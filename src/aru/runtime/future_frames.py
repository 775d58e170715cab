"""Frames of future steps: what is to be filled with covariates, and what of it is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from aru.data.clock import Times
from aru.data.columns import Bools, as_frame
from aru.data.panel import read_future
from aru.errors import ConfigError
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.future import future_times, missing_steps
from aru.runtime.state import SeriesState


def future_columns(runtime: ForecastRuntime, names: pd.Index[Any], state: SeriesState, steps: int) -> dict[str, Any]:
    """Series and times of the next steps."""
    ds = _times(runtime, names, state, steps)
    return _columns(names, ds, np.ones(ds.shape, bool))


def missing_columns(
    runtime: ForecastRuntime, names: pd.Index[Any], state: SeriesState, futr_df: Any, steps: int
) -> dict[str, Any]:
    """Series and times of the next steps that have no row in `futr_df`; all of them where columns are missing.

    The missing columns follow, to be filled.
    """
    covariates = list(runtime.settings.futr_exog_list)
    ds = _times(runtime, names, state, steps)
    if futr_df is None:
        return _with_missing(_columns(names, ds, np.full(ds.shape, bool(covariates))), covariates)
    frame = as_frame(futr_df, "futr_df")
    absent = [name for name in covariates if name not in frame.columns]
    panel = None
    if len(frame) and not absent:
        panel = read_future(futr_df, runtime.freq, covariates)
        runtime.check_kinds(panel, "futr_df")
    return _with_missing(_columns(names, ds, missing_steps(panel, names, ds)), absent)


def _times(runtime: ForecastRuntime, names: pd.Index[Any], state: SeriesState, steps: int) -> Times:
    if runtime.freq.freq is None:
        raise ConfigError(
            "Without a frequency the times of future steps are not known", "Give `futr_df` with the next rows."
        )
    return future_times(runtime.freq, names, state.last.cpu().numpy(), steps, runtime.schema.clock)


def _columns(names: pd.Index[Any], ds: Times, which: Bools) -> dict[str, Any]:
    series, _ = np.nonzero(which)
    return {"unique_id": names.to_numpy()[series], "ds": ds[which]}


def _with_missing(columns: dict[str, Any], absent: list[str]) -> dict[str, Any]:
    return columns | {name: np.full(len(columns["ds"]), np.nan) for name in absent}
