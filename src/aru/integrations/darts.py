"""Darts: a global model with all kinds of covariates, trained or zero-shot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from darts import TimeSeries
from darts.models.forecasting.forecasting_model import GlobalForecastingModel

from aru.errors import FrequencyError, InputError
from aru.forecaster import Forecaster

Several: TypeAlias = TimeSeries | Sequence[TimeSeries]


class _Rows(NamedTuple):
    """Series as aru reads them: observations, static covariates, and all known rows of future covariates."""

    df: pd.DataFrame
    static: pd.DataFrame | None
    future: pd.DataFrame | None

    def begin_with(self, other: _Rows) -> bool:
        """Whether these are the rows of the other, and maybe later ones."""
        if self.static is None or other.static is None:
            same = self.static is other.static
        else:
            same = other.static.equals(self.static)
        merged = other.df.merge(self.df, on=list(other.df.columns), how="left", indicator="known")
        return bool(same and (merged["known"] == "both").all())


class AruModel(GlobalForecastingModel):
    """One global model for series of one or several components, each of which is a series to aru.

    `predict` forecasts any series from its own history, without training. If the history continues that of the call
    before, only the new rows are taken in: `historical_forecasts(retrain=False)` walks through a series once. Weights,
    and the effects that covariates have in all series, are those of `fit`.

    Args:
        output_chunk_length: The horizon. `predict` gives as many steps or fewer.
        train: False: forecast with the pretrained network as it is. True: tune it in `fit`.
        settings: Further arguments of `Forecaster.from_pretrained`, or with `train` of `Forecaster`.
    """

    def __init__(
        self,
        output_chunk_length: int,
        train: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.horizon, self.train, self.given = output_chunk_length, train, dict(settings or {})
        self.forecaster: Forecaster | None = None
        self._walk: tuple[_Rows, Forecaster] | None = None
        super().__init__(add_encoders=None)
        self._considers_static_covariates = True

    def fit(
        self,
        series: Several,
        past_covariates: Several | None = None,
        future_covariates: Several | None = None,
        verbose: bool | None = None,
    ) -> AruModel:
        """Learn from one or several series; zero-shot models learn the effects of covariates alone."""
        super().fit(series, past_covariates, future_covariates, verbose=verbose)
        targets = _listed(series)
        self._step = targets[0].freq
        rows = self._read(targets, past_covariates, future_covariates)
        settings: dict[str, Any] = {
            "h": self.horizon,
            "freq": targets[0].freq_str if targets[0].has_datetime_index else int(targets[0].freq),
            "hist_exog_list": _named(past_covariates, "p"),
            "futr_exog_list": _named(future_covariates, "f"),
            "stat_exog_list": [] if rows.static is None else list(rows.static.columns[1:]),
            **self.given,
        }
        if self.train:
            fitted = Forecaster(**settings).fit(rows.df, rows.static, allow_jump=True)
        else:
            fitted = Forecaster.from_pretrained(**settings)
            fitted.update(rows.df, rows.static, allow_jump=True)
        self.forecaster, self._walk = fitted.without_series(), None
        return self

    def predict(
        self,
        n: int,
        series: Several | None = None,
        past_covariates: Several | None = None,
        future_covariates: Several | None = None,
        num_samples: int = 1,
        verbose: bool | None = None,
        predict_likelihood_parameters: bool = False,
        show_warnings: bool = True,
        random_state: int | None = None,
    ) -> Several:
        """The mean of the next n steps, or `num_samples` sample paths."""
        if series is None:
            series = self.training_series
            past_covariates = past_covariates or self.past_covariate_series
            future_covariates = future_covariates or self.future_covariate_series
        super().predict(n, series, past_covariates, future_covariates, num_samples, verbose, False, show_warnings)
        if n > self.horizon:
            raise InputError(f"`n={n}` is more than `output_chunk_length={self.horizon}`", "Fit a longer model.")
        targets = _listed(series)
        rows = self._read(targets, past_covariates, future_covariates)
        model = self._at_the_end(rows)
        futr = None
        if rows.future is not None:
            futr = model.make_future_dataframe(n)[["unique_id", "ds"]]
            futr = futr.merge(rows.future, on=["unique_id", "ds"])
        ids = list(range(sum(target.n_components for target in targets)))
        if num_samples == 1:
            made = model.predict(futr, ids=ids, h=n)[model.settings.name].to_numpy().reshape(len(ids), 1, n)
        else:
            paths = model.predict_paths(num_samples, futr, ids, n, rows.df, rows.static, random_state or 0)
            made = paths[model.settings.name].to_numpy().reshape(len(ids), num_samples, n)
        built, at = [], 0
        for target in targets:
            values = made[at : at + target.n_components].transpose(2, 0, 1)
            built.append(self._build_forecast_series(values, target))
            at += target.n_components
        return built[0] if isinstance(series, TimeSeries) else built

    def _read(self, targets: list[TimeSeries], past: Several | None, future: Several | None) -> _Rows:
        """Series as aru reads them, if they are such as `fit` had."""
        others = [target.freq for target in targets if target.freq != self._step]
        if others:
            raise FrequencyError(f"A series steps by {others[0]}, but the first one of `fit` by {self._step}")
        for name, given, used in (
            ("past_covariates", past, self.uses_past_covariates),
            ("future_covariates", future, self.uses_future_covariates),
        ):
            if given is not None and not used:
                raise InputError(f"The model was fitted without `{name}`", "Give them to `fit`, or leave them out.")
        return _read(targets, past, future, self.uses_static_covariates)

    def _clean(self) -> AruModel:
        cleaned: AruModel = super()._clean()
        cleaned._walk = None
        return cleaned

    def _at_the_end(self, rows: _Rows) -> Forecaster:
        """The model after these rows, from the call before where they continue its rows."""
        assert self.forecaster is not None
        if self._walk is not None and rows.begin_with(self._walk[0]):
            known, model = self._walk
            late = known.df[["unique_id", "ds"]].groupby("unique_id").ds.max()
            new = rows.df[~(rows.df.ds <= rows.df.unique_id.map(late))]
            if len(new):
                model.update(new, rows.static, allow_jump=True)
        else:
            model = self.forecaster.without_series()
            model.update(rows.df, rows.static, allow_jump=True)
        self._walk = rows, model
        return model

    @property
    def output_chunk_length(self) -> int:
        """The horizon."""
        return self.horizon

    @property
    def extreme_lags(self) -> tuple[int | None, ...]:
        """One horizon of history is wanted, though less would do."""
        h = self.horizon
        past = (-h, -1) if self.uses_past_covariates else (None, None)
        future = (-h, h - 1) if self.uses_future_covariates else (None, None)
        return (-h, h - 1, *past, *future, 0)

    @property
    def min_train_samples(self) -> int:
        """One window is enough."""
        return 1

    @property
    def _target_window_lengths(self) -> tuple[int, int]:
        return self.horizon, self.horizon

    @property
    def _model_encoder_settings(self) -> tuple[int, int, bool, bool, None, None]:
        return self.horizon, self.horizon, True, True, None, None

    @property
    def supports_multivariate(self) -> bool:
        """Each component is a series."""
        return True

    @property
    def supports_past_covariates(self) -> bool:
        """Known up to the present."""
        return True

    @property
    def supports_future_covariates(self) -> bool:
        """Known in advance."""
        return True

    @property
    def supports_static_covariates(self) -> bool:
        """Of series or of components."""
        return True

    @property
    def supports_probabilistic_prediction(self) -> bool:
        """Sample paths."""
        return True

    @property
    def supports_sample_weight(self) -> bool:
        """All rows count alike."""
        return False

    @property
    def supports_optimized_historical_forecasts(self) -> bool:
        """`predict` remembers the call before, which is fast enough."""
        return False


def _listed(series: Several | None) -> list[TimeSeries]:
    assert series is not None, "Darts has refused it"
    return [series] if isinstance(series, TimeSeries) else list(series)


def _named(covariates: Several | None, prefix: str) -> list[str]:
    """Names of covariates that no other column has."""
    return [] if covariates is None else [f"{prefix}{i}" for i in range(_listed(covariates)[0].n_components)]


def _read(targets: list[TimeSeries], past: Several | None, future: Several | None, use_static: bool) -> _Rows:
    """The components of all targets, numbered."""
    pasts, futures = (None if given is None else _listed(given) for given in (past, future))
    observed: list[pd.DataFrame] = []
    static: list[pd.DataFrame] = []
    ahead: list[pd.DataFrame] = []
    for at, target in enumerate(targets):
        times, values = target.time_index, target.all_values(copy=False)[:, :, 0]
        covariates = []
        if pasts is not None:
            covariates.append(_frame(pasts[at], "p").reindex(times))
        if futures is not None:
            known = _frame(futures[at], "f")
            covariates.append(known.reindex(times))
        for component in range(target.n_components):
            code = len(observed)
            base = pd.DataFrame({"unique_id": code, "ds": times, "y": values[:, component].astype(np.float64)})
            observed.append(pd.concat([base, *(c.reset_index(drop=True) for c in covariates)], axis=1))
            if futures is not None:
                ahead.append(known.rename_axis("ds").reset_index().assign(unique_id=code))
            if use_static and target.static_covariates is not None:
                table = target.static_covariates
                row = table.iloc[[min(component, len(table) - 1)]].reset_index(drop=True)
                static.append(row.set_axis([f"s{i}" for i in range(row.shape[1])], axis=1).assign(unique_id=code))
    df = pd.concat(observed, ignore_index=True)
    table = pd.concat(static, ignore_index=True) if static else None
    table = None if table is None else table[["unique_id", *(c for c in table.columns if c != "unique_id")]]
    return _Rows(df, table, pd.concat(ahead, ignore_index=True) if ahead else None)


def _frame(series: TimeSeries, prefix: str) -> pd.DataFrame:
    values = series.all_values(copy=False)[:, :, 0]
    return pd.DataFrame(values, series.time_index, _named(series, prefix))
