"""`Adapter`: corrects the forecasts of any frozen model, per series and lead, as actual values arrive."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd

from aru.adapter_settings import AdapterSettings
from aru.data.columns import Ints, as_frame, name_rows, read_ids, require_columns
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.guess import guess_frequency
from aru.data.jumps import Newest, refuse_apart
from aru.data.model_columns import ModelColumns, ReadForecasts, find_models, read_forecasts, with_values
from aru.data.panel import Known, Panel, read_panel
from aru.errors import AruError, ColumnError, ConfigError, InputError, NotFittedError, StorageError, quoted, verbatim
from aru.nn.ridge import warm_up
from aru.nn.tree import leaves, rebuild
from aru.runtime import CorrectionRuntime
from aru.runtime.correction import AdapterState, CorrectionEngine
from aru.runtime.records import Record
from aru.runtime.update import UpdateResult
from aru.settings import CalibrationName
from aru.store import About, Store, Transaction, exchange, open_store
from aru.store.folder import Saved, read_folder, write_folder


class FrameSchema(NamedTuple):
    """What the first frames decided: frequency, models, interval levels, types of ids and times, kind of frame."""

    freq: str | int | None
    models: tuple[str, ...]
    levels: tuple[float, ...]
    integer_ids: bool
    datetime: bool
    backend: str
    ds: str
    zone: str | None

    @property
    def frequency(self) -> Frequency:
        """The frequency, in the time zone of the frames."""
        return Frequency(self.freq, self.zone)

    @property
    def style(self) -> FrameStyle:
        """The kind of frame that is returned."""
        return FrameStyle(self.backend, self.ds, self.zone).on(self.frequency)

    @classmethod
    def of(cls, values: dict[str, Any]) -> FrameSchema:
        """From JSON."""
        return cls(**{**values, "models": tuple(values["models"]), "levels": tuple(values["levels"])})


class Adapter:
    """Corrects the forecasts of other models, per series and lead, from their past errors.

    Forecasts are frames as Nixtla's libraries write them: `unique_id`, `ds`, optionally `cutoff`, and a column per
    model, with `<model>-lo-90` and `<model>-hi-90` for its intervals. A forecast waits in the state until its actual
    value arrives; only then is its error learned from. The size of a state does not depend on the length of history.
    Forecasts of a series without past errors are returned unchanged. `adapt` takes the place of `predict`: the
    forecasts are another model's, and come in as a frame.

    Args:
        h: The longest lead, in steps.
        freq: Pandas offset alias, or an integer for integer `ds`; None: rows are consecutive whatever their dates;
            "auto": inferred from the longest series of the first frame, which needs three rows. Daily rows without a
            Saturday or Sunday are taken for business days.
        season_length: Steps of a season; None: the natural one of the frequency.
        models: Models whose columns are adapted; None: all numeric columns but `y`.
        alphas: Aging factors of the statistics per step; the corrections of several factors are averaged.
        ridge: Ridge penalty in observations: it shrinks the correction to zero, that is, to the frozen forecast.
        gate: Mix frozen and adapted forecast, per series and block of leads, by their recent errors.
        calibration: "online" moves the ends of intervals, per series and block of leads, to keep their coverage.
        store: Path of a SQLite file, created on first use; the address of a PostgreSQL database
            (`postgresql://user@host/name`); None keeps the states in memory; or a store object.
    """

    def __init__(
        self,
        h: int,
        freq: str | int | None = "auto",
        season_length: int | None = None,
        models: Sequence[str] | None = None,
        alphas: Sequence[float] = AdapterSettings.alphas,
        ridge: float = AdapterSettings.ridge,
        gate: bool = False,
        calibration: CalibrationName | None = None,
        store: Store | str | Path | None = None,
    ) -> None:
        self.settings = AdapterSettings(h, freq, season_length, models, alphas, ridge, gate, calibration)
        if freq != "auto":
            Frequency(freq)
        warm_up()  # not inside the first transaction
        self.store = open_store(store)
        self.frame_schema()

    def frame_schema(self) -> FrameSchema | None:
        """What the frames so far decided; None before the first one."""
        with self.store.reading() as view:
            return self._schema(view)

    def update(self, df: Any, late: Literal["raise", "skip"] = "raise", allow_jump: bool = False) -> UpdateResult:
        """Take in observations (`unique_id`, `ds`, `y`) of known and new series: all are applied or none.

        The errors of pending forecasts for these rows are learned from. Rows that were consumed before are counted as
        duplicates and ignored. Other rows at or before a series' latest time are late: "raise" rejects the call,
        "skip" leaves them out. Rows far ahead of the newest time of all series are refused, unless `allow_jump` says
        that they are right.
        """
        if late not in ("raise", "skip"):
            raise ConfigError(f"`late={quoted(late)}` is not known", "Choose 'raise' or 'skip'.")
        frame = as_frame(df, "df")
        with self.store.writing() as change:
            schema = self._settle(self._schema(change), frame, "df")
            runtime = _runtime(self.settings, schema)
            new = runtime.read(frame, "df")
            known, state = self._read(change, schema, new.ids)
            style = FrameStyle.of(frame, schema.style)
            newest = _newest(change)
            update = runtime.update(new, known, Record(state), newest, None, late, style=style, allow_jump=allow_jump)
            if update.record is not None:
                self._write(change, schema, update.ids, update.record.now)
        return update.result

    def adapt(self, forecasts: Any, allow_jump: bool = False) -> Any:
        """The same frame with corrected forecasts. The forecasts wait in the state for their actual values.

        Forecasts must begin right after the latest observation of their series; a `cutoff` must be its time. Adapting
        the same forecasts again changes nothing. Cutoffs far ahead of the newest time of all series are refused, unless
        `allow_jump` says that they are right.
        """
        frame = as_frame(forecasts, "forecasts")
        columns = find_models(frame, self.settings.models)
        with self.store.writing() as change:
            old = self._schema(change)
            schema = self._settle(old, frame, "forecasts", columns)
            if old is not None and (old.models, old.levels) != (schema.models, schema.levels):
                self._grow(change, old, schema)
            known, state = self._read(change, schema, read_ids(frame, "forecasts").unique())
            latest = Known(known, state.last.numpy())
            runtime = _runtime(self.settings, schema)
            given = read_forecasts(frame, runtime.freq, self.settings.h, columns, schema.models, schema.levels, latest)
            _check_kinds(schema, given)
            _require_latest(given, latest)
            if not allow_jump:
                _refuse_far(given, Newest(_newest(change), runtime.schema.jump), runtime.freq)
            after, adapted = runtime.issue(given.ids.get_indexer(known), state, given.cutoff, given.issued)
            self._write(change, schema, given.ids, after)
        return with_values(frame, given, adapted)

    def cross_validation(self, forecasts: Any, df: Any = None, keep: bool = False, allow_jump: bool = False) -> Any:
        """Adapt a history of forecasts (with `cutoff`), each with only what was known at its cutoff.

        The result is that of `update` and `adapt` step by step, from empty states. Without `df` the actual values
        are the column `y` of the forecasts. With `keep` the final states replace those of the adapter; otherwise its
        states do not change. Rows far from all others in time are refused, unless `allow_jump` says that they are
        right.
        """
        frame = as_frame(forecasts, "forecasts")
        require_columns(frame, ["unique_id", "ds", "cutoff"], "forecasts")
        columns = find_models(frame, self.settings.models)
        truth = _truth(frame) if df is None else as_frame(df, "df")
        schema = self._settle(None, truth, "df", columns)
        runtime = _runtime(self.settings, schema)
        given = read_forecasts(frame, runtime.freq, self.settings.h, columns, schema.models, schema.levels)
        _check_kinds(schema, given)
        panel, origin = _history(truth, given, runtime)
        if not allow_jump:
            refuse_apart(panel, runtime.freq, "df")
        state, adapted = runtime.replay(panel, given.issued, origin)
        if keep:
            with self.store.writing() as change:
                change.delete(change.keys())
                self._write(change, schema, panel.ids, state)
        return with_values(frame, given, adapted)

    def series(self) -> Any:
        """A frame of all series: unique_id, latest ds and number of observations."""
        schema = _require(self.frame_schema())
        found = exchange.contents(self.store)
        columns = {"unique_id": found.ids.to_numpy(), "ds": found.last, "observations": found.observations}
        return schema.style.build(columns)

    def forget(self, ids: Iterable[Any] | str | int) -> int:
        """Delete the states of series, all of them or none. Returns the number of series."""
        return exchange.forget(self.store, ids)

    def save(self, path: str | Path) -> None:
        """Write settings and states into a new or empty folder, or over an older save."""
        with self.store.reading() as view:
            schema = _require(self._schema(view))
            ids, state = self._read(view, schema, exchange.index_of(view.keys(), schema.integer_ids))
        model = {"adapter": self.settings.to_json(), "schema": schema._asdict()}
        states = {key: value.contiguous() for key, value in leaves(state)}
        write_folder(path, Saved(model, {}, {"ids": ids.tolist()}, states))

    @classmethod
    def load(cls, path: str | Path, store: Store | str | Path | None = None) -> Adapter:
        """Read what `save` wrote, into memory or into a new store."""
        saved = read_folder(path)
        try:
            adapter, schema = cls(**saved.model["adapter"], store=store), FrameSchema.of(saved.model["schema"])
            like = _runtime(adapter.settings, schema).no_records().now
            state = rebuild(like, {key: value.clone() for key, value in saved.states.items()})
            ids = exchange.index_of(saved.series["ids"], schema.integer_ids)
            _runtime(adapter.settings, schema).check(state, ids.tolist())
        except AruError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
            raise StorageError(
                f"{verbatim(path)} is no saved adapter ({quoted(error)})", "Give the folder that save wrote."
            ) from error
        with adapter.store.writing() as change:
            if change.about() is not None:
                raise StorageError(f"{verbatim(adapter.store)} has states already", "Load into a new store.")
            adapter._write(change, schema, ids, state)
        return adapter

    def close(self) -> None:
        """Close the store's files. The next use of the adapter opens them again."""
        self.store.close()

    def _schema(self, view: Transaction) -> FrameSchema | None:
        """The frame schema in the store, None if it is empty; refuse a store of a stream or of other settings."""
        about = view.about_or_new()
        if about is None:
            return None
        if about.adapter is None:
            raise StorageError(
                f"{verbatim(self.store)} holds the states of a stream, not of an adapter", "Give another file."
            )
        schema = FrameSchema.of(about.adapter["schema"])
        written = about.adapter["settings"]
        if written != self.settings.to_json():
            raise StorageError(
                f"{verbatim(self.store)} was written by an adapter with other settings: {verbatim(written)}",
                "Use these settings, or a new file.",
            )
        self._about(schema).require(about, self.store)
        return schema

    def _about(self, schema: FrameSchema) -> About:
        """The description of the records for the store."""
        columns = {**schema._asdict(), "models": list(schema.models), "levels": list(schema.levels)}
        described = {"settings": self.settings.to_json(), "schema": columns}
        return dataclasses.replace(_runtime(self.settings, schema).describe(), adapter=described)

    def _settle(
        self, old: FrameSchema | None, frame: nw.DataFrame[Any], name: str, columns: ModelColumns | None = None
    ) -> FrameSchema:
        """The schema after this frame, which may be the first one or bring new models or levels."""
        if old is None:
            require_columns(frame, ["unique_id", "ds"], name)
            freq = guess_frequency(frame, name) if self.settings.freq == "auto" else self.settings.freq
            style = FrameStyle.of(frame)
            integer_ids = frame["unique_id"].dtype.is_integer()
            old = FrameSchema(freq, (), (), integer_ids, style.ds != "int", style.backend, style.ds, style.zone)
        if columns is None:
            return old
        models, levels = (*old.models, *columns.points), (*old.levels, *columns.levels)
        return old._replace(models=tuple(dict.fromkeys(models)), levels=tuple(dict.fromkeys(levels)))

    def _read(self, view: Transaction, schema: FrameSchema, ids: pd.Index[Any]) -> tuple[pd.Index[Any], AdapterState]:
        """The known ones among these series, and their states."""
        blobs = view.get(ids.tolist())
        known = ids[[blob is not None for blob in blobs]]
        record = _runtime(self.settings, schema).decode([b for b in blobs if b is not None], known)
        return known, record.now

    def _write(self, change: Transaction, schema: FrameSchema, ids: pd.Index[Any], state: AdapterState) -> None:
        about, newest = self._about(schema), _newest(change)
        if change.about() != about:
            change.describe(about)
        keys = ids.tolist()
        change.put(keys, _runtime(self.settings, schema).encode(Record(state), keys))
        if len(ids):
            latest = int(state.last.max())
            change.keep_newest(latest if newest is None else max(newest, latest))

    def _grow(self, change: Transaction, old: FrameSchema, schema: FrameSchema) -> None:
        """Make room for new models or levels in the records of all series."""
        ids, state = self._read(change, old, exchange.index_of(change.keys(), old.integer_ids))
        self._write(change, schema, ids, _runtime(self.settings, schema).grow(state))


