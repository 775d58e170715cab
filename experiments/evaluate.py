"""One run: train a method on a task, replay, score."""

from __future__ import annotations

import dataclasses
import json
import time
import warnings
from typing import Any, ClassVar

from experiments.make import make
from experiments.metrics import LEVELS, score
from experiments.provenance import hardware
from experiments.tasks import make_task

KEY = ("dataset", "protocol", "method", "variant", "seed")
FIELDS = (
    *KEY, "nd", "rmse", "crps", "coverage90", "mase", "seconds", "commit", "hardware", "width90", "settings",
)  # fmt: skip
ADAPTING = ("aru", "aru-direct")
DIGITS = {"nd": 5, "rmse": 4, "crps": 5, "coverage90": 4, "width90": 4, "mase": 4}


@dataclasses.dataclass(frozen=True)
class Job:
    """A row of the grid that is to be computed."""

    dataset: str
    protocol: str
    method: str
    variant: str
    seed: int
    options: dict[str, Any]
    series: int | None = None  # for a quick look: the first few series only
    steps: int | None = None  # and other numbers of steps

    # With its settings: where validation has chosen anew, the row is computed anew.
    KEY: ClassVar[tuple[str, ...]] = (*KEY, "settings")
    FIELDS: ClassVar[tuple[str, ...]] = FIELDS

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that differ from the dataset's."""
        return {**self.options, "max_steps": self.steps} if self.steps else self.options

    @property
    def expected_seconds(self) -> float:
        """A rough guess, so that a run which cannot end in time is not begun."""
        return 25 + 0.03 * self.settings.get("max_steps", 1000) * self.settings.get("ensemble", 1)

    def compute(self) -> list[dict[str, Any]]:
        """Its rows."""
        return evaluate(self)


def evaluate(job: Job) -> list[dict[str, Any]]:
    """The row of a job; on a stream an adapting method has a second one with its statistics frozen."""
    import torch

    torch.set_num_threads(1)
    started = time.perf_counter()
    task = make_task(job.dataset, job.protocol, job.series)
    # An ablation is a model of its own, whose forecasts are named like those of the method that it varies.
    named = {"model": job.method, "alias": job.method, "random_seed": job.seed}
    forecaster = make(**{**task.settings, **named, **job.settings})
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forecaster.fit(task.train, task.static, val_size=0)
        both = job.protocol == "streaming" and job.method in ADAPTING
        for adapt in (True, False) if both else (True,):
            frame = forecaster.cross_validation(task.df, task.windows, task.step, LEVELS, adapt, task.static)
            result = score(frame, job.method, task.train, task.season)
            parts = [job.variant, "" if adapt else "adapt=off"]
            rows.append(
                {
                    "dataset": job.dataset,
                    "protocol": job.protocol,
                    "method": job.method,
                    "variant": ", ".join(p for p in parts if p),
                    "seed": job.seed,
                    **rounded(result),
                    "seconds": round(time.perf_counter() - started, 1),
                    "hardware": hardware(),
                    "settings": json.dumps(job.settings, sort_keys=True),
                }
            )
    return rows


def rounded(result: dict[str, float]) -> dict[str, float]:
    """Scores with as many digits as are worth keeping."""
    return {k: round(v, DIGITS[k]) for k, v in result.items()}
