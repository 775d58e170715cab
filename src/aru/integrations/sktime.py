"""sktime: a forecaster that adapts in `update`, without a refit."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sktime.forecasting.base import BaseForecaster

from aru.data.columns import as_frame
from aru.data.guess import guess_frequency
from aru.errors import ColumnError, InputError, quoted
from aru.forecaster import Forecaster
from aru.integrations.quantile_columns import columns_of, levels_of

FRAMES = ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"]


class AruForecaster(BaseForecaster):
    """One global model for a series, a panel or a hierarchy, which `update` adapts and does not refit.

    The longest step of `fh` in `fit` is the horizon. Columns of `X` are covariates, numbers or categories, whose future
    `predict` needs. Series that a call of `update` brings for the first time are forecast from then on, too. `update`
    takes in the rows also with `update_params=False`: the weights of networks never change there.

    Args:
        train: False: forecast with the pretrained network as it is. True: tune it in `fit`, for all series at once.
        settings: Further arguments of `Forecaster.from_pretrained`, or with `train` of `Forecaster`; for instance
            `{"name": "nano", "season_length": 12}`, or `{"model": "aru-rnn", "max_steps": 500}`.

    Examples:
        >>> from sktime.datasets import load_airline
        >>> from aru.integrations.sktime import AruForecaster
        >>> y = load_airline()
        >>> forecaster = AruForecaster(settings={"name": "nano"}).fit(y.iloc[:-24], fh=range(1, 13))
        >>> forecaster.update(y.iloc[-24:-12]).predict().index[0]
        Period('1960-01', 'M')
    """

    _tags = {  # noqa: RUF012  sktime reads and copies it
        "authors": ["aru"],
        "maintainers": ["aru"],
        "python_dependencies": ["aru-forecast"],
        "y_inner_mtype": FRAMES,
        "X_inner_mtype": FRAMES,
        "requires-fh-in-fit": True,
        "capability:exogenous": True,
        "capability:categorical_in_X": True,
        "capability:missing_values": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:update": True,
        "capability:unequal_length": True,
    }

    _config = {"remember_data": False}  # noqa: RUF012  states hold what forecasts need

    def __init__(self, train: bool = False, settings: Mapping[str, Any] | None = None) -> None:
        self.train = train
        self.settings = settings
        super().__init__()
        self._y: Any = None  # for who sets `remember_data` all the same
        self._X: Any = None

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters with which sktime's own checks run."""
        return [{"settings": {"name": "nano"}}, {"settings": {"name": "nano", "hindsight": False}}]

    def _fit(self, y: pd.DataFrame, X: pd.DataFrame | None, fh: Any) -> AruForecaster:
        self._codes: dict[Any, int] = {}
        self._latest: pd.DataFrame | None = None  # rows of all series
        self._covariates = [] if X is None else list(X.columns)
        frame = self._observed(y, X)
        self._step = _step_of(y.index, frame)
        settings: dict[str, Any] = {
            "h": max(1, *self._steps(fh)),
            "freq": self._step,
            "futr_exog_list": self._inside(),
            **(self.settings or {}),
        }
        if self.train:
            self.forecaster_ = Forecaster(**settings).fit(frame, allow_jump=True)
        else:
            self.forecaster_ = Forecaster.from_pretrained(**settings)
            self.forecaster_.update(frame, allow_jump=True)
        return self

    def _update(self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True) -> AruForecaster:
        frame = self._observed(y, X)
        self.forecaster_.update(frame, late="skip", allow_jump=True)  # sktime may repeat rows, also old ones
        return self

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.DataFrame:
        made, index = self._forecast(fh, X, None)
        return pd.DataFrame(made[self.forecaster_.settings.name].to_numpy(), index, self._get_varnames())

    def _predict_quantiles(self, fh: Any, X: pd.DataFrame | None, alpha: Sequence[float]) -> pd.DataFrame:
        made, index = self._forecast(fh, X, levels_of(alpha))
        ends = columns_of(alpha, self.forecaster_.settings.name)
        columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        return pd.DataFrame(made[ends].to_numpy(), index, columns)

    def _forecast(
        self, fh: Any, X: pd.DataFrame | None, levels: Sequence[float] | None
    ) -> tuple[pd.DataFrame, pd.Index[Any]]:
        """The rows of the forecast that `fh` asks for, and the index that sktime expects."""
        steps, model, single = self._steps(fh), self._at_cutoff(), None in self._codes
        names = list(self._codes) if single else sorted(self._codes)
        h, codes = max(steps), [self._codes[name] for name in names]
        futr = None
        if self._covariates:
            if X is None:
                raise InputError("`predict` needs the future of the covariates", "Give it `X`, as `fit` had it.")
            known = self._rows(X.index).join(self._columns(X))
            futr = model.make_future_dataframe(h, codes)[["unique_id", "ds"]]
            futr = futr.merge(known, on=["unique_id", "ds"], how="left", indicator="found")
            asked = np.isin(np.arange(len(futr)) % h + 1, steps)  # of steps that nobody asks for, X need not tell
            futr = futr[(futr.pop("found") == "both") | ~asked]
        made = model.predict(futr, levels, codes, h)
        rows = np.arange(len(codes))[:, None] * h + np.array(steps) - 1
        index = fh.to_absolute_index(self.cutoff)
        if not single:
            keys = [(*name, time) for name in names for time in index]
            index = pd.MultiIndex.from_tuples(keys, names=self._levels)
        return made.iloc[rows.ravel()], index

    def _at_cutoff(self) -> Forecaster:
        """The model at the latest time of all series. For those that end early, values are missing up to it."""
        cutoff = _times(self.cutoff)[0]
        assert self._latest is not None, "fit has set it"
        short = self._latest[self._latest["ds"] < cutoff]
        if short.empty:
            return self.forecaster_
        model = copy.copy(self.forecaster_)
        model.update(short.assign(ds=cutoff, y=np.nan), allow_jump=True)
        return model

    def _steps(self, fh: Any) -> list[int]:
        """The steps of a horizon, counted from the latest time of all series."""
        if isinstance(self.cutoff, pd.DatetimeIndex) and fh.freq is None:
            fh.freq = self._step  # sktime does not see it in panels
        return [int(step) for step in fh.to_relative(self.cutoff)]

    def _observed(self, y: pd.DataFrame, X: pd.DataFrame | None) -> pd.DataFrame:
        """Observations as aru reads them."""
        frame = self._rows(y.index, learn=True).assign(y=y.iloc[:, 0].to_numpy())
        if self._covariates and X is not None:
            frame = frame.join(self._columns(X.loc[y.index]))
        rows = pd.concat([self._latest, frame]).sort_values("ds", kind="stable")
        self._latest = rows.drop_duplicates("unique_id", keep="last")
        return frame

    def _rows(self, index: pd.Index[Any], learn: bool = False) -> pd.DataFrame:
        """The series, as numbers, and the times of an index."""
        if not isinstance(index, pd.MultiIndex):
            names: list[Any] = [None] * len(index)
        else:
            self._levels = index.names
            names = [name if isinstance(name, tuple) else (name,) for name in index.droplevel(-1)]
        if learn:
            for name in names:
                self._codes.setdefault(name, len(self._codes))
        codes = [self._codes.get(name, -1) for name in names]
        return pd.DataFrame({"unique_id": codes, "ds": _times(index.get_level_values(-1))})

    def _columns(self, X: pd.DataFrame) -> pd.DataFrame:
        """Covariates under names that no other column has."""
        missing = [name for name in self._covariates if name not in X]
        if missing:
            raise ColumnError(f"`X` has no columns {', '.join(map(quoted, missing))}", "`fit` had them.")
        return X[self._covariates].set_axis(self._inside(), axis=1).reset_index(drop=True)

    def _inside(self) -> list[str]:
        return [f"x{i}" for i in range(len(self._covariates))]


def _times(index: pd.Index[Any]) -> pd.Index[Any]:
    return index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index


def _step_of(index: pd.Index[Any], frame: pd.DataFrame) -> str | int:
    """The step between rows: what pandas knows of the index, else what the rows look like."""
    times = index.get_level_values(-1)
    if isinstance(times, pd.PeriodIndex):
        starts = pd.period_range(times[0], periods=15, freq=times.freq).to_timestamp()
        known = pd.infer_freq(starts)
    else:
        known = getattr(times, "freqstr", None)
    if known is not None:
        return str(known)
    if not isinstance(times, pd.DatetimeIndex):
        return 1  # steps of `fh` are steps of integers, whatever lies between rows
    return guess_frequency(as_frame(frame, "y"), "y")
