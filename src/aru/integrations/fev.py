"""fev: aru as a model of its benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fev
import numpy as np
import pandas as pd

import datasets
from aru.forecaster import Forecaster
from aru.integrations.quantile_columns import columns_of, levels_of

SQUARED = {"MSE", "RMSE", "RMSSE"}  # metrics that the mean minimises; the median is right for the others


class AruOnTask(fev.ForecastingModel):
    """Forecasts the windows of a task: zero-shot, or tuned on what each window knows.

    Covariates of all kinds are used. Each target of a multivariate task is a series of its own.

    Args:
        train: False: forecast with the pretrained network as it is. True: tune it for every window.
        settings: Further arguments of `Forecaster.from_pretrained`, or with `train` of `Forecaster`.
    """

    model_name = "aru"
    trained_on_datasets: list[str] = []  # noqa: RUF012  synthetic series alone

    def __init__(self, train: bool = False, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.train, self.settings = train, dict(settings or {})

    def _fit_predict(self, task: fev.Task) -> list[datasets.DatasetDict]:
        return [self._forecast(task, window) for window in task.iter_windows()]

    def _forecast(self, task: fev.Task, window: Any) -> datasets.DatasetDict:
        df, futr, static = fev.convert_input_data(window, adapter="nixtla", as_univariate=True)
        settings: dict[str, Any] = {
            "h": task.horizon,
            "freq": task.freq,
            "season_length": task.seasonality if task.seasonality > 1 else None,
            "futr_exog_list": task.known_dynamic_columns,
            "hist_exog_list": task.past_dynamic_columns,
            "stat_exog_list": task.static_columns,
            **self.settings,
        }
        if self.train:
            with self._record_training_time():
                model = Forecaster(**settings).fit(df, static, allow_jump=True)
        else:
            model = Forecaster.from_pretrained(**settings)
        with self._record_inference_time():
            if not self.train:
                model.update(df, static, allow_jump=True)
            ids = list(pd.unique(df["unique_id"]))
            future = futr if task.known_dynamic_columns else None
            made = model.predict(future, levels_of(task.quantile_levels), ids)
        name = model.settings.name
        point = name if _metric(task) in SQUARED else f"{name}-median"
        wanted = {"predictions": point}
        wanted |= zip(map(str, task.quantile_levels), columns_of(task.quantile_levels, name), strict=True)
        arrays = {key: np.split(made[column].to_numpy(), len(ids)) for key, column in wanted.items()}
        return fev.combine_univariate_predictions_to_multivariate(
            datasets.Dataset.from_dict(arrays), target_columns=window.target_columns
        )


def _metric(task: fev.Task) -> str:
    metric = task.eval_metric
    return str(metric if isinstance(metric, str) else metric["name"]).upper()
