"""Find invalid rows one by one, for sources such as Spark streams that cannot send a corrected batch again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from aru.data.columns import Bools
from aru.data.frequency import Frequency
from aru.data.panel import Known, Observations

BESIDE = "does not lie on the grid of its series"
WITHOUT_VALUE = "a new series must begin with a value"
IMPOSSIBLE = "the model cannot take this value"
FAR_AHEAD = "lies too far ahead of all series"
REPEATED = "duplicate"
CONFLICTING = "several rows for this time came at once"


def repeats(frame: pd.DataFrame, columns: Sequence[str]) -> Any:
    """For each row the reason to drop it as a repetition of a series and time; None for rows to keep.

    Of identical rows the first one is kept. Of conflicting rows none is kept, since their order does not tell which is
    right.
    """
    reasons = np.full(len(frame), None, dtype=object)
    again = frame.duplicated(list(columns)).to_numpy()
    reasons[again] = REPEATED
    others = np.flatnonzero(~again)
    reasons[others[frame.iloc[others].duplicated(["unique_id", "ds"], keep=False).to_numpy()]] = CONFLICTING
    return reasons


def set_aside(
    new: Observations, freq: Frequency, known: Known, impossible: Bools, far: Bools
) -> tuple[Observations, dict[str, Any]]:
    """Split rows: those that can continue or begin a series, and the columns of the others with the reason."""
    refused = impossible | far
    rows, ids = new.rows, new.ids
    at = known.ids.get_indexer(ids)
    fresh = at < 0
    never = np.iinfo(np.int64).min
    start = np.full(len(ids), never)
    start[~fresh] = known.last[at[~fresh]]
    later = (rows.ds > start[rows.codes]) & ~refused
    beside = later & (freq.steps(rows.ds, rows.ds) < 0)  # not on any grid of this frequency
    # The first row of a new series decides where its grid begins.
    first = np.flatnonzero(later & ~beside & fresh[rows.codes])
    first = first[np.append(True, np.diff(rows.codes[first]) != 0)[: len(first)]]
    start[rows.codes[first]] = rows.ds[first]
    there = np.flatnonzero(later & ~beside)
    beside[there] = freq.steps(start[rows.codes[there]], rows.ds[there]) < 0
    beside |= refused
    values = np.bincount(rows.codes[~beside & ~np.isnan(rows.y)], minlength=len(ids))
    empty = ~beside & (fresh & (values == 0))[rows.codes]
    aside = beside | empty
    reasons = np.select([far, impossible, beside], [FAR_AHEAD, IMPOSSIBLE, BESIDE], WITHOUT_VALUE).astype(object)
    left_out = {
        "unique_id": ids[rows.codes[aside]].to_numpy(),
        "ds": rows.ds[aside],
        "y": rows.y[aside],
        "reason": reasons[aside],
    }
    return new._replace(rows=rows.select(~aside)), left_out
