"""Small series with covariates, and settings that train on them fast: what tests of streams and services share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

H, E = 3, 5
BASE: dict[str, Any] = {
    "h": H,
    "freq": "D",
    "input_size": E,
    "size": (4, 5, 4, 3),
    "max_steps": 4,
    "accelerator": "cpu",
    "trainer": {"enable_progress_bar": False},
}
COVARIATES: dict[str, Any] = {"futr_exog_list": ["promo"], "hist_exog_list": ["temp"], "stat_exog_list": ["kind"]}
START = pd.Timestamp("2024-01-01")
STATIC = pd.DataFrame({"unique_id": ["a", "b", "n", "o"], "kind": ["x", "y", "x", "y"]})
TRAINED = 20


def rows(uid: Any, days: Any) -> pd.DataFrame:
    """What series `uid` observes on these days; everything depends on series and day alone."""
    day = np.atleast_1d(np.asarray(days))
    shift = sum(map(ord, str(uid)))
    return pd.DataFrame(
        {
            "unique_id": [uid] * len(day),
            "ds": START + pd.to_timedelta(day, unit="D"),
            "y": 20.25 + shift % 7 + 5 * np.sin(day + shift) + np.cos(3.0 * day * shift),
            "promo": np.where((day + shift) % 3 == 0, "yes", "no"),
            "temp": np.cos(0.3 * day + shift),
        }
    )


def both(days: Any, ids: str = "ab") -> pd.DataFrame:
    return pd.concat([rows(uid, days) for uid in ids], ignore_index=True)
