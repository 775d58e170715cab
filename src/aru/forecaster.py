"""`Forecaster`: train once, then forecast, adapt and evaluate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from aru.checked import check_whole
from aru.data.naming import Names
from aru.data.scores import Scorecard
from aru.errors import ConfigError, NotFittedError
from aru.fit_pretrained import fit_pretrained
from aru.fit_recurrent import fit_recurrent
from aru.models import resolve
from aru.pretrained.weights import full_name
from aru.runtime import ForecastRuntime
from aru.runtime.epochs import sample_of
from aru.runtime.explaining import Found
from aru.runtime.marks import Backtest, BacktestPlan, run_backtest, warn_losing
from aru.runtime.opening import open_pretrained, with_types
from aru.runtime.outlook import AtHand, Ids, Outlook
from aru.runtime.summary import summary_of
from aru.runtime.table import StateTable
from aru.runtime.trained import Trained, begin_trained, facts_of, read_trained, take_in, warn_lost
from aru.runtime.update import UpdateResult
from aru.settings import (
    PRETRAINED,
    AcceleratorName,
    CalibrationName,
    DistributionName,
    NetworkOptions,
    Settings,
    SupportName,
    TrainingOptions,
    TransformName,
    nested,
)
from aru.store.folder import write_folder


class Forecaster(Outlook):
    """One global model for many series that adapts to each of them as observations arrive.

    The arguments are the fields of `aru.settings.Settings`, where each of them is documented.
    """

    def __init__(
        self,
        h: int,
        freq: str | int | None,
        input_size: int | None = None,
        model: str = "aru",
        futr_exog_list: Sequence[str] | None = None,
        hist_exog_list: Sequence[str] | None = None,
        stat_exog_list: Sequence[str] | None = None,
        lags: Sequence[int] | Literal["auto"] | None = "auto",
        season_length: int | None = None,
        size: str | Sequence[int] | None = None,
        transform: TransformName | None = None,
        distribution: DistributionName = "auto",
        support: SupportName = "auto",
        ensemble: int = 1,
        gate: bool = False,
        calibration: CalibrationName | None = None,
        max_steps: int | None = None,
        learning_rate: float = 1e-2,
        batch_size: int = 64,
        random_seed: int = 0,
        accelerator: AcceleratorName = "auto",
        alias: str | None = None,
        country: str | None = None,
        hindsight: bool = True,
        network: NetworkOptions = Settings.network,
        training: TrainingOptions = Settings.training,
    ) -> None:
        self.given = {name: value for name, value in locals().items() if name != "self"}
        lists = {name: value or () for name, value in self.given.items() if name.endswith("_exog_list")}
        self.settings = resolve(Settings(**{**self.given, **lists}))  # errors before the data are read
        self.val_loss = math.nan  # of the last training; NaN without validation
        self.scorecard: Scorecard | None = None  # of the last training; see `fit`
        self.rows_since_fit = 0  # that updates have taken in
        self.trained: Trained | None = None

    @classmethod
    def from_pretrained(
        cls,
        name: str = "mini",
        *,
        h: int,
        freq: str | int | None,
        season_length: int | None = None,
        futr_exog_list: Sequence[str] | None = None,
        hist_exog_list: Sequence[str] | None = None,
        stat_exog_list: Sequence[str] | None = None,
        country: str | None = None,
        support: SupportName = "auto",
        hindsight: bool = True,
        calibration: CalibrationName | None = None,
        accelerator: AcceleratorName = "auto",
        alias: str | None = "aru",
    ) -> Forecaster:
        """A forecaster that needs no training: `update` it with the history of its series, then `predict`.

        Its network was trained on synthetic series alone. It forecasts each series from its latest 1,024 values.

        Args:
            name: "nano", "mini" or "base", the latest version of these weights; or a version such as "mini-1".
            h: Forecast horizon in steps. Beyond 64 steps forecasts are fed forward.
            freq: As of `Forecaster`.
            season_length: Rows of a season. None: the natural seasons of the frequency, or those found in the values.
            futr_exog_list: As of `Forecaster`. The first `update` decides which values are numbers and which
                categories, so give it the history. Effects are learned in closed form, of all series and of each.
            hist_exog_list: As of `Forecaster`. They act h rows later.
            stat_exog_list: As of `Forecaster`. A series starts with the effects of those that are like it.
            country: Its holidays have effects, too: "DE", or "DE-BY" for a part of it. Needs the package holidays.
            support: As of `Forecaster`; "auto" decides for each series by its own values.
            hindsight: Without covariates: learn from the errors of past forecasts, in closed form, which `update` makes
                again about every h rows. False: forecasts are those of the network alone, and updates run no network.
            calibration: As of `Forecaster`.
            accelerator: As of `Forecaster`.
            alias: Name of the forecast columns.
        """
        given = {key: value for key, value in locals().items() if key not in ("cls", "name")}
        given |= {key: given[key] or () for key in given if key.endswith("_exog_list")}
        settings = resolve(Settings(**given, model=PRETRAINED, size=full_name(name)))
        return cls._of(begin_trained(open_pretrained(settings)))

    @classmethod
    def _of(cls, trained: Trained) -> Forecaster:
        """A forecaster of this model and these series."""
        forecaster = cls.__new__(cls)
        forecaster.settings = trained.runtime.settings
        forecaster.given = {field.name: getattr(forecaster.settings, field.name) for field in fields(Settings)}
        forecaster.val_loss, forecaster.scorecard, forecaster.rows_since_fit = math.nan, None, 0
        forecaster.trained = trained
        return forecaster

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments by name, as scikit-learn's `clone` asks for them. `deep` makes no difference."""
        return dict(self.given)

    def set_params(self, **params: Any) -> Forecaster:
        """Change arguments, or options of `network` and `training` by their names. It is untrained afterwards."""
        if params:
            self.__dict__ = vars(Forecaster(**nested({**self.given, **params})))
        return self

    def __repr__(self) -> str:
        return facts_of(self.settings, self.trained)

    def __copy__(self) -> Forecaster:
        twin = Forecaster.__new__(Forecaster)
        twin.__dict__.update(self.__dict__)
        if self.trained is not None:
            twin.trained = self.trained.copy()
        return twin

    @property
    def runtime(self) -> ForecastRuntime:
        """The trained model with its frequency; an error before `fit` or `load`."""
        return self._require_training().runtime

    @property
    def table(self) -> StateTable:
        """The states of all series known so far."""
        return self._require_training().table

    @property
    def ids(self) -> list[Any]:
        """The series known so far."""
        return list(self.table.ids)

    @property
    def names(self) -> Names:
        """What the columns of series, time and target are called in the frames of this model."""
        return Names() if self.trained is None else self.trained.runtime.style.names

    def at_hand(self, ids: Ids, newest: bool = False) -> AtHand:
        """Some series, or all with None."""
        return AtHand(self.runtime, iter([self.table.find(ids)]), self.table.newest if newest else None)

    def sampled(self, most: int | None = None) -> tuple[ForecastRuntime, Found]:
        """A sample of all series, always the same."""
        chosen = sample_of(self.table.ids, len(self.runtime.schema.regressors))[:most]
        return self.runtime, self.table.find([self.table.ids[at] for at in chosen])

    def _require_training(self) -> Trained:
        if self.trained is None:
            raise NotFittedError("This forecaster has not been trained", "Call fit first, or Forecaster.load.")
        return self.trained

    def fit(
        self,
        df: Any,
        static_df: Any = None,
        val_size: int | None = None,
        checkpoint_dir: str | Path | None = None,
        allow_jump: bool = False,
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
        warm_start: bool = False,
    ) -> Forecaster:
        """Train on a long frame. Afterwards the state of each series has consumed all of its rows.

        `df` may also be a folder of Parquet files that are partitioned by series; they are read as needed. Rows far
        from all others in time are refused, unless `allow_jump` says that they are right. `fit` starts anew;
        `warm_start` goes on from the present weights. States are those of `df`: series that it lacks are named.

        Model "aru" is tuned as far as it helps. The last rows of series that can spare them decide, and end up on the
        `scorecard`, which compares forecasts with seasonal naive; then the final weights see all rows. With `val_size`
        these are the last `val_size` rows of each series, and are never trained on; with 0 nothing is tuned.

        Other models are trained from nothing. Their scorecard is of the last h rows of the series with at least five
        horizons; only the last tenth of the steps trains on them, after the forecasts were made. With `val_size` the
        last `val_size` rows of each series are for validation and never trained on; the validation loss is computed on
        them (`val_loss`). `search` and `snapshots` need that, and take `val_size=h` by default. With `val_size=0` all
        steps train on all rows, and there is no scorecard. Neither is there one if no series is long enough.

        With `checkpoint_dir` their training saves its progress there and resumes from it. A checkpoint of other data is
        replaced, with a warning; one of other settings is an error.

        `id_col`, `time_col` and `target_col` name the columns of series, time and target, by default `unique_id`, `ds`
        and `y`. The model remembers these names: frames have them from then on, those that come in and those that it
        returns.
        """
        before = self._require_training() if warm_start else None
        names = self.called(id_col, time_col, target_col)
        with names.spoken():
            rows = names.read(df), names.read_static(static_df)
            if self.settings.model == PRETRAINED:
                if checkpoint_dir is not None:
                    raise ConfigError(
                        "`checkpoint_dir` does not apply to `model='aru'`: its training is short", "Leave it out."
                    )
                fitted = fit_pretrained(self.settings, *rows, val_size, allow_jump, before, names)
            else:
                fitted = fit_recurrent(self.settings, *rows, val_size, checkpoint_dir, allow_jump, before, names)
            warn_lost(before, fitted.trained)
            warn_losing(fitted.scorecard)
        # Assigned last, so that a failed training leaves the forecaster as it was.
        self.settings, self.val_loss, self.scorecard, self.rows_since_fit = *fitted[1:], 0
        self.trained = fitted.trained
        return self

    def summary(self) -> Any:
        """What was chosen for this model, and why: a row for each choice."""
        return summary_of(self._require_training())

    def predict_new(
        self,
        futr_df: Any,
        static_df: Any = None,
        level: Sequence[float] | None = None,
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
    ) -> Any:
        """Cold start: forecast the first h steps of series without any value, from covariates alone.

        `futr_df` names the series and holds their first h rows. The names of columns are those of `predict`.
        """
        names = self.called(id_col, time_col, target_col)
        with names.spoken():
            given = names.read_futr(futr_df), names.read_static(static_df)
            made = self.runtime.predict_new(self.table.ids, *given, level)
            return self.runtime.build(made, futr_df, names, self.runtime.h)

    def update(
        self,
        df: Any,
        static_df: Any = None,
        late: Literal["raise", "skip"] = "raise",
        allow_jump: bool = False,
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
    ) -> UpdateResult:
        """Take in new observations of known and new series. Rows come in any order; all are applied or none.

        Rows that a series has consumed before are counted as duplicates and ignored. Any other row at or before a
        series' latest time is late: `late="raise"` rejects the call, "skip" applies the other rows. Rows far ahead of
        the newest time of all series are refused, unless `allow_jump` says that they are right. `id_col`, `time_col`
        and `target_col` name the columns; a pretrained model without series remembers them, as `fit` does.
        """
        return self.apply(df, static_df, late, allow_jump, names=self.called(id_col, time_col, target_col))

    def apply(
        self,
        df: Any,
        static_df: Any = None,
        late: Literal["raise", "skip"] = "raise",
        allow_jump: bool = False,
        request: bytes | None = None,
        names: Names | None = None,
    ) -> UpdateResult:
        """The same as `update`. `request` is the digest of what the rows came with (`aru.store.receipts`).

        It is kept with the states, unless rows were left out. If it was kept before, no row is late. `names` are those
        of the columns, if they are not the model's.
        """
        names = names or self.names
        with names.spoken():
            rows = names.read(df), names.read_static(static_df)
            self.trained, result = take_in(self._require_training(), *rows, late, allow_jump, request, names)
        self.rows_since_fit += result.applied
        return result

    def for_types(
        self, integer_ids: bool, datetime: bool, zone: str | None, schema: Mapping[str, Any] | None = None
    ) -> Forecaster:
        """A pretrained model without series, for such ids, times and covariates. Any other model stays as it is."""
        twin, trained = self.__copy__(), self._require_training()
        if trained.open:
            twin.trained = begin_trained(with_types(trained.runtime, integer_ids, datetime, zone, schema))
        return twin

    def without_series(self) -> Forecaster:
        """The same model without the state of any series."""
        twin, trained = self.__copy__(), self._require_training().copy()
        twin.trained = trained._replace(table=StateTable([], trained.runtime.no_records().now), requests=())
        return twin

    def cross_validation(
        self,
        df: Any,
        n_windows: int = 4,
        step_size: int | None = None,
        level: Sequence[float] | None = None,
        adapt: bool = True,
        static_df: Any = None,
        allow_jump: bool = False,
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
    ) -> Any:
        """Rolling-origin forecasts over the end of `df`: what `backtest` gives, without the scorecard."""
        columns = id_col, time_col, target_col
        return self.backtest(df, n_windows, step_size, level, adapt, static_df, allow_jump, *columns).forecasts

    def backtest(
        self,
        df: Any,
        n_windows: int = 4,
        step_size: int | None = None,
        level: Sequence[float] | None = None,
        adapt: bool = True,
        static_df: Any = None,
        allow_jump: bool = False,
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
    ) -> Backtest:
        """Rolling-origin forecasts over the end of `df`, without retraining, and their scores.

        The forecaster's own states do not change: states start empty and replay `df`. With `adapt=False` the
        statistics of a series are frozen at its first cutoff, while its context moves on. Cutoffs count back from the
        end of each series and must come after its first value. A warning names series that are too short for all
        cutoffs, and one tells of forecasts that are worse than seasonal naive. `allow_jump` and the names of columns
        are those of `fit`.
        """
        plan = BacktestPlan(
            n_windows=check_whole("n_windows", n_windows, 1),
            step_size=self.settings.h if step_size is None else check_whole("step_size", step_size, 1),
            level=level,
            adapt=adapt,
            allow_jump=allow_jump,
        )
        names = self.called(id_col, time_col, target_col)
        with names.spoken():
            return run_backtest(self._require_training(), names.read(df), names.read_static(static_df), plan, names)

    def save(self, path: str | Path) -> None:
        """Write model and states into a new or empty folder, or over an older save."""
        model = {"scorecard": None if self.scorecard is None else self.scorecard.to_json()}
        series = {"rows_since_fit": self.rows_since_fit}
        write_folder(path, self._require_training().to_saved(model, series))

    def export_onnx(self, folder: str | Path) -> list[Path]:
        """Write the networks of this model for ONNX Runtime, and their inputs for every known series; return the files.

        docs/onnx.md shows how to run them without torch.
        """
        from aru.runtime.exporting import write_networks

        return write_networks(self.runtime, Path(folder), *self.table.find(None))

    @classmethod
    def load(cls, path: str | Path, accelerator: AcceleratorName = "auto") -> Forecaster:
        """Read what `save` wrote."""
        trained, card, rows = read_trained(path, accelerator)
        forecaster = cls._of(trained)
        forecaster.scorecard, forecaster.rows_since_fit = card, rows
        return forecaster


Forecaster.__doc__ = Settings.__doc__  # written once
