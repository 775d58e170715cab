"""On real data, at small size: shops of the Rossmann set, replayed over the 48 open days before the test rows.

A quick version of the grid in `experiments`: far fewer shops and steps, so that only large differences are asserted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aru.data.scores import scores
from tests.making import make

pytestmark = [pytest.mark.slow, pytest.mark.data]
WINDOWS = 3


@pytest.fixture(scope="module")
def shops(data_dir: Path) -> Any:
    """Every sixth shop, without the test rows."""
    from experiments.data import read

    data = read("rossmann")
    keep = data.static["unique_id"].sort_values().iloc[::6]
    df = data.df[data.df["unique_id"].isin(keep)]
    df = df[df.groupby("unique_id").cumcount(ascending=False) >= data.test_size]
    return df, data.static[data.static["unique_id"].isin(keep)], data.settings


@pytest.fixture(scope="module")
def results(shops: Any) -> pd.DataFrame:
    df, static, settings = shops
    h = settings["h"]
    before = df[df.groupby("unique_id").cumcount(ascending=False) >= WINDOWS * h]
    rows = []
    for model in ("baseline", "aru"):
        f = make(
            **settings,
            model=model,
            max_steps=250,
            batch_size=16,
            accelerator="cpu",
            trainer={"enable_progress_bar": False},
        ).fit(before, static)
        for adapt in (True, False):
            frame = f.cross_validation(df, WINDOWS, level=[90], adapt=adapt, static_df=static)
            rows.append({"model": model, "adapt": adapt, **scores(frame, model, 90)})
    return pd.DataFrame(rows).set_index(["model", "adapt"])


def test_aru_beats_the_baseline_after_the_same_short_training(results: pd.DataFrame) -> None:
    assert results.loc[("aru", True), "nd"] < 0.125
    assert results.loc[("aru", True), "nd"] < 0.9 * results.loc[("baseline", True), "nd"]


def test_adaptation_does_no_harm(results: pd.DataFrame) -> None:
    assert results.loc[("aru", True), "nd"] < 1.03 * results.loc[("aru", False), "nd"]


def test_intervals_cover(results: pd.DataFrame) -> None:
    assert results.loc[("aru", True), "coverage"] > 0.75