@functools.lru_cache(maxsize=16)
def _runtime(settings: AdapterSettings, schema: FrameSchema) -> CorrectionRuntime:
    """The runtime of these settings and this schema."""
    freq = schema.frequency
    season = settings.season_length or next(iter(freq.seasons()), None)
    kinds = (schema.integer_ids, schema.datetime)
    engine = CorrectionEngine(settings, season, len(schema.models), schema.levels, kinds, freq)
    return CorrectionRuntime(engine, freq, schema.style)


def _newest(view: Transaction) -> int | None:
    """The newest time of all series; None if there are none."""
    about = view.about()
    return None if about is None else exchange.newest_time(view, about)


def _refuse_far(given: ReadForecasts, newest: Newest, freq: Frequency) -> None:
    """Refuse forecasts that begin a series far ahead of all others."""
    far = newest.ahead(given.cutoff, freq)
    if far.any() and newest.time is not None:
        rows = name_rows(given.ids[given.series[far]], given.cutoff[far], given.clock)
        raise newest.too_far("forecasts", "cutoffs", rows, newest.time, freq, given.clock)


def _require_latest(given: ReadForecasts, known: Known) -> None:
    """Refuse forecasts with several cutoffs per series, or with a cutoff that is not its latest observation."""
    twice = np.flatnonzero(np.diff(given.series) == 0)
    if len(twice):
        rows = name_rows(given.ids[given.series[twice]], given.cutoff[twice + 1], given.clock)
        raise InputError(
            f"`forecasts` has several cutoffs for {rows}",
            "Adapt them one after the other, each when its cutoff is the latest observation, or use cross_validation.",
            rows=rows,
        )
    at = known.ids.get_indexer(given.ids)
    other = (at >= 0) & (np.append(known.last, 0)[at] != given.cutoff)
    if other.any():
        rows = name_rows(given.ids[other], given.cutoff[other], given.clock)
        raise InputError(
            f"{len(rows)} cutoffs of `forecasts` are not the latest observation of their series: {rows}",
            "Give update all rows up to the cutoff, and adapt before it is given later ones.",
            rows=rows,
        )


