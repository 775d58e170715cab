"""The protocol: published figures of seasonal naive, validation windows that end before the report, known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pretraining import evaluate
from pretraining.evaluate import (
    LEVELS,
    PANELS,
    Windows,
    coverage,
    data_folder,
    judge,
    naive_figures,
    reached,
    seasonal_naive,
    windows_of,
    with_outlier,
)

ANCHORS = ("m1_yearly", "m1_quarterly", "m1_monthly", "tourism_monthly", "exchange_rate", "m4_hourly", "car_parts")


def anchors() -> pd.DataFrame:
    path = data_folder().parent / "anchors-zeroshot.csv"
    if not path.exists():
        pytest.skip("the published figures are not here; set ARU_DATA to the data folder beside them")
    return pd.read_csv(path).set_index(["dataset", "metric"])


@pytest.mark.data
@pytest.mark.parametrize("name", ANCHORS)
@pytest.mark.parametrize("metric", ["MASE", "WQL"])
def test_seasonal_naive_equals_the_published_figures(name: str, metric: str) -> None:
    published = anchors().loc[(name, metric)]
    if (name, metric) == ("car_parts", "MASE"):
        pytest.skip("published with another treatment of parts that were missing months; only its WQL is used")
    assert PANELS[name].h == published.horizon
    assert PANELS[name].season == published.season
    assert naive_figures(name, "report")[metric] == pytest.approx(published.seasonal_naive, abs=1.5e-4)


@pytest.mark.data
@pytest.mark.parametrize("name", list(PANELS))
@pytest.mark.parametrize("kind", ["validation", "origins"])
def test_validation_windows_end_before_the_report(name: str, kind: str) -> None:
    if not data_folder().exists():
        pytest.skip("the real panels are not here; set ARU_DATA")
    panel = PANELS[name]
    longest = {values.tobytes()[:64]: len(values) for values in evaluate.series_of(name)}
    windows = windows_of(name, kind)
    assert len(windows.futures) > 100
    for context in windows.contexts:
        assert len(context) >= panel.least
        assert len(context) + panel.h <= longest[context.tobytes()[:64]] - panel.h


def test_seasonal_naive_repeats_the_last_season() -> None:
    context = np.array([9.0, 9, 9, 1, 2, np.nan])
    assert seasonal_naive([context], 5, 3).tolist() == [[1, 2, 9, 1, 2]]
    assert seasonal_naive([np.array([4.0])], 2, 12).tolist() == [[4, 4]]


def test_judge_knows_simple_answers() -> None:
    context = np.array([0.0, 1.0, 0.0, 1.0])
    windows = Windows([context], np.array([[2.0, np.nan]]))
    quantiles = np.zeros((1, 2, len(LEVELS))) + np.asarray(LEVELS)
    figures = judge(quantiles, windows, season=1)
    assert figures["MASE"] == pytest.approx(1.5)
    gap = 2 - np.arange(1, 10) / 10
    assert figures["WQL"] == pytest.approx((2 * np.arange(1, 10) / 10 * gap / 2).mean())
    assert figures["cover80"] == figures["cover98"] == 0


def test_a_level_is_reached_between_its_neighbours() -> None:
    quantiles = np.tile(np.asarray(LEVELS), (4, 1))
    assert reached(quantiles, np.array([-1.0, 0.25, 0.07, 2.0]), "left") == pytest.approx([0, 0.25, 0.07, 1])
    flat = np.zeros((1, len(LEVELS)))
    flat[0, 8:] = 1  # zero up to the median, one from .6 on
    assert reached(flat, np.array([0.0]), "left") == 0
    assert reached(flat, np.array([0.0]), "right") == pytest.approx(0.5)
    assert reached(flat, np.array([1.0]), "left") == pytest.approx(0.6)


def test_true_quantiles_cover_what_they_say() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((2000, 5))
    quantiles = np.broadcast_to(np.asarray(LEVELS), (2000, 5, len(LEVELS)))
    for tail in (0.1, 0.025):
        assert coverage(quantiles, values, tail) == pytest.approx(1 - 2 * tail, abs=0.01)


def test_true_quantiles_of_counts_cover_what_they_say() -> None:
    """Four in five are zero, so the 80 % interval alone is [0, 1], and holds all but the twos."""
    rng = np.random.default_rng(0)
    counts = rng.choice([0.0, 1.0, 2.0], size=(20_000, 1), p=[0.8, 0.15, 0.05])
    levels = np.asarray(LEVELS)
    quantiles = np.broadcast_to(
        np.where(levels < 0.8, 0.0, np.where(levels < 0.95, 1.0, 2.0)), (20_000, 1, len(levels))
    )
    assert coverage(quantiles, counts, 0.1, whole=True) == pytest.approx(0.8, abs=0.03)


def test_origins_are_more_windows_of_fewer_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "series_of", lambda _: [np.full(942, float(i)) for i in range(48)])
    few, many = windows_of("rossmann", "validation"), windows_of("rossmann", "origins")
    assert np.unique(few.futures[:, 0], return_counts=True)[1].tolist() == [2] * 12
    assert np.unique(many.futures[:, 0], return_counts=True)[1].tolist() == [12] * 4


def test_an_outlier_window_differs_in_one_value_of_the_context() -> None:
    rng = np.random.default_rng(0)
    clean = Windows([rng.normal(size=n) for n in (3, 40, 3000)], np.zeros((3, 2)))
    spoiled = with_outlier(clean)
    for before, after in zip(clean.contexts, spoiled.contexts, strict=True):
        places = np.flatnonzero(before != after)
        assert len(places) == 1
        assert len(before) - 1000 <= places[0] < len(before) - 1
    assert spoiled.futures is clean.futures


def test_geometric_means_are_over_the_panels_of_the_aims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "windows_of", lambda *_: Windows([np.arange(99.0)], np.ones((1, 2))))
    monkeypatch.setattr(evaluate, "naive_figures", lambda *_: {"MASE": 2.0, "WQL": 1.0})
    table = evaluate.evaluate(lambda c, h, p: np.zeros((1, 2, len(LEVELS))), "report")
    # An error of 1 over the in-sample errors 1, 4, 12 and 12, each over seasonal naive's 2.
    assert table["aim"]["rMASE"] == pytest.approx((4 * 12 * 12) ** (-1 / 4) / 2)
    assert table["aim"]["rWQL"] == pytest.approx(1.0)


def test_the_data_folder_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARU_DATA", str(tmp_path))
    assert data_folder() == tmp_path
