"""What adaptation costs in training: ARU beside the baseline, milliseconds a step, in one run.

    python -m benchmarks.training [--size medium] [--accelerator gpu] [--out benchmarks/results/training.csv]

Rossmann's rows (`aru datasets`), the default batch of 64 series with 57 windows each. On a GPU each method runs twice:
with CUDA graphs, and launching kernel by kernel. A step is all of it: batch, gradient, clipping, Adam, averaging,
Lightning. A figure is the median over the second half of the steps.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from benchmarks.recording import RESULTS, write_table
from experiments.make import QUIET, make
from experiments.provenance import hardware
from experiments.tasks import make_task


class Clock(Callback):
    """Times of the ends of steps, with nothing left to do on the device."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_end(self, *_: Any) -> None:
        """Note the time; only every tenth step waits for the device."""
        if len(self.times) % 10 == 0 and torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())

    def milliseconds(self) -> float:
        """Of a step, in the second half."""
        times = self.times[len(self.times) // 20 * 10 :: 10]
        return 100 * statistics.median(b - a for a, b in itertools.pairwise(times))


def measure(method: str, size: str, steps: int, graphs: bool, accelerator: str) -> dict[str, Any]:
    task = make_task("rossmann", "fixed")
    os.environ["ARU_CUDA_GRAPHS"] = "1" if graphs else "0"
    clock = Clock()
    settings = {**task.settings, "size": size, "max_steps": steps, "accelerator": accelerator}
    started = time.perf_counter()
    forecaster = make(**settings, model=method, trainer={**QUIET, "callbacks": [clock]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forecaster.fit(task.train, task.static, val_size=0)
    each = clock.milliseconds()
    per_epoch = task.train.unique_id.nunique() / forecaster.settings.batch_size
    return {
        "hardware": hardware(),
        "threads": torch.get_num_threads(),
        "size": size,
        "method": method,
        "graphs": "yes" if graphs else "no",
        "ms_per_step": round(each, 2),
        "seconds_per_epoch": round(each * per_epoch / 1000, 3),
        "seconds_in_all": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["medium", "xlarge"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS / "training.csv")
    options = parser.parse_args()
    gpu = options.accelerator != "cpu" and torch.cuda.is_available()
    rows: list[dict[str, Any]] = []
    for size in options.sizes:
        for graphs in (True, False) if gpu else (False,):
            for method in ("baseline", "aru"):
                rows.append(measure(method, size, options.steps, graphs, options.accelerator))
                print(*(f"{k} {v}" for k, v in rows[-1].items()), sep="  ", flush=True)
    write_table(options.out, rows)


if __name__ == "__main__":
    main()
