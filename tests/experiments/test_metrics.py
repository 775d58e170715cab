"""Scores written out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments.metrics import LEVELS, mase, pinball, score


def test_the_quantile_loss_is_least_at_the_quantile() -> None:
    y = np.random.default_rng(0).normal(size=20_001)
    for q in (0.1, 0.5, 0.9):
        best = np.quantile(y, q)
        losses = [pinball(y, np.full_like(y, best + d), q).mean() for d in (-0.1, 0.0, 0.1)]
        assert losses[1] == min(losses)


def test_mase_counts_errors_in_seasonal_differences() -> None:
    train = pd.DataFrame({"unique_id": list("aaaaabbbbbccccc"), "y": [0, 0, 2, 2, 4, 5, 5, 5, 5, 5, 1, 2, 3, 4, 5.0]})
    ids = pd.Series(["a", "a", "b", "c"])
    # a: differences over two rows are 2; b: all zero, no unit; c: 2.
    assert mase(ids, np.array([1.0, 3.0, 9.0, 4.0]), train, 2) == pytest.approx((0.5 + 1.5 + 2) / 3)


def test_a_point_forecast_has_a_crps_equal_to_its_nd() -> None:
    """Where all quantiles are the same point, the quantile losses average to the absolute error."""
    y, point = np.array([2.0, 4.0, np.nan, 10.0]), np.array([3.0, 3.0, 1.0, 8.0])
    frame = pd.DataFrame({"unique_id": "a", "y": y, "m": point, "m-median": point})
    for level in LEVELS:
        frame[f"m-lo-{level}"] = frame[f"m-hi-{level}"] = point
    train = pd.DataFrame({"unique_id": "a", "y": np.arange(6.0)})
    result = score(frame, "m", train, 1)
    assert result["nd"] == pytest.approx(4 / 16)
    assert result["crps"] == pytest.approx(result["nd"])
    assert result["coverage90"] == 0
    assert result["width90"] == 0
    assert result["mase"] == pytest.approx(4 / 3)


def test_without_intervals_only_point_scores_remain() -> None:
    frame = pd.DataFrame({"unique_id": "a", "y": [1.0], "m": [1.0], "m-median": [2.0]})
    train = pd.DataFrame({"unique_id": "a", "y": np.arange(6.0)})
    assert set(score(frame, "m", train, 1)) == {"nd", "rmse", "mase"}
