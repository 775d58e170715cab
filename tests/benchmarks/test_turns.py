"""Versions in turn: each in its own process, compared round by round; and that the benchmarks run."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aru import Forecaster
from benchmarks import inference, stream, turns, update
from benchmarks import trained as training
from benchmarks.turns import ROOT, Clock, There, compare, in_turn, sides


@functools.cache
def model(**more: Any) -> Forecaster:
    return training.trained(**more)


@pytest.fixture
def one_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """All cases of a benchmark with one model; weights do not matter."""
    for module in (inference, update):
        monkeypatch.setattr(module, "trained", model)
    monkeypatch.setattr(stream, "trained", lambda: model().without_series())


def test_everybody_begins_once() -> None:
    assert [in_turn(["old", "new"], i) for i in range(3)] == [["old", "new"], ["new", "old"], ["old", "new"]]


def test_the_ratio_is_that_of_pairs_without_the_first() -> None:
    """A machine that slows down by and by slows down both."""
    old = [Clock(wall, 2 * wall) for wall in (9.0, 1.0, 2.0, 4.0)]
    new = [Clock(0.5 * clock.wall, clock.wall) for clock in old]
    found = compare({"old": [Clock(9e9, 9e9), *old[1:]], "new": new}, each=10)
    assert found == {"old_us": 2e5, "new_us": 1e5, "ratio": 0.5, "cpu_ratio": 0.5}


def test_a_version_answers_from_its_own_process_and_source() -> None:
    side = There("tests.benchmarks.counter", ROOT, 1)
    side.make("Counter", 3)
    value, process = side.call("add", 4)
    assert value == 7
    assert process != os.getpid()
    assert side.call("add", 1)[0] == 8
    side.close()


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no checkout of aru"):
        There("tests.benchmarks.counter", tmp_path, 1)


def test_both_versions_and_their_commits_are_written(tmp_path: Path) -> None:
    times = {name: [Clock(1.0, 1.0)] * 3 for name in ("old", "new")}
    turns.write_comparison("update", ROOT, 2, [{"series": 5, **compare(times)}], tmp_path / "out.csv")
    (row,) = pd.read_csv(tmp_path / "out.csv").to_dict("records")
    assert row["ratio"] == 1
    assert {"old_commit", "commit", "threads"} <= set(row)


@pytest.mark.usefixtures("as_users_run_it", "one_training")
def test_an_update_of_ten_series_does_not_copy_the_others() -> None:
    with sides("benchmarks.update", None, 1) as versions:
        few, many = (update.measure(versions, series, 2)[1]["new"] for series in (50, 1000))
    assert many < 1.2 * few
    state = sum(v.nbytes for _, v in _leaves(model()))
    assert many < 1000 * state / len(model().ids) / 5  # far less than all states


def _leaves(forecaster: Forecaster) -> Any:
    from aru.nn.tree import leaves

    return list(leaves(forecaster.table.states))


@pytest.mark.usefixtures("as_users_run_it", "one_training")
def test_the_benchmark_of_forecasts_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "METHODS", ("baseline", "aru"))
    with sides("benchmarks.inference", None, 1) as versions:
        found = inference.measure(versions, 5, 2)
    rows = inference.against_baseline(found, 5, 1)
    assert [(row["work"], row["method"]) for row in rows] == list(found)
    assert all(row["us_per_series"] > 0 for row in rows)
    assert {row["ratio"] for row in rows if row["method"] == "baseline"} == {1}


@pytest.mark.usefixtures("as_users_run_it", "one_training")
def test_the_benchmark_of_streams_runs(tmp_path: Path) -> None:
    with sides("benchmarks.stream", None, 1) as versions:
        case = stream.BulkCase(7, durable=True, correctable=2)
        found, size = stream.run_bulk(versions, tmp_path, case, 3)
        row = stream.bulk_row(case, found["new"], size)
        one = stream.SingleCase(30, durable=False)
        single = stream.run_single(versions, tmp_path, one, 20)
    assert row["updates_per_second"] > row["updates_with_forecasts_per_second"] > 0
    assert row["file_bytes_per_series"] > row["bytes_per_series"] > 1000
    assert list(single) == ["frames", "columns"]
    assert stream.single_row(one, "frames", single["frames"]["new"])["p50_ms"] > 0
