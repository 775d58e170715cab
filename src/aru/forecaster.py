"""`Forecaster`: train once, then forecast, adapt and evaluate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from aru.checked import check_whole
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.scores import Scorecard
from aru.errors import AruError, NotFittedError, StorageError, verbatim
from aru.models import resolve
from aru.nn.device import choose_device
from aru.nn.tree import concat
from aru.pretrained.weights import full_name
from aru.runtime import ForecastRuntime
from aru.runtime.engine import NetworkEngine
from aru.runtime.explaining import draw_effects, effects_of
from aru.runtime.forest_plot import Picture
from aru.runtime.marks import Backtest, BacktestPlan, judge_ends, run_backtest, warn_losing
from aru.runtime.opening import open_pretrained, with_types
from aru.runtime.records import Record
from aru.runtime.table import StateTable
from aru.runtime.trained import Trained, begin_trained, facts_of, from_saved
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
)
from aru.store.folder import read_folder, write_folder


class Forecaster:
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
        size: str | Sequence[int] = "medium",
        transform: TransformName | None = None,
        distribution: DistributionName = "auto",
        support: SupportName = "auto",
        ensemble: int = 1,
        gate: bool = False,
        calibration: CalibrationName | None = None,
        max_steps: int = 1000,
        learning_rate: float = 1e-2,
        batch_size: int = 64,
        random_seed: int = 0,
        accelerator: AcceleratorName = "auto",
        alias: str | None = None,
        network: NetworkOptions = Settings.network,
        training: TrainingOptions = Settings.training,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        for name in ("futr_exog_list", "hist_exog_list", "stat_exog_list"):
            given[name] = given[name] or ()
        self.settings = resolve(Settings(**given))  # errors before the data are read
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
            calibration: As of `Forecaster`.
            accelerator: As of `Forecaster`.
            alias: Name of the forecast columns.
        """
        given = {key: value for key, value in locals().items() if key not in ("cls", "name", "country")}
        given |= {key: given[key] or () for key in given if key.endswith("_exog_list")}
        settings = Settings(**given, model=PRETRAINED, size=full_name(name), lags=None)
        return cls._of(begin_trained(open_pretrained(settings, country)))

    @classmethod
    def _of(cls, trained: Trained) -> Forecaster:
        """A forecaster of this model and these series."""
        forecaster = cls.__new__(cls)
        forecaster.settings = trained.runtime.settings
        forecaster.val_loss, forecaster.scorecard, forecaster.rows_since_fit = math.nan, None, 0
        forecaster.trained = trained
        return forecaster

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
    ) -> Forecaster:
        """Train on a long frame. Afterwards the state of each series has consumed all of its rows.

        `df` may also be a folder of Parquet files that are partitioned by series; they are read as needed. Rows far
        from all others in time are refused, unless `allow_jump` says that they are right.

        `scorecard` then compares forecasts with seasonal naive, on rows that the scored weights had not seen. By
        default these are the last h rows of the series with at least five horizons; only the last tenth of the steps
        trains on them, after the forecasts were made. With `val_size` they are the last `val_size` rows of each
        series, which are for validation and never trained on; the validation loss is computed on them (`val_loss`).
        `search` and `snapshots` need that, and take `val_size=h` by default. With `val_size=0` all steps train on all
        rows, and there is no scorecard. Neither is there one if no series is long enough.

        With `checkpoint_dir` training saves its progress there and resumes from it. A checkpoint of other data is
        replaced, with a warning; one of other settings is an error.
        """
        from aru.training.history import History, ParquetParts
        from aru.training.run import Checkpoints, last_steps, train

        settings = self.settings
        chooses = bool(settings.training.search or settings.training.snapshots)
        withheld = settings.h if val_size is None and not chooses else 0
        val_size = check_whole("val_size", val_size, 0) if val_size is not None else settings.h if chooses else 0
        needed = ["unique_id", "ds", "y", *settings.futr_exog_list, *settings.hist_exog_list]
        frames = ParquetParts(df, needed) if isinstance(df, (str, Path)) else [df]
        style = FrameStyle.of(frames[0])
        freq = Frequency(settings.freq, style.zone)
        history = History(frames, freq, static_df, settings, val_size, withheld)
        schema = history.learn(checkpoint_dir is not None, allow_jump)
        kept = None if checkpoint_dir is None else Checkpoints(Path(checkpoint_dir), history.fingerprint)
        run = train(history, settings, schema, kept)
        engine = NetworkEngine(run.settings, schema, run.models, choose_device(settings.accelerator))
        judged = engine
        if run.before:
            # In torch: these weights forecast once, which an export to ONNX would not pay for.
            judged = NetworkEngine(run.settings, schema, run.before, engine.device, [{} for _ in run.before])
        later = last_steps(settings) if run.before else 0
        card = judge_ends(judged, freq, history.whole, history.spared(), history.kept_apart, later)
        states = [engine.replay(history.whole(part)) for part in range(len(frames))]
        # Assigned last, so that a failed training leaves the forecaster as it was.
        self.settings, self.val_loss, self.scorecard, self.rows_since_fit = run.settings, run.val_loss, card, 0
        runtime = ForecastRuntime(engine, freq, style.on(freq))
        until = history.until if run.before else history.until_early
        self.trained = Trained(runtime, StateTable(history.ids, concat(states)), history.ids, until)
        warn_losing(card)
        return self

    def predict(
        self,
        futr_df: Any = None,
        level: Sequence[float] | None = None,
        ids: Iterable[Any] | str | int | None = None,
    ) -> Any:
        """Forecast the next h steps of every known series, or of `ids`. States do not change.

        `futr_df` holds the known-future covariates of these steps; without a frequency also their timestamps.
        """
        names, state = self.table.find(ids)
        made = self.runtime.predict(names, state, self.runtime.read_futr(futr_df), level)
        return self.runtime.build(made, futr_df)

    def predict_new(self, futr_df: Any, static_df: Any = None, level: Sequence[float] | None = None) -> Any:
        """Cold start: forecast the first h steps of series without any value, from covariates alone.

        `futr_df` names the series and holds their first h rows.
        """
        return self.runtime.build(self.runtime.predict_new(self.table.ids, futr_df, static_df, level), futr_df)

    def update(
        self,
        df: Any,
        static_df: Any = None,
        late: Literal["raise", "skip"] = "raise",
        allow_jump: bool = False,
    ) -> UpdateResult:
        """Take in new observations of known and new series. Rows come in any order; all are applied or none.

        Rows that a series has consumed before are counted as duplicates and ignored. Any other row at or before a
        series' latest time is late: `late="raise"` rejects the call, "skip" applies the other rows. Rows far ahead of
        the newest time of all series are refused, unless `allow_jump` says that they are right.
        """
        return self.apply(df, static_df, late, allow_jump)

    def apply(
        self,
        df: Any,
        static_df: Any = None,
        late: Literal["raise", "skip"] = "raise",
        allow_jump: bool = False,
        request: bytes | None = None,
    ) -> UpdateResult:
        """The same as `update`. `request` is the digest of what the rows came with (`aru.store.receipts`).

        It is kept with the states, unless rows were left out. If it was kept before, no row is late.
        """
        trained = self._require_training().suited(df, static_df)
        runtime, table, name = trained.runtime, trained.table, "" if request is None else request.hex()
        resent = name in trained.requests
        new = runtime.read(df)
        places = table.places(new.ids)
        known = places >= 0
        record = Record(table.take(places[known]))
        style = FrameStyle.of(df, runtime.style)
        update = runtime.update(
            new,
            new.ids[known],
            record,
            table.newest,
            static_df,
            late,
            style=style,
            allow_jump=allow_jump,
            resent=resent,
        )
        if update.record is not None:
            table.put(update.ids, update.record.now)
            runtime.engine.learn_common(table.states, table.ids)
            self.trained = trained
        self.rows_since_fit += update.result.applied
        if name and not resent and len(update.result.left_out["ds"]) == 0:
            self.trained = trained.with_request(name)
        return update.result

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
    ) -> Any:
        """Rolling-origin forecasts over the end of `df`: what `backtest` gives, without the scorecard."""
        return self.backtest(df, n_windows, step_size, level, adapt, static_df, allow_jump).forecasts

    def backtest(
        self,
        df: Any,
        n_windows: int = 4,
        step_size: int | None = None,
        level: Sequence[float] | None = None,
        adapt: bool = True,
        static_df: Any = None,
        allow_jump: bool = False,
    ) -> Backtest:
        """Rolling-origin forecasts over the end of `df`, without retraining, and their scores.

        The forecaster's own states do not change: states start empty and replay `df`. With `adapt=False` the
        statistics of a series are frozen at its first cutoff, while its context moves on. Cutoffs count back from the
        end of each series and must come after its first value. A warning names series that are too short for all
        cutoffs, and one tells of forecasts that are worse than seasonal naive. `allow_jump` is that of `fit`.
        """
        plan = BacktestPlan(
            n_windows=check_whole("n_windows", n_windows, 1),
            step_size=self.settings.h if step_size is None else check_whole("step_size", step_size, 1),
            level=level,
            adapt=adapt,
            allow_jump=allow_jump,
        )
        return run_backtest(self._require_training(), df, static_df, plan)

    def effects(self, ids: Iterable[Any] | str | int | None = None) -> Any:
        """What each covariate of a pretrained model is worth: a frame for the panel, or for the series in `ids`.

        A row compares one value of a covariate with another: `effect` is the change of y, in percent where effects
        multiply, in units of y where they add (`unit`). In a series like this (a new one, for the panel) it lies
        between `low` and `high` with a probability of 80 %. `typical` is the size of what the covariate changes in a
        row, `share` its part of the variance of y around its local level, in percent.
        """
        return self.runtime.style.build_plain(effects_of(self.runtime, *self.table.find(ids), ids is None))

    def plot_effects(self, ids: Iterable[Any] | str | int | None = None, path: str | Path | None = None) -> Picture:
        """A picture of `effects`, as SVG: of the panel, and of the series in `ids`. `path` is a file to write."""
        return draw_effects(self.runtime, self.table.find(None), None if ids is None else self.table.find(ids), path)

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
        saved = read_folder(path)
        try:
            trained, card = from_saved(saved, accelerator), saved.model["scorecard"]
            forecaster = cls._of(trained)
            forecaster.scorecard = None if card is None else Scorecard.from_json(card)
            forecaster.rows_since_fit = int(saved.series["rows_since_fit"])
            return forecaster
        except AruError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise StorageError(
                f"{verbatim(path)} does not fit together ({verbatim(reason)})",
                "Read it with the version of aru that wrote it.",
            ) from error


Forecaster.__doc__ = Settings.__doc__  # written once
