"""`Adapter`: forecasts of any frozen model, corrected per series and lead as their truth arrives."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
import torch

from aru import archive, storage
from aru.adaptation import Adaptation, AdapterState, grow
from aru.codec import FORMAT, Codec
from aru.columns import as_frame, read_ids, require_columns, show_rows
from aru.errors import AruError, ColumnError, ConfigError, InputError, LateError, NotFittedError, StorageError
from aru.forecasts import Forecasts, ModelColumns, find_models, read_forecasts, with_values
from aru.frames import FrameStyle
from aru.frequency import Frequency
from aru.ingest import UpdateResult, left_out_rows
from aru.lateness import Remembered, judge_past
from aru.panel import Known, continuation, guess_frequency, read_observations
from aru.replay import Rows, replay
from aru.settings import AdapterSettings, Calibration
from aru.state import from_dict, put, take, to_dict
from aru.store import About, MemoryStore, SQLiteStore, Store, Transaction


class Schema(NamedTuple):
    """What the first frames settled: how time passes, which models and levels there are, how frames look."""

    freq: str | int | None
    models: tuple[str, ...]
    levels: tuple[float, ...]
    integer_ids: bool
    datetime: bool
    backend: str
    ds: str

    @property
    def style(self) -> FrameStyle:
        """How frames are written."""
        return FrameStyle(self.backend, self.ds)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Schema:
        """From JSON."""
        return cls(**{**values, "models": tuple(values["models"]), "levels": tuple(values["levels"])})


class Record(NamedTuple):
    """What a store holds of a series, named as the records of a stream are."""

    now: AdapterState


class Adapter:
    """Corrects the forecasts of other models per series and lead, from what they got wrong before.

    Forecasts are frames as Nixtla's libraries write them: `unique_id`, `ds`, perhaps `cutoff`, and a column for every
    model, with `<model>-lo-90` and `<model>-hi-90` beside it where there are intervals. A forecast teaches when its
    truth has been observed; until then it waits in the state, whose size does not depend on the length of history. A
    series about which nothing is known keeps the forecasts that it was given.

    Args:
        h: The longest lead, in steps.
        freq: Pandas offset alias, or an integer for integer `ds`; None: rows are consecutive whatever their dates;
            "auto": read off the first frame, whose longest series must have three rows; without a Saturday or Sunday
            among them, days are business days.
        season_length: Steps of the seasonal pattern; None: the natural one of the frequency.
        models: Models whose columns are adapted; None: all numeric columns but `y`.
        alphas: How statistics age with every step; the corrections of several factors are averaged.
        ridge: Strength of the prior, which is the frozen forecast itself, in observations.
        gate: Mix frozen and adapted forecast per series and block of leads, never much worse than the better one.
        calibration: "online" moves the ends of intervals per series and lead so that their coverage stays nominal.
        store: Path of a SQLite file, created on first use; None keeps the states in memory; or a store object.
    """

    def __init__(
        self,
        h: int,
        freq: str | int | None = "auto",
        season_length: int | None = None,
        models: Sequence[str] | None = None,
        alphas: Sequence[float] = (0.9999, 0.999, 0.99),
        ridge: float = 30.0,
        gate: bool = False,
        calibration: Calibration | None = None,
        store: Store | str | Path | None = None,
    ) -> None:
        self.settings = AdapterSettings(h, freq, season_length, models, alphas, ridge, gate, calibration)
        if freq != "auto":
            Frequency(freq)
        self._store = store if isinstance(store, Store) else MemoryStore() if store is None else SQLiteStore(store)
        with self._store.reading() as view:
            self._schema(view)

    def update(self, actuals: Any, late: Literal["raise", "skip"] = "raise") -> UpdateResult:
        """Take in observations of known and of new series (`unique_id`, `ds`, `y`): all of them or none.

        Pending forecasts for these rows mature. Rows that were consumed before are counted as duplicates and ignored;
        other rows at or before a series' latest time are late: "raise" rejects the call, "skip" leaves them out.
        """
        if late not in ("raise", "skip"):
            raise ConfigError(f"late={late!r} is not known: choose 'raise' or 'skip'.")
        frame = as_frame(actuals, "actuals")
        with self._store.writing() as change:
            schema = self._settle(self._schema(change), frame, "actuals")
            freq, engine = Frequency(schema.freq), _tools(self.settings, schema).engine
            new = read_observations(frame, freq, [], "actuals")
            _check_kinds(schema, new.ids, new.datetime, "actuals")
            known, state = self._read(change, schema, new.ids)
            panel, past = continuation(new, freq, Known(known, state.last.numpy()), engine.rows + engine.h)
            reasons = judge_past(known, _remembered(state), past)
            wrong = reasons != "duplicate"
            left_out = left_out_rows(past, reasons, wrong)
            if late == "raise" and wrong.any():
                raise LateError(
                    f"actuals has {int(wrong.sum())} rows at or before the latest time of their series: "
                    f"{show_rows(left_out['unique_id'], left_out['ds'], schema.datetime)} ({left_out['reason'][0]}). "
                    "Nothing was applied. Drop them, or pass late='skip'.",
                    left_out,
                )
            after, _ = replay(engine, _arrange(engine, known, state, panel.ids), Rows.of(panel))
            self._write(change, schema, panel.ids, after)
        return UpdateResult(
            applied=int((~panel.inserted).sum()),
            duplicates=int((~wrong).sum()),
            corrected=0,
            gaps_filled=int(panel.inserted.sum() + panel.skipped.sum()),
            new_series=list(panel.ids[known.get_indexer(panel.ids) < 0]),
            left_out=left_out,
            style=FrameStyle.of(frame, schema.style),
        )

    def adapt(self, forecasts: Any) -> Any:
        """The same frame with its forecasts adapted; they are remembered until their truth arrives.

        Forecasts begin after the latest observation of their series, which is the `cutoff` where the frame has one. To
        adapt the same forecasts again changes nothing.
        """
        frame = as_frame(forecasts, "forecasts")
        columns = find_models(frame, self.settings.models)
        with self._store.writing() as change:
            old = self._schema(change)
            schema = self._settle(old, frame, "forecasts", columns)
            if old is not None and (old.models, old.levels) != (schema.models, schema.levels):
                self._grow(change, old, schema)
            known, state = self._read(change, schema, read_ids(frame, "forecasts").unique())
            latest = Known(known, state.last.numpy())
            given = read_forecasts(
                frame, Frequency(schema.freq), self.settings.h, columns, schema.models, schema.levels, latest
            )
            _check_kinds(schema, given.ids, given.datetime, "forecasts")
            _require_latest(given, latest)
            engine = _tools(self.settings, schema).engine
            ready = _begin(_arrange(engine, known, state, given.ids), torch.from_numpy(given.cutoff))
            after, adapted = engine.issue(ready, given.issued)
            self._write(change, schema, given.ids, after)
        return with_values(frame, given, adapted)

    def backtest(self, forecasts: Any, actuals: Any = None, keep: bool = False) -> Any:
        """Adapt a whole history of forecasts (with `cutoff`), each with what was known at its cutoff and no more.

        The same as `update` and `adapt` step by step from the beginning, in one go. Without `actuals` the truth is the
        column `y` of the forecasts. The adapter's own states are left alone, unless `keep` is true: then they become
        those after the last row.
        """
        frame = as_frame(forecasts, "forecasts")
        require_columns(frame, ["unique_id", "ds", "cutoff"], "forecasts")
        columns = find_models(frame, self.settings.models)
        truth = _truth(frame) if actuals is None else as_frame(actuals, "actuals")
        schema = self._settle(None, truth, "actuals", columns)
        engine, freq = _tools(self.settings, schema).engine, Frequency(schema.freq)
        given = read_forecasts(frame, freq, self.settings.h, columns, schema.models, schema.levels)
        _check_kinds(schema, given.ids, given.datetime, "forecasts")
        rows = Rows.history(truth, given, freq, engine.rows + engine.h)
        state, adapted = replay(engine, engine.empty(len(rows.panel.ids)), rows, given.issued)
        if keep:
            with self._store.writing() as change:
                change.delete(change.keys())
                self._write(change, schema, rows.panel.ids, state)
        assert adapted is not None
        return with_values(frame, given, adapted)

    def series(self) -> Any:
        """A frame of all series: unique_id, latest ds and number of observations."""
        with self._store.reading() as view:
            schema = _require(self._schema(view))
        found = archive.contents(self._store)
        columns = {"unique_id": found.ids.to_numpy(), "ds": found.last, "observations": found.observations}
        return schema.style.build(columns)

    def forget(self, ids: Iterable[Any] | str | int) -> int:
        """Remove series for good, all of them or none, and return their number."""
        return archive.forget(self._store, ids)

    def save(self, path: str | Path) -> None:
        """Write settings and states into a new or empty folder, or over an older save."""
        with self._store.reading() as view:
            schema = _require(self._schema(view))
            ids, state = self._read(view, schema, _index(view.keys(), schema.integer_ids))
        model = {"adapter": self.settings.to_json(), "schema": schema._asdict()}
        storage.write(path, storage.Saved(model, {}, {"ids": ids.tolist()}, to_dict(state)))

    @classmethod
    def load(cls, path: str | Path, store: Store | str | Path | None = None) -> Adapter:
        """Read what `save` wrote, into memory or into a new store."""
        saved = storage.read(path)
        try:
            adapter, schema = cls(**saved.model["adapter"], store=store), Schema.of(saved.model["schema"])
            state = from_dict(_tools(adapter.settings, schema).engine.empty(0), saved.states)
            ids = _index(saved.series["ids"], schema.integer_ids)
        except AruError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
            raise StorageError(f"{path} is no saved adapter ({error!r}). Give the folder that save wrote.") from error
        with adapter._store.writing() as change:
            if change.about() is not None:
                raise StorageError(f"{adapter._store} has states already: load into a new store.")
            adapter._write(change, schema, ids, state)
        return adapter

    def close(self) -> None:
        """Let go of the store's files; whoever uses the adapter next opens them again."""
        self._store.close()

    def _schema(self, view: Transaction) -> Schema | None:
        """What the store's frames settled, None in an empty store; refuse one of a stream or of other settings."""
        about = view.about()
        if about is None:
            return None
        if about.adapter is None:
            raise StorageError(f"{self._store} holds the states of a stream, not of an adapter: give another file.")
        schema = Schema.of(about.adapter["schema"])
        if about.adapter["settings"] != self.settings.to_json():
            raise StorageError(
                f"{self._store} was written by an adapter with other settings: {about.adapter['settings']}. "
                "Use these settings, or a new file."
            )
        archive.check_same(_tools(self.settings, schema).about, about, self._store)
        return schema

    def _settle(
        self, old: Schema | None, frame: nw.DataFrame[Any], name: str, columns: ModelColumns | None = None
    ) -> Schema:
        """The schema after this frame: it may be the first one, or the first with some model or level."""
        if old is None:
            require_columns(frame, ["unique_id", "ds"], name)
            freq = guess_frequency(frame, name) if self.settings.freq == "auto" else self.settings.freq
            style = FrameStyle.of(frame)
            integer_ids = frame["unique_id"].dtype.is_integer()
            old = Schema(freq, (), (), integer_ids, style.ds != "int", style.backend, style.ds)
        if columns is None:
            return old
        models, levels = (*old.models, *columns.points), (*old.levels, *columns.levels)
        return old._replace(models=tuple(dict.fromkeys(models)), levels=tuple(dict.fromkeys(levels)))

    def _read(self, view: Transaction, schema: Schema, ids: pd.Index[Any]) -> tuple[pd.Index[Any], AdapterState]:
        """Those of the series that are known, and their states."""
        blobs = view.get(ids.tolist())
        known = ids[[blob is not None for blob in blobs]]
        return known, _tools(self.settings, schema).codec.decode([b for b in blobs if b is not None], known).now

    def _write(self, change: Transaction, schema: Schema, ids: pd.Index[Any], state: AdapterState) -> None:
        tools = _tools(self.settings, schema)
        if change.about() != tools.about:
            change.describe(tools.about)
        change.put(ids.tolist(), tools.codec.encode(Record(state)))

    def _grow(self, change: Transaction, old: Schema, schema: Schema) -> None:
        """Make room for new models or levels in the records of all series."""
        ids, state = self._read(change, old, _index(change.keys(), old.integer_ids))
        self._write(change, schema, ids, grow(state, _tools(self.settings, schema).engine.empty(len(ids))))


