"""Rounds of one observation and one forecast: the same for everyone, with nothing from after the cutoff."""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from aru.data.scores import scores
from benchmarks import cost, figures, growth, report, summary
from benchmarks.peers import environments
from benchmarks.peers.registry import PEERS
from benchmarks.peers.task import Task, make_task
from benchmarks.peers.worker import rounds
from benchmarks.peers.worker.interface import Streaming
from benchmarks.peers.worker.naive import SeasonalNaive
from experiments import figures as drawing
from experiments.data import Dataset

SETTINGS = {"h": 3, "freq": "D", "input_size": 6, "futr_exog_list": ["promo"], "stat_exog_list": ["city"]}
LENGTHS = {"b": 40, "a": 33, "c": 61}
WINDOWS = 4


def dataset() -> Dataset:
    rng = np.random.default_rng(0)
    frames = []
    for i, (name, length) in enumerate(LENGTHS.items()):
        days = pd.date_range("2024-01-01", periods=length) + pd.Timedelta(days=5 * i)
        y = 10 * (i + 1) + rng.normal(size=length) + 3 * np.sin(np.arange(length) * 2 * np.pi / 7)
        frames.append(pd.DataFrame({"unique_id": name, "ds": days, "y": y, "promo": rng.integers(0, 2, length)}))
    df = pd.concat(frames, ignore_index=True)
    df.loc[[31, 38, 72], "y"] = np.nan  # among them a row that arrives and one that is scored
    static = pd.DataFrame({"unique_id": list(LENGTHS), "city": ["Rome", "Oslo", "Rome"]})
    return Dataset(df, static, 3, SETTINGS)


def task_of(data: Dataset) -> Task:
    return make_task(data.df, data.static, data.settings, WINDOWS, 1)


