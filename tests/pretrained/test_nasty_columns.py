"""Covariates that say nothing, or too much: forecasts stay near those without them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aru import Forecaster

H = 7
DAYS = pd.date_range("2024-01-01", periods=130 + H)
PAST = len(DAYS) - H


def column(kind: str, random: np.random.Generator, other: np.ndarray) -> np.ndarray:
    """One that the past can hardly judge."""
    n = len(DAYS)
    flat = np.full(n, 3.0)
    if kind == "one day":
        flat[random.integers(0, n)] = 4.0
    return {
        "constant": flat,
        "one day": flat,
        "changes at the end": np.where(np.arange(n) < PAST, 0.0, 1.0),
        "huge": random.normal(size=n) * 1e12,
        "tiny": random.normal(size=n) * 1e-12,
        "huge jump": np.where(np.arange(n) < PAST, random.normal(size=n), 1e12),
        "all missing": np.full(n, np.nan),
        "mostly missing": np.where(random.random(n) < 0.97, np.nan, random.normal(size=n)),
        "missing at the end": np.where(np.arange(n) < PAST, random.normal(size=n), np.nan),
        "copy": other.copy(),
        "nearly a copy": other + 1e-9 * random.normal(size=n),
        "counts up": np.arange(n) * 1e3,
        "every day another word": np.array([f"day {i}" for i in range(n)], dtype=object),
    }[kind]


KINDS = [
    "constant", "one day", "changes at the end", "huge", "tiny", "huge jump", "all missing", "mostly missing",
    "missing at the end", "copy", "nearly a copy", "counts up", "every day another word",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Covariates are unlike those of training", "ignore:y lies far outside the range")
@settings(deadline=None, max_examples=25)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-3, 1.0, 1e6]),
    negative=st.booleans(),
    outlier=st.booleans(),
)
def test_no_forecast_explodes(kinds: list[str], seed: int, size: float, negative: bool, outlier: bool) -> None:
    random = np.random.default_rng(seed)
    frames = []
    for i in range(3):
        y = size * (
            5 * (not negative) + random.uniform(0, 1, 7)[DAYS.day_of_week] + 0.2 * random.normal(size=len(DAYS))
        )
        if outlier:
            y[random.integers(0, PAST)] *= 100
        other = random.normal(size=len(DAYS))
        columns = {f"c{j}": column(kind, random, other) for j, kind in enumerate(kinds)}
        frames.append(pd.DataFrame({"unique_id": f"s{i}", "ds": DAYS, "y": y, **columns, "other": other}))
    panel = pd.concat(frames, ignore_index=True)
    past, futr = panel[panel["ds"] < DAYS[PAST]], panel[panel["ds"] >= DAYS[PAST]].drop(columns="y")
    names = [*(f"c{j}" for j in range(len(kinds))), "other"]
    f = Forecaster.from_pretrained("nano", h=H, freq="D", futr_exog_list=names, accelerator="cpu")
    f.update(past)
    found = f.predict(futr, level=[80])
    assert np.isfinite(found.select_dtypes("number").to_numpy()).all()
    truth = past.groupby("unique_id")["y"].quantile([0.02, 0.98]).unstack()
    span = (truth[0.98] - truth[0.02]).loc[found["unique_id"]].to_numpy()
    low, high = (truth[q].loc[found["unique_id"]].to_numpy() for q in (0.02, 0.98))
    assert (found["aru-median"] > low - 2 * span).all()
    assert (found["aru-median"] < high + 2 * span).all()
    assert np.isfinite(f.effects().select_dtypes("number").to_numpy()).all()


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_covariate_with_few_known_values_is_taken(rows: int) -> None:
    """A series may begin with its first row."""
    frame = pd.DataFrame({"unique_id": "a", "ds": DAYS[:rows], "y": 5.0, "price": np.arange(rows) + 2.5})
    f = Forecaster.from_pretrained("nano", h=H, freq="D", futr_exog_list=["price"], accelerator="cpu")
    f.update(frame)
    future = pd.DataFrame({"unique_id": "a", "ds": DAYS[rows : rows + H], "price": 2.5})
    assert np.isfinite(f.predict(future)["aru-median"]).all()
