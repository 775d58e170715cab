"""Cost of adaptation: rows a second and bytes a series, in one run, so that the ratios can be compared.

    python -m benchmarks.adapt --out benchmarks/results/adapt.json

A step is one observation and one forecast of `h` leads for every series, as in production: `update`, then `adapt`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from aru import Adapter
from aru.store import MemoryStore, SQLiteStore, Store
from experiments.provenance import commit, hardware

HOURS = pd.date_range("2024-01-01", periods=2000, freq="h")
WARM, TIMED = 30, 20


def frames(series: int, h: int, first: int, steps: int) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Observations and forecasts of every step."""
    rng = np.random.default_rng(0)
    ids = np.array([f"s{i:06d}" for i in range(series)])
    actuals, forecasts = [], []
    for at in range(first, first + steps):
        actuals.append(pd.DataFrame({"unique_id": ids, "ds": HOURS[at], "y": rng.normal(size=series)}))
        point = rng.normal(size=series * h)
        keys = {"unique_id": np.repeat(ids, h), "ds": np.tile(HOURS[at + 1 : at + 1 + h], series)}
        ends = {"m-lo-90": point - 1, "m-hi-90": point + 1}
        forecasts.append(pd.DataFrame({**keys, "cutoff": HOURS[at], "m": point, **ends}))
    return actuals, forecasts


def stream(series: int, h: int, store: Store, options: dict[str, Any]) -> dict[str, Any]:
    """Step by step."""
    actuals, forecasts = frames(series, h, 0, WARM + TIMED)
    adapter = Adapter(h, freq="h", store=store, **options)
    seconds = {"update": 0.0, "adapt": 0.0}
    for step, (truth, issued) in enumerate(zip(actuals, forecasts, strict=True)):
        for name, call in (("update", lambda t=truth: adapter.update(t)), ("adapt", lambda f=issued: adapter.adapt(f))):
            started = time.perf_counter()
            call()
            if step >= WARM:
                seconds[name] += time.perf_counter() - started
    with store.reading() as view:
        about = view.require_about()
    total = sum(seconds.values())
    return {
        "observations_per_second": round(series * TIMED / total),
        "update_ms": round(1000 * seconds["update"] / TIMED, 2),
        "adapt_ms": round(1000 * seconds["adapt"] / TIMED, 2),
        "microseconds_per_observation": round(1e6 * total / series / TIMED, 1),
        "bytes_per_series": about.size,
    }


def history(series: int, h: int, options: dict[str, Any]) -> dict[str, Any]:
    """The same in one go."""
    actuals, forecasts = frames(series, h, 0, WARM + TIMED)
    truth, issued = pd.concat(actuals, ignore_index=True), pd.concat(forecasts, ignore_index=True)
    started = time.perf_counter()
    Adapter(h, freq="h", **options).cross_validation(issued, truth)
    total = time.perf_counter() - started
    return {"observations_per_second": round(series * (WARM + TIMED) / total)}


def main() -> None:
    """All cases, in one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--h", type=int, default=24)
    parser.add_argument("--series", type=int, nargs="+", default=[1, 100, 862])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    both = {"gate": True, "calibration": "online"}
    cases: dict[str, Any] = {}
    for series in arguments.series:
        cases[f"{series} series, memory"] = stream(series, arguments.h, MemoryStore(), {})
        print(series, cases[f"{series} series, memory"], flush=True)
    most = max(arguments.series)
    cases[f"{most} series, gate"] = stream(most, arguments.h, MemoryStore(), {"gate": True})
    cases[f"{most} series, gate and calibration"] = stream(most, arguments.h, MemoryStore(), both)
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "state.db")
        cases[f"{most} series, SQLite"] = stream(most, arguments.h, store, {})
        store.close()
    cases[f"{most} series, backtest"] = history(most, arguments.h, {})
    plain = cases[f"{most} series, memory"]["observations_per_second"]
    for name, case in cases.items():
        if name.startswith(f"{most} series"):
            case["speed_relative_to_memory"] = round(case["observations_per_second"] / plain, 2)
        print(name, case, flush=True)
    result = {
        "command": f"python -m benchmarks.adapt --h {arguments.h}",
        "commit": commit(),
        "hardware": hardware(),
        "threads": 1,
        "date": datetime.date.today().isoformat(),
        "h": arguments.h,
        "cases": cases,
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
