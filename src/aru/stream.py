"""`Stream`: a trained model that takes in observations and forecasts, with its states in a durable store."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from aru import archive, records
from aru.codec import FORMAT, Codec, fields_of, stack
from aru.errors import StorageError
from aru.forecaster import Forecaster, check_whole
from aru.frames import FrameStyle
from aru.ingest import Late, Odd, Update, UpdateResult, compute_update, read_futr, read_update
from aru.predictions import future_style, predict_next
from aru.records import Record
from aru.store import About, Key, MemoryStore, SQLiteStore, Store, Transaction
from aru.store.base import chunks

AT_ONCE = 2**14  # series whose states are decoded at a time


class _Latest(NamedTuple):
    """The records that the latest update wrote, at hand for what follows it, and the store's version since then."""

    version: int
    keys: list[Key]
    ids: pd.Index[Any]
    record: Record


class Stream:
    """A trained model with states that live in a store.

    Args:
        model: A forecaster, or the folder that `Forecaster.save` wrote.
        store: Path of a SQLite file, created on first use; None keeps the states in memory; or a store object. A new
            store starts with the states of the model.
        correctable: How many of the latest steps of a series `late="correct"` can revise. Fixed when the store is
            created, 0 unless given; None takes what the store has.
        accelerator: Where a model that is loaded computes: "auto", "cpu" or "gpu".
    """

    def __init__(
        self,
        model: Forecaster | str | Path,
        store: Store | str | Path | None = None,
        correctable: int | None = None,
        accelerator: str = "auto",
    ) -> None:
        if correctable is not None:
            check_whole("correctable", correctable, 0)
            correctable = int(correctable)  # also if it is numpy's
        forecaster = model if isinstance(model, Forecaster) else Forecaster.load(model, accelerator)
        self._engine, self._freq, self._style = forecaster._require_fit(), forecaster._freq, forecaster._style
        self._store = _open(store)
        self._latest: _Latest | None = None
        try:
            self._prepare(forecaster, correctable)
        except BaseException:
            self._store.close()
            raise

    @property
    def correctable(self) -> int:
        """How many of the latest steps of a series can be revised."""
        return self._about.correctable

    def update(self, df: Any, static_df: Any = None, late: Late = "raise") -> UpdateResult:
        """Take in new observations of known and of new series, rows in any order: all of them or none.

        A dictionary of columns does as well as a frame. Rows that a series has consumed are counted as duplicates and
        ignored. Other rows at or before a series' latest time are late: "raise" rejects the call, "skip" applies the
        rest, and "correct" besides revises the latest steps as far as the store is `correctable`. Rows that were left
        out are returned with the reason.
        """
        return self.apply(df, static_df, late).result

    def apply(self, df: Any, static_df: Any = None, late: Late = "raise", odd: Odd = "raise") -> Update:
        """The same as `update`, with the new records and the counts of each series.

        With `odd="skip"` rows that continue no series, nor begin one, are left out as well.
        """
        new = read_update(self._engine, self._freq, df)
        style = FrameStyle.of(df, self._style)
        with self._store.writing() as change:
            version = change.version()
            known, record = self._known(change, new.ids)
            update = compute_update(self._engine, self._freq, style, new, known, record, static_df, late, odd)
            keys: list[Key] = update.ids.tolist()
            if update.record is not None:
                change.put(keys, self._codec.encode(update.record))
        if version is not None and update.record is not None and len(keys) <= AT_ONCE:
            self._latest = _Latest(version + 1, keys, update.ids, update.record)
        return update

    def predict(
        self, ids: Iterable[Any] | str | int | None = None, futr_df: Any = None, level: Sequence[float] | None = None
    ) -> Any:
        """Forecast the next h steps of every known series, or of `ids`. Nothing is changed.

        `futr_df` holds the known-future covariates of these steps; without a frequency also their timestamps.
        """
        columns = self.predict_columns(ids, futr_df, level)
        return future_style(self._style, futr_df).build(columns, self._engine.settings.h)

    def predict_columns(
        self, ids: Iterable[Any] | str | int | None = None, futr_df: Any = None, level: Sequence[float] | None = None
    ) -> dict[str, Any]:
        """The columns of `predict`, h rows for each series in the order of `ids`, with internal times."""
        futr = read_futr(self._engine, self._freq, futr_df)
        with self._store.reading() as view:
            keys = view.keys() if ids is None else archive.as_keys(ids)
            names, record = self._latest_of(view, keys)
            blobs = [] if record is not None else archive.require_known(keys, view.get(keys))
        parts = []
        for at in range(0, max(len(keys), 1), AT_ONCE):
            here = slice(at, at + AT_ONCE)
            state = (record or self._decode(names[here], blobs[here])).now
            parts.append(predict_next(self._engine, self._freq, names[here], state, futr, level))
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def series(self) -> Any:
        """A frame of all series: unique_id, latest ds and number of observations."""
        found = archive.contents(self._store)
        return self._style.build(
            {"unique_id": found.ids.to_numpy(), "ds": found.last, "observations": found.observations}
        )

    def forget(self, ids: Iterable[Any] | str | int) -> int:
        """Remove series for good, all of them or none, and return their number."""
        return archive.forget(self._store, ids)

    def export(self, path: str | Path) -> int:
        """Write the states of all series to a Parquet file, and return their number."""
        return archive.export(self._store, path)

    def import_(self, path: str | Path) -> int:
        """Read states that `export` wrote, over those of the same series, and return their number."""
        return archive.import_(self._store, path)

    def close(self) -> None:
        """Let go of the store's files; whoever uses the stream next opens them again."""
        self._latest = None  # the files may be others by then
        self._store.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, forecaster: Forecaster, correctable: int | None) -> None:
        """Fill a new store; refuse one that another model wrote."""
        with self._store.reading() as view:
            about = view.about()
        self._use(about.correctable if about and correctable is None else correctable or 0)
        if about is None:
            about = self._seed(forecaster)
        elif _lacks(about, self._about):
            about = self._upgrade()
        archive.check_same(self._about, about, self._store)

    def _use(self, correctable: int) -> None:
        """Settle the format of records."""
        engine, schema = self._engine, self._engine.schema
        self._codec: Codec[Record] = Codec(records.empty(engine, schema.no_static(), correctable))
        self._about = About(
            format=FORMAT,
            fingerprint=engine.fingerprint,
            correctable=correctable,
            size=self._codec.size,
            layout=self._codec.layout,
            integer_ids=schema.integer_ids,
            datetime=schema.datetime,
        )

    def _seed(self, forecaster: Forecaster) -> About:
        """Describe a new store and fill it with the states of the model, unless somebody else was faster."""
        with self._store.writing() as change:
            about = change.about()
            if about is None:
                change.describe(self._about)
                record = records.begin(forecaster._state, self.correctable)
                change.put(forecaster._ids.tolist(), self._codec.encode(record))
        return about or self._about

    def _upgrade(self) -> About:
        """Add what an earlier version did not keep to all records, unless somebody else was faster."""
        with self._store.writing() as change:
            about = archive.require_about(change)
            if _lacks(about, self._about):
                fields = fields_of(about.layout).values()
                for keys in chunks(change.keys(), AT_ONCE):
                    data = stack(archive.require_known(keys, change.get(keys)), about.size, keys)
                    flat = {field.name: torch.from_numpy(field.decode(data)) for field in fields}
                    change.put(keys, self._codec.encode(self._codec.build(self._engine.complete(flat))))
                change.describe(self._about)
            return archive.require_about(change)

    def _known(self, view: Transaction, names: pd.Index[Any]) -> tuple[pd.Index[Any], Record]:
        """Those of the series that are known, and their records."""
        keys = names.tolist()
        _, record = self._latest_of(view, keys)
        if record is not None:
            return names, record
        blobs = view.get(keys)
        known = names[[blob is not None for blob in blobs]]
        return known, self._decode(known, [blob for blob in blobs if blob is not None])

    def _latest_of(self, view: Transaction, keys: Sequence[Key]) -> tuple[pd.Index[Any], Record | None]:
        """The names of series, and their records if all were in the latest update and nothing has changed since."""
        latest = self._latest
        if latest is None or latest.version != view.version():
            return self._index(keys), None
        if keys == latest.keys:
            return latest.ids, latest.record
        names = self._index(keys)
        at = latest.ids.get_indexer(names)
        return names, records.select(latest.record, at) if (at >= 0).all() else None

    def _index(self, keys: Sequence[Key]) -> pd.Index[Any]:
        return pd.Index(keys, dtype=np.int64 if self._engine.schema.integer_ids else object)

    def _decode(self, ids: pd.Index[Any], blobs: Sequence[bytes]) -> Record:
        return self._codec.decode(blobs, ids)


