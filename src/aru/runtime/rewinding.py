"""Takes back the latest rows of series, as far as records keep them (`correctable_steps`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from aru.data.clock import Clock, Times
from aru.data.columns import Bools, Ints, name_rows, show_times
from aru.errors import InputError
from aru.runtime.engine import Engine
from aru.runtime.records import Past, Record, take_back

FORGET = "Forget the series and send their history again, or rebuild the store with aru state migrate."


class Rewound(NamedTuple):
    """Records after rows were taken back, and how many rows of each series that were."""

    record: Record
    rows: Ints


def rewind(engine: Engine, ids: pd.Index[Any], record: Record, before: int) -> Rewound:
    """The records of series as they were before a time, or an error that says why not.

    Missing values right before it may have been filled in because of a later row, so they are taken back, too.
    """
    clock = engine.schema.clock
    (shown,) = show_times(np.array([before]), clock)
    last = record.now.last.cpu().numpy()
    _refuse(last < before, ids, last, clock, f"have no rows at or after {shown}, their latest are", "")
    if not isinstance(record.past, Past):
        raise InputError(
            "The store keeps no recent rows that could be taken back: it was created with `correctable_steps=0`", FORGET
        )
    anchor, recent = record.past.anchor, record.past.recent
    buffered = record.buffered.cpu().numpy()
    ds, observed = recent.ds.cpu().numpy(), recent.observed.cpu().numpy()
    keep = (np.arange(record.correctable_steps) < buffered[:, None]) & observed & (ds < before)
    kept = np.where(keep.any(1), keep.shape[1] - keep[:, ::-1].argmax(1), 0)
    begun, oldest = (anchor.steps >= 0).cpu().numpy(), anchor.last.cpu().numpy()
    _refuse(
        begun & (oldest >= before), ids, oldest, clock,
        f"keep only the latest {record.correctable_steps} rows, which is not enough to go back to {shown}; they can go "
        "back to right after", FORGET,
    )  # fmt: skip
    _refuse(~begun & (kept == 0), ids, ds[:, 0], clock, f"have no value before {shown}, they begin at", FORGET)
    return Rewound(take_back(engine, record, torch.from_numpy(kept)), buffered - kept)


def _refuse(which: Bools, ids: pd.Index[Any], times: Times, clock: Clock | None, why: str, remedy: str) -> None:
    if which.any():
        rows = name_rows(ids[which], times[which], clock)
        raise InputError(f"{len(rows)} series {why} {rows}", f"{remedy} Nothing was changed.".strip(), rows=rows)
