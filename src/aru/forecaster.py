"""`Forecaster`: train once, then forecast, adapt and evaluate."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import numbers
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from aru import records, storage
from aru.backtest import cutoff_rows, rolling
from aru.columns import Floats, Ints, read_static, show_rows
from aru.engine import Engine, choose_device
from aru.errors import (
    AruError,
    AruWarning,
    ConfigError,
    NotFittedError,
    StorageError,
    TooLittleDataError,
    UnknownSeriesError,
    listing,
)
from aru.frames import FrameStyle, forecast_columns, quantiles_of
from aru.frequency import Frequency
from aru.ingest import (
    Update,
    UpdateResult,
    begin_with_values,
    check_kinds,
    compute_update,
    first_rows,
    read_futr,
    read_update,
)
from aru.models import build, resolve
from aru.panel import Panel, read_panel
from aru.predictions import future_style, predict_next, predict_rows, warn_failed
from aru.records import Record
from aru.schema import Schema, choose_lags, context_length
from aru.settings import (
    Calibration,
    CellInput,
    DistributionName,
    Integration,
    Loss,
    Scaler,
    Schedule,
    Settings,
    SupportName,
    Transform,
)
from aru.state import concat, from_dict, put, take, to_dict
from aru.support import check_values

SPARSE = 0.1  # share of steps that have a row, below which the frequency is probably wrong


class Forecaster:
    """One global model for many series that adapts to each of them as observations arrive.

    Args:
        h: Forecast horizon in steps.
        freq: Pandas offset alias, or an integer for integer `ds`; None: rows are consecutive whatever their dates.
        input_size: Rows of context that a forecast reads; None: the horizon, or one season where that is longer.
        model: "aru", "baseline" (the same network without adaptation), or another method that `aru models` lists.
        futr_exog_list: Columns known in advance. Numbers are rescaled; category, string and bool columns are embedded.
        hist_exog_list: Columns known only up to the present.
        stat_exog_list: Columns of `static_df`.
        lags: Past values of y as inputs, none shorter than h; "auto": the first whole seasons by frequency (none
            without a natural season of at most 1,000 rows); None: none.
        season: Rows of a season: each lead reads the latest known value of its own phase, too, however long h is.
        encoder: "lstm", "gru", "sru" (statistical recurrent unit) or "fru" (Fourier recurrent unit).
        encoder_layers: Layers of the encoder.
        decoder_rnn: Put an RNN over the leads into the decoder.
        size: "small", "medium", "large", "xlarge", or (RNN units, width, width, ARU dimension).
        alphas: Aging factors of the local statistics.
        ridge: Ridge of the local fit, or its start.
        learn_ridge: Learn the ridge, one per aging factor.
        learn_alphas: Learn the aging factors.
        integration: How local predictions join the network: "residual", "skip", "paper" or "direct".
        cell_input: What the local fit regresses on: the decoder's output "h", a network of x alone "x", or x "raw".
        local_variance: Let the local variance inform the forecast's spread.
        stop_gradient: Treat local parameters as constants in training.
        stride: Steps between the origins whose summaries enter the statistics; None: h.
        scaler: Scale of a series: the "mean" of all its values so far (the paper's), the "level" of its context, or
            "auto": between them, as training shows that they foretell.
        transform: None, "log1p" or "asinh" of the scaled target.
        robust: Weigh observations in the statistics by how plausible the global forecast finds them.
        distribution: "auto", "student-t", "gaussian" or "negative-binomial".
        support: Values that y can have: "real", "nonnegative" (forecasts are cut off at 0), "count" (and quantiles are
            rounded); "auto": as it was in training. Values outside of what was asked for are refused.
        series_id: Embed the series' identity.
        ensemble: Number of seeds whose forecasts are averaged.
        finetune_steps: Gradient steps on a series' own output layer at each of its observations (baseline only).
        gate: Mix the adapted forecast with that of an empty local state, per series and block of leads, so that
            adaptation is never much worse than doing without; it learns at every h-th row.
        calibration: "online" moves the ends of intervals per series and lead so that their coverage stays nominal.
        dropout: Dropout in the decoder and between layers of the encoder.
        loss: "nll", or "mse" for the mean (the spread then learns beside it).
        global_loss: Weight of the second loss on the global head, where there is one.
        max_steps: Training steps; each is a batch of series with all their windows.
        learning_rate: Peak (one-cycle) or constant learning rate of Adam.
        schedule: "one-cycle" or "constant".
        weight_average: Decay of the moving average of weights; 0 uses the last weights.
        snapshots: Average the forecasts of this many epochs with the best validation loss.
        search: Candidate values of settings to choose from by validation loss.
        batch_size: Series per training step.
        max_windows: Windows of a series per training step; longer series are cropped at random.
        births: Share of series that each training step lets begin at a random later time, as if newly opened.
        size_weight: A series counts in the loss as its mean |y| to this power: at 0 all alike, above it large series
            more, as they do in scores that are pooled over series, like ND.
        random_seed: Seed; on a CPU a training repeats bit for bit.
        accelerator: "auto" (CUDA if present, else CPU), "cpu" or "gpu".
        trainer_options: Further options of Lightning's Trainer (devices, num_nodes, strategy, callbacks, ...).
        alias: Name of the forecast columns instead of the model's.
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
        season: int | None = None,
        encoder: str = "lstm",
        encoder_layers: int = 1,
        decoder_rnn: bool = False,
        size: str | Sequence[int] = "medium",
        alphas: Sequence[float] = (1.0, 0.99, 0.95),
        ridge: float = 1.0,
        learn_ridge: bool = True,
        learn_alphas: bool = False,
        integration: Integration = "residual",
        cell_input: CellInput = "h",
        local_variance: bool = True,
        stop_gradient: bool = False,
        stride: int | None = None,
        scaler: Scaler = "auto",
        transform: Transform | None = None,
        robust: bool = True,
        distribution: DistributionName = "auto",
        support: SupportName = "auto",
        series_id: bool = False,
        ensemble: int = 1,
        finetune_steps: int = 0,
        gate: bool = False,
        calibration: Calibration | None = None,
        dropout: float = 0.0,
        loss: Loss = "nll",
        global_loss: float = 0.3,
        max_steps: int = 1000,
        learning_rate: float = 1e-2,
        schedule: Schedule = "one-cycle",
        weight_average: float = 0.99,
        snapshots: int = 0,
        search: Mapping[str, Sequence[Any]] | None = None,
        batch_size: int = 64,
        max_windows: int = 256,
        births: float = 0.25,
        size_weight: float = 0.0,
        random_seed: int = 0,
        accelerator: str = "auto",
        trainer_options: Mapping[str, Any] | None = None,
        alias: str | None = None,
    ) -> None:
        given = {k: v for k, v in locals().items() if k != "self"}
        for name in ("futr_exog_list", "hist_exog_list", "stat_exog_list"):
            given[name] = given[name] or ()
        self.settings = resolve(Settings(**given))  # refuse what the model cannot do now, not after reading the data
        self._freq = Frequency(freq)
        self._engine: Engine | None = None
        self.val_loss = math.nan  # of the last training; NaN without validation

    @property
    def ids(self) -> list[Any]:
        """The series known so far."""
        self._require_fit()
        return list(self._ids)

    def fit(
        self, df: Any, static_df: Any = None, val_size: int = 0, checkpoint_dir: str | Path | None = None
    ) -> Forecaster:
        """Train on a long frame; afterwards the states have consumed all of it.

        `df` may be a folder of Parquet files that are partitioned by series: its rows are then read as they are needed.
        The last `val_size` rows of each series are kept out of the loss and watched as validation. With
        `checkpoint_dir` training saves its progress there and resumes from it, for the same settings and data.
        Other data begin anew, with a warning; other settings are refused.
        """
        from aru.history import History, ParquetParts
        from aru.training import Checkpoints, train

        settings = self.settings
        check_whole("val_size", val_size, 0)
        needed = ["unique_id", "ds", "y", *self._columns]
        frames = ParquetParts(df, needed) if isinstance(df, (str, Path)) else [df]
        # How many rows there are to learn lags from is not known yet: these are all that can be chosen.
        lags = choose_lags(settings, self._freq, rows=sys.maxsize)
        seen = context_length(settings, self._freq) + max(lags, default=0)
        history = History(frames, functools.partial(self._read, seen=seen), static_df, settings, val_size)
        schema = history.learn(self._freq, identify=checkpoint_dir is not None)
        self._check_enough(max(int(lengths.max()) for lengths in history.part_lengths), val_size)
        _warn_fine(self._freq, history.presence, history.likely)
        kept = None if checkpoint_dir is None else Checkpoints(Path(checkpoint_dir), history.fingerprint)
        run = train(history, settings, schema, kept)
        engine = Engine(run.settings, schema, run.models, choose_device(settings.accelerator))
        states = [engine.advance(engine.empty(part.static), part.rows) for part in history.parts()]
        # Only now: a training that broke off leaves what was there before.
        self.settings, self.val_loss = run.settings, run.val_loss
        self._engine, self._style, self._ids = engine, FrameStyle.of(frames[0]), history.ids
        self._state = concat(states) if len(states) > 1 else states[0]
        self._trained_ids, self._trained_until = history.ids, history.until
        return self

    def predict(
        self,
        futr_df: Any = None,
        level: Sequence[float] | None = None,
        ids: Iterable[Any] | str | int | None = None,
    ) -> Any:
        """Forecast the next h steps of every known series, or of `ids`. Nothing is changed.

        `futr_df` holds the known-future covariates of these steps; without a frequency also their timestamps.
        """
        engine = self._require_fit()
        futr = read_futr(engine, self._freq, futr_df)
        index = self._index(ids)
        state = records.select(Record(self._state), index).now
        columns = predict_next(engine, self._freq, self._ids[index], state, futr, level)
        return future_style(self._style, futr_df).build(columns, self.settings.h)

    def predict_new(self, futr_df: Any, static_df: Any = None, level: Sequence[float] | None = None) -> Any:
        """Forecast the first h steps of series that have no value yet, from static and known covariates alone.

        `futr_df` names the series and holds their first h rows.
        """
        engine = self._require_fit()
        names, ds, rows = first_rows(engine, self._freq, self._ids, futr_df)
        static = engine.schema.encode_static(read_static(static_df, names, self.settings.stat_exog_list), names)
        columns = predict_rows(engine, names, engine.empty(static), ds, rows, level)
        return future_style(self._style, futr_df).build(columns, self.settings.h)

    def update(self, new_df: Any, static_df: Any = None, late: Literal["raise", "skip"] = "raise") -> UpdateResult:
        """Take in new observations of known and of new series, rows in any order: all of them or none.

        Rows a series has already consumed are counted as duplicates and ignored. A row at or before a series' latest
        time with another or an unknown value is late: `late="raise"` rejects the call, "skip" applies the rest.
        """
        engine = self._require_fit()
        new = read_update(engine, self._freq, new_df)
        style = FrameStyle.of(new_df, self._style)
        at = self._ids.get_indexer(new.ids)
        at = at[at >= 0]
        known = records.select(Record(self._state), at)
        update = compute_update(engine, self._freq, style, new, self._ids[at], known, static_df, late)
        self._apply(update)
        return update.result

    def without_series(self) -> Forecaster:
        """The same model, knowing no series: `update` then builds states from nothing but what it is given."""
        engine = self._require_fit()
        forecaster = copy.copy(self)
        forecaster._ids, forecaster._state = self._ids[:0], engine.empty(engine.schema.no_static())
        return forecaster

    def cross_validation(
        self,
        df: Any,
        n_windows: int = 4,
        step_size: int | None = None,
        level: Sequence[float] | None = None,
        adapt: bool = True,
        static_df: Any = None,
    ) -> Any:
        """Rolling forecasts over the end of `df`, without retraining and without touching this forecaster's states.

        States start empty and replay `df`. With `adapt=False` the statistics of a series freeze at its first cutoff
        while its context moves on. Cutoffs count back from each series' own end; a series has those that come after its
        first value, and one that lacks some is named in a warning.
        """
        engine = self._require_fit()
        step_size = self.settings.h if step_size is None else step_size
        check_whole("n_windows", n_windows, 1)
        check_whole("step_size", step_size, 1)
        # Steps are left out of long gaps only where no cutoff can fall.
        panel = self._read(df, engine.schema.history, self.settings.h + step_size * n_windows, settled=True)
        check_kinds(panel, engine.schema, "df")
        check_values(panel, self.settings, engine.schema.distribution)
        static = engine.schema.encode_static(read_static(static_df, panel.ids, self.settings.stat_exog_list), panel.ids)
        cutoffs = cutoff_rows(panel, self.settings.h, n_windows, step_size)
        _warn_short(panel, cutoffs)
        self._warn_cutoffs(panel, cutoffs)
        frames = []
        for fold in rolling(engine, panel, static, cutoffs, quantiles_of(level), adapt):
            warn_failed(fold.forecast, panel.ids[fold.series])
            h = self.settings.h
            frames.append(
                {
                    "unique_id": np.repeat(panel.ids[fold.series].to_numpy(), h),
                    "ds": panel.ds[fold.future].ravel(),
                    "cutoff": np.repeat(panel.ds[fold.cutoff], h),
                    "y": panel.y[fold.future].ravel(),
                    **forecast_columns(fold.forecast, self.settings.name, level),
                }
            )
        columns = {k: np.concatenate([f[k] for f in frames]) for k in frames[0]}
        order = np.lexsort((columns["ds"], columns["cutoff"], pd.factorize(columns["unique_id"], sort=True)[0]))
        return FrameStyle.of(df, self._style).build({k: v[order] for k, v in columns.items()})

    def save(self, path: str | Path) -> None:
        """Write model and states into a new or empty folder, or over an older save."""
        engine = self._require_fit()
        parts = [(f"{i}.{k}", v) for i, m in enumerate(engine.models) for k, v in m.state_dict().items()]
        weights = {k: v.cpu().contiguous() for k, v in parts}
        model = {
            "settings": self.settings.to_json(),
            "schema": engine.schema.to_json(),
            "frame": self._style.to_json(),
        }
        series = {
            "ids": self._ids.tolist(),
            "trained_ids": self._trained_ids.tolist(),
            "trained_until": self._trained_until.tolist(),
            "members": len(engine.models),
        }
        storage.write(path, storage.Saved(model, weights, series, to_dict(self._state)))

    @classmethod
    def load(cls, path: str | Path, accelerator: str = "auto") -> Forecaster:
        """Read what `save` wrote."""
        saved = storage.read(path)
        try:
            return cls._restore(saved, accelerator)
        except AruError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise StorageError(
                f"{path} does not fit together ({reason}). Read it with the version of aru that wrote it."
            ) from error

    @classmethod
    def _restore(cls, saved: storage.Saved, accelerator: str) -> Forecaster:
        forecaster = cls.__new__(cls)
        settings = dataclasses.replace(Settings(**saved.model["settings"]), accelerator=accelerator)
        schema = Schema.from_json(saved.model["schema"])
        models = []
        for i in range(saved.series["members"]):
            model = build(settings, schema)
            prefix = f"{i}."
            model.load_state_dict({k[len(prefix) :]: v for k, v in saved.weights.items() if k.startswith(prefix)})
            models.append(model)
        forecaster.settings, forecaster.val_loss = settings, math.nan
        forecaster._freq = Frequency(settings.freq)
        forecaster._engine = Engine(settings, schema, models, choose_device(accelerator))
        forecaster._style = FrameStyle(**saved.model["frame"])
        id_type = np.int64 if schema.integer_ids else object
        forecaster._ids = pd.Index(saved.series["ids"], dtype=id_type)
        forecaster._trained_ids = pd.Index(saved.series["trained_ids"], dtype=id_type)
        forecaster._trained_until = np.array(saved.series["trained_until"], dtype=np.int64)
        states = forecaster._engine.complete(saved.states)
        forecaster._state = from_dict(forecaster._engine.empty(schema.no_static()), states)
        if len(forecaster._ids) != len(forecaster._state.last):
            raise ValueError(f"{len(forecaster._ids)} series but {len(forecaster._state.last)} states")
        return forecaster

    @property
    def _columns(self) -> list[str]:
        return [*self.settings.futr_exog_list, *self.settings.hist_exog_list]

    def _read(self, df: Any, seen: int, in_sight: int = 0, settled: bool = False) -> Panel:
        """Rows of a frame. Of a gap, as many steps are kept as a forecast can see, and the last `in_sight` besides."""
        max_gap = seen + self.settings.longest_window + in_sight
        panel = read_panel(df, self._freq, self._columns, max_gap=max_gap, settled=settled)
        return begin_with_values(panel, np.ones(len(panel.ids), bool), "df")

    def _require_fit(self) -> Engine:
        if self._engine is None:
            raise NotFittedError("This forecaster has not been trained: call fit first, or Forecaster.load.")
        return self._engine

    def _index(self, ids: Iterable[Any] | str | int | None) -> Ints:
        if ids is None:
            return np.arange(len(self._ids))
        wanted = [ids] if isinstance(ids, (str, int, np.integer)) else list(ids)
        index = self._ids.get_indexer(pd.Index(wanted, dtype=object))
        unknown = [i for i, at in zip(wanted, index, strict=True) if at < 0]
        if unknown:
            raise UnknownSeriesError(
                f"These series are not known: {listing(unknown)}. Give their observations to update first."
            )
        return index

    @torch.no_grad()
    def _apply(self, update: Update) -> None:
        """Replace the states of known series and append those of new ones. Nothing here can fail half-way."""
        if update.record is None:
            return
        state, known = update.record.now, len(update.ids) - len(update.new_ids)
        old = update.ids[:known]
        if old.equals(self._ids):  # every series, in order
            self._state, self._ids = state, update.ids
            return
        here = torch.arange(len(state.last), device=state.last.device)
        index = torch.from_numpy(self._ids.get_indexer(old)).to(here.device)
        merged = put(self._state, index, take(state, here[:known]))
        if len(update.new_ids):
            merged = concat([merged, take(state, here[known:])])
        ids = self._ids.append(update.new_ids) if len(update.new_ids) else self._ids
        self._state, self._ids = merged, ids

    def _check_enough(self, longest: int, val_size: int) -> None:
        longest, h = longest - val_size, self.settings.h
        if longest < h + 1:
            raise TooLittleDataError(
                f"The longest series has {longest} rows to train on"
                + (f" besides val_size={val_size}" if val_size else "")
                + f", but h={h} needs at least {h + 1}. Use a shorter horizon or more history."
            )

    def _warn_cutoffs(self, panel: Panel, cutoffs: Ints) -> None:
        """Scores inside the training data flatter the model."""
        at = self._trained_ids.get_indexer(panel.ids)
        until = np.where(at >= 0, self._trained_until[at], np.iinfo(np.int64).min)
        first = np.where(cutoffs >= 0, panel.ds[cutoffs], np.iinfo(np.int64).max).min(0)
        inside = np.flatnonzero(first < until)
        if len(inside):
            warnings.warn(
                f"{len(inside)} series have cutoffs inside the training data: "
                f"{show_rows(panel.ids[inside], first[inside], panel.datetime)}. These scores flatter the model; "
                "evaluate on later rows.",
                AruWarning,
                stacklevel=3,
            )


