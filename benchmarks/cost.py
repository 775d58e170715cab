"""What an observation costs, and what it buys: aru beside other libraries, in one run.

    python -m benchmarks.cost [--methods aru baseline] [--series 100 1000 10000] [--threads 2]

One new observation of every series arrives, then the horizon of every series is forecast; a figure is the median of
several such rounds, in microseconds of wall-clock time per series. Each library is handed its rows in the form it
takes; making them ready is not timed. Models are trained once, on all series of the dataset up to the first cutoff, by
their libraries' defaults, and kept under the peers' cache. A run of all methods writes `benchmarks/results/cost.json`;
one of some only prints. See docs/peers.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import aru
from aru import Forecaster, TrainingOptions
from aru.errors import AruError
from benchmarks.peers.__main__ import SEASONS
from benchmarks.peers.environments import cache
from benchmarks.peers.exchange import work
from benchmarks.peers.registry import PEERS
from benchmarks.peers.task import Task, make_task
from benchmarks.peers.worker.interface import Streaming
from benchmarks.peers.worker.rounds import measure
from benchmarks.recording import machine, write_json
from experiments.data import DATASETS, Dataset
from experiments.make import QUIET, make

OURS = ("baseline", "aru", "zero-shot", "fitted")  # "aru" is the recurrent network, the others are the default
METHODS = ("seasonal-naive", "snarimax", "auto-ets", "lightgbm", "nhits", *OURS)
ALONE = ("nhits",)  # y alone: it scales covariates by window, and forecasts explode where one hardly varies
DEFAULTS = ("h", "freq", "futr_exog_list", "hist_exog_list", "stat_exog_list")  # what a user says who chooses nothing
ROUNDS = 5  # and one to warm up


class Plan(NamedTuple):
    """What is measured."""

    dataset: str
    series: list[int]
    limit: float  # seconds of a round
    threads: int
    models: Path


class Ours(Streaming):
    """A trained forecaster; rows have the columns of the dataset, series are numbers."""

    def __init__(self, model: Forecaster) -> None:
        self.model = model
        self.settings = model.settings

    def host(self, past: pd.DataFrame, static: pd.DataFrame, copies: NDArray[np.int64]) -> None:
        """States from nothing but the history."""
        self.model = self.model.without_series()
        self.model.update(self._frame(past, "y"), static_df=static.assign(unique_id=_names(static.unique_id)))
        self.seen = past.groupby("unique_id").step.max()

    def read(self, past: pd.DataFrame, future: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """The rows that are new, and the known covariates of the horizon."""
        new = past[past.step > past.unique_id.map(self.seen)]
        self.seen = past.groupby("unique_id").step.max()
        return self._frame(new, "y"), self._frame(future), future[["unique_id", "step"]]

    def answer(self, asked: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]) -> pd.DataFrame:
        """Update, then forecast: h rows for each series, in their order."""
        new, known, rows = asked
        if len(new):
            self.model.update(new)
        needed = self.settings.futr_exog_list or self.settings.freq is None
        out = self.model.predict(known if needed else None)
        name = self.settings.name
        return rows.assign(mean=out[name].to_numpy(), median=out[f"{name}-median"].to_numpy())

    def _frame(self, rows: pd.DataFrame, *more: str) -> pd.DataFrame:
        columns = ["ds", *more, *self.settings.futr_exog_list]
        return rows[columns].assign(unique_id=_names(rows.unique_id))


def _names(numbers: pd.Series[int]) -> NDArray[np.object_]:
    """Strings in the order of the numbers."""
    return np.array([f"series-{i:06}" for i in numbers.tolist()], dtype=object)


def raw_panel(task: Task, data: Dataset) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The task's rows and static covariates with the dataset's own columns, as aru takes them."""
    keys = task.rows[["unique_id", "step", "ds", "y"]].assign(name=task.ids[task.rows.unique_id].to_numpy())
    columns = data.df.drop(columns="y").rename(columns={"unique_id": "name"})
    rows = keys.merge(columns, on=["name", "ds"], how="left", validate="one_to_one").drop(columns="name")
    static = pd.DataFrame(index=task.ids) if data.static is None else data.static.set_index("unique_id").loc[task.ids]
    return rows, static.reset_index(drop=True).assign(unique_id=np.arange(len(task.ids)))


