"""`ForecastRuntime`: a `Runtime` of trained networks, which also forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from aru.checked import check_whole
from aru.data.clock import Times
from aru.data.columns import read_static
from aru.data.frames import FrameStyle, forecast_names, quantiles_of
from aru.data.naming import Names
from aru.data.panel import Panel, read_future
from aru.data.rows import Ragged, Rows
from aru.errors import ConfigError, FutureError, listing, name_series, verbatim, warn
from aru.runtime.backtest import Fold, rolling
from aru.runtime.engine import Forecast, NetworkEngine
from aru.runtime.future import first_rows, future_rows
from aru.runtime.runtime import Runtime
from aru.runtime.state import SeriesState
from aru.settings import Settings


class Predicted(NamedTuple):
    """Columns of forecasts, and the epoch of what series have in common that they rest on; None without it."""

    columns: dict[str, Any]
    epoch: int | None


class ForecastRuntime(Runtime[NetworkEngine]):
    """Updates records of series and forecasts from them."""

    @property
    def settings(self) -> Settings:
        """The settings that the networks were trained with."""
        return self.engine.settings

    @property
    def h(self) -> int:
        """The horizon."""
        return self.engine.h

    @property
    def epoch(self) -> int | None:
        """How often was learned what series have in common; None if nothing is."""
        return self.engine.common.epoch or None

    def warm_up(self) -> None:
        """Load and compile everything that the first update and forecast need."""
        self.engine.warm_up()

    def forecast(self, state: SeriesState, rows: Rows, quantiles: Sequence[float]) -> Forecast:
        """Forecasts of the next h steps, in CPU memory; `rows` is the result of `future`."""
        return self.engine.forecast(state, rows, quantiles).cpu()

    def global_forecast(self, state: SeriesState, rows: Rows, quantiles: Sequence[float]) -> Forecast:
        """The same without adaptation: the forecasts of the network alone."""
        return self.forecast(self.engine.unadapted(state), rows, quantiles)

    def both_forecasts(self, state: SeriesState, rows: Rows, quantiles: Sequence[float]) -> tuple[Forecast, Forecast]:
        """With and without adaptation; the latter with the first quantile at least. The same if nothing adapts."""
        adapted = self.forecast(state, rows, quantiles)
        if not any(model.adapts for model in self.engine.models):
            return adapted, adapted
        return adapted, self.global_forecast(state, rows, quantiles[:1])

    def effective_sizes(self, state: SeriesState) -> tuple[Tensor, Tensor] | None:
        """Effective number of observations in the local statistics, by series and aging factor, and these factors."""
        return self.engine.effective_sizes(state)

    def steps(self, h: int | None) -> int:
        """How many steps to forecast: h, or the whole horizon. More are refused."""
        if h is None:
            return self.h
        if check_whole("h", h, 1) > self.h:
            raise ConfigError(
                f"`h={h}` is longer than the horizon of this model, which is {self.h} steps",
                "Ask for fewer steps, or make a model with a longer horizon.",
            )
        return int(h)

    def read_futr(self, futr_df: Any, h: int | None = None) -> Panel | None:
        """The rows of `futr_df`, checked; None if it is not given. An error if forecasts need it."""
        settings = self.engine.settings
        if futr_df is None:
            if settings.futr_exog_list or self.freq.freq is None:
                needed = ", ".join(["`unique_id`", "`ds`", *map(verbatim, settings.futr_exog_list)])
                raise FutureError(
                    f"Forecasts of this model need {needed} of the next {self.steps(h)} steps of each series",
                    "Give `futr_df`.",
                )
            return None
        panel = read_future(futr_df, self.freq, list(settings.futr_exog_list))
        self.check_kinds(panel, "futr_df")
        return panel

    def future(
        self, ids: pd.Index[Any], state: SeriesState, futr: Panel | None, given: int | None = None
    ) -> tuple[Times, Rows]:
        """Timestamps (series, h) and encoded covariates of the next h steps; `futr` is the result of `read_futr`.

        It need have the first `given` steps only.
        """
        last = state.last.cpu().numpy()
        return future_rows(self.engine.schema, self.freq, self.h, ids, last, futr, self.steps(given))

    def predict(
        self,
        ids: pd.Index[Any],
        state: SeriesState,
        futr: Panel | None,
        level: Sequence[float] | None,
        h: int | None = None,
    ) -> Predicted:
        """The columns of a forecast of the next h steps: h rows for each series, with internal times."""
        return Predicted(self._columns(ids, state, *self.future(ids, state, futr, h), level, h), self.epoch)

    def predict_new(
        self,
        known: Iterable[Any],
        futr_df: Any,
        static_df: Any,
        level: Sequence[float] | None,
    ) -> Predicted:
        """The same for the first h steps of series without any value. Series in `known` are refused."""
        engine, known = self.engine, list(known)
        if not engine.models[0].cold_starts(engine.common.effects):
            raise _unprepared(engine, known)
        panel = read_future(futr_df, self.freq, list(engine.settings.futr_exog_list))
        self.check_kinds(panel, "futr_df")
        old = panel.ids[panel.ids.isin(known)]
        if len(old):
            named = name_series(old)
            raise FutureError(f"These series have values already: {named}", "Forecast them with predict.", rows=named)
        ds, rows = first_rows(engine.schema, self.freq, engine.h, panel)
        static = engine.schema.encode_static(read_static(static_df, panel.ids, engine.static_columns), panel.ids)
        return Predicted(self._columns(panel.ids, engine.empty(static), ds, rows, level), self.epoch)

    def _columns(
        self,
        ids: pd.Index[Any],
        state: SeriesState,
        ds: Times,
        rows: Rows,
        level: Sequence[float] | None,
        h: int | None = None,
    ) -> dict[str, Any]:
        forecast = self.forecast(state, rows, quantiles_of(level))
        if h is not None:
            ds, forecast = ds[:, :h], forecast.first(h)
        warn_failed(forecast, ids)
        keys = {"unique_id": np.repeat(ids.to_numpy(), ds.shape[1]), "ds": ds.ravel()}
        return {**keys, **self.forecast_columns(forecast, level)}

    def forecast_columns(self, forecast: Forecast, level: Sequence[float] | None) -> dict[str, Any]:
        """Columns of mean, median and ends of intervals, named after the model."""
        values = [forecast.mean, *forecast.quantiles]
        names = forecast_names(self.engine.settings.name, level)
        return {name: v.numpy().ravel() for name, v in zip(names, values, strict=True)}

    def rolling(
        self,
        panel: Panel,
        cutoffs: Any,
        level: Sequence[float] | None,
        adapt: bool,
        static_df: Any,
    ) -> Iterator[Fold]:
        """Replay a panel from empty states and forecast at every cutoff. Input errors are raised at once."""
        engine, quantiles = self.engine, quantiles_of(level)
        static = engine.schema.encode_static(read_static(static_df, panel.ids, engine.static_columns), panel.ids)
        starts, lengths, skipped = (torch.from_numpy(a) for a in (panel.starts, panel.lengths, panel.skipped))
        data = Ragged(engine.schema.encode(panel), starts, lengths, skipped)

        def folds() -> Iterator[Fold]:
            for fold in rolling(engine, data, static, cutoffs, quantiles, adapt):
                warn_failed(fold.forecast, panel.ids[fold.series])
                yield fold

        return folds()

    # Frames out

    def build(self, made: Predicted, futr_df: Any = None, names: Names | None = None, each: int = 1) -> Any:
        """A frame of forecasts, of the same library as `futr_df`, if it is given. `attrs` in pandas have the epoch.

        `names` are those of its columns, if they are not the model's. Every series has `each` rows.
        """
        style = self.style if futr_df is None else FrameStyle.of(futr_df, self.style)
        frame = (style if names is None else style.called(names)).build(made.columns, each)
        if made.epoch is not None and isinstance(frame, pd.DataFrame):
            frame.attrs["epoch"] = made.epoch
        return frame


def _unprepared(engine: NetworkEngine, known: Sequence[Any]) -> FutureError:
    """Why a pretrained model has no forecast of a series without values."""
    if engine.learned_late and not known:
        return FutureError("No series is known, so that the level of a new one is not", "Give the others with update.")
    if engine.schema.regressors:
        return FutureError(
            "Too little is known of other series to tell the level of a new one: two of them must have two values",
            "Give more of them with update.",
        )
    return FutureError(
        "A pretrained model without covariates forecasts from past values",
        "Give series one value with update, or name covariates in from_pretrained.",
    )


def warn_failed(forecast: Forecast, ids: pd.Index[Any]) -> None:
    """Warn about series whose local fit failed, and about those without a finite forecast."""
    mean, quantiles, failed = (value.numpy() for value in forecast)
    if not failed.any() and np.isfinite(mean).all() and np.isfinite(quantiles).all():
        return
    lost = ~(forecast.mean.isfinite().all(1) & forecast.quantiles.isfinite().all(2).all(0))
    for which, says in (
        (forecast.failed & ~lost, "The local fit of series {} failed numerically; this is the global forecast."),
        (lost, "Series {} have no finite forecast."),
    ):
        if which.any():
            names = listing(list(ids[which.numpy()]))
            warn(f"{says.format(names)} Check their values.")
