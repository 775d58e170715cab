"""Our DeepAR beside GluonTS's: the same rows, features, context and number of units; one row per run in a CSV file.

    python -m benchmarks.peers run --dataset tourism_monthly --peers gluonts-deepar --seeds 0 1 --out PEERS.csv
    python -m benchmarks.peers run --dataset rossmann --series 100 --peers gluonts-deepar --seeds 0 1 --out PEERS.csv
    python -m experiments.deepar --out experiments/results/deepar.csv

GluonTS trains two layers of 40 units, scales by the mean of the context and reads lags of the target. Ours gets the
same layers, `scaler="level"`, and as lags the whole seasons that reach over the horizon. Nothing was chosen here.
"""

from __future__ import annotations

import argparse
import datetime
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.provenance import commit, hardware

OURS: dict[str, Any] = {"size": (40, 40, 40, 40), "encoder_layers": 2, "dropout": 0.1, "scaler": "level"}
TASKS: dict[str, tuple[int | None, dict[str, Any]]] = {
    "tourism_monthly": (None, {"lags": [24, 36]}),
    "rossmann": (100, {"lags": [18, 24]}),
}


def run(dataset: str, seed: int, steps: int) -> dict[str, Any]:
    """One training on everything before the test rows, and its scores on them."""
    import torch

    from aru.data.scores import scores
    from benchmarks.peers.task import sample
    from experiments.data import DATASETS
    from experiments.make import make

    torch.set_num_threads(1)
    data, (most, settings) = DATASETS[dataset](), TASKS[dataset]
    df = sample(data.df, most)
    static = None if data.static is None else data.static[data.static.unique_id.isin(df.unique_id)]
    before = df[df.groupby("unique_id").cumcount(ascending=False) >= data.test_size]
    chosen = {**data.settings, **OURS, **settings, "max_steps": steps, "learning_rate": 5e-3}
    f = make(**chosen, model="deepar", random_seed=seed)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f.fit(before, static, val_size=0)
        seconds = time.perf_counter() - started
        frame = f.cross_validation(df, data.test_size // data.settings["h"], level=[90], static_df=static)
    score = scores(frame, "deepar", 90)
    return {
        "dataset": dataset,
        "method": "deepar",
        "seed": seed,
        "steps": steps,
        "series": df.unique_id.nunique(),
        "nd": round(score["nd"], 5),
        "rmse": round(score["rmse"], 4),
        "coverage90": round(score["coverage"], 4),
        "train_seconds": round(seconds, 1),
        "commit": commit(),
        "hardware": hardware(),
        "date": datetime.date.today().isoformat(),
        "command": "python -m experiments.deepar",
    }


def main() -> None:
    """Run what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--datasets", nargs="+", default=list(TASKS))
    arguments = parser.parse_args()
    rows = pd.read_csv(arguments.out).to_dict("records") if arguments.out.exists() else []
    done = {(r["dataset"], r["method"], r["seed"]) for r in rows}
    for dataset in arguments.datasets:
        for seed in range(arguments.seeds):
            if (dataset, "deepar", seed) in done:
                continue
            rows.append(run(dataset, seed, arguments.steps))
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(arguments.out, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