def run_ours(method: str, task: Task, data: Dataset, plan: Plan) -> dict[str, Any]:
    """Our own methods, through `Forecaster`, in this process."""
    rows, static = raw_panel(task, data)
    model, seconds = trained(method, task, rows, static, data.settings, plan)
    sizes = list(measure(Ours(model), rows, static, task.cutoffs, task.h, plan.series, plan.limit))
    version = f"aru {aru.__version__}, torch {torch.__version__}"
    return {"method": method, "version": version, "train_seconds": seconds, "sizes": sizes}


def trained(
    method: str, task: Task, rows: pd.DataFrame, static: pd.DataFrame, settings: dict[str, Any], plan: Plan
) -> tuple[Forecaster, float]:
    """The model that was kept, unless this version cannot read it; else a new one. And the seconds of its training."""
    folder = plan.models / f"{plan.dataset}-{method}"
    try:
        return Forecaster.load(folder, "cpu"), json.loads((folder / "seconds.json").read_text())
    except (AruError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
    past = rows[rows.step <= task.cutoffs["0"].to_numpy()[rows.unique_id]]
    past = past.drop(columns="step").assign(unique_id=_names(past.unique_id))
    static = static.assign(unique_id=_names(static.unique_id))
    options = {**QUIET, "logger": False, "enable_checkpointing": False}
    known = {name: settings[name] for name in DEFAULTS if name in settings}
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's, about the trainer
        if method == "zero-shot":
            model = Forecaster.from_pretrained("mini", **known)
            model.update(past, static_df=static)
        elif method == "fitted":
            model = Forecaster(**known, training=TrainingOptions(trainer=QUIET)).fit(past, static_df=static)
        else:
            model = make(**settings, model=method, accelerator="cpu", trainer=options).fit(past, static_df=static)
    seconds = round(time.perf_counter() - started, 1)
    model.without_series().save(folder)
    (folder / "seconds.json").write_text(json.dumps(seconds))
    return model, seconds


def run_peer(name: str, task: Task, plan: Plan) -> dict[str, Any]:
    """Another library, in its own environment."""
    peer = PEERS[name]
    task = task.without_covariates() if name in ALONE else task
    with tempfile.TemporaryDirectory(prefix="aru-cost-") as place:
        folder = Path(place)
        task.write(folder)
        task.spec(peer.entry, 0, peer.steps, "cpu", intervals=False).write(folder / "spec.json")
        model = plan.models / f"{plan.dataset}-{name}-{peer.steps}.pickle"
        wanted = {"series": plan.series, "limit": plan.limit, "model": str(model)}
        (folder / "plan.json").write_text(json.dumps(wanted))
        work(peer, "benchmarks.peers.worker.rounds", folder, OMP_NUM_THREADS=str(plan.threads))
        return {"method": name, **json.loads((folder / "rounds.json").read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="walmart", choices=list(DATASETS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--series", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a round may take; beyond, a sample is timed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", type=Path, default=cache() / "models", help="trained models, kept between runs")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.models.mkdir(parents=True, exist_ok=True)
    before = machine()
    data = DATASETS[options.dataset]()
    task = make_task(data.df, data.static, data.settings, ROUNDS + 1, 1, SEASONS.get(options.dataset))
    plan = Plan(options.dataset, options.series, options.limit, options.threads, options.models)
    found = []
    for method in options.methods:
        found.append(run_ours(method, task, data, plan) if method in OURS else run_peer(method, task, plan))
        print(found[-1], flush=True)
    results = {"dataset": options.dataset, "real_series": len(task.ids), "h": task.h, "rounds": ROUNDS, "found": found}
    if set(options.methods) == set(METHODS):  # one run of all, or none is comparable
        write_json("cost", results, before)


if __name__ == "__main__":
    main()
