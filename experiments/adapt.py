"""What the adapter gains on forecasts of frozen models: backtests of the files that experiments.frozen made.

    python -m experiments.adapt --out experiments/results/adapt.csv

Every file in ARU_FORECASTS that is no development run is adapted from the end of training on, with default settings and
without and with the gate; the last 30 % of the rows of each series are scored. One row a run; runs in the result file
are skipped. What the adapter learns begins with the first forecasts, after 60 % of the rows. The settings were chosen
on development runs (`--development` prints them and writes nothing).
"""

from __future__ import annotations

import argparse
import csv
import datetime
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.frozen import CACHE, TRAIN, VALIDATION, load
from experiments.provenance import commit, hardware

BEFORE = 1000  # rows of history that the adapter sees before the first forecasts
FIELDS = [
    "dataset", "model", "h", "seed", "gate", "series", "rows", "mse_frozen", "mse", "nd_frozen", "nd", "mean_gain",
    "worst_series", "hurt", "coverage90_frozen", "coverage90", "coverage90_calibrated", "seconds", "steps_per_second",
    "commit", "hardware", "date", "command",
]  # fmt: skip


def run(path: Path, gate: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Adapt one history and score its last part."""
    import torch

    from aru import Adapter

    torch.set_num_threads(1)
    dataset, model, h, seed = path.stem.removesuffix("-development").split("-")
    task = load(dataset, path.stem.endswith("-development"))
    forecasts = pd.read_parquet(path)
    forecasts["unique_id"] = forecasts.unique_id.astype(task.df.unique_id.dtype)
    name = forecasts.columns[3]
    levels = f"{name}-lo-90" in forecasts
    forecasts = forecasts.astype(dict.fromkeys(forecasts.columns[3:], np.float64))
    actuals = task.df[["unique_id", "ds", "y"]]
    until = actuals.groupby("unique_id").cumcount() >= (task.train * actuals.groupby("unique_id").y.transform("size"))
    late = until.groupby(actuals.unique_id).transform("sum") + BEFORE
    recent = actuals[actuals.groupby("unique_id").cumcount(ascending=False) < late]
    settings = {"freq": task.freq, "season_length": task.season, "gate": gate, **options}
    started = time.perf_counter()
    adapted = Adapter(int(h), calibration="online" if levels else None, **settings).backtest(forecasts, recent)
    seconds = time.perf_counter() - started
    plain = Adapter(int(h), **settings).backtest(forecasts, recent) if levels else adapted
    both = forecasts.assign(adapted=adapted[name])
    if levels:
        both = both.assign(
            low=adapted[f"{name}-lo-90"], high=adapted[f"{name}-hi-90"],
            plain_low=plain[f"{name}-lo-90"], plain_high=plain[f"{name}-hi-90"],
        )  # fmt: skip
    # Scored: forecasts whose cutoff is the last row of the first 70 % or later.
    size = actuals.groupby("unique_id").y.transform("size")
    share = task.train + (1 - task.train) / 2 if path.stem.endswith("-development") else TRAIN + VALIDATION
    begin = actuals[actuals.groupby("unique_id").cumcount() == (share * size).astype(int) - 1]
    begin = begin.set_index("unique_id").ds
    both = both[both.cutoff >= both.unique_id.map(begin)].merge(actuals, on=["unique_id", "ds"]).dropna(subset="y")
    old, new = both[name] - both.y, both.adapted - both.y
    by = pd.DataFrame({"old": old**2, "new": new**2}).groupby(both.unique_id).mean()
    by = by[by.old > 0]
    inside = {
        "coverage90_frozen": (f"{name}-lo-90", f"{name}-hi-90"),
        "coverage90": ("plain_low", "plain_high"),
        "coverage90_calibrated": ("low", "high"),
    }
    coverage = {
        k: round(float(((both[a] <= both.y) & (both.y <= both[b])).mean()), 4) if levels else ""
        for k, (a, b) in inside.items()
    }
    rows = forecasts.cutoff.nunique()
    total = both.y.abs().sum()
    return {
        "dataset": dataset, "model": model, "h": int(h), "seed": int(seed), "gate": gate,
        "series": len(by), "rows": len(both),
        "mse_frozen": f"{(old**2).mean():.6g}", "mse": f"{(new**2).mean():.6g}",
        "nd_frozen": f"{old.abs().sum() / total:.5f}", "nd": f"{new.abs().sum() / total:.5f}",
        "mean_gain": f"{1 - np.exp(np.log(by.new / by.old).mean()):.4f}",
        "worst_series": f"{(by.new / by.old).max() - 1:.4f}",
        "hurt": f"{(by.new > 1.01 * by.old).mean():.4f}",
        **coverage,
        "seconds": round(seconds, 1), "steps_per_second": round(rows / seconds, 1),
    }  # fmt: skip


def main() -> None:
    """All files, one row each without and with the gate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("experiments/results/adapt.csv"))
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of files")
    parser.add_argument("--gates", nargs="+", choices=["no", "yes"], default=["no", "yes"])
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--ridge", type=float)
    parser.add_argument("--alphas", type=float, nargs="+")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)
    options = {k: v for k in ("ridge", "alphas") if (v := getattr(arguments, k)) is not None}
    if options and not arguments.development:
        parser.error("settings are chosen on development runs: add --development")
    done = set()
    if arguments.out.exists():
        with arguments.out.open() as file:
            done = {(r["dataset"], r["model"], r["h"], r["seed"], r["gate"]) for r in csv.DictReader(file)}
    for path in sorted(CACHE.glob("*.parquet")):
        if path.stem.endswith("-development") != arguments.development:
            continue
        if not any(part in path.stem for part in arguments.only):
            continue
        for gate in (name == "yes" for name in arguments.gates):
            key = (*path.stem.removesuffix("-development").split("-"), str(gate))
            if key in done and not arguments.development:
                continue
            row = run(path, gate, options)
            print({k: v for k, v in row.items() if v != ""}, flush=True)
            if arguments.development:
                continue
            row |= {"commit": commit(), "hardware": hardware(), "date": datetime.date.today().isoformat()}
            row["command"] = "python -m experiments.adapt"
            new = not arguments.out.exists()
            with arguments.out.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if new:
                    writer.writeheader()
                writer.writerow(row)


if __name__ == "__main__":
    main()
