"""Forecasts of models that others trained, at every step of a history: what the adapter is measured on.

    python -m experiments.frozen etth1 nhits --h 24

Runs in an environment with neuralforecast and LightGBM (that of `python -m benchmarks.peers setup nhits lightgbm`) with
`src` on the PYTHONPATH. The first 60 % of every series train the model, which stays as it is; from the last of these
rows on it forecasts the next h rows of every series from every row. `--development` does the same with the first 70 %
of every series alone, half of which train: that is where the adapter's settings are chosen. One Parquet file a run, a
cross-validation frame, goes to the folder ARU_FORECASTS (by default ~/.cache/aru-forecasts), its settings beside it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.data import DATA, DATASETS

CACHE = Path(os.environ.get("ARU_FORECASTS", Path.home() / ".cache" / "aru-forecasts"))
TRAIN, VALIDATION = 0.6, 0.1
STANDARDISED = ("etth1", "exchange_rate")
CONTEXT = {"etth1": 336, "exchange_rate": 96, "m4_hourly": 168, "gefcom2012": 336}
# PatchTST normalises by itself; currencies that were pegged have windows without any spread.
SCALERS = {("etth1", "patchtst"): "identity", ("exchange_rate", "nhits"): "identity"}
RIDGES = (1.0, 10.0, 100.0, 1000.0, 10000.0)


class Task(NamedTuple):
    """Series of one dataset in the order of their rows."""

    df: pd.DataFrame  # unique_id, ds, y, covariates
    freq: str | int
    covariates: list[str]
    season: int
    train: float = TRAIN  # share of the rows of each series

    def development(self) -> Task:
        """The first rows alone, half of them for training."""
        size = self.df.groupby("unique_id").y.transform("size")
        keep = self.df.groupby("unique_id").cumcount() < ((TRAIN + VALIDATION) * size).astype(int)
        return self._replace(df=self.df[keep].reset_index(drop=True), train=0.5)

    def standardised(self) -> Task:
        """By the mean and standard deviation of each series' training rows."""
        size = self.df.groupby("unique_id").y.transform("size")
        train = self.df[self.df.groupby("unique_id").cumcount() < (self.train * size).astype(int)]
        of, ids = train.groupby("unique_id").y, self.df.unique_id
        return self._replace(df=self.df.assign(y=(self.df.y - ids.map(of.mean())) / ids.map(of.std(ddof=0))))


def etth1() -> Task:
    """Seven channels of one transformer station."""
    wide = pd.read_parquet(DATA / "ett/ETTh1.parquet").set_index("ds").astype(np.float64)
    df = wide.melt(ignore_index=False, var_name="unique_id", value_name="y").reset_index()
    return Task(df[["unique_id", "ds", "y"]], "h", [], 24)


def exchange_rate() -> Task:
    """Eight currencies."""
    return Task(pd.read_parquet(DATA / "exchange_rate/data.parquet")[["unique_id", "ds", "y"]], "D", [], 7)


def m4_hourly() -> Task:
    """The last 748 values of 414 series."""
    df = DATASETS["m4_hourly"]().df
    return Task(df.groupby("unique_id").tail(748).reset_index(drop=True), "h", [], 24)


def gefcom2012() -> Task:
    """Two years of hourly load of 20 zones."""
    data = DATASETS["gefcom2012"]()
    return Task(data.df, "h", data.settings["futr_exog_list"], 24)


def rossmann() -> Task:
    """Open days of 1,115 shops, numbered."""
    data = DATASETS["rossmann"]()
    df = data.df.merge(data.static, on="unique_id")
    day = df.ds.dt
    df = df.assign(weekday=day.dayofweek, month=day.month, day=day.day)
    for name in ("state_holiday", "store_type", "assortment", "state"):
        df[name] = df[name].astype("category").cat.codes
    df["ds"] = df.groupby("unique_id").cumcount()
    return Task(df, 1, [c for c in df.columns if c not in ("unique_id", "ds", "y")], 6)


def walmart() -> Task:
    """Weekly sales of 3,040 departments."""
    data = DATASETS["walmart"]()
    df = data.df.merge(data.static, on="unique_id")
    df["type"] = df.type.astype("category").cat.codes
    df["week"] = df.ds.dt.isocalendar().week.astype(int)
    # Trees would take prices and indices, which only ever rise, for the season in which they last saw them.
    return Task(df, "W-FRI", ["is_holiday", "type", "size", "week"], 52)


TASKS: dict[str, Callable[[], Task]] = {
    f.__name__: f for f in (etth1, exchange_rate, m4_hourly, gefcom2012, rossmann, walmart)
}


