"""Memory of training on a Parquet folder: `python -m benchmarks.parts` writes `benchmarks/results/parts.json`.

Each training is a process of its own; memory is the largest resident set of that process, less what it has after its
imports. A few training steps are enough: rows are read for the schema, for the steps, and for the final states.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.recording import machine, write_json
from benchmarks.stream import frame
from experiments.data import PAPER
from experiments.make import make

LENGTH = 500  # rows of a series
SHARDS = 64


def resident() -> int:
    """Largest resident set so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def fit(folder: str, whole: bool) -> None:
    """In a process of its own: train, and say how much memory it took."""
    torch.set_num_threads(1)
    before = resident()
    data: Any = pd.read_parquet(folder, columns=["unique_id", "ds", "y"]) if whole else folder
    settings: dict[str, Any] = {"h": 16, "freq": "D", "input_size": 16, "max_steps": 30, "accelerator": "cpu", **PAPER}
    make(**settings).fit(data, val_size=16)
    print(json.dumps({"before_mb": before, "added_mb": resident() - before}))


def write(folder: Path, series: int) -> None:
    for shard in range(SHARDS):
        ids = [f"series-{i:06}" for i in range(shard, series, SHARDS)]
        rows = frame(np.repeat(ids, LENGTH), np.tile(np.arange(LENGTH), len(ids)))
        (folder / f"shard={shard}").mkdir(parents=True)
        rows.to_parquet(folder / f"shard={shard}" / "rows.parquet")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[4_000_000, 8_000_000, 16_000_000])
    parser.add_argument("--fit", nargs=2, metavar=("FOLDER", "HOW"))
    chosen = parser.parse_args()
    if chosen.fit:
        fit(chosen.fit[0], chosen.fit[1] == "frame")
        return
    before, results = machine(), []
    for rows in chosen.rows:
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), rows // LENGTH)
            for how in ("folder", "frame"):
                command = [sys.executable, "-m", "benchmarks.parts", "--fit", name, how]
                done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
                found = json.loads(done.stdout.splitlines()[-1])
                results.append({"rows": rows, "series": rows // LENGTH, "from": how, **found})
                print(results[-1], flush=True)
    write_json("parts", {"trainings": results}, before)


if __name__ == "__main__":
    main()
