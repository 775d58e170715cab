"""Forecasts of a few shops under the fixed protocol, for a picture; one row per step."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from experiments.candidates import chosen
from experiments.curves import train
from experiments.provenance import hardware
from experiments.tasks import make_task

KEY = ("dataset", "method", "seed")
SHOPS, HISTORY = 4, 32


@dataclasses.dataclass(frozen=True)
class Forecasts:
    """One training, and its forecasts of shops drawn at random, the same for every method."""

    dataset: str
    method: str
    seed: int
    series: int | None = None
    steps: int | None = None

    KEY: ClassVar[tuple[str, ...]] = KEY
    FIELDS: ClassVar[tuple[str, ...]] = (
        *KEY, "unique_id", "ds", "y", "mean", "median", "low", "high", "commit", "hardware"
    )  # fmt: skip

    @property
    def expected_seconds(self) -> float:
        """A rough guess."""
        return 120.0

    def compute(self) -> list[dict[str, Any]]:
        """History without a forecast, then the horizon."""
        task = make_task(self.dataset, "fixed", self.series)
        settings = {**task.settings, **chosen(self.dataset, self.method)}
        settings |= {"max_steps": self.steps} if self.steps else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            f = train(settings, self.method, self.seed, task.train, task.static)
            frame = f.cross_validation(task.df, 1, level=[90], static_df=task.static)
        shops = np.random.default_rng(0).choice(np.sort(task.df.unique_id.unique()), SHOPS, replace=False)
        name = self.method
        names = {name: "mean", f"{name}-median": "median", f"{name}-lo-90": "low", f"{name}-hi-90": "high"}
        frame = frame.rename(columns=names)[["unique_id", "ds", *names.values()]]
        past = task.df[task.df.unique_id.isin(shops)].groupby("unique_id").tail(HISTORY + settings["h"])
        rows = past[["unique_id", "ds", "y"]].merge(frame, on=["unique_id", "ds"], how="left")
        rows = rows.assign(ds=rows.ds.dt.strftime("%Y-%m-%d"), hardware=hardware()).round(1)
        own = {key: getattr(self, key) for key in KEY}
        return [{**own, **{k: "" if v != v else v for k, v in row.items()}} for row in rows.to_dict("records")]


def forecasts(seeds: Iterable[int]) -> list[Forecasts]:
    """ARU and the baseline on Rossmann."""
    return [Forecasts("rossmann", method, seed) for seed in seeds for method in ("aru", "baseline")]
