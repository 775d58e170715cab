"""`Stream`: a trained model that takes in observations and forecasts, with the states of its series in a store."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import pandas as pd

from aru.checked import check_whole
from aru.data.frames import FrameStyle
from aru.data.naming import Names
from aru.forecaster import Forecaster
from aru.runtime import ForecastRuntime
from aru.runtime.common_record import CommonRecord
from aru.runtime.epochs import sample_of
from aru.runtime.explaining import Found
from aru.runtime.opening import is_open, suit, with_types
from aru.runtime.outlook import AtHand, Ids, Outlook
from aru.runtime.records import Record, begin
from aru.runtime.rewinding import rewind
from aru.runtime.state import SeriesState
from aru.runtime.update import Invalid, Late, Update, UpdateResult
from aru.settings import AcceleratorName
from aru.store import About, Key, Store, Transaction, exchange, open_store, receipts
from aru.store.receipts import Receipt

DECODED_AT_ONCE = 2**14  # series whose states are decoded at a time
Together = Callable[[Transaction, Update], None]


class _Latest(NamedTuple):
    """Cache of the records that the latest update wrote. It is valid while the store has this version."""

    version: int
    keys: list[Key]
    ids: pd.Index[Any]
    record: Record


class Stream(Outlook):
    """A trained model whose states are kept in a store.

    Args:
        model: A forecaster, or the folder that `Forecaster.save` wrote.
        store: Path of a SQLite file, created on first use; the address of a PostgreSQL database
            (`postgresql://user@host/name`); None keeps the states in memory; or a store object. A new store starts
            with the states of the model.
        correctable_steps: How many of the latest steps of a series can be corrected by late rows (`late="correct"`).
            Fixed when the store is created. None: as in the store, 0 in a new one.
        accelerator: Where a model that is loaded from a folder computes: "auto", "cpu" or "gpu".
    """

    def __init__(
        self,
        model: Forecaster | str | Path,
        store: Store | str | Path | None = None,
        correctable_steps: int | None = None,
        accelerator: AcceleratorName = "auto",
    ) -> None:
        if correctable_steps is not None:
            correctable_steps = check_whole("correctable_steps", correctable_steps, 0)
        forecaster = model if isinstance(model, Forecaster) else Forecaster.load(model, accelerator)
        forecaster = copy.copy(forecaster)  # what this stream learns is its own
        self.model = forecaster.without_series()
        self.runtime: ForecastRuntime = forecaster.runtime
        self.settings = forecaster.settings
        self._warm_up()
        self.store = open_store(store)
        self._latest: _Latest | None = None
        self._common = CommonRecord()
        self._begun = False  # whether the store is known to hold series
        self._counted = False  # whether its observations are counted, where that is needed
        try:
            self.about = self._prepare(forecaster, correctable_steps)
        except BaseException:
            self.store.close()
            raise

    @property
    def correctable_steps(self) -> int:
        """How many of the latest steps of a series can be corrected."""
        return self.about.correctable_steps

    @property
    def names(self) -> Names:
        """What the columns of series, time and target are called in the frames of this model."""
        return self.runtime.style.names

    def update(
        self,
        df: Any,
        static_df: Any = None,
        late: Late = "raise",
        allow_jump: bool = False,
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
    ) -> UpdateResult:
        """Take in new observations of known and new series. Rows come in any order; all are applied or none.

        `df` is a frame or a dictionary of columns. Rows that a series has consumed before are counted as duplicates
        and ignored. Other rows at or before a series' latest time are late: "raise" rejects the call, "skip" leaves
        them out, "correct" replaces what was consumed within the latest `correctable_steps` steps and leaves out older
        rows. The result lists rows that were left out, with the reason. Rows far ahead of the newest time of all
        series are refused, unless `allow_jump` says that they are right. `id_col`, `time_col` and `target_col` name the
        columns, by default as the model was first told; the store does not keep these names.
        """
        names = self.called(id_col, time_col, target_col)
        with names.spoken():
            inside = names.read(df), names.read_static(static_df)
            return self.apply(*inside, late, allow_jump=allow_jump, names=names).result

    def apply(
        self,
        df: Any,
        static_df: Any = None,
        late: Late = "raise",
        invalid: Invalid = "raise",
        allow_jump: bool = False,
        requests: Sequence[Receipt] = (),
        together: Together | None = None,
        names: Names | None = None,
    ) -> Update:
        """The same for columns named as inside. It returns the new records and the counts of each series as well.

        With `invalid="skip"` rows that can neither continue nor begin a series are left out, too. `requests` are
        those that the rows came with (`aru.store.receipts`). They are kept together with the rows, unless one of their
        rows was left out. If all of them were kept before, the rows are a repetition, and none of them is late.
        `together` is called before the transaction ends: what it writes takes effect together with the rows, and what
        it raises undoes both. Frames of the result have columns of these `names`.
        """
        if self._process != os.getpid():  # a forked process has none of its parent's sessions
            self._warm_up()
        new = None if self._open else self.runtime.read(df)
        shares = self.runtime.engine.shares
        # Where something is learned of all series, a writer of all of them has to count their observations first.
        some = None if new is None or (shares and not self._counted) else new.ids.tolist()
        with self.store.writing(some) as change, self._restoring():
            if new is None:
                self._suit(change, df, static_df, names)
                new = self.runtime.read(df)
            runtime = self.runtime
            style = FrameStyle.of(df, runtime.style).called(names or runtime.style.names)
            version = change.version()
            self._counted = some is None or not shares or change.counted() is not None
            known, record = self._known(change, new.ids)
            newest = exchange.newest_time(change, self.about)
            resent = bool(requests) and all(receipts.consumed(change, [r.digest for r in requests]))
            update = runtime.update(new, known, record, newest, static_df, late, invalid, style, allow_jump, resent)
            keys: list[Key] = update.ids.tolist()
            if update.record is not None:
                change.put(keys, runtime.encode(update.record, keys))
                change.keep_newest(_newer(newest, update.record))
                if self._counted:  # else others have changed the store: the next update is a writer of all of it
                    applied = update.result.applied
                    self._common.learn(change, runtime.engine, self.about, applied, partial(self._get, change))
            if requests and not resent:
                partly = set(update.result.left_out["unique_id"].tolist())
                receipts.remember(change, [r.digest for r in requests if partly.isdisjoint(r.ids)])
            if together is not None:
                together(change, update)
        if update.record is not None and len(keys) <= DECODED_AT_ONCE:
            self._latest = _Latest(version + 1, keys, update.ids, update.record)
        return update

    def consumed(self, digests: Sequence[bytes]) -> list[bool]:
        """Which of the requests with these digests were consumed; `apply` keeps them."""
        with self.store.reading() as view:
            return receipts.consumed(view, digests)

    def at_hand(self, ids: Ids, newest: bool = False) -> AtHand:
        """Some series, or all with None, a few thousand at a time."""
        with self._reading() as view:
            runtime = self._common.reading(view, self.runtime)
            keys = view.keys() if ids is None else exchange.as_keys(ids)
            names, record = self._latest_of(view, keys)
            blobs = [] if record is not None else exchange.require_known(keys, view.get(keys))
            latest = exchange.newest_time(view, self.about) if newest else None

        def portions() -> Iterator[Found]:
            for at in range(0, max(len(keys), 1), DECODED_AT_ONCE):
                here = slice(at, at + DECODED_AT_ONCE)
                yield names[here], (record or self._decode(names[here], blobs[here])).now

        return AtHand(runtime, portions(), latest)

    def sampled(self, most: int | None = None) -> tuple[ForecastRuntime, Found]:
        """The sample from which the panel's coefficients are learned, or its first series."""
        with self._reading() as view:
            runtime, keys = self._common.reading(view, self.runtime), view.keys()
            some = [keys[at] for at in sample_of(keys, len(runtime.schema.regressors))[:most]]
            return runtime, (self._index(some), self._get(view, some).now)

    def keys(self) -> list[Key]:
        """All series, in order."""
        with self.store.reading() as view:
            return view.keys()

    def states(self, keys: Sequence[Key]) -> tuple[pd.Index[Any], SeriesState]:
        """The known ones among these series, and their states."""
        with self._reading() as view:
            known, record = self._known(view, self._index(keys))
        return known, record.now

    def series(self) -> Any:
        """A frame of all series: unique_id, latest ds and number of observations."""
        found = self.contents()
        columns = {"unique_id": found.ids.to_numpy(), "ds": found.last, "observations": found.observations}
        return self.runtime.style.build(columns)

    def contents(self) -> exchange.Contents:
        """The same as `series`, with internal times."""
        return exchange.contents(self.store)

    def forget(
        self, ids: Iterable[Any] | str | int, together: Callable[[Transaction], None] = lambda change: None
    ) -> int:
        """Delete the states of series, all of them or none. Returns the number of series; `together`: see `apply`."""

        def also(change: Transaction) -> None:
            CommonRecord.outdate(change)
            together(change)

        done = exchange.forget(self.store, ids, also)
        self._counted = False
        return done

    def rewind(self, ids: Iterable[Any] | str | int, before: Any) -> int:
        """Take back the rows of series at or after a time, of all of them or of none. Returns the number of rows.

        That is possible within the latest `correctable_steps` steps. The states are then those of before.
        """
        time, wanted = self.runtime.read_time(before, "before"), list(dict.fromkeys(exchange.as_keys(ids)))
        with self.store.writing() as change:
            exchange.require_known(wanted, change.get(wanted))
            names, record = self._known(change, self._index(wanted))
            done = rewind(self.runtime.engine, names, record, time)
            change.put(wanted, self.runtime.encode(done.record, wanted))
        return int(done.rows.sum())

    def export(self, path: str | Path) -> int:
        """Write the states of all series to a Parquet file. Returns the number of series."""
        return exchange.export(self.store, path)

    def import_(self, path: str | Path) -> int:
        """Read states that `export` wrote and replace those of the same series. Returns the number of series."""
        with self.store.writing() as change:
            if self._open and not change.keys():
                self._become(exchange.read_notes(path)[0], path)
                change.describe(self.about)
        done = exchange.import_(self.store, path)
        with self.store.writing() as change:
            CommonRecord.outdate(change)
        self._counted = False
        return done

    def close(self) -> None:
        """Close the store's files. The next use of the stream opens them again."""
        self._latest = None  # the files may change before they are opened again
        self.store.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _open(self) -> bool:
        """Whether types of ids and times, and how covariates are read, are still to be found in the first rows."""
        return not self._begun and is_open(self.runtime)

    @contextlib.contextmanager
    def _restoring(self) -> Iterator[None]:  # what a refused update had found in its rows does not stay
        before = self.runtime, self.about, self._begun
        try:
            yield
        except BaseException:
            self.runtime, self.about, self._begun = before
            raise

    def _suit(self, change: Transaction, df: Any, static_df: Any, names: Names | None) -> None:
        """A pretrained model without series takes types of ids and times, and names, from the first frame."""
        self._adopt(change)
        if not self._begun:
            self.runtime = suit(self.runtime, df, static_df, names=names)
            self.about = self.runtime.describe(self.about.correctable_steps)
            change.describe(self.about)

    def _adopt(self, view: Transaction) -> None:
        """Take over what another process has found in the first rows."""
        self._begun = bool(view.keys())
        theirs = view.about() if self._begun else None
        if theirs is not None and theirs != self.about:
            self._become(theirs, self.store)

    def _become(self, theirs: About, name: object) -> None:
        """Take over the types of ids and times, and how covariates are read. Those of another model are an error."""
        runtime = with_types(self.runtime, theirs.integer_ids, theirs.datetime, theirs.zone, theirs.schema)
        about = runtime.describe(self.about.correctable_steps)
        about.require(theirs, name)
        self.runtime, self.about = runtime, about

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Transaction]:
        with self.store.reading() as view:
            if self._open:
                self._adopt(view)
            yield view

    def _get(self, view: Transaction, keys: Sequence[Key]) -> Record:
        return self._decode(self._index(keys), exchange.require_known(keys, view.get(keys)))

    def _warm_up(self) -> None:
        """Compile and load now what would otherwise happen inside a transaction."""
        self.runtime.warm_up()
        self._process = os.getpid()

    def _prepare(self, forecaster: Forecaster, correctable_steps: int | None) -> About:
        """Fill a new store with the states of the model; refuse a store that another model wrote."""
        with self.store.reading() as view:
            present = view.about_or_new()
        if present is not None:
            self.runtime = forecaster.for_types(
                present.integer_ids, present.datetime, present.zone, present.schema
            ).runtime
        steps = present.correctable_steps if present and correctable_steps is None else correctable_steps or 0
        about = self.runtime.describe(steps)
        if present is None:
            with self.store.writing() as change:
                present = change.about_or_new()  # another process may have created it meanwhile
                if present is None:
                    change.describe(about)
                    records = self.runtime.encode(begin(forecaster.table.states, steps), forecaster.ids)
                    change.put(forecaster.ids, records)
                    if forecaster.table.newest is not None:
                        change.keep_newest(forecaster.table.newest)
                    self._common.write(change, self.runtime.engine)
        about.require(present or about, self.store)
        return about

    def _known(self, view: Transaction, names: pd.Index[Any]) -> tuple[pd.Index[Any], Record]:
        """The known ones among these series, and their records."""
        keys = names.tolist()
        _, record = self._latest_of(view, keys)
        if record is not None:
            return names, record
        blobs = view.get(keys)
        known = names[[blob is not None for blob in blobs]]
        return known, self._decode(known, [blob for blob in blobs if blob is not None])

    def _latest_of(self, view: Transaction, keys: Sequence[Key]) -> tuple[pd.Index[Any], Record | None]:
        """The names of series, and their records if the cache of the latest update holds all of them."""
        latest = self._latest
        if latest is None or latest.version != view.version():
            return self._index(keys), None
        if keys == latest.keys:
            return latest.ids, latest.record
        names = self._index(keys)
        at = latest.ids.get_indexer(names)
        return names, latest.record.select(at) if (at >= 0).all() else None

    def _index(self, keys: Sequence[Key]) -> pd.Index[Any]:
        kind = int if self.about.integer_ids else str
        if not set(map(type, keys)) <= {kind}:  # a series of another type of id cannot be known
            raise exchange.unknown_series([key for key in keys if type(key) is not kind])
        return exchange.index_of(keys, self.about.integer_ids)

    def _decode(self, ids: pd.Index[Any], blobs: Sequence[bytes]) -> Record:
        return self.runtime.decode(blobs, ids, self.correctable_steps)


def _newer(newest: int | None, record: Record) -> int:
    """The newest time after an update."""
    latest = int(record.now.last.max())
    return latest if newest is None else max(newest, latest)