def _lacks(theirs: About, ours: About) -> bool:
    """Whether records are the same but for what can be computed from them (`Engine.complete`)."""
    have = {tuple(map(str, field)) for field in theirs.layout}
    missing = [field[0] for field in ours.layout if tuple(map(str, field)) not in have]
    same = dataclasses.replace(theirs, layout=ours.layout, size=ours.size) == ours
    return same and bool(missing) and all(name.endswith(".local.now") for name in missing)


def _open(store: Store | str | Path | None) -> Store:
    if isinstance(store, Store):
        return store
    return MemoryStore() if store is None else SQLiteStore(store)


def rebuild(
    model: Forecaster | str | Path, path: str | Path, df: Any, static_df: Any = None, correctable: int = 0
) -> UpdateResult:
    """Create a store whose states are those of a history from its very beginning; it appears when it is complete."""
    target = Path(path)
    if target.exists():
        raise StorageError(f"{target} exists already: choose a new file.")
    forecaster = model if isinstance(model, Forecaster) else Forecaster.load(model)
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)  # of an earlier attempt
    try:
        with Stream(forecaster.without_series(), part, correctable) as stream:
            result = stream.update(df, static_df)
        os.replace(part, target)
    finally:
        for suffix in ("", "-wal", "-shm"):
            part.with_name(part.name + suffix).unlink(missing_ok=True)
    return result
