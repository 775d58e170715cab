"""`Forecaster`: train once, then forecast, adapt and evaluate."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from aru.checked import check_whole
from aru.data.clock import Times
from aru.data.columns import Ints, name_rows, show_times
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.panel import Panel, read_panel
from aru.data.schema import Schema, choose_lags, context_length
from aru.errors import AruError, AruWarning, NotFittedError, StorageError, verbatim
from aru.models import build, resolve
from aru.nn.device import choose_device
from aru.nn.tree import concat, leaves, rebuild
from aru.runtime import ForecastRuntime
from aru.runtime.backtest import cutoff_rows, warn_short
from aru.runtime.engine import NetworkEngine
from aru.runtime.records import Record
from aru.runtime.table import StateTable
from aru.runtime.update import UpdateResult, leave_out_empty, warn_empty
from aru.settings import (
    AcceleratorName,
    CalibrationName,
    DistributionName,
    NetworkOptions,
    Settings,
    SupportName,
    TrainingOptions,
    TransformName,
)
from aru.store.exchange import index_of
from aru.store.folder import Saved, read_folder, write_folder


class Trained(NamedTuple):
    """The result of training: model and states."""

    runtime: ForecastRuntime
    table: StateTable  # the states of all series
    ids: pd.Index[Any]  # the series that were trained on
    until: Times  # the latest training time of each of them


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
        self.freq = Frequency(freq)
        self.val_loss = math.nan  # of the last training; NaN without validation
        self.trained: Trained | None = None

    def __repr__(self) -> str:
        settings, told = self.settings, {"model": repr(self.settings.model), "h": self.settings.h}
        told["freq"] = repr(settings.freq)
        if self.trained is None:
            return f"Forecaster({', '.join(f'{k}={v}' for k, v in told.items())}, not trained)"
        schema = self.runtime.schema
        told |= {"input_size": schema.input_size, "lags": list(schema.lags), "distribution": repr(schema.distribution)}
        (until,) = show_times(self.trained.until.max(keepdims=True), schema.clock)
        facts = f"{len(self.table):,} series, trained until {until}"
        return f"Forecaster({', '.join(f'{k}={v}' for k, v in told.items())}, {facts})"

    def __copy__(self) -> Forecaster:
        twin = Forecaster.__new__(Forecaster)
        twin.__dict__.update(self.__dict__)
        if self.trained is not None:
            twin.trained = self.trained._replace(table=self.table.copy())
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
        val_size: int = 0,
        checkpoint_dir: str | Path | None = None,
        allow_jump: bool = False,
    ) -> Forecaster:
        """Train on a long frame. Afterwards the state of each series has consumed all of its rows.

        `df` may also be a folder of Parquet files that are partitioned by series; they are read as needed. The last
        `val_size` rows of each series are for validation, not for the loss. With `checkpoint_dir` training saves its
        progress there and resumes from it. A checkpoint of other data is replaced, with a warning; one of other
        settings is an error. Rows far from all others in time are refused, unless `allow_jump` says that they are
        right.
        """
        from aru.training.history import History, ParquetParts
        from aru.training.run import Checkpoints, train

        settings = self.settings
        val_size = check_whole("val_size", val_size, 0)
        needed = ["unique_id", "ds", "y", *settings.futr_exog_list, *settings.hist_exog_list]
        frames = ParquetParts(df, needed) if isinstance(df, (str, Path)) else [df]
        # The longest series is not known before reading, so this takes the longest lags that may be chosen.
        lags = choose_lags(settings, self.freq, rows=sys.maxsize)
        seen = context_length(settings, self.freq) + max(lags, default=0)
        style = FrameStyle.of(frames[0])
        freq = Frequency(settings.freq, style.zone)
        lost: dict[Any, None] = {}  # series without any value
        read = functools.partial(self._read, freq=freq, seen=seen, lost=lost)
        history = History(frames, read, static_df, settings, val_size)
        schema = history.learn(freq, checkpoint_dir is not None, allow_jump)
        warn_empty(list(lost), len(lost) + len(history.ids))
        history.warn_fine(freq)
        kept = None if checkpoint_dir is None else Checkpoints(Path(checkpoint_dir), history.fingerprint)
        run = train(history, settings, schema, kept)
        engine = NetworkEngine(run.settings, schema, run.models, choose_device(settings.accelerator))
        states = [engine.advance(engine.empty(part.static), part.rows) for part in history.parts()]
        # Assigned last, so that a failed training leaves the forecaster as it was.
        self.settings, self.val_loss, self.freq = run.settings, run.val_loss, freq
        runtime = ForecastRuntime(engine, freq, style.on(freq))
        self.trained = Trained(runtime, StateTable(history.ids, concat(states)), history.ids, history.until)
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
        columns = self.runtime.predict(names, state, self.runtime.read_futr(futr_df), level)
        return self.runtime.build(columns, futr_df)

    def predict_new(self, futr_df: Any, static_df: Any = None, level: Sequence[float] | None = None) -> Any:
        """Cold start: forecast the first h steps of series without any value, from covariates alone.

        `futr_df` names the series and holds their first h rows.
        """
        columns = self.runtime.predict_new(self.table.ids, futr_df, static_df, level)
        return self.runtime.build(columns, futr_df)

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
        runtime, table = self.runtime, self.table
        new = runtime.read(df)
        places = table.places(new.ids)
        known = places >= 0
        record = Record(table.take(places[known]))
        style = FrameStyle.of(df, runtime.style)
        update = runtime.update(
            new, new.ids[known], record, table.newest, static_df, late, style=style, allow_jump=allow_jump
        )
        if update.record is not None:
            table.put(update.ids, update.record.now)
        return update.result

    def without_series(self) -> Forecaster:
        """The same model without the state of any series."""
        trained = self._require_training()
        twin = self.__copy__()
        twin.trained = trained._replace(table=StateTable([], trained.runtime.no_records().now))
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
        """Rolling-origin forecasts over the end of `df`, without retraining. The forecaster's states do not change.

        States start empty and replay `df`. With `adapt=False` the statistics of a series are frozen at its first
        cutoff, while its context moves on. Cutoffs count back from the end of each series and must come after its
        first value. A warning names series that are too short for all cutoffs. `allow_jump` is that of `fit`.
        """
        runtime, h = self.runtime, self.settings.h
        n_windows = check_whole("n_windows", n_windows, 1)
        step_size = h if step_size is None else check_whole("step_size", step_size, 1)
        # Long gaps are shortened only before the first possible cutoff.
        panel = runtime.read_history(df, in_sight=h + step_size * n_windows, allow_jump=allow_jump)
        cutoffs = cutoff_rows(panel, h, n_windows, step_size)
        folds = runtime.rolling(panel, cutoffs, level, adapt, static_df)
        warn_short(panel, cutoffs)
        self._warn_cutoffs(panel, cutoffs)
        frames = [
            {
                "unique_id": np.repeat(panel.ids[fold.series].to_numpy(), h),
                "ds": panel.ds[fold.future].ravel(),
                "cutoff": np.repeat(panel.ds[fold.cutoff], h),
                "y": panel.y[fold.future].ravel(),
                **runtime.forecast_columns(fold.forecast, level),
            }
            for fold in folds
        ]
        columns = {k: np.concatenate([f[k] for f in frames]) for k in frames[0]}
        order = np.lexsort((columns["ds"], columns["cutoff"], pd.factorize(columns["unique_id"], sort=True)[0]))
        return FrameStyle.of(df, runtime.style).build({k: v[order] for k, v in columns.items()})

    def save(self, path: str | Path) -> None:
        """Write model and states into a new or empty folder, or over an older save."""
        trained, engine = self._require_training(), self.runtime.engine
        parts = [(f"{i}.{k}", v) for i, m in enumerate(engine.models) for k, v in m.state_dict().items()]
        model = {
            "settings": self.settings.to_json(),
            "schema": engine.schema.to_json(),
            "frame": self.runtime.style.to_json(),
            "members": len(engine.models),
        }
        series = {
            "ids": self.table.ids,
            "trained_ids": trained.ids.tolist(),
            "trained_until": trained.until.tolist(),
        }
        networks = {f"{i}-{name}": g for i, graphs in enumerate(engine.networks) for name, g in graphs.items()}
        weights, states = (  # copies: safetensors cannot write tensors that share memory
            {k: v.detach().cpu().contiguous().clone() for k, v in tensors}
            for tensors in (parts, leaves(self.table.states))
        )
        write_folder(path, Saved(model, weights, series, states, networks))

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
            return cls._restore(saved, accelerator)
        except AruError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise StorageError(
                f"{verbatim(path)} does not fit together ({verbatim(reason)})",
                "Read it with the version of aru that wrote it.",
            ) from error

    @classmethod
    def _restore(cls, saved: Saved, accelerator: AcceleratorName) -> Forecaster:
        settings = dataclasses.replace(Settings.from_json(saved.model["settings"]), accelerator=accelerator)
        schema = Schema.from_json(saved.model["schema"])
        models, networks = [], []
        for i in range(saved.model["members"]):
            model = build(settings, schema)
            model.load_state_dict(_below(saved.weights, f"{i}."))
            models.append(model)
            networks.append(_below(saved.networks, f"{i}-"))
        engine = NetworkEngine(settings, schema, models, choose_device(accelerator), networks)
        forecaster = cls.__new__(cls)
        style = FrameStyle(**saved.model["frame"])
        forecaster.settings, forecaster.val_loss = settings, math.nan
        forecaster.freq = Frequency(settings.freq, style.zone)
        # Copied into aligned memory: tensors of the file may be unaligned, which changes the last bits of results.
        flat = {key: value.clone() for key, value in saved.states.items()}
        states = rebuild(engine.empty(schema.no_static()), flat)
        if len(saved.series["ids"]) != len(states.last):
            raise ValueError(f"{len(saved.series['ids'])} series but {len(states.last)} states")
        forecaster.trained = Trained(
            runtime=ForecastRuntime(engine, forecaster.freq, style),
            table=StateTable(saved.series["ids"], states),
            ids=index_of(saved.series["trained_ids"], schema.integer_ids),
            until=np.array(saved.series["trained_until"], dtype=np.int64),
        )
        return forecaster

    def _read(self, df: Any, freq: Frequency, seen: int, lost: dict[Any, None]) -> Panel:
        """Rows of a frame to train on, and to `lost` the series without any value.

        Gaps are filled only as far as forecasts can see.
        """
        settings = self.settings
        columns = [*settings.futr_exog_list, *settings.hist_exog_list]
        panel = read_panel(df, freq, columns, max_gap=seen + settings.longest_window)
        panel, empty = leave_out_empty(panel)
        lost.update(dict.fromkeys(empty))
        return panel

    def _warn_cutoffs(self, panel: Panel, cutoffs: Ints) -> None:
        """Warn about cutoffs inside the training data, where scores are too good."""
        trained = self._require_training()
        at = trained.ids.get_indexer(panel.ids)
        until = np.where(at >= 0, trained.until[at], np.iinfo(np.int64).min)
        first = np.where(cutoffs >= 0, panel.ds[cutoffs], np.iinfo(np.int64).max).min(0)
        inside = np.flatnonzero(first < until)
        if len(inside):
            warnings.warn(
                f"{len(inside)} series have cutoffs inside the training data: "
                f"{name_rows(panel.ids[inside], first[inside], panel.clock)}. These scores are too good; "
                "evaluate on later rows.",
                AruWarning,
                stacklevel=3,
            )


Forecaster.__doc__ = Settings.__doc__  # written once


def _below(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The items whose name begins with a prefix, named without it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
