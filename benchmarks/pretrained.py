"""What a pretrained network costs: forecasts with full contexts, one series, updates, bytes of a state.

    python -m benchmarks.pretrained [--threads 2] [--quick]

Hourly series of 1,024 rows, as many as a network reads; h = 24. `Forecaster.predict` of all of them, states and frame
included, is measured in turn with the network alone, which is given what it reads and has no more to do: as the library
runs it, in ONNX Runtime, and in plain torch in batches of 256. `ratio` compares the latter two. All sizes take turns as
well: what else the machine does meets everybody. Figures are medians; those per CPU second change less with other work
on the machine, but a busy machine slows torch most: measure on a quiet one. Writes
`benchmarks/results/pretrained.json`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import torch

from aru import Forecaster
from aru.pretrained.patches import CONTEXT
from benchmarks.recording import machine, write_json
from benchmarks.turns import Clock, in_turn

SIZES = ("nano", "mini", "base")
H, BATCH = 24, 256
REPEATED = 20  # times that one series is forecast in a round
START = pd.Timestamp("2024-01-01")
RANDOM = np.random.default_rng(0)


def frame(ids: Any, hours: Any) -> pd.DataFrame:
    """Every series at every hour: a day and noise."""
    hour = np.tile(hours, len(ids))
    y = 100 + 20 * np.sin(2 * np.pi * hour / 24) + RANDOM.normal(0, 5, len(hour))
    return pd.DataFrame(
        {"unique_id": np.repeat(ids, len(hours)), "ds": START + pd.to_timedelta(hour, unit="h"), "y": y}
    )


def repeated(work: Callable[[], object]) -> Clock:
    """What one out of many repetitions takes, in the median."""
    clocks = [Clock.of(work) for _ in range(REPEATED)]
    return Clock(*(statistics.median(times) for times in zip(*clocks, strict=True)))


class Work:
    """One size: many series in a forecaster, one in another, and the network in plain torch."""

    def __init__(self, name: str, series: int) -> None:
        self.ids = np.array([f"series-{i:05}" for i in range(series)])
        options = {"h": H, "freq": "h", "accelerator": "cpu", "hindsight": False}
        self.many, self.one = (Forecaster.from_pretrained(name, **options) for _ in range(2))
        self.many.update(frame(self.ids, np.arange(CONTEXT)))
        self.one.update(frame(self.ids[:1], np.arange(CONTEXT)))
        self.engine = self.many.runtime.engine
        self.z, self.known = torch.randn(series, CONTEXT), torch.ones(series, CONTEXT)
        self.periods = torch.tensor([(24, 168)])
        self.hour = CONTEXT

    def tasks(self) -> dict[str, Callable[[], Clock]]:
        """What is measured, by name."""
        self.hour += 1
        rows, row = (frame(ids, np.array([self.hour - 1])) for ids in (self.ids, self.ids[:1]))
        return {
            "bulk": lambda: Clock.of(self.many.predict),
            "network": lambda: Clock.of(self._onnx),
            "torch": lambda: Clock.of(self._torch),
            "update": lambda: Clock.of(lambda: self.many.update(rows)),
            "update one": lambda: Clock.of(lambda: self.one.update(row)),
            "one": lambda: repeated(self.one.predict),
            "torch one": lambda: repeated(lambda: self._torch(1)),
        }

    @torch.inference_mode()
    def _onnx(self) -> None:
        with self.engine.threads(len(self.z)):
            self.engine.models[0].call("run_told", self.z, self.known)

    @torch.inference_mode()
    def _torch(self, most: int | None = None) -> None:
        for at in range(0, most or len(self.z), BATCH):
            part = slice(at, min(at + BATCH, most or len(self.z)))
            self.engine.models[0].patches(self.z[part], self.known[part], self.periods)

    def figures(self, clocks: dict[str, list[Clock]]) -> dict[str, Any]:
        """Medians over rounds."""
        wall = {name: statistics.median(c.wall for c in found) for name, found in clocks.items()}
        cpu = {name: statistics.median(c.cpu for c in found) for name, found in clocks.items()}
        n = len(self.ids)
        pairs = list(zip(clocks["network"], clocks["torch"], strict=True))
        ratios = [statistics.median(plain[kind] / ours[kind] for ours, plain in pairs) for kind in (0, 1)]
        return {
            "parameters": sum(p.numel() for p in self.engine.models[0].parameters()),
            "forecasts_per_second": round(n / wall["bulk"]),
            "forecasts_per_cpu_second": round(n / cpu["bulk"]),
            "network_per_second": round(n / wall["network"]),
            "torch_per_second": round(n / wall["torch"]),
            "ratio": round(ratios[0], 2),
            "cpu_ratio": round(ratios[1], 2),
            "one_ms": round(1e3 * wall["one"], 2),
            "torch_one_ms": round(1e3 * wall["torch one"], 2),
            "updates_per_second": round(n / wall["update"]),
            "update_one_ms": round(1e3 * wall["update one"], 2),
            "state_bytes": self.many.runtime.describe(0).size,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--series", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="few series and rounds, no file: does it work?")
    options = parser.parse_args()
    if options.quick:
        options.series, options.rounds = 64, 2
    torch.set_num_threads(options.threads)
    before, works = machine(), {name: Work(name, options.series) for name in SIZES}
    clocks: dict[str, dict[str, list[Clock]]] = {name: {} for name in SIZES}
    for turn in range(options.rounds + 1):
        for name in in_turn(SIZES, turn):
            tasks = works[name].tasks()
            for task in in_turn(list(tasks), turn):
                clocks[name].setdefault(task, []).append(tasks[task]())
    found = []
    for name, work in works.items():
        measured = {task: times[1:] for task, times in clocks[name].items()}  # the first round warms up
        found.append({"weights": work.many.settings.size, **work.figures(measured)})
        print(*(f"{k} {v}" for k, v in found[-1].items()), sep="  ", flush=True)
    if not options.quick:
        about = {"series": options.series, "rows": CONTEXT, "h": H, "rounds": options.rounds}
        write_json("pretrained", {**about, "sizes": found}, before, onnxruntime=version("onnxruntime"))


if __name__ == "__main__":
    main()
