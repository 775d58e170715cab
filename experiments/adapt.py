"""What the adapter gains on forecasts of frozen models: backtests of the files that experiments.frozen made.

    python -m experiments.adapt --out experiments/results/adapt.csv

Every file in ARU_FORECASTS that is no development run is adapted from the end of training on, with default settings and
without and with the gate; the last 30 % of the rows of each series are scored. Models of one dataset and horizon go
through side by side. One row a model and seed; those in the result file are skipped. What the adapter learns begins
with the first forecasts, after 60 % of the rows. The settings were chosen on development runs (`--development` prints
them and writes nothing).
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
    "together", "setting", "commit", "hardware", "date", "command",
]  # fmt: skip


KEYS = ["unique_id", "ds", "cutoff"]


def read(path: Path, ids: Any) -> pd.DataFrame:
    """Forecasts of one file, their columns named by model and seed."""
    model, seed = name_of(path)[1], name_of(path)[3]
    frame = pd.read_parquet(path)
    old = frame.columns[3]
    names = {c: c.replace(old, f"{model}_{seed}", 1) for c in frame.columns[3:]}
    frame["unique_id"] = frame.unique_id.astype(ids)
    return frame.rename(columns=names).astype(dict.fromkeys(names.values(), np.float64))


def name_of(path: Path) -> list[str]:
    """Dataset, model, horizon and seed."""
    return path.stem.removesuffix("-development").split("-")


def run(paths: list[Path], gate: bool, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Adapt histories of one dataset and horizon side by side, and score their last part."""
    import torch

    from aru import Adapter

    torch.set_num_threads(1)
    dataset, _, h, _ = name_of(paths[0])
    development = paths[0].stem.endswith("-development")
    task = load(dataset, development)
    forecasts = read(paths[0], task.df.unique_id.dtype)
    for path in paths[1:]:
        forecasts = forecasts.merge(read(path, task.df.unique_id.dtype), how="outer", on=KEYS)
    levels = any(c.endswith("-lo-90") for c in forecasts)
    actuals = task.df[["unique_id", "ds", "y"]]
    until = actuals.groupby("unique_id").cumcount() >= (task.train * actuals.groupby("unique_id").y.transform("size"))
    late = until.groupby(actuals.unique_id).transform("sum") + BEFORE
    recent = actuals[actuals.groupby("unique_id").cumcount(ascending=False) < late]
    settings = {"freq": task.freq, "season_length": task.season, "gate": gate, **options}
    started = time.perf_counter()
    adapted = Adapter(int(h), calibration="online" if levels else None, **settings).cross_validation(forecasts, recent)
    seconds = time.perf_counter() - started
    plain = Adapter(int(h), **settings).cross_validation(forecasts, recent) if levels else adapted
    # Scored: forecasts whose cutoff is the last row of the first 70 % or later.
    size = actuals.groupby("unique_id").y.transform("size")
    share = task.train + (1 - task.train) / 2 if development else TRAIN + VALIDATION
    begin = actuals[actuals.groupby("unique_id").cumcount() == (share * size).astype(int) - 1]
    begin = begin.set_index("unique_id").ds
    scored = (forecasts.cutoff >= forecasts.unique_id.map(begin)).to_numpy()
    truth = forecasts.loc[scored, KEYS].merge(actuals, how="left", on=["unique_id", "ds"])
    steps = forecasts.cutoff.nunique() / seconds
    rows = []
    for path in paths:
        _, model, _, seed = name_of(path)
        name = f"{model}_{seed}"
        # Frozen, adapted, and adapted and calibrated.
        three = [f[scored].filter(regex=f"^{name}($|-)").reset_index(drop=True) for f in (forecasts, plain, adapted)]
        known = (truth.y.notna() & three[0][name].notna()).to_numpy()
        ids, y = truth.unique_id[known], truth.y[known]
        frozen, moved, calibrated = (f[known] for f in three)
        rows.append(
            {
                "dataset": dataset,
                "model": model,
                "h": int(h),
                "seed": int(seed),
                "gate": gate,
                **scores(ids, y, frozen[name], moved[name]),
                **coverage(y, name, frozen, moved, calibrated),
                "seconds": round(seconds, 1),
                "steps_per_second": round(steps, 1),
                "together": len(paths),
            }
        )
    return rows


def scores(ids: pd.Series, y: pd.Series, frozen: pd.Series, adapted: pd.Series) -> dict[str, Any]:
    """Errors before and after, of all rows and by series."""
    old, new = frozen - y, adapted - y
    by = pd.DataFrame({"old": old**2, "new": new**2}).groupby(ids, observed=True).mean()
    by = by[by.old > 0]
    total = y.abs().sum()
    return {
        "series": len(by), "rows": len(y),
        "mse_frozen": f"{(old**2).mean():.6g}", "mse": f"{(new**2).mean():.6g}",
        "nd_frozen": f"{old.abs().sum() / total:.5f}", "nd": f"{new.abs().sum() / total:.5f}",
        "mean_gain": f"{1 - np.exp(np.log(by.new / by.old).mean()):.4f}",
        "worst_series": f"{(by.new / by.old).max() - 1:.4f}",
        "hurt": f"{(by.new > 1.01 * by.old).mean():.4f}",
    }  # fmt: skip


def coverage(y: pd.Series, name: str, *three: pd.DataFrame) -> dict[str, Any]:
    """Of 90 % intervals: as given, moved with the forecast, and calibrated."""
    names = ("coverage90_frozen", "coverage90", "coverage90_calibrated")
    if f"{name}-lo-90" not in three[0]:
        return dict.fromkeys(names, "")
    inside = [(f[f"{name}-lo-90"] <= y) & (y <= f[f"{name}-hi-90"]) for f in three]
    return {k: round(float(v.mean()), 4) for k, v in zip(names, inside, strict=True)}


def main() -> None:
    """All files, without and with the gate."""
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
    groups: dict[tuple[str, str, bool], list[Path]] = {}
    for path in sorted(CACHE.glob("*.parquet")):
        if path.stem.endswith("-development") != arguments.development:
            continue
        if not any(part in path.stem for part in arguments.only):
            continue
        for gate in (name == "yes" for name in arguments.gates):
            dataset, _, h, _ = name_of(path)
            if arguments.development or (*name_of(path), str(gate)) not in done:
                groups.setdefault((dataset, h, gate), []).append(path)
    for (_, _, gate), paths in groups.items():
        rows = run(paths, gate, options)
        for row in rows:
            print({k: v for k, v in row.items() if v != ""}, flush=True)
        if arguments.development:
            continue
        about = {"commit": commit(), "hardware": hardware(), "date": datetime.date.today().isoformat()}
        about |= {"setting": "default", "command": "python -m experiments.adapt"}
        new = not arguments.out.exists()
        with arguments.out.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            if new:
                writer.writeheader()
            writer.writerows(row | about for row in rows)


if __name__ == "__main__":
    main()
