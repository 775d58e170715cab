"""The record of what series have in common, in a store: read, written, and learned anew in epochs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from aru.runtime.engine import NetworkEngine
from aru.runtime.epochs import Common, is_due, sample_of
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.records import Record
from aru.store import About, Key, Transaction, exchange

COMMON = 0  # key of what series have in common


class CommonRecord:
    """Keeps what engines have learned the same as the record in a store, whichever process or thread wrote it."""

    def __init__(self) -> None:
        self._read: bytes | None = None  # what the engine of the writer has
        self._seen: tuple[bytes, NetworkEngine, ForecastRuntime] | None = None  # what readers have

    def reading(self, view: Transaction, runtime: ForecastRuntime) -> ForecastRuntime:
        """The runtime with what was learned last. It does not change while another thread writes."""
        engine = runtime.engine
        (record,) = view.get([COMMON], "panel") if engine.shares else (None,)
        if record is None:
            return runtime
        if self._seen is None or self._seen[0] != record or self._seen[1] is not engine:
            twin = engine.twin()
            twin.common = Common.from_json(json.loads(record))
            self._seen = record, engine, ForecastRuntime(twin, runtime.freq, runtime.style)
        return self._seen[2]

    def read(self, view: Transaction, engine: NetworkEngine) -> None:
        """Take over what was learned last."""
        (record,) = view.get([COMMON], "panel") if engine.shares else (None,)
        if record is not None and record != self._read:
            self._read, engine.common = record, Common.from_json(json.loads(record))

    def write(self, change: Transaction, engine: NetworkEngine) -> None:
        """Keep what the engine has learned, unless that never changes."""
        if engine.common.epoch and not engine.common.frozen:
            self._read = json.dumps(engine.common.to_json()).encode()
            change.put([COMMON], [self._read], "panel")

    def learn(
        self,
        change: Transaction,
        engine: NetworkEngine,
        about: About,
        applied: int,
        decode: Callable[[Sequence[Key]], Record],
    ) -> None:
        """Learn anew when series have grown enough, from the records of a sample of them.

        Observations are counted in the store, so that it does not matter which process wrote them. Where they were not
        counted yet, that takes a writer of the whole store.
        """
        self.read(change, engine)
        if not engine.shares or engine.common.frozen:
            return
        counted = change.counted()
        total = exchange.observations(change, about) if counted is None else counted + applied
        if counted is None:
            change.recount(total)
        else:
            change.count(applied)
        if (counted is None or is_due(engine.common, total)) and change.claim_panel():
            self.read(change, engine)  # another writer may have been faster
            if counted is not None and not is_due(engine.common, total):
                return
            keys = change.keys()
            some = [keys[at] for at in sample_of(keys, len(engine.schema.regressors))]
            engine.learn_common(decode(some).now, some, total, now=True)
            self.write(change, engine)

    @staticmethod
    def outdate(change: Transaction) -> None:
        """Series came or went: what they have in common is learned anew at the next update."""
        change.recount(None)
