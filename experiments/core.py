"""Runs behind the defaults and the Rossmann claim: train, replay, score; one row per run in a CSV file.

    python -m experiments.core rossmann --out experiments/results/rossmann.csv
    python -m experiments.core earlier --out experiments/results/rossmann-earlier.csv
    python -m experiments.core study --out experiments/results/study.csv

`rossmann` scores baseline and ARU on the test rows with the configuration chosen beforehand. `earlier` does the same on
four windows before the validation rows, each by models trained on what comes before it: one window is a small sample.
`study` compares variants on validation windows of several datasets, all of them before the test rows, which it never
reads.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import datetime
import itertools
import multiprocessing
import time
import warnings
from pathlib import Path
from typing import Any

from experiments.provenance import commit, hardware

FIELDS = [
    "dataset", "split", "method", "variant", "seed", "steps", "windows", "nd", "rmse", "coverage90", "width90",
    "train_seconds", "commit", "hardware", "date", "command",
]  # fmt: skip

ROSSMANN: dict[str, tuple[str, dict[str, Any]]] = {
    "baseline 8000": ("baseline", {"max_steps": 8000}),
    "baseline 4000": ("baseline", {"max_steps": 4000}),
    "aru": ("aru", {}),
    "aru batch 32": ("aru", {"batch_size": 32}),
    "baseline 8000, dropout": ("baseline", {"max_steps": 8000, "dropout": 0.1}),
    "aru batch 32, dropout": ("aru", {"batch_size": 32, "dropout": 0.1}),
}

EARLIER = (64, 80, 96, 112)  # rows of every shop after the window; the study's windows are the 16 to 64 before the end

_SKIP = {"integration": "skip", "robust": True, "global_loss": 1.0}
_RESIDUAL = {"integration": "residual", "robust": True, "global_loss": 0.3}
STUDY: dict[str, tuple[str, dict[str, Any]]] = {
    "baseline": ("baseline", {"max_steps": 4000, "learning_rate": 5e-3, "batch_size": 64}),
    "skip": ("aru", {**_SKIP, "learning_rate": 5e-3, "batch_size": 64}),
    "skip, rate .01": ("aru", {**_SKIP, "learning_rate": 1e-2, "batch_size": 64}),
    "residual": ("aru", {**_RESIDUAL, "learning_rate": 5e-3, "batch_size": 64}),
    "residual, rate .01": ("aru", {**_RESIDUAL, "learning_rate": 1e-2, "batch_size": 64}),
    "residual, rate .01, batch 32": ("aru", {**_RESIDUAL, "learning_rate": 1e-2, "batch_size": 32}),
    "residual, rate .01, batch 32, dropout": (
        "aru",
        {**_RESIDUAL, "learning_rate": 1e-2, "batch_size": 32, "dropout": 0.1},
    ),
    "baseline 8000": ("baseline", {"max_steps": 8000}),
    "baseline 8000, dropout": ("baseline", {"max_steps": 8000, "dropout": 0.1}),
}


def run(dataset: str, split: str, variant: str, method: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """One training and its scores: split "test", "validation", or "earlier n" for the rows before the last n."""
    import torch

    from aru import Forecaster
    from aru.backtest import scores
    from experiments.data import DATASETS

    torch.set_num_threads(1)
    data = DATASETS[dataset]()
    h = data.settings["h"]
    df = data.df
    if split == "validation":
        df = df[df.groupby("unique_id").cumcount(ascending=False) >= data.test_size]
        held_out = max(data.test_size, 3 * h) if dataset not in ("tourism_monthly", "parts") else data.test_size
    else:
        cut = int(split.removeprefix("earlier ")) if split != "test" else 0
        df = df[df.groupby("unique_id").cumcount(ascending=False) >= cut]
        held_out = data.test_size
    age = df.groupby("unique_id").cumcount(ascending=False)
    forecaster = Forecaster(
        **{**data.settings, **settings}, model=method, random_seed=seed, trainer_options={"enable_progress_bar": False}
    )
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forecaster.fit(df[age >= held_out], static_df=data.static)
        seconds = time.perf_counter() - started
        windows = held_out // h
        frame = forecaster.cross_validation(df, n_windows=windows, step_size=h, level=[90], static_df=data.static)
    score = scores(frame, method, 90)
    return {
        "dataset": dataset,
        "split": split,
        "method": method,
        "variant": variant,
        "seed": seed,
        "steps": forecaster.settings.max_steps,
        "windows": windows,
        "nd": round(score["nd"], 5),
        "rmse": round(score["rmse"], 4),
        "coverage90": round(score["coverage"], 4),
        "width90": round(score["width"], 4),
        "train_seconds": round(seconds, 1),
        "commit": commit(),
        "hardware": hardware(),
        "date": datetime.date.today().isoformat(),
    }


def main() -> None:
    """Run what the command line asks for, several processes at a time, and write rows as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rossmann", "earlier", "study"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+")
    parser.add_argument("--variants", nargs="+")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="override the number of training steps")
    arguments = parser.parse_args()
    table = STUDY if arguments.what == "study" else ROSSMANN
    splits = {"rossmann": ["test"], "earlier": [f"earlier {cut}" for cut in EARLIER], "study": ["validation"]}
    datasets = arguments.datasets or (None if arguments.what == "study" else ["rossmann"])
    if datasets is None:
        from experiments.data import DATASETS

        datasets = list(DATASETS)
    done = set()
    if arguments.out.exists():
        with arguments.out.open() as file:
            done = {(r["dataset"], r["split"], r["variant"], int(r["seed"])) for r in csv.DictReader(file)}
    command = f"python -m experiments.core {arguments.what} --seeds {arguments.seeds}"
    jobs = []
    grid = itertools.product(datasets, arguments.variants or table, splits[arguments.what], range(arguments.seeds))
    for dataset, variant, split, seed in grid:
        method, settings = table[variant]
        settings = {**settings, "max_steps": arguments.steps} if arguments.steps else settings
        if (dataset, split, variant, seed) not in done:
            jobs.append((dataset, split, variant, method, settings, seed))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
        futures = {pool.submit(run, *job): job for job in jobs}
        for future in concurrent.futures.as_completed(futures):
            if future.exception():
                print("FAILED", futures[future], repr(future.exception()), flush=True)
                continue
            row = {**future.result(), "command": command}
            new = not arguments.out.exists()
            with arguments.out.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if new:
                    writer.writeheader()
                writer.writerow(row)
            print(
                row["dataset"],
                row["variant"],
                row["seed"],
                "ND",
                row["nd"],
                "RMSE",
                row["rmse"],
                "cov",
                row["coverage90"],
                f"{row['train_seconds']} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
