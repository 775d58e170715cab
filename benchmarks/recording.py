"""What every result file of a benchmark says about where its figures come from."""

from __future__ import annotations

import csv
import datetime
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from experiments.provenance import commit

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return {"cpu": model, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "load_average": os.getloadavg()}


def write_json(name: str, results: Mapping[str, Any], before: Mapping[str, Any], **versions: str) -> None:
    """Write results/NAME.json for `python -m benchmarks.NAME`; `before` is the machine as it was before."""
    libraries = {"python": platform.python_version(), "torch": torch.__version__, "pandas": pd.__version__}
    about = {
        "command": " ".join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "versions": {**libraries, **versions},
        "machine": {**before, "load_average_after": os.getloadavg()},
    }
    (RESULTS / f"{name}.json").write_text(json.dumps({**about, **results}, indent=1) + "\n")


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows of one kind as CSV, each with commit and date."""
    source = {"commit": commit(), "date": datetime.date.today().isoformat()}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *source], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **source} for row in rows)
