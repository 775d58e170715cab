"""The model of the benchmarks: medium size, h = 16, context of 16 rows, daily data, without lags."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from aru import Forecaster, settings
from aru.models import MODELS
from experiments.data import PAPER

START = pd.Timestamp("2024-01-01")


def trained(**more: Any) -> Forecaster:
    """Weights do not matter for speed: a few steps are enough."""
    quiet = {"enable_progress_bar": False, "logger": False, "enable_checkpointing": False}
    chosen: dict[str, Any] = {"h": 16, "freq": "D", "input_size": 16, "size": "medium", "max_steps": 3, **PAPER}
    df = pd.DataFrame(
        {
            "unique_id": np.repeat([f"t{i}" for i in range(8)], 64),
            "ds": np.tile(START + pd.to_timedelta(np.arange(64), unit="D"), 8),
            "y": np.random.default_rng(0).gamma(4.0, 25.0, 8 * 64),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's, about the trainer
        return _make({**chosen, "accelerator": "cpu", **more}, quiet).fit(df, val_size=0)


def _make(chosen: dict[str, Any], trainer: dict[str, Any]) -> Forecaster:
    """A forecaster of this version, or of one from before settings were grouped (`benchmarks.turns`)."""
    if hasattr(settings, "nested"):
        if chosen.get("model", "aru") == "aru" and "aru-rnn" in MODELS:
            chosen = {**chosen, "model": "aru-rnn", "alias": "aru"}
        return Forecaster(**settings.nested({**chosen, "trainer": trainer}))
    return Forecaster(**chosen, trainer_options=trainer)
