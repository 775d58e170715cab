"""How long an update and a forecast of all series take; weights do not matter, so nothing is trained in earnest."""

from __future__ import annotations

import copy
import dataclasses
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from experiments.curves import train
from experiments.provenance import hardware
from experiments.tasks import make_task

KEY = ("dataset", "method", "input_size", "seed")
# SNAIL's context in the paper's code; the others read the context of the paper's table.
LONG = {"rossmann": 365, "walmart": 50, "gefcom2012": 672, "electricity_10": 672}
REPEATS = 5


@dataclasses.dataclass(frozen=True)
class Timing:
    """A method with a context length."""

    dataset: str
    method: str
    input_size: int
    seed: int
    series: int | None = None
    steps: int | None = None

    KEY: ClassVar[tuple[str, ...]] = KEY
    FIELDS: ClassVar[tuple[str, ...]] = (
        *KEY, "series", "h", "update_seconds", "forecast_seconds", "threads", "commit", "hardware"
    )  # fmt: skip

    @property
    def expected_seconds(self) -> float:
        """A rough guess."""
        return 60.0

    def compute(self) -> list[dict[str, Any]]:
        """Medians of several repetitions: h new rows of every series taken in, h steps of every series forecast."""
        import torch

        torch.set_num_threads(1)
        task = make_task(self.dataset, "fixed", self.series)
        settings = {**task.settings, "input_size": self.input_size or task.settings["input_size"], "max_steps": 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            h = settings["h"]
            recent = task.train.groupby("unique_id").tail(settings["input_size"] + 4 * h)
            recent = recent[recent.groupby("unique_id").y.transform("count") > 0]
            f = train(settings, self.method, self.seed, recent, task.static)
            ahead = task.df[task.df.groupby("unique_id").cumcount(ascending=False) < h]
            ahead = ahead[ahead.unique_id.isin(recent.unique_id.unique())]
            futr = ahead.drop(columns="y")
            update = _median(lambda: copy.copy(f), lambda fresh: fresh.update(ahead))
            forecast = _median(lambda: f, lambda same: same.predict(futr, level=[90]))
        return [
            {
                **{key: getattr(self, key) for key in KEY},
                "series": len(f.ids),
                "h": h,
                "update_seconds": round(update, 4),
                "forecast_seconds": round(forecast, 4),
                "threads": 1,
                "hardware": hardware(),
            }
        ]


def timings(seeds: Iterable[int]) -> list[Timing]:
    """Equal contexts, then SNAIL's longer ones."""
    jobs = []
    for seed in seeds:
        for dataset, long in LONG.items():
            jobs += [Timing(dataset, method, 0, seed) for method in ("baseline", "aru", "snail")]
            jobs += [Timing(dataset, method, long, seed) for method in ("snail", "baseline", "aru")]
    return jobs


def _median(prepare: Callable[[], Any], action: Callable[[Any], Any]) -> float:
    seconds = []
    for _ in range(REPEATS + 1):
        ready = prepare()
        started = time.perf_counter()
        action(ready)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])  # the first one warms up
