"""Random batches, replays, gaps, late rows, corrections and restarts, against a few lines of plain Python."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aru import Forecaster, Stream
from aru.data.frequency import Frequency
from aru.data.panel import read_panel
from aru.data.rows import Ragged
from aru.errors import LateError, ValueRangeError
from aru.nn.tree import leaves
from aru.runtime.state import SeriesState
from tests import postgres
from tests.making import make

pytestmark = pytest.mark.filterwarnings("ignore:y lies far outside the range:aru.errors.AruWarning")

H, E, C = 3, 5, 4
IDS = ["a", "b", "c"]
ROWS = ("ds", "y", "observed", "futr", "futr_cat", "hist", "hist_cat")
EXACT = {"last", "steps", "context.count", *(f"context.rows.{name}" for name in ROWS)}
Row = tuple[str, int, float]  # series, time, value; NaN is missing


@pytest.fixture(scope="module")
def untaught() -> Iterator[Forecaster]:
    """A trained model that knows no series."""
    f = train()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        yield f


def train() -> Forecaster:
    t = np.arange(30)
    df = pd.concat([pd.DataFrame({"unique_id": uid, "ds": t, "y": 5.25 + i + np.sin(t)}) for i, uid in enumerate(IDS)])
    options = {"enable_progress_bar": False}
    f = make(h=H, freq=1, input_size=E, size=(4, 5, 4, 3), max_steps=3, trainer=options).fit(df)
    return f.without_series()


@dataclasses.dataclass
class Expected:
    """What a stream should do with each row: the accepted history of every series, NaN where steps are missing."""

    correctable: int
    history: dict[str, dict[int, float]] = dataclasses.field(default_factory=dict)

    def judge(self, row: Row) -> str:
        uid, time, y = row
        known = self.history.get(uid)
        if known is None or time > max(known):
            return "new"
        first, last = min(known), max(known)
        remembered = time > last - max(E, self.correctable) and time >= first
        if remembered and (known[time] == y or (math.isnan(known[time]) and math.isnan(y))):
            return "duplicate"
        in_reach = last - self.correctable < time and time >= first
        return "revised" if in_reach and not (time == first and math.isnan(y)) else "late"

    def apply(self, rows: list[Row]) -> int:
        """Returns the number of rows without those before a series' first value."""
        applied = 0
        for uid, time, y in sorted(rows, key=lambda row: row[1]):
            known = self.history.get(uid)
            if known is None:
                if not math.isnan(y):
                    self.history[uid] = {time: y}
                    applied += 1
                continue
            for step in range(max(known) + 1, time):
                known[step] = math.nan
            known[time] = y
            applied += 1
        return applied

    def frame(self) -> pd.DataFrame:
        return as_frame([(u, t, y) for u, known in self.history.items() for t, y in known.items()])


def as_frame(rows: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["unique_id", "ds", "y"])


def replayed(forecaster: Forecaster, df: pd.DataFrame) -> tuple[list[Any], SeriesState]:
    """States of a history, in one go from nothing."""
    engine = forecaster.runtime.engine
    panel = read_panel(df, Frequency(1))
    data = [torch.from_numpy(v) for v in (panel.starts, panel.lengths, panel.skipped)]
    static = engine.schema.encode_static({}, panel.ids)
    return list(panel.ids), engine.advance(engine.empty(static), Ragged(engine.schema.encode(panel), *data))


def check_states(stream: Stream, expected: Expected, forecaster: Forecaster) -> None:
    assert stream.series()["unique_id"].tolist() == sorted(expected.history)
    if not expected.history:
        return
    ids, state = replayed(forecaster, expected.frame())
    with stream.store.reading() as view:
        blobs = [blob for blob in view.get(ids) if blob is not None]
    record = stream.runtime.decode(blobs, ids, stream.correctable_steps)
    assert {name for name, _ in leaves(state)} >= EXACT
    for (name, mine), (_, theirs) in zip(leaves(record.now), leaves(state), strict=True):
        if name in EXACT:
            assert torch.equal(mine, theirs), name
        else:
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
    whole = Stream(forecaster)
    whole.update(expected.frame(), allow_jump=True)
    pd.testing.assert_frame_equal(stream.predict(level=[90]), whole.predict(level=[90]), rtol=1e-5)


