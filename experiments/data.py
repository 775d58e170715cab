"""Datasets of the experiments, with the settings that all methods share."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from aru.datasets import load

DATA = Path(os.environ.get("ARU_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
# What candidates differ from: no lags but those of the description (Walmart's 52 weeks), and the paper's scale.
PAPER: dict[str, Any] = {"lags": None, "scaler": "mean"}
SETTINGS: dict[str, dict[str, Any]] = {"parts": {"size": "small"}}  # short series
NAMES = ("rossmann", "walmart", "m4_hourly", "gefcom2012", "tourism_monthly", "parts", "electricity_10")


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A long frame with everything a forecaster needs to know about it; the last `test_size` rows are the test."""

    df: pd.DataFrame
    static: pd.DataFrame | None
    test_size: int
    settings: dict[str, Any]


def read(name: str) -> Dataset:
    """A dataset from the data folder (ARU_DATA, else `../shared/data` beside the repository)."""
    df, static, about = load(name, DATA)
    hourly = about.freq == "h" and about.stream_windows > 1  # a day of a few series says little: a week is tested
    settings = {**PAPER, **about.settings, **SETTINGS.get(name, {})}
    return Dataset(df, static, about.h * (about.stream_windows if hourly else 1), settings)


DATASETS: dict[str, Callable[[], Dataset]] = {name: functools.partial(read, name) for name in NAMES}
