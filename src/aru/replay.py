"""Rows of many series through an adaptation, step by step in time and all series at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
import torch

from aru.adaptation import Adaptation, AdapterState, Issued
from aru.columns import Ints
from aru.errors import ColumnError
from aru.forecasts import Forecasts
from aru.frequency import Frequency, to_index
from aru.panel import Panel, read_panel
from aru.state import concat, take, tree_map


class Rows(NamedTuple):
    """Consecutive rows of each series, and which forecasts were issued at them."""

    panel: Panel
    origin: Ints  # (row,) index of the forecasts issued there, -1 where none were

    @classmethod
    def of(cls, panel: Panel) -> Rows:
        """Observations alone."""
        return cls(panel, np.full(len(panel.ds), -1))

    @classmethod
    def history(cls, truth: nw.DataFrame[Any], given: Forecasts, freq: Frequency, max_gap: int) -> Rows:
        """Observations and forecasts; a cutoff without an observation is a missing value."""
        actual = read_panel(truth, freq, max_gap=max_gap, name="actuals")
        if (actual.ids.dtype == np.int64) != (given.ids.dtype == np.int64) or actual.datetime != given.datetime:
            raise ColumnError("unique_id and ds of actuals and forecasts are of different kinds: convert them.")
        real = ~actual.inserted
        columns = {
            "unique_id": np.concatenate([actual.ids[actual.series[real]], given.ids[given.series]]),
            "ds": np.concatenate([actual.ds[real], given.cutoff]),
            "y": np.concatenate([actual.y[real], np.full(len(given.cutoff), np.nan)]),
        }
        both = pd.DataFrame(columns).drop_duplicates(["unique_id", "ds"])
        if actual.datetime:
            both["ds"] = to_index(both.ds.to_numpy())
        panel = read_panel(both, freq, max_gap=max_gap, name="actuals and cutoffs")
        origin = np.full(len(panel.ds), -1)
        keys = pd.MultiIndex.from_arrays([panel.series, panel.ds])
        wanted = pd.MultiIndex.from_arrays([panel.ids.get_indexer(given.ids)[given.series], given.cutoff])
        origin[keys.get_indexer(wanted)] = np.arange(len(wanted))
        return cls(panel, origin)


def replay(
    engine: Adaptation, state: AdapterState, rows: Rows, given: Issued | None = None
) -> tuple[AdapterState, Issued | None]:
    """The states after all rows, and the forecasts as they were adapted at theirs.

    The order of series in `state` is that of the panel. Only time is a loop.
    """
    panel = rows.panel
    order = np.argsort(-panel.lengths, kind="stable")  # series that end first come last
    state = take(state, torch.from_numpy(order))
    starts, lengths = panel.starts[order], panel.lengths[order]
    ds, y, skipped = (torch.from_numpy(v) for v in (panel.ds, panel.y, panel.skipped))
    out = None if given is None else Issued(*(torch.full_like(v, torch.nan) for v in given))
    done: list[AdapterState] = []
    for step in range(int(lengths.max(initial=0))):
        live = int((lengths > step).sum())
        if live < len(state.last):
            done.append(tree_map(lambda v, live=live: v[live:], state))
            state = tree_map(lambda v, live=live: v[:live], state)
        at = torch.from_numpy(starts[:live] + step)
        if skipped[at].any():
            state = engine.age(state, skipped[at])
        state = engine.observe(state, ds[at], y[at])
        origin = torch.from_numpy(rows.origin[at.numpy()])
        if given is not None and out is not None and (origin >= 0).any():
            here = origin >= 0
            now = Issued(*(torch.where(here.reshape(-1, *(1,) * (v.ndim - 1)), v[origin], torch.nan) for v in given))
            state, adapted = engine.issue(state, now)
            for values, new in zip(out, adapted, strict=True):
                values[origin[here]] = new[here]
    back = torch.from_numpy(np.argsort(order, kind="stable"))
    return take(concat([state, *reversed(done)]), back), out
