"""Protocols: which rows of which dataset are forecast, from which origins, after training on what."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd

from aru.datasets import DESCRIPTIONS
from experiments.data import DATASETS, Dataset

VALIDATION = "validation"


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Rolling windows over the end of every series, `reserve` rows before it; training ends where the first begins."""

    windows: int
    step: int | None = None  # rows between origins; None: the horizon
    reserve: int = 0  # rows at the end that nothing reads
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # horizon and context, if not the dataset's own


# fixed: the last K rows. streaming: rolling blocks of K, true values fed after each. deepstate: the settings of the
# DeepState paper. validation: several windows before the rows that any of the others tests.
PROTOCOLS: dict[str, dict[str, Protocol]] = {
    "rossmann": {
        "fixed": Protocol(1),
        "streaming": Protocol(2),
        VALIDATION: Protocol(3, reserve=32),
    },
    "walmart": {
        "fixed": Protocol(1),
        "streaming": Protocol(2),
        VALIDATION: Protocol(3, reserve=16),
    },
    "parts": {
        "fixed": Protocol(1),
        "deepstate": Protocol(1, settings={"h": 12, "input_size": 12}),
        VALIDATION: Protocol(2, step=4, reserve=12),
    },
    "tourism_monthly": {
        "deepstate": Protocol(1),
        VALIDATION: Protocol(3, step=6, reserve=24),
    },
    "gefcom2012": {
        "fixed": Protocol(1),
        "streaming": Protocol(7),
        "deepstate": Protocol(1, settings={"h": 168, "input_size": 336}),
        VALIDATION: Protocol(28, reserve=168),
    },
    "electricity_10": {
        "fixed": Protocol(1),
        "streaming": Protocol(7),
        "deepstate": Protocol(1, settings={"h": 168, "input_size": 336}),
        VALIDATION: Protocol(28, reserve=168),
    },
    "m4_hourly": {
        "fixed": Protocol(1),
        VALIDATION: Protocol(3, reserve=24),
    },
}


@dataclasses.dataclass(frozen=True)
class Task:
    """A dataset under a protocol."""

    df: pd.DataFrame  # without the reserved rows
    train: pd.DataFrame
    static: pd.DataFrame | None
    settings: dict[str, Any]
    windows: int
    step: int
    season: int


def make_task(dataset: str, protocol: str, series: int | None = None) -> Task:
    """Cut a dataset as a protocol says; `series` keeps the first few series only."""
    return cut(dataset, DATASETS[dataset](), PROTOCOLS[dataset][protocol], series)


def cut(dataset: str, data: Dataset, rule: Protocol, series: int | None = None) -> Task:
    """The same of rows that were read and by any rule."""
    if series is not None:
        data = _first(data, series)
    settings = {**data.settings, **rule.settings}
    step = rule.step or settings["h"]
    df = _without_last(data.df, rule.reserve)
    train = _without_last(df, settings["h"] + step * (rule.windows - 1))
    return Task(df, train, data.static, settings, rule.windows, step, DESCRIPTIONS[dataset].season)


def _without_last(df: pd.DataFrame, rows: int) -> pd.DataFrame:
    """All but the last rows of every series."""
    return df[df.groupby("unique_id").cumcount(ascending=False) >= rows]


def _first(data: Dataset, series: int) -> Dataset:
    keep = sorted(data.df.unique_id.unique())[:series]
    static = None if data.static is None else data.static[data.static.unique_id.isin(keep)]
    return dataclasses.replace(data, df=data.df[data.df.unique_id.isin(keep)], static=static)
