"""What a champion takes in, written down in the transaction that takes it in, if it still is the champion then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aru.runtime import kept
from aru.runtime.runtime import Runtime
from aru.runtime.update import Update
from aru.serve.asked import UpdateRequest
from aru.serve.rollout import Rollout, read_rollout, superseded
from aru.serve.tables import Columns, join
from aru.store import Key, Store, Transaction


class Journal:
    """Of one version of a model.

    Args:
        home: The store of the first version, which knows who the champion is.
        store: The store of this version.
        number: Its number.
    """

    def __init__(self, home: Store, store: Store, number: int) -> None:
        self._home, self._store, self._number = home, store, number

    def rows(
        self, change: Transaction, runtime: Runtime[Any], update: Update, requests: Sequence[UpdateRequest]
    ) -> None:
        """Write down what an update has consumed of the rows of requests."""
        if not self._is_kept(change):
            return
        partly = set(update.result.left_out["unique_id"].tolist())
        static = [r.static for r in requests if r.static is not None]
        call = kept.consumed_call(
            runtime,
            _with_extra(requests),
            join(static) if static else None,
            requests[0].late == "correct",
            [r.digest for r in requests if partly.isdisjoint(r.ids)],
            update,
        )
        if call is not None:
            change.append(call.to_entry())

    def forgotten(self, change: Transaction, keys: Sequence[Key]) -> None:
        """Write down that series were deleted."""
        if self._is_kept(change):
            change.append(kept.forgotten(keys))

    def _is_kept(self, change: Transaction) -> bool:
        """Whether rows are kept. A version that is no longer the champion must not take in any."""
        rollout = self._rollout(change)
        if rollout is not None and rollout.champion != self._number:
            raise superseded(rollout.champion)
        return rollout is not None and rollout.journals

    def _rollout(self, change: Transaction) -> Rollout | None:
        if self._home is self._store:
            return read_rollout(change)
        with self._home.reading() as view:
            return read_rollout(view)


def _with_extra(requests: Sequence[UpdateRequest]) -> Columns:
    """The rows of requests, with those columns that only some of them have and the model does not know."""
    whole = dict(join([r.rows for r in requests]))
    for name in dict.fromkeys(name for r in requests for name in r.extra):
        parts = [r.extra[name].astype(object) if name in r.extra else np.full(r.size, None, object) for r in requests]
        whole[name] = np.concatenate(parts)
    return whole
