"""Beyond the tables: errors along a curve. One row per point in `results/curves.csv`.

- cold-start: error against the number of observed values, for whole shops that training never saw.
- stream: error against the rows observed since a break in the level or in the pattern of every series, and without
  any ("none"); and coverage of the intervals against their nominal level ("calibration", without a break).
- synthetic: RMSE against the length of series whose parameters theta_i are uniform in [-gamma, gamma].
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from aru import Forecaster
from aru.data.scores import scores
from aru.datasets import synthetic as local_parameters
from experiments.candidates import chosen
from experiments.data import DATASETS, PAPER, Dataset
from experiments.make import make
from experiments.provenance import hardware

KEY = ("experiment", "dataset", "method", "variant", "seed")
FIELDS = (
    *KEY, "case", "x", "nd", "rmse", "coverage90", "width90", "values", "seconds", "commit", "hardware", "settings",
)  # fmt: skip

LENGTHS = (50, 100, 200, 400, 800, 1600, 3000)
OBSERVED = (0, 1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 50)
LEVELS = (20, 40, 60, 80, 90, 95)
STREAM = {"rossmann": (25, 4), "gefcom2012": (28, 24)}  # windows and rows between them
# The configuration chosen on validation, and the same with the library's default scale.
VARIANTS: dict[str, dict[str, Any]] = {"": {}, "scaler=auto": {"scaler": "auto"}}
Frame = pd.DataFrame


@dataclasses.dataclass(frozen=True)
class Curve:
    """One training and the points it gives."""

    experiment: str
    dataset: str
    method: str
    variant: str
    seed: int
    series: int | None = None
    steps: int | None = None

    # With its settings: where validation has chosen anew, the curve is computed anew.
    KEY: ClassVar[tuple[str, ...]] = (*KEY, "settings")
    FIELDS: ClassVar[tuple[str, ...]] = FIELDS

    @property
    def expected_seconds(self) -> float:
        """A rough guess."""
        return 90.0

    @property
    def settings(self) -> dict[str, Any]:
        """What differs from the dataset's settings."""
        ours = self.experiment != "synthetic"  # whose variants are other data
        settings = {**chosen(self.dataset, self.method), **VARIANTS[self.variant]} if ours else {}
        return {**settings, "max_steps": self.steps} if self.steps else settings

    def compute(self) -> list[dict[str, Any]]:
        """Its rows."""
        import torch

        torch.set_num_threads(1)
        points = {"synthetic": synthetic, "cold-start": cold_start, "stream": stream}[self.experiment]
        started = time.perf_counter()
        rows = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for point in points(self):
                row = {**{name: getattr(self, name) for name in KEY}, "case": "", **point}
                rows.append({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()})
        end = {
            "seconds": round(time.perf_counter() - started, 1),
            "hardware": hardware(),
            "settings": json.dumps(self.settings, sort_keys=True),
        }
        return [{**row, **end} for row in rows]


def curves(seeds: Iterable[int]) -> list[Curve]:
    """All of them, most important first."""
    seeds = list(seeds)
    jobs = []
    for seed, method in itertools.product(seeds, ("aru", "baseline", "aru-control")):
        jobs += [Curve("cold-start", dataset, method, "", seed) for dataset in ("rossmann", "walmart")]
        jobs += [Curve("stream", dataset, method, "", seed) for dataset in STREAM]
    for seed in seeds[:1]:
        jobs += [Curve("cold-start", dataset, "aru", "scaler=auto", seed) for dataset in ("rossmann", "walmart")]
        jobs.append(Curve("stream", "rossmann", "aru", "scaler=auto", seed))
    cases = [synthetic_variant(*case) for case in itertools.product((20, 1), (False, True), (1.0, 0.05), LENGTHS)]
    for seed, variant, method in itertools.product(seeds, cases, ("aru", "deepstate", "aru-generated")):
        jobs.append(Curve("synthetic", "synthetic", method, variant, seed))
    return jobs


def train(settings: dict[str, Any], method: str, seed: int, df: Frame, static: Frame | None) -> Forecaster:
    """A fitted forecaster."""
    return make(**settings, model=method, random_seed=seed).fit(df, static, val_size=0)


def synthetic_variant(gamma: float, series_id: bool, noise: float, length: int) -> str:
    """The name of a case."""
    return f"gamma={gamma:g}, id={'yes' if series_id else 'no'}, noise={noise:g}, length={length}"


def synthetic(job: Curve) -> Iterator[dict[str, Any]]:
    """RMSE on the last day of ten series."""
    case = dict(part.split("=") for part in job.variant.split(", "))
    gamma, noise, length = float(case["gamma"]), float(case["noise"]), int(case["length"])
    df, _, about = local_parameters.make(gamma, noise, length, seed=job.seed)
    age = df.groupby("unique_id").cumcount(ascending=False)
    settings = {
        **about.settings,
        **PAPER,
        "series_id": case["id"] == "yes",
        "distribution": "gaussian",
        "max_steps": 500,
        **job.settings,
    }
    f = train(settings, job.method, job.seed, df[age >= 24], None)
    yield {"x": length, **point(f.cross_validation(df, 1, level=[90]), job.method)}


