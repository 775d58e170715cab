"""`Runtime`: everything that is done with a trained model, for whoever does it.

Forecaster, Stream, Adapter, service, monitor and Spark hold series in different places. What happens to their rows and
records is the same, and is here: read rows, update records, build future rows, forecast, encode and decode, describe.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch

from aru.data.columns import read_static
from aru.data.frames import FrameStyle, forecast_names, quantiles_of
from aru.data.frequency import Frequency, Times
from aru.data.panel import Observations, Panel, read_future, read_observations, read_panel
from aru.data.rows import Rows
from aru.data.target import check_values
from aru.errors import AruWarning, ColumnError, FutureError, listing
from aru.nn.tree import flatten, leaves, rebuild
from aru.runtime.backtest import Fold, rolling
from aru.runtime.engine import Engine, Forecast, NetworkEngine
from aru.runtime.future import first_rows, future_rows
from aru.runtime.records import Record, begin
from aru.runtime.state import SeriesState
from aru.runtime.update import Invalid, Late, Update, begin_with_values, compute_update
from aru.store.contract import About
from aru.store.layout import FORMAT, Layout

AnyEngine = TypeVar("AnyEngine", bound=Engine)


class Runtime(Generic[AnyEngine]):
    """An engine with the frequency of its series and the style of the frames that its users see."""

    def __init__(self, engine: AnyEngine, freq: Frequency, style: FrameStyle) -> None:
        self.engine = engine
        self.freq = freq
        self.style = style
        self._formats: dict[int, _Format] = {}  # by the steps that can be corrected

    # Rows in

    def read(self, df: Any, name: str = "new_df") -> Observations:
        """Check a frame of new observations, before anything is known of their series."""
        new = read_observations(df, self.freq, self.engine.columns, name)
        self.check_kinds(new, name)
        return new

    def read_history(self, df: Any, in_sight: int = 0) -> Panel:
        """Check a frame of whole series. Of a long gap, what a forecast can see is kept, and `in_sight` steps more."""
        max_gap = self.engine.max_gap + in_sight
        panel = read_panel(df, self.freq, self.engine.columns, max_gap=max_gap, settled=True)
        self.check_kinds(panel, "df")
        check_values(panel, self.engine.rules)
        return begin_with_values(panel, np.ones(len(panel.ids), bool), "df")

    def check_kinds(self, panel: Panel | Observations, name: str) -> None:
        """Refuse ids and times of another kind than is known: they would pass for new series, or for the past."""
        schema = self.engine.schema
        for column, known, given, kinds in (
            ("unique_id", schema.integer_ids, pd.api.types.is_integer_dtype(panel.ids), ("strings", "integers")),
            ("ds", schema.datetime, panel.datetime, ("integers", "timestamps")),
        ):
            if len(panel.ids) and bool(given) != known:
                raise ColumnError(
                    f"{column} of `{name}` holds {kinds[bool(given)]}, but training had {kinds[known]}",
                    "Convert the column.",
                    columns=[column],
                )

    def update(
        self,
        new: Observations,
        ids: pd.Index[Any],
        record: Record,
        static_df: Any = None,
        late: Late = "raise",
        invalid: Invalid = "raise",
        style: FrameStyle | None = None,
    ) -> Update:
        """The records that result from new observations. `ids` and `record`: what is known of the series in `new`."""
        style = style or self.style
        with self.engine.threads(len(ids)):
            return compute_update(self.engine, self.freq, style, new, ids, record, static_df, late, invalid)

    # Records

    def no_records(self, correctable_steps: int = 0) -> Record:
        """The records of no series at all."""
        return begin(self.engine.empty(self.engine.schema.no_static()), correctable_steps)

    def encode(self, record: Record) -> list[bytes]:
        """One blob per series."""
        layout = self._format(record.correctable_steps).layout
        arrays = (value.cpu().numpy() for value in flatten(record))
        return layout.pack({field.name: array for field, array in zip(layout.fields, arrays, strict=True)})

    def decode(self, blobs: Sequence[bytes], ids: Sequence[Any] | pd.Index[Any], correctable_steps: int = 0) -> Record:
        """The inverse of `encode`; `ids` are the series, for errors."""
        layout, like = self._format(correctable_steps)
        arrays = layout.unpack(blobs, ids)
        return rebuild(like, {path: torch.from_numpy(value) for path, value in arrays.items()})

    def describe(self, correctable_steps: int = 0) -> About:
        """What a store shall remember about records."""
        layout, schema = self._format(correctable_steps).layout, self.engine.schema
        return About(
            format=FORMAT,
            fingerprint=self.engine.fingerprint,
            correctable_steps=correctable_steps,
            size=layout.size,
            layout=layout.to_json(),
            integer_ids=schema.integer_ids,
            datetime=schema.datetime,
        )

    def _format(self, correctable_steps: int) -> _Format:
        if correctable_steps not in self._formats:
            like = self.no_records(correctable_steps)
            layout = Layout.of({path: value.cpu().numpy() for path, value in leaves(like)})
            self._formats[correctable_steps] = _Format(layout, like)
        return self._formats[correctable_steps]

    # Forecasts

    def read_futr(self: Runtime[NetworkEngine], futr_df: Any) -> Panel | None:
        """The rows of `futr_df`; None where forecasts need none and none are given."""
        settings = self.engine.settings
        if futr_df is None:
            if settings.futr_exog_list or self.freq.freq is None:
                needed = listing(["unique_id", "ds", *settings.futr_exog_list], 20)
                raise FutureError(
                    f"Forecasts of this model need {needed} of the next {settings.h} steps of each series",
                    "Give `futr_df`.",
                )
            return None
        panel = read_future(futr_df, self.freq, list(settings.futr_exog_list))
        self.check_kinds(panel, "futr_df")
        return panel

    def future(
        self: Runtime[NetworkEngine], ids: pd.Index[Any], state: SeriesState, futr: Panel | None
    ) -> tuple[Times, Rows]:
        """Timestamps (series, h) and encoded covariates of the next h steps; `futr` as `read_futr` gives it."""
        last = state.last.cpu().numpy()
        return future_rows(self.engine.schema, self.freq, self.engine.h, ids, last, futr)

    def predict(
        self: Runtime[NetworkEngine],
        ids: pd.Index[Any],
        state: SeriesState,
        futr: Panel | None,
        level: Sequence[float] | None,
    ) -> dict[str, Any]:
        """The columns of a forecast of the next h steps: h rows for each series, with internal times."""
        return self._columns(ids, state, *self.future(ids, state, futr), level)

    def predict_new(
        self: Runtime[NetworkEngine],
        known: Iterable[Any],
        futr_df: Any,
        static_df: Any,
        level: Sequence[float] | None,
    ) -> dict[str, Any]:
        """The same for the first h steps of series that have no value yet; `known` are those that have."""
        engine = self.engine
        panel = read_future(futr_df, self.freq, list(engine.settings.futr_exog_list))
        self.check_kinds(panel, "futr_df")
        old = panel.ids[panel.ids.isin(list(known))]
        if len(old):
            raise FutureError(f"These series have values already: {listing(list(old))}", "Forecast them with predict.")
        ds, rows = first_rows(engine.schema, self.freq, engine.h, panel)
        static = engine.schema.encode_static(read_static(static_df, panel.ids, engine.static_columns), panel.ids)
        return self._columns(panel.ids, engine.empty(static), ds, rows, level)

    def _columns(
        self: Runtime[NetworkEngine],
        ids: pd.Index[Any],
        state: SeriesState,
        ds: Times,
        rows: Rows,
        level: Sequence[float] | None,
    ) -> dict[str, Any]:
        forecast = self.engine.forecast(state, rows, quantiles_of(level)).cpu()
        warn_failed(forecast, ids)
        keys = {"unique_id": np.repeat(ids.to_numpy(), ds.shape[1]), "ds": ds.ravel()}
        return {**keys, **self.forecast_columns(forecast, level)}

    def forecast_columns(
        self: Runtime[NetworkEngine], forecast: Forecast, level: Sequence[float] | None
    ) -> dict[str, Any]:
        """Mean, median and the ends of intervals under the model's name."""
        values = [forecast.mean, *forecast.quantiles]
        names = forecast_names(self.engine.settings.name, level)
        return {name: v.numpy().ravel() for name, v in zip(names, values, strict=True)}

    def rolling(
        self: Runtime[NetworkEngine],
        panel: Panel,
        cutoffs: Any,
        level: Sequence[float] | None,
        adapt: bool,
        static_df: Any,
    ) -> Iterator[Fold]:
        """Replay a panel from empty states and forecast at every cutoff. What is wrong is said at once."""
        engine, quantiles = self.engine, quantiles_of(level)
        static = engine.schema.encode_static(read_static(static_df, panel.ids, engine.static_columns), panel.ids)

        def folds() -> Iterator[Fold]:
            for fold in rolling(engine, panel, static, cutoffs, quantiles, adapt):
                warn_failed(fold.forecast, panel.ids[fold.series])
                yield fold

        return folds()

    # Frames out

    def build(self: Runtime[NetworkEngine], columns: dict[str, Any], futr_df: Any = None) -> Any:
        """A frame of forecasts, of the kind that `futr_df` is, if there is one."""
        style = self.style if futr_df is None else FrameStyle.of(futr_df, self.style)
        return style.build(columns, self.engine.h)


class _Format(NamedTuple):
    """How records become bytes, and the records of no series."""

    layout: Layout
    like: Record


def warn_failed(forecast: Forecast, ids: pd.Index[Any]) -> None:
    """Name the series whose local fit failed, and those that have no finite forecast at all."""
    mean, quantiles, failed = (value.numpy() for value in forecast)
    if not failed.any() and np.isfinite(mean).all() and np.isfinite(quantiles).all():
        return
    lost = ~(forecast.mean.isfinite().all(1) & forecast.quantiles.isfinite().all(2).all(0))
    for which, says in (
        (forecast.failed & ~lost, "The local fit of series {} failed numerically; the global forecast stands in."),
        (lost, "Series {} have no finite forecast."),
    ):
        if which.any():
            names = listing(list(ids[which.numpy()]))
            warnings.warn(f"{says.format(names)} Check their values.", AruWarning, stacklevel=4)