def _check_kinds(schema: FrameSchema, given: ReadForecasts) -> None:
    for what, ours, theirs, kinds in (
        ("unique_id", schema.integer_ids, given.ids.dtype == np.int64, ("strings", "integers")),
        ("ds", schema.datetime, given.clock is not None, ("integers", "timestamps")),
    ):
        if ours != theirs:
            raise ColumnError(
                f"{what} of `forecasts` holds {kinds[theirs]}, but the adapter knows {kinds[ours]}",
                "Convert the column.",
                columns=[what],
            )


def _truth(frame: nw.DataFrame[Any]) -> nw.DataFrame[Any]:
    """The observations in a cross-validation frame."""
    require_columns(frame, ["y"], "forecasts")
    return frame.select("unique_id", "ds", "y").unique(["unique_id", "ds"], keep="first", maintain_order=True)


def _history(truth: nw.DataFrame[Any], given: ReadForecasts, runtime: CorrectionRuntime) -> tuple[Panel, Ints]:
    """Observations, and the forecasts issued at each row. A cutoff without an observation is a missing value."""
    freq, max_gap = runtime.freq, runtime.max_gap
    actual = read_panel(truth, freq, max_gap=max_gap, name="df")
    if (actual.ids.dtype == np.int64) != (given.ids.dtype == np.int64) or actual.clock != given.clock:
        raise ColumnError("unique_id and ds of `df` and `forecasts` are of different kinds", "Convert them.")
    real = ~actual.inserted
    columns = {
        "unique_id": np.concatenate([actual.ids[actual.series[real]], given.ids[given.series]]),
        "ds": np.concatenate([actual.ds[real], given.cutoff]),
        "y": np.concatenate([actual.y[real], np.full(len(given.cutoff), np.nan)]),
    }
    both = pd.DataFrame(columns).drop_duplicates(["unique_id", "ds"])
    if actual.clock is not None:
        both["ds"] = actual.clock.write(both["ds"].to_numpy())
    panel = read_panel(both, freq, max_gap=max_gap, name="df and cutoffs")
    origin = np.full(len(panel.ds), -1)
    keys = pd.MultiIndex.from_arrays([panel.series, panel.ds])
    wanted = pd.MultiIndex.from_arrays([panel.ids.get_indexer(given.ids)[given.series], given.cutoff])
    origin[keys.get_indexer(wanted)] = np.arange(len(wanted))
    return panel, origin


def _require(schema: FrameSchema | None) -> FrameSchema:
    if schema is None:
        raise NotFittedError(
            "The adapter has no data yet", "Call update, adapt or cross_validation with keep=True first."
        )
    return schema