def cold_start(job: Curve) -> Iterator[dict[str, Any]]:
    """Forecasts of the last three horizons of unseen series, of whose past only the latest n values are told."""
    data = _small(DATASETS[job.dataset](), job.series)
    settings = {**data.settings, **job.settings}
    h, blocks = settings["h"], 3
    unseen = held_out(data.df.unique_id, job.dataset)
    age = data.df.groupby("unique_id").cumcount(ascending=False)
    static = data.static
    assert static is not None
    f = train(settings, job.method, job.seed, data.df[~unseen & (age >= blocks * h)], static).without_series()
    known = data.df[unseen & (data.df.groupby("unique_id").y.transform("size") >= max(OBSERVED) + blocks * h)]
    age = known.groupby("unique_id").cumcount(ascending=False)
    static = static[static.unique_id.isin(known.unique_id.unique())]
    for n in OBSERVED:
        frames = []
        for block in range(blocks):
            ahead = known[(age >= block * h) & (age < (block + 1) * h)]
            futr = ahead.drop(columns="y")
            past = known[(age >= (block + 1) * h) & (age < (block + 1) * h + n)]
            if n == 0:
                frame = f.predict_new(futr, static, level=[90])
            else:
                young = f.without_series()
                seen = past[past.groupby("unique_id").y.transform("count") > 0]
                young.update(seen, static)
                frame = young.predict(futr[futr.unique_id.isin(seen.unique_id.unique())], level=[90])
            frames.append(frame.merge(ahead[["unique_id", "ds", "y"]], on=["unique_id", "ds"]))
        yield {"x": n, **point(pd.concat(frames), job.method)}


def held_out(ids: pd.Series, dataset: str) -> pd.Series:
    """Every fifth shop; of Walmart whole stores with all their departments."""
    shop = ids.str.split("_").str[0] if dataset == "walmart" else ids
    order = {name: i for i, name in enumerate(sorted(shop.unique()))}
    return shop.map(order) % 5 == 0


def stream(job: Curve) -> Iterator[dict[str, Any]]:
    """Rolling forecasts over a long stretch, as it was and with a break at its beginning."""
    data = _small(DATASETS[job.dataset](), job.series)
    settings = {**data.settings, **job.settings}
    windows, step = STREAM[job.dataset]
    age = data.df.groupby("unique_id").cumcount(ascending=False)
    first = settings["h"] + step * (windows - 1)
    f = train(settings, job.method, job.seed, data.df[age >= first], data.static)
    for kind, df in broken(data.df, age < first).items():
        for adapt in (True, False) if job.method == "aru" else (True,):
            frame = f.cross_validation(df, windows, step, list(LEVELS), adapt, data.static)
            suffix = "" if adapt else ", adapt=off"
            if kind == "none":
                for level in LEVELS:
                    score = scores(frame, job.method, level)
                    yield {
                        "case": f"calibration{suffix}",
                        "x": level,
                        "coverage90": score["coverage"],
                        "width90": score["width"],
                        "values": int(score["values"]),
                    }
            order = frame.groupby("unique_id").cutoff.rank(method="dense").astype(int) - 1
            for window, part in frame.groupby(order):
                yield {"case": f"{kind}{suffix}", "x": int(window) * step, **point(part, job.method)}


def broken(df: Frame, after: pd.Series) -> dict[str, Frame]:
    """The rows as they are; with a new level; with another answer to the calendar."""
    hours = df.ds.dt.hour.nunique() > 1
    weekday = df.ds.dt.hour // 4 if hours else df.ds.dt.day_of_week
    pattern = weekday.map({0: 1.5, 1: 0.7, 2: 1.3, 3: 0.6, 4: 1.2, 5: 0.8, 6: 1.0})
    return {
        "none": df,
        "level": df.assign(y=df.y.where(~after, 1.5 * df.y)),
        "pattern": df.assign(y=df.y.where(~after, pattern * df.y)),
    }


def point(frame: Frame, name: str) -> dict[str, Any]:
    """Scores of a part of a backtest."""
    score = scores(frame, name, 90)
    return {
        "nd": score["nd"],
        "rmse": score["rmse"],
        "coverage90": score["coverage"],
        "width90": score["width"],
        "values": int(score["values"]),
    }


def _small(data: Dataset, series: int | None) -> Dataset:
    """For a quick look: a few series, spread over all."""
    if series is None:
        return data
    ids = np.sort(data.df.unique_id.unique())
    keep = ids[:: max(1, len(ids) // series)][:series]
    static = None if data.static is None else data.static[data.static.unique_id.isin(keep)]
    return dataclasses.replace(data, df=data.df[data.df.unique_id.isin(keep)], static=static)
