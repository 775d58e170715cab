"""The present forecast of a series for the dashboard, with intervals."""

from __future__ import annotations

import collections
import threading
from typing import Any

import pandas as pd

from aru.data.frames import quantiles_of
from aru.runtime import ForecastRuntime
from aru.runtime.state import SeriesState
from aru.serve import outgoing, tables
from aru.serve.tables import Columns
from aru.store import Key

FAN_LEVELS = (50, 80, 95)  # percent
REMEMBERED = 2**26  # bytes of known covariates that are kept in memory
OBJECT_BYTES = 64  # of a string beside its characters


class Fans:
    """Forecasts, with the known-future covariates that clients sent last, if the model needs any."""

    def __init__(self, runtime: ForecastRuntime) -> None:
        self._runtime = runtime
        self._asked: collections.deque[tuple[list[Key], Columns]] = collections.deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def remember(self, ids: list[Key], futr: Columns) -> None:
        """Keep the covariates of a request, and drop those of the oldest requests."""
        with self._lock:
            self._asked.append((ids, futr))
            self._bytes += _bytes_of(futr)
            while self._bytes > REMEMBERED:
                self._bytes -= _bytes_of(self._asked.popleft()[1])

    def missing(self) -> str:
        """The reason why there is no forecast, for users."""
        columns = ", ".join(["unique_id", "ds", *self._runtime.settings.futr_exog_list])
        return (
            f"Forecasts of this model need {columns} of the future. Those of the latest request to /v1/forecasts about "
            "this series are used here, if they reach far enough."
        )

    def make(self, ids: pd.Index[Any], state: SeriesState) -> list[dict[str, Any]]:
        """The next h steps of one series: its adapted forecast, the global one, and what the local model adds."""
        runtime = self._runtime
        ds, rows = runtime.future(ids, state, runtime.read_futr(self._latest(*ids.tolist())))
        adapted, plain = runtime.both_forecasts(state, rows, quantiles_of(FAN_LEVELS))
        values, mean, mean_global = adapted.quantiles[:, 0].numpy(), adapted.mean[0].numpy(), plain.mean[0].numpy()
        columns = {"ds": ds[0], "mean": mean, "median": values[0]}
        for i, level in enumerate(FAN_LEVELS):
            columns |= {f"lo_{level}": values[1 + 2 * i], f"hi_{level}": values[2 + 2 * i]}
        columns |= {
            "mean_global": mean_global,
            "median_global": plain.quantiles[0, 0].numpy(),
            "local": mean - mean_global,
        }
        return outgoing.to_rows(columns, runtime.freq.clock if runtime.schema.datetime else None)

    def _latest(self, key: Key) -> Any:
        with self._lock:
            found = next((futr for ids, futr in reversed(self._asked) if key in ids), None)
        return None if found is None else tables.only(found, [key])


def _bytes_of(columns: Columns) -> int:
    """What columns take in memory, at most: equal strings may be one."""
    texts = [values for values in columns.values() if values.dtype == object]
    return sum(values.nbytes for values in columns.values()) + sum(
        OBJECT_BYTES + len(value) for values in texts for value in values.tolist() if isinstance(value, str)
    )