class _Tools(NamedTuple):
    engine: Adaptation
    codec: Codec[Record]
    about: About


@functools.lru_cache(maxsize=16)
def _tools(settings: AdapterSettings, schema: Schema) -> _Tools:
    """What settings and schema make: equations, format of records, and how a store describes them."""
    s, seasons = settings, Frequency(schema.freq).seasons()
    engine = Adaptation(
        h=s.h,
        season=s.season_length or (seasons[0] if seasons else None),
        alphas=tuple(s.alphas),
        ridge=s.ridge,
        models=len(schema.models),
        levels=schema.levels,
        gated=s.gate,
        calibrated=s.calibration is not None,
    )
    codec = Codec(Record(engine.empty(0)))
    description = json.dumps({"settings": s.to_json(), "schema": schema._asdict()}, sort_keys=True)
    about = About(
        format=FORMAT,
        fingerprint=hashlib.sha256(json.dumps(s.to_json(), sort_keys=True).encode()).hexdigest()[:32],
        correctable=0,
        size=codec.size,
        layout=codec.layout,
        integer_ids=schema.integer_ids,
        datetime=schema.datetime,
        adapter=json.loads(description),
    )
    return _Tools(engine, codec, about)


def _arrange(engine: Adaptation, known: pd.Index[Any], state: AdapterState, names: pd.Index[Any]) -> AdapterState:
    """States in the order of `names`; empty ones where a series is not known."""
    at = names.get_indexer(known)
    some = torch.from_numpy(np.flatnonzero(at >= 0))
    return put(engine.empty(len(names)), torch.from_numpy(at[at >= 0]), take(state, some))


