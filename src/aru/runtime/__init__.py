"""Updates the states of series with new rows and forecasts from them, through one of two kinds of `Runtime`."""

from __future__ import annotations

from aru.runtime.adapting import CorrectionRuntime
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.runtime import Runtime

__all__ = ["CorrectionRuntime", "ForecastRuntime", "Runtime"]