values = st.one_of(st.sampled_from([1.0, 2.5, 40.0]), st.just(math.nan))
moves = st.tuples(st.sampled_from(IDS), st.sampled_from([*range(-9, 4), 30]), values)
calls = st.tuples(st.sampled_from(["raise", "skip", "correct"]), st.lists(moves, min_size=1, max_size=8), st.booleans())


@pytest.mark.parametrize("correctable", [0, C, 2 * E])
@settings(max_examples=25)
@given(steps=st.lists(calls, min_size=1, max_size=7))
def test_a_stream_is_its_accepted_history(
    steps: list[tuple[str, list[tuple[str, int, float]], bool]], correctable: int, untaught: Forecaster
) -> None:
    replay(steps, correctable, untaught)


@pytest.mark.parametrize("correctable", [0, C, 2 * E])
def test_a_stream_in_postgres_is_its_accepted_history(
    correctable: int, untaught: Forecaster, postgres_server: postgres.Server
) -> None:
    @settings(max_examples=15)
    @given(steps=st.lists(calls, min_size=1, max_size=7))
    def run(steps: list[tuple[str, list[tuple[str, int, float]], bool]]) -> None:
        replay(steps, correctable, untaught, postgres.new_url(postgres_server))

    run()


def replay(
    steps: list[tuple[str, list[tuple[str, int, float]], bool]],
    correctable: int,
    untaught: Forecaster,
    store: str | None = None,
) -> None:
    """Calls on a stream of which each says what it must, and the same states as the accepted history in one go."""
    expected = Expected(correctable)
    with tempfile.TemporaryDirectory() as folder:
        path = store or Path(folder) / "state.db"
        stream = Stream(untaught, path, correctable)
        for late, moved, restart in steps:
            late = late if correctable or late != "correct" else "skip"
            rows = {(u, max(expected.history.get(u, {0: 0.0})) + by): y for u, by, y in moved}
            step(stream, expected, [(u, t, y) for (u, t), y in rows.items()], late)
            if restart:
                stream.close()
                stream = Stream(untaught, path)
        check_states(stream, expected, untaught)
        stream.close()


def step(stream: Stream, expected: Expected, rows: list[Row], late: Any) -> None:
    """One call, and what it must say."""
    kinds = [expected.judge(row) for row in rows]
    by_kind = {kind: [r for r, k in zip(rows, kinds, strict=True) if k == kind] for kind in set(kinds)}
    new, revised = by_kind.get("new", []), by_kind.get("revised", [])
    refused = by_kind.get("late", []) + (revised if late != "correct" else [])
    fresh = {u for u, _, _ in new} - set(expected.history)
    empty = [u for u in fresh if all(math.isnan(y) for v, _, y in new if v == u)]
    if (refused and late == "raise") or empty:
        with pytest.raises(LateError if refused and late == "raise" else ValueRangeError):
            stream.update(as_frame(rows), late=late, allow_jump=True)
        return
    result = stream.update(as_frame(rows), late=late, allow_jump=True)
    assert result.duplicates == len(by_kind.get("duplicate", []))
    assert result.corrected == (len(revised) if late == "correct" else 0)
    assert sorted(zip(result.late["unique_id"], result.late["ds"], strict=True)) == sorted(
        (u, t) for u, t, _ in refused
    )
    assert sorted(result.new_series) == sorted(fresh)
    for uid, time, y in revised if late == "correct" else []:
        expected.history[uid][time] = y
    assert result.applied == expected.apply(new)