def _begin(state: AdapterState, cutoff: torch.Tensor) -> AdapterState:
    """A series without observations begins at the cutoff of its first forecasts."""
    new = state.steps < 0
    ds = torch.where(new[:, None], torch.cat([state.ds[:, 1:], cutoff[:, None]], 1), state.ds)
    return state._replace(last=torch.where(new, cutoff, state.last), steps=torch.where(new, 0, state.steps), ds=ds)


def _remembered(state: AdapterState) -> Remembered:
    """Past rows that a state still holds."""
    valid = torch.arange(state.ds.shape[1] - 1, -1, -1) <= state.steps[:, None]
    return Remembered(*(v.numpy() for v in (state.ds, state.y, ~state.y.isnan(), valid)))


def _require_latest(given: Forecasts, known: Known) -> None:
    """Forecasts are adapted at the latest observation of their series, once for each series."""
    twice = np.flatnonzero(np.diff(given.series) == 0)
    if len(twice):
        rows = show_rows(given.ids[given.series[twice]], given.cutoff[twice + 1], given.datetime)
        raise InputError(
            f"forecasts has several cutoffs for {rows}. Adapt them one after the other, each when its cutoff is the "
            "latest observation, or use backtest."
        )
    at = known.ids.get_indexer(given.ids)
    other = (at >= 0) & (np.append(known.last, 0)[at] != given.cutoff)
    if other.any():
        raise InputError(
            f"{int(other.sum())} cutoffs of forecasts are not the latest observation of their series: "
            f"{show_rows(given.ids[other], given.cutoff[other], given.datetime)}. Give update all rows up to the "
            "cutoff, and adapt before it is given later ones."
        )


def _check_kinds(schema: Schema, ids: pd.Index[Any], datetime: bool, name: str) -> None:
    for what, ours, theirs, kinds in (
        ("unique_id", schema.integer_ids, ids.dtype == np.int64, ("strings", "integers")),
        ("ds", schema.datetime, datetime, ("integers", "timestamps")),
    ):
        if ours != theirs:
            raise ColumnError(
                f"{what} of {name} holds {kinds[theirs]}, but the adapter knows {kinds[ours]}: convert the column."
            )


def _truth(frame: nw.DataFrame[Any]) -> nw.DataFrame[Any]:
    """The observations that a cross-validation frame holds beside its forecasts."""
    require_columns(frame, ["y"], "forecasts")
    return frame.select("unique_id", "ds", "y").unique(["unique_id", "ds"], keep="first", maintain_order=True)


def _index(keys: Sequence[Any], integer: bool) -> pd.Index[Any]:
    index: pd.Index[Any] = pd.Index(keys, dtype=np.int64 if integer else object)
    return index


def _require(schema: Schema | None) -> Schema:
    if schema is None:
        raise NotFittedError("The adapter has seen nothing yet: call update, adapt or backtest with keep=True first.")
    return schema
