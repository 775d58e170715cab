"""One row per run in a CSV file; a run that is there already is not repeated."""

from __future__ import annotations

import csv
import dataclasses
import datetime
from pathlib import Path
from typing import Any

from aru.data.scores import scores
from benchmarks.peers.exchange import Outcome
from benchmarks.peers.worker.interface import LEVEL

FIELDS = [
    "dataset", "method", "seed", "steps", "windows", "step_size", "series", "version", "values", "nd", "rmse",
    "coverage90", "width90", "train_seconds", "predict_seconds", "commit", "hardware", "date", "command",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Key:
    """What makes a run the same run."""

    dataset: str
    method: str
    seed: int
    steps: int
    windows: int
    step_size: int
    series: int

    @property
    def file_name(self) -> str:
        """A name for the run's forecasts."""
        return "-".join(str(v) for v in dataclasses.astuple(self)) + ".parquet"


def read_keys(path: Path) -> set[Key]:
    """The runs that a result file has."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {
            Key(row["dataset"], row["method"], *(int(row[name]) for name in FIELDS[2:7]))
            for row in csv.DictReader(file)
        }


def make_row(key: Key, outcome: Outcome, commit: str, command: str) -> dict[str, Any]:
    """The scores of a run and where they come from; empty cells where the method has no intervals."""
    level = LEVEL if f"{key.method}-lo-{LEVEL}" in outcome.frame else None
    score = scores(outcome.frame, key.method, level)
    return {
        **dataclasses.asdict(key),
        "version": outcome.report["version"],
        "values": int(score["values"]),
        "nd": round(score["nd"], 5),
        "rmse": round(score["rmse"], 4),
        "coverage90": round(score["coverage"], 4) if level else "",
        "width90": round(score["width"], 4) if level else "",
        "train_seconds": round(outcome.report["train_seconds"], 1),
        "predict_seconds": round(outcome.report["predict_seconds"], 1),
        "commit": commit,
        "hardware": outcome.report["hardware"],
        "date": datetime.date.today().isoformat(),
        "command": command,
    }


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a row; a new file begins with the names of the columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        writer.writerow(row)
