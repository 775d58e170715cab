"""GluonTS: a predictor from any forecaster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gluonts.model.forecast import Forecast, QuantileForecast, SampleForecast
from gluonts.model.predictor import Predictor

from aru.errors import FrequencyError, InputError, verbatim
from aru.forecaster import Forecaster
from aru.integrations.quantile_columns import columns_of, levels_of

EVALUATED = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)  # what GluonTS evaluates by default
MODEL_FOLDER, QUANTILES_FILE = "aru", "quantiles.json"  # in the folder of a predictor


class AruPredictor(Predictor):
    """Forecasts every entry of a dataset from its own history, with the weights of a trained or pretrained forecaster.

    The states of the forecaster play no part. `futr_exog_list`, `hist_exog_list` and `stat_exog_list` of the forecaster
    name, in their order, what entries have as `feat_dynamic_real`, `past_feat_dynamic_real` and, first categories, then
    numbers, `feat_static_cat` and `feat_static_real`. Categories are strings. Periods are timestamps of their start:
    months are "MS".

    Args:
        forecaster: `Forecaster.load(...)`, `Forecaster.from_pretrained(...)`, or one that was fitted.
        quantiles: Quantiles to forecast beside the mean.
    """

    def __init__(self, forecaster: Forecaster, quantiles: Sequence[float] = EVALUATED) -> None:
        self.forecaster = forecaster.without_series()
        self.quantiles = tuple(sorted({*quantiles, 0.5}))
        super().__init__(prediction_length=forecaster.settings.h)

    def predict(self, dataset: Iterable[Mapping[str, Any]], num_samples: int | None = None) -> Iterator[Forecast]:
        """Quantile forecasts of all entries, or with `num_samples` sample paths.

        Entries that end at the same time are forecast together; nothing later has a part in a forecast.
        """
        entries = list(dataset)
        ends = [entry["start"] + len(entry["target"]) for entry in entries]
        made: dict[int, Forecast] = {}
        for start in dict.fromkeys(ends):
            chosen = [i for i, end in enumerate(ends) if end == start]
            made |= zip(chosen, self._together([entries[i] for i in chosen], start, num_samples), strict=True)
        for i in range(len(entries)):
            yield made[i]

    def _together(
        self, entries: Sequence[Mapping[str, Any]], start: pd.Period, num_samples: int | None
    ) -> Iterator[Forecast]:
        model = self.forecaster.without_series()
        items = [entry.get("item_id") for entry in entries]
        ids: list[Any] = [f"{i:09}" if item is None else f"{i:09} {item}" for i, item in enumerate(items)]
        if model.runtime.schema.integer_ids:
            ids = list(range(len(entries)))
        rows, futr, static = self._read(entries, ids)
        model.update(rows, static, allow_jump=True)
        shape, name = (len(ids), self.prediction_length), model.settings.name
        if num_samples is None:
            frame = model.predict(futr, levels_of(self.quantiles), ids)
            _check_times(frame[model.names.ds], start, model)
            values = frame[[name, *columns_of(self.quantiles, name)]].to_numpy().reshape(*shape, -1)
            keys = ["mean", *map(str, self.quantiles)]
            for item, columns in zip(items, values, strict=True):
                yield QuantileForecast(columns.T, start, keys, item)
        else:
            frame = model.predict_paths(num_samples, futr, ids, df=rows, static_df=static)
            _check_times(frame[model.names.ds], start, model)
            for item, samples in zip(items, frame[name].to_numpy().reshape(shape[0], num_samples, -1), strict=True):
                yield SampleForecast(samples, start, item)

    def serialize(self, path: Path) -> None:
        """Write the forecaster, and what GluonTS writes."""
        super().serialize(path)
        self.forecaster.save(path / MODEL_FOLDER)
        (path / QUANTILES_FILE).write_text(json.dumps(self.quantiles))

    @classmethod
    def deserialize(cls, path: Path) -> AruPredictor:
        """Read what `serialize` wrote."""
        return cls(Forecaster.load(path / MODEL_FOLDER), json.loads((path / QUANTILES_FILE).read_text()))

    def _read(
        self, entries: Sequence[Mapping[str, Any]], ids: Sequence[Any]
    ) -> tuple[pd.DataFrame, pd.DataFrame | None, pd.DataFrame | None]:
        """Observations, known-future covariates and static covariates of all entries."""
        settings, h = self.forecaster.settings, self.prediction_length
        observed, ahead, static = [], [], []
        for name, entry in zip(ids, entries, strict=True):
            target = np.asarray(entry["target"], dtype=np.float64)
            n = len(target)
            times = pd.period_range(entry["start"], periods=n + h).to_timestamp()
            futr = _rows(entry, "feat_dynamic_real", settings.futr_exog_list, n + h)
            past = futr[:n].assign(**_rows(entry, "past_feat_dynamic_real", settings.hist_exog_list, n))
            observed.append(past.assign(unique_id=name, ds=times[:n], y=target))
            ahead.append(futr[n:].assign(unique_id=name, ds=times[n:]))
            static.append({"unique_id": name, **_static(entry, settings.stat_exog_list)})
        called = self.forecaster.names._asdict()
        return (
            pd.concat(observed, ignore_index=True).rename(columns=called),
            pd.concat(ahead, ignore_index=True).rename(columns=called) if settings.futr_exog_list else None,
            pd.DataFrame(static).rename(columns=called) if settings.stat_exog_list else None,
        )


def _check_times(made: pd.Series[Any], start: pd.Period, model: Forecaster) -> None:
    """A start of a week is a day, too: the forecast must be for the periods after the entries."""
    h = model.settings.h
    if not (made.to_numpy().reshape(-1, h) == pd.period_range(start, periods=h).to_timestamp().to_numpy()).all():
        raise FrequencyError(
            f"The entries step by {start.freqstr}, but the forecaster has `freq={verbatim(model.settings.freq)}`",
            "Make a forecaster of the dataset's frequency.",
        )


def _rows(entry: Mapping[str, Any], field: str, names: Sequence[str], n: int) -> pd.DataFrame:
    """Covariates of (feature, time) as columns."""
    given = np.asarray(entry[field], dtype=np.float64) if names and field in entry else np.zeros((0, n))
    if len(given) != len(names) or given.shape[1] < n:
        raise InputError(
            f"An entry has {len(given)} rows of `{field}` over {given.shape[1]} times, but the forecaster has "
            f"{len(names)} such covariates, and needs {n} times",
            "Name as many covariates as the dataset has; those known in advance must cover the horizon.",
        )
    return pd.DataFrame(given[:, :n].T, columns=list(names), index=range(n))


def _static(entry: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Static covariates: categories as strings, then numbers."""
    given: list[str | float] = []
    if names:
        given += [str(int(code)) for code in entry.get("feat_static_cat", ())]
        given += [float(value) for value in entry.get("feat_static_real", ())]
    if len(given) != len(names):
        raise InputError(f"An entry has {len(given)} static covariates, but the forecaster has {len(names)}")
    return dict(zip(names, given, strict=True))
