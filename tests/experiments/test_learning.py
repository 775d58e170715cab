"""What is learned in closed form: splits without leaks, rivals without leaks, tables that say what the files say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments import boosted, first_values, learning, learning_tables, rivals
from experiments.data import Dataset
from experiments.first_values import Apart, kept_apart, told
from experiments.learning import COVARIATES, FIRST_VALUES, FROZEN, HINDSIGHT, Lesson, lessons

ROOT = Path(__file__).resolve().parents[2]
RANDOM = np.random.default_rng(0)


def apart() -> Apart:
    days = pd.date_range("2024-01-01", periods=80)
    frames = [
        pd.DataFrame({"unique_id": f"s{i}", "ds": days, "y": np.arange(80.0) + 100 * i, "promo": days.day % 2})
        for i in range(10)
    ]
    df = pd.concat(frames, ignore_index=True)
    settings = {"h": 7, "freq": "D", "futr_exog_list": ["promo"]}
    others = df[df.unique_id < "s8"]
    return Apart(others[others.ds < days[-7]], df[df.unique_id >= "s8"], None, settings, 7, 1)


def test_series_kept_apart_are_told_what_precedes_the_block_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = apart()
    for n in (0, 3):
        (part,) = told(panel, n)
        assert part.past.groupby("unique_id").size().tolist() == ([3, 3] if n else [])
        assert len(part.ahead) == 2 * 7
        assert n == 0 or (part.past.ds.max() < part.ahead.ds.min())
    days = pd.date_range("2024-01-01", periods=100)
    df = pd.concat([pd.DataFrame({"unique_id": f"r{i}", "ds": days, "y": 1.0}) for i in range(10)])
    data = Dataset(df, None, 0, {"h": 14, "freq": "D"})
    monkeypatch.setattr(first_values, "read", lambda _: data)
    found = kept_apart("nyc_flights")
    assert set(found.apart.unique_id) == {"r0", "r5"}
    assert set(found.others.unique_id).isdisjoint(found.apart.unique_id)
    assert found.others.ds.max() < min(part.ahead.ds.min() for part in told(found, 1))


@pytest.mark.parametrize("method", ["mini", "seasonal-naive"])
def test_a_curve_forecasts_each_number_of_values(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_values, "kept_apart", lambda *_: apart())
    monkeypatch.setattr(first_values, "OBSERVED", (0, 1, 9))
    rows = Lesson(FIRST_VALUES, "toy", "", method, 0).compute()
    by = {row["x"]: row for row in rows}
    assert {1, 9} <= by.keys()  # without any value only what forecasts new series
    assert (by[9]["forecasts"], by[9]["series"]) == (2, 2)
    assert 0 < by[9]["nd"] < 0.2
    assert by[9]["command"] == "python -m experiments learning"


def test_quarters_of_a_stream_are_in_the_order_of_its_cutoffs() -> None:
    frame = pd.DataFrame({"unique_id": np.repeat(["a", "b"], 8), "cutoff": [*range(8), *range(100, 108)]})
    parts = learning.quarters(frame)
    assert [sorted(part.cutoff) for part in parts.values()] == [
        [2 * i, 2 * i + 1, 100 + 2 * i, 101 + 2 * i] for i in range(4)
    ]


def small(changed: Any = None) -> rivals.Past:
    random = np.random.default_rng(1)
    hours = np.arange(3200)
    y = np.sin(2 * np.pi * hours / 24) + 0.1 * random.normal(size=(2, len(hours)))
    if changed is not None:
        y[:, changed:] = 9.0
    origins = np.arange(2400, len(hours) - 1)
    forecast = 0.3 + 0.8 * np.sin(2 * np.pi * (origins[:, None] + 1 + np.arange(4)) / 24) + np.zeros((2, 1, 1))
    return rivals.Past(y, origins, forecast)


@pytest.mark.parametrize("method", [rivals.smoothed, rivals.error_ridge, rivals.linear])
def test_rivals_learn_from_the_past_alone_and_do_learn(method: Any) -> None:
    past = small()
    cut = 2900
    whole, blind = method(past), method(small(changed=cut + 1))
    known = past.origins <= cut
    np.testing.assert_array_equal(whole[:, known], blind[:, known])
    late = past.origins > 2800
    before, after = (np.nanmean((past.truth - f)[:, late] ** 2) for f in (past.forecast, whole))
    assert after < before


def test_weights_favour_what_was_better() -> None:
    past = small()
    good = np.nan_to_num(past.truth)
    mixed = rivals.weighted(past, good)
    cut = past.origins <= 2900
    blind = small(changed=2901)
    np.testing.assert_array_equal(mixed[:, cut], rivals.weighted(blind, good)[:, cut])
    share = (mixed - past.forecast)[:, -50:-5] / (good - past.forecast)[:, -50:-5]
    assert np.median(share) > 0.9


def test_trees_forecast_series_they_have_never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(boosted, "SAMPLE", 5_000)
    monkeypatch.setattr(boosted, "TREES", 50)
    panel = apart()
    trees = boosted.Boosted(panel.others, None, panel.settings, panel.season, 0)
    (part,), (empty,) = told(panel, 12), told(panel, 0)
    frame = trees.predict(part.past, part.ahead)
    assert len(frame) == frame["aru"].notna().sum() == 14
    assert np.abs(frame.aru - frame.y).mean() < 0.2 * frame.y.mean()
    assert len(trees.predict(empty.past, empty.ahead)) == 14


def test_every_part_has_its_rows() -> None:
    found = lessons(range(3))
    assert len({tuple(getattr(job, k) for k in learning.KEY) for job in found}) == len(found)
    assert {job.part for job in found} == {COVARIATES, HINDSIGHT, FIRST_VALUES, FROZEN}


def test_the_page_is_that_of_the_result_files() -> None:
    """`python -m experiments.report` after every change of a result file."""
    assert learning_tables.results(learning_tables.read()) in (ROOT / "docs" / "learning.md").read_text()