def load(dataset: str, development: bool) -> Task:
    """The rows that a run sees."""
    task = TASKS[dataset]().development() if development else TASKS[dataset]()
    return task.standardised() if dataset in STANDARDISED else task


class Ragged(NamedTuple):
    """Rows of all series one after the other."""

    y: np.ndarray  # missing values carried forward
    start: np.ndarray  # first row of each series
    length: np.ndarray
    train: np.ndarray  # how many rows of each series train

    def origins(self, h: int, trained: bool) -> np.ndarray:
        """Rows from which h rows are forecast: after training, or inside it."""
        first = np.zeros_like(self.train) if trained else self.train - 1
        last = self.train - h if trained else self.length - h
        return np.concatenate([s + np.arange(a, b) for s, a, b in zip(self.start, first, last, strict=True)])


def ragged(task: Task) -> Ragged:
    """Series as rows, gaps filled by the value before."""
    size = task.df.groupby("unique_id", sort=False).size().to_numpy()
    y = task.df.groupby("unique_id", sort=False).y.transform(lambda v: v.ffill().bfill()).to_numpy(np.float64)
    return Ragged(y, np.cumsum(size) - size, size, (task.train * size).astype(int))


def ridge(task: Task, h: int, arguments: argparse.Namespace) -> pd.DataFrame:
    """Linear in the last values, the same for all series; the penalty is chosen on the validation rows."""
    data, E = ragged(task), CONTEXT[arguments.dataset]
    series = np.repeat(np.arange(len(data.start)), data.length)
    train = np.arange(len(data.y)) - data.start[series] < data.train[series]
    of = pd.Series(data.y[train]).groupby(series[train])
    mean, spread = of.mean().to_numpy(), of.std(ddof=0).to_numpy()
    y = (data.y - mean[series]) / spread[series]

    def windows(origins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        past = y[origins[:, None] + np.arange(-E + 1, 1)]
        return past, y[origins[:, None] + np.arange(1, h + 1)]

    inside = data.origins(h, trained=True)
    x, z = windows(inside[inside - data.start[series[inside]] >= E - 1])
    x = np.hstack([x, np.ones((len(x), 1))])
    xx, xz = x.T @ x, x.T @ z
    origins = data.origins(h, trained=False)
    owner = series[origins]
    validation = origins - data.start[owner] + h < ((task.train + VALIDATION) * data.length).astype(int)[owner]
    x, z = windows(origins)
    x = np.hstack([x, np.ones((len(x), 1))])
    best = None
    for penalty in RIDGES:
        forecast = x @ np.linalg.solve(xx + penalty * np.eye(len(xx)), xz)
        error = float(np.mean((forecast - z)[validation] ** 2))
        if best is None or error < best[0]:
            best = error, penalty, forecast
    assert best is not None
    print("penalty", best[1], "validation", best[0])
    return frame(task, origins, h, {"ridge": best[2] * spread[owner, None] + mean[owner, None]})


def frame(task: Task, origins: np.ndarray, h: int, values: dict[str, np.ndarray]) -> pd.DataFrame:
    """A cross-validation frame of (origin, h) forecasts."""
    target = (origins[:, None] + np.arange(1, h + 1)).ravel()
    ids, ds = task.df.unique_id.to_numpy(), task.df.ds.to_numpy()
    columns = {k: v.ravel().astype(np.float32) for k, v in values.items()}
    keys = {"unique_id": pd.Categorical(ids[target]), "ds": ds[target], "cutoff": np.repeat(ds[origins], h)}
    return pd.DataFrame({**keys, **columns})


def neural(task: Task, h: int, arguments: argparse.Namespace) -> pd.DataFrame:
    """NHITS or PatchTST of neuralforecast; squared error on standardised data, else quantiles."""
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MSE, MQLoss
    from neuralforecast.models import NHITS, PatchTST

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    df = task.df.assign(y=ragged(task).y)
    n = df.groupby("unique_id").size().iloc[0]
    standardised = arguments.dataset in STANDARDISED
    common: dict[str, Any] = {
        "h": h,
        "input_size": CONTEXT[arguments.dataset],
        "max_steps": arguments.steps,
        "random_seed": arguments.seed,
        "loss": MSE() if standardised else MQLoss(level=[90]),
        "scaler_type": SCALERS.get((arguments.dataset, arguments.model), "standard"),
        "learning_rate": arguments.rate,
        "batch_size": 8,
        "windows_batch_size": 256,
        "inference_windows_batch_size": 4096,
        "start_padding_enabled": False,
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
    }
    if arguments.model == "nhits":
        network = NHITS(futr_exog_list=task.covariates or None, **common)
    else:
        network = PatchTST(hidden_size=64, n_heads=4, linear_hidden_size=128, encoder_layers=2, revin=True, **common)
    forecaster = NeuralForecast([network], freq=task.freq)
    tests = int(n) - int(task.train * n)
    out = forecaster.cross_validation(
        df[["unique_id", "ds", "y", *task.covariates]], n_windows=None, test_size=tests, step_size=1, refit=False
    )
    name = type(network).__name__
    if f"{name}-median" in out:
        out = out.rename(columns={f"{name}-median": name})
    columns = [c for c in out.columns if c.startswith(name)]
    out = out.astype(dict.fromkeys(columns, np.float32))
    return out.assign(unique_id=pd.Categorical(out.unique_id))[["unique_id", "ds", "cutoff", *columns]]


def trees(task: Task, h: int, arguments: argparse.Namespace) -> pd.DataFrame:
    """One LightGBM for all series and leads: past values relative to their mean, covariates of the target's row."""
    import lightgbm

    data, season = ragged(task), task.season
    long = max(2 * season, 16) if season < 52 else 52
    lags = sorted({k for k in (*range(8), season - 1, season, 2 * season - 1) if k < long})
    covariates = task.df[task.covariates].to_numpy(np.float32)

    def rows(origins: np.ndarray, lead: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        begin = data.start[np.searchsorted(data.start, origins, side="right") - 1]
        past = origins[:, None] - np.arange(long)
        y = np.where(past >= begin[:, None], data.y[past.clip(0)], np.nan)
        scale = np.nanmean(np.abs(y), 1) + 1e-3
        same = origins + lead - season * np.ceil(lead / season).astype(int)
        seasonal = np.where(same >= begin, data.y[same.clip(0)], np.nan)
        x = [y[:, lags] / scale[:, None], (seasonal / scale)[:, None], lead[:, None]]
        target = origins + lead
        return np.hstack([*x, covariates[target]]).astype(np.float32), scale

    rng = np.random.default_rng(arguments.seed)
    inside = data.origins(h, trained=True)
    inside = rng.choice(inside, min(len(inside), 300_000), replace=False)
    lead = rng.integers(1, h + 1, len(inside))
    x, scale = rows(inside, lead)
    known = task.df.y.notna().to_numpy()[inside + lead]
    parameters = {"num_leaves": 63, "learning_rate": 0.05, "verbose": -1, "num_threads": 1, "seed": arguments.seed}
    origins = data.origins(h, trained=False)
    values: dict[str, list[np.ndarray]] = {}
    models = {}
    for name, objective in (
        ("LGBM", {"objective": "l2"}),
        ("LGBM-lo-90", {"objective": "quantile", "alpha": 0.05}),
        ("LGBM-hi-90", {"objective": "quantile", "alpha": 0.95}),
    ):
        z = (data.y[inside + lead] / scale)[known]
        data_set = lightgbm.Dataset(x[known], z.clip(-10, 10))
        models[name] = lightgbm.train({**parameters, **objective}, data_set, arguments.steps)
    for part in np.array_split(origins, max(1, len(origins) * h // 500_000)):
        x, scale = rows(np.repeat(part, h), np.tile(np.arange(1, h + 1), len(part)))
        for name, model in models.items():
            values.setdefault(name, []).append((model.predict(x) * scale).astype(np.float32).reshape(-1, h))
    return frame(task, origins, h, {k: np.concatenate(v) for k, v in values.items()})


MODELS = {"ridge": ridge, "nhits": neural, "patchtst": neural, "lightgbm": trees}


def main() -> None:
    """One run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=TASKS)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--h", type=int, required=True)
    parser.add_argument("--steps", type=int, default=300, help="training steps, or trees")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--development", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    task = load(arguments.dataset, arguments.development)
    started = time.perf_counter()
    out = MODELS[arguments.model](task, arguments.h, arguments)
    CACHE.mkdir(parents=True, exist_ok=True)
    part = "-development" if arguments.development else ""
    path = CACHE / f"{arguments.dataset}-{arguments.model}-{arguments.h}-{arguments.seed}{part}.parquet"
    out.to_parquet(path)
    about = {**vars(arguments), "rows": len(out), "seconds": round(time.perf_counter() - started, 1)}
    path.with_suffix(".json").write_text(json.dumps(about))
    scored = out.merge(task.df[["unique_id", "ds", "y"]], on=["unique_id", "ds"])
    name = out.columns[3]
    print(path.name, about["seconds"], "s; MSE", float(np.nanmean((scored.y - scored[name]) ** 2)), flush=True)


if __name__ == "__main__":
    main()