def _warn_fine(freq: Frequency, presence: Floats, likely: str | int | None) -> None:
    """A grid of hardly anything but missing values is rarely what was meant."""
    share = float(np.median(presence)) if len(presence) else 1.0
    if share < SPARSE:
        advice = "Choose a coarser freq" if likely in (None, freq.freq) else f"Series look like freq={likely!r}"
        warnings.warn(
            f"Only {100 * share:.2g} % of the steps of freq={freq.freq!r} have a row in the typical series; the others "
            f"are missing values. {advice}; or use freq=None if rows are consecutive.",
            AruWarning,
            stacklevel=3,
        )


def _warn_short(panel: Panel, cutoffs: Ints) -> None:
    """Nobody should take scores of some series for those of all."""
    windows = (cutoffs >= 0).sum(0)
    short, none = np.flatnonzero(windows < len(cutoffs)), int((windows == 0).sum())
    if len(short):
        warnings.warn(
            f"{len(short)} of {len(panel.ids)} series are too short for {len(cutoffs)} windows: "
            f"{listing(list(panel.ids[short]))}. They count with the windows that they have"
            + (f", {none} of them with none" if none else "")
            + ". Use fewer windows, or more history.",
            AruWarning,
            stacklevel=3,
        )


def check_whole(name: str, value: object, least: int) -> None:
    """Refuse what is no whole number, or below the least one that is allowed."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}.")