class Witness(Streaming):
    """Forecasts the sum of all y it was given, and remembers what that was."""

    def __init__(self) -> None:
        self.hosted: list[Any] = []
        self.asked: list[tuple[pd.DataFrame, pd.DataFrame]] = []

    def host(self, past: pd.DataFrame, static: pd.DataFrame, copies: Any) -> None:
        self.hosted.append((past, static, copies))

    def read(self, past: pd.DataFrame, future: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        self.asked.append((past, future))
        return past, future

    def answer(self, asked: tuple[pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
        past, future = asked
        total = future.unique_id.map(past.groupby("unique_id").y.sum())
        return future[["unique_id", "step"]].assign(mean=total, median=total)


def test_every_round_brings_one_row_of_every_series_and_nothing_later() -> None:
    task, witness = task_of(dataset()), Witness()
    (found,) = rounds.measure(witness, task.rows, task.static, task.cutoffs, task.h, [7], 1e9)
    assert found["series"] == found["timed"] == 7
    past, static, copies = witness.hosted[0]
    assert copies.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert static.unique_id.tolist() == list(range(7))
    assert static.code_city.tolist() == task.static.code_city.iloc[copies].tolist()
    assert len(witness.asked) == WINDOWS
    before = past.groupby("unique_id").size()
    for i, (rows, future) in enumerate(witness.asked):
        assert "y" not in future
        assert (rows.groupby("unique_id").size() == before + i).all()
        assert (future.groupby("unique_id").step.min() == before + i).all()
        assert (future.groupby("unique_id").size() == task.h).all()
    original = task.rows[task.rows.unique_id == 1].y.to_numpy()
    for name in (3, 4):
        seen = past[past.unique_id == name].y.to_numpy()
        np.testing.assert_array_equal(seen, original[: len(seen)])


def test_the_error_is_that_of_a_backtest() -> None:
    task, witness = task_of(dataset()), Witness()
    (found,) = rounds.measure(witness, task.rows, task.static, task.cutoffs, task.h, [3], 1e9)
    frames = [witness.answer(asked).assign(window=i) for i, asked in enumerate(witness.asked)]
    frame = task.backtest(pd.concat(frames), "w")
    assert frame.y.isna().any()
    assert found["nd"] == pytest.approx(scores(frame, "w")["nd"], abs=1e-5)


def test_what_would_take_too_long_is_marked() -> None:
    task, witness = task_of(dataset()), Witness()
    found = list(rounds.measure(witness, task.rows, task.static, task.cutoffs, task.h, [2, 50, 900], 0.0))
    assert [size["timed"] for size in found] == [2, 2, 2]
    assert [size["nd"] is None for size in found] == [False, True, True]
    assert len({size["us"] for size in found}) == 1
    assert len(witness.hosted) == 1


def test_lost_forecasts_are_an_error() -> None:
    task = task_of(dataset())
    frame = pd.DataFrame({"unique_id": [0], "step": [5], "median": [np.nan]})
    with pytest.raises(ValueError, match="1 of 1 forecasts"):
        rounds.error(task.rows, [frame])


def test_samples_are_fixed_and_repetitions_even() -> None:
    sample = rounds.choose(10, 30)
    assert len(set(sample)) == 10
    np.testing.assert_array_equal(sample, rounds.choose(10, 30))
    assert set(np.bincount(rounds.choose(100, 30))) == {3, 4}


def test_seasonal_naive_without_intervals_is_the_same_point() -> None:
    data = dataset()
    task = task_of(data)
    first = task.cutoffs["0"].to_numpy()[task.rows.unique_id]
    past, future = task.rows[task.rows.step <= first], task.rows[task.rows.step > first].drop(columns="y")
    both = [SeasonalNaive(task.spec("", 0, 0, "cpu", intervals), task.static) for intervals in (True, False)]
    full, point = (peer.predict(past, future) for peer in both)
    pd.testing.assert_frame_equal(full[point.columns], point)
    assert "low" not in point
    assert (full.low < full["mean"]).all()


def test_our_rounds_are_those_of_our_cross_validation(tmp_path: Path) -> None:
    data = dataset()
    task = task_of(data)
    rows, static = cost.raw_panel(task, data)
    plan = cost.Plan("small", [3, 6], 1e9, 1, tmp_path, steps=2)
    model, seconds = cost.trained("aru-rnn", task, rows, static, data.settings, plan)
    again, kept = cost.trained("aru-rnn", task, rows, static, data.settings, plan)
    assert seconds == kept
    found = list(rounds.measure(cost.Ours(again), rows, static, task.cutoffs, task.h, plan.series, plan.limit))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.cross_validation(
            data.df.assign(unique_id=data.df.unique_id.map({"a": "series-0", "b": "series-1", "c": "series-2"})),
            n_windows=WINDOWS,
            step_size=1,
            static_df=data.static.assign(unique_id=["series-1", "series-0", "series-2"]),
        )
    for size in found:  # twice the same series: the same error
        assert size["nd"] == pytest.approx(scores(expected, "aru-rnn")["nd"], abs=2e-5)
    (tmp_path / "small-aru-rnn" / "seconds.json").unlink()
    other, _ = cost.trained("aru-rnn", task, rows, static, data.settings, plan)  # what cannot be read is trained again
    assert (tmp_path / "small-aru-rnn" / "seconds.json").exists()
    assert other is not again


@pytest.mark.parametrize("method", [cost.ZERO_SHOT, "aru"])
def test_pretrained_models_are_measured(method: str, tmp_path: Path) -> None:
    data = dataset()
    task = task_of(data)
    plan = cost.Plan("small", [3, 6], 1e9, 1, tmp_path, steps=2)
    first, again = (cost.run_ours(method, task, data, plan) for _ in range(2))  # tuned or opened, and found again
    errors = [size["nd"] for size in first["sizes"]]
    assert errors == [size["nd"] for size in again["sizes"]]
    assert 0 < errors[0] < 0.5
    assert first["train_seconds"] == again["train_seconds"] > 0


def test_the_summary_says_from_which_commits_it_is() -> None:
    page = (report.ROOT / "docs" / "performance.md").read_text()
    assert report.in_a_minute() in page
    assert summary.commits({"a": {"commit": "1"}, "b": {"commit": "1"}}) == "All from commit 1."
    assert "commit 2: b, c" in summary.commits({"a": {"commit": "1"}, "b": {"commit": "2"}, "c": {"commit": "2"}})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in cost.METHODS if name not in cost.OURS])
def test_a_real_peer_is_measured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not environments.is_ready(PEERS[name].group):
        pytest.skip(f"the environment of {name} is not set up: python -m benchmarks.peers setup {name}")
    monkeypatch.setitem(cost.PEERS, name, dataclasses.replace(PEERS[name], steps=20))
    task = task_of(dataset())
    plan = cost.Plan("small", [3, 6], 1e9, 1, tmp_path)
    first, second = (cost.run_peer(name, task, plan) for _ in range(2))  # trained, and found again
    assert [size["nd"] for size in first["sizes"]] == [size["nd"] for size in second["sizes"]]
    one, two = (size["nd"] for size in first["sizes"])
    assert one == pytest.approx(two, abs=1e-4)
    assert 0 < one < 0.5


def test_state_does_not_grow_with_history_nor_cost_with_names() -> None:
    model = growth.trained(7)
    cases = [growth.Case(20, 10, 7), growth.Case(20, 200, 7)]
    short, long = (growth.measure(model, case, 1) for case in cases)
    assert short["state_bytes"] == long["state_bytes"]
    assert short["us"] > 0
    assert short["resident_mb"] > 10
    assert [growth.rounds_of(growth.Case(n, 1, 7)) for n in (100, 10_000, 10**6)] == [50, 5, 2]


def results() -> tuple[dict[str, Any], dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for i, method in enumerate(cost.METHODS):
        sizes = [
            {"series": n, "timed": min(n, 1000), "us": 5.0 * n, "cpu_us": 2.0, "nd": 0.1 + i}
            for n in (100, 1_000, 10_000)
        ]
        found.append({"method": method, "sizes": sizes, "version": "v 1", "train_seconds": 1.0})
    row = {"series": 100, "observations": 100, "dim": 7, "us": 3.0, "state_bytes": 900, "resident_mb": 80}
    lines = {
        part: [row, {**row, name: 10 * row[name]}]
        for part, name in (("history", "observations"), ("series", "series"), ("dimension", "dim"))
    }
    return {"found": found}, lines


def test_figures_name_every_method_and_mark_what_is_extrapolated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "FOLDER", tmp_path)
    costs, lines = results()
    figures.cost(costs)
    figures.growth(lines)
    picture = ElementTree.fromstring((tmp_path / "cost.svg").read_text())
    words = " ".join(picture.itertext())
    assert all(name in words for name in figures.NAMES.values())
    assert len(re.findall('class="hollow', (tmp_path / "cost.svg").read_text())) == len(cost.METHODS)
    assert (tmp_path / "growth.svg").read_text().count("<polyline") == 6


@pytest.mark.parametrize("page", report.PAGES)
def test_pages_are_those_of_the_result_files(page: str) -> None:
    """`python -m benchmarks.report` after every change of a result file."""
    text = (report.ROOT / "docs" / page).read_text()
    for make in report.PAGES[page].values():
        assert make() in text


def test_a_result_has_all_methods() -> None:
    about = json.loads((report.RESULTS / "cost.json").read_text())
    assert {method["method"] for method in about["found"]} == set(cost.METHODS)
