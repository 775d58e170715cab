"""Defaults only: what a user gets who chooses nothing but horizon, frequency and covariates.

Fixed: the last h rows of every series, once. Streaming: rolling windows, true values fed after each.

aru             `Forecaster(h, freq, ...).fit(df)`: the pretrained network, tuned, and what is learned in closed form
aru zero-shot   `Forecaster.from_pretrained("mini", ...)`, nothing is trained
aru-rnn         the recurrent network of the paper's family, and `baseline`, the same without a local fit
lightgbm        one model of all series (`experiments.boosted`); needs lightgbm
seasonal-naive  the latest value of the same season

ets, nhits      AutoETS once, NHITS; they need the environment of `python -m benchmarks.peers setup auto-ets`

Rows of AutoETS, NHITS and LightGBM on the other panels, and of our networks with a configuration for each dataset, are
in `runs.csv`.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import time
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from aru import Forecaster
from benchmarks.peers import environments
from benchmarks.peers.exchange import run_peer
from benchmarks.peers.registry import PEERS as REGISTRY
from benchmarks.peers.task import make_task as make_windows
from experiments.boosted import Boosted
from experiments.data import DATASETS, read
from experiments.learning import DEMO, FLIGHTS
from experiments.make import make, told
from experiments.metrics import LEVELS, score
from experiments.panels import PANELS, Windows, seasonal_naive, windows_of
from experiments.provenance import hardware
from experiments.tasks import PROTOCOLS, Protocol, Task, cut

FITTED, ZERO_SHOT, NAIVE, LIGHTGBM = "aru", "aru zero-shot", "seasonal-naive", "lightgbm"
TRAINED = ("aru-rnn", "baseline")
OTHERS = {"ets": "auto-ets", "nhits": "nhits"}
FIXED, STREAMING = "fixed", "streaming"
COUNTS = ("parts",)  # whose coverage is that of randomised ranks: intervals of whole numbers cover too much
FINE = [*range(2, 100, 2)]  # central intervals in percent, for these
PLAIN = {  # panels without covariates: windows and rows between them
    "m1_monthly": {FIXED: (1, 0)},
    "m1_quarterly": {FIXED: (1, 0)},
    "m1_yearly": {FIXED: (1, 0)},
    "etth1": {FIXED: (1, 0), STREAMING: (84, 25)},
}
SMALL = ("m1_monthly", "m1_quarterly", "m1_yearly", "tourism_monthly", "m4_hourly", "parts", "etth1", "electricity_10")
DIGITS = {"nd": 5, "rmse": 4, "mase": 4, "crps": 5, "coverage80": 4, "coverage90": 4}
KEY = ("dataset", "protocol", "method", "seed")
FIELDS = (*KEY, "h", "series", "forecasts", *DIGITS, "seconds", "commit", "hardware", "date", "command")


@dataclasses.dataclass(frozen=True)
class Default:
    """A method on a panel."""

    dataset: str
    protocol: str
    method: str
    seed: int
    series: int | None = None  # for a quick look: the first few series only
    steps: int | None = None  # and other numbers of training steps

    KEY: ClassVar[tuple[str, ...]] = KEY
    FIELDS: ClassVar[tuple[str, ...]] = FIELDS

    @property
    def expected_seconds(self) -> float:
        """A rough guess."""
        trains = self.method in (FITTED, *TRAINED)
        return (90.0 if self.dataset in SMALL else 400.0) if trains else 60.0

    def compute(self) -> list[dict[str, Any]]:
        """Its row."""
        import torch

        torch.set_num_threads(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            task = task_of(self.dataset, self.protocol, self.series)
            started = time.perf_counter()
            frame, name = forecasts(self, task)
        seconds = time.perf_counter() - started
        found = {**score(frame, name, task.train, task.season), **coverage(frame, name, self.dataset in COUNTS)}
        about = {"h": task.settings["h"], "series": frame.unique_id.nunique()}
        return [
            {
                **{key: getattr(self, key) for key in KEY},
                **about,
                "forecasts": len(frame) // task.settings["h"],
                **{key: round(value, DIGITS[key]) for key, value in found.items() if key in DIGITS},
                "seconds": round(seconds, 1),
                "hardware": hardware(),
                "date": datetime.date.today().isoformat(),
                "command": "python -m experiments defaults",
            }
        ]


def defaults(seeds: Iterable[int]) -> list[Default]:
    """All rows, the first seed and quick ones first; only trainings have several seeds."""
    places = [(name, protocol) for name, rules in _rules().items() for protocol in rules]
    untrained = (NAIVE, ZERO_SHOT, LIGHTGBM) if importlib.util.find_spec("lightgbm") else (NAIVE, ZERO_SHOT)
    out = [Default(*place, method, 0) for method in untrained for place in places]
    if environments.is_ready(REGISTRY["nhits"].group):
        missing = [place for place in places if place[0] in (*PLAIN, FLIGHTS)]
        out += [Default(*place, "ets", 0) for place in missing if place[1] == FIXED]  # refits at every origin
        out += [Default(*place, "nhits", 0) for place in missing]
    for seed in seeds:
        for method in (FITTED, *TRAINED):
            out += sorted((Default(*place, method, seed) for place in places), key=lambda job: job.expected_seconds)
    return out


def _rules() -> dict[str, dict[str, Any]]:
    """Where each panel is forecast. Tourism's windows are those of the DeepState paper, as in the reproduction."""
    named = {name: {k: v for k, v in PROTOCOLS[name].items() if k in (FIXED, STREAMING)} for name in DATASETS}
    named["tourism_monthly"] = {FIXED: PROTOCOLS["tourism_monthly"]["deepstate"]}
    return {**named, **PLAIN, FLIGHTS: {FIXED: Protocol(1, settings={"h": 7}), STREAMING: DEMO}}


def task_of(dataset: str, protocol: str, series: int | None) -> Task:
    """Rows of a panel and where they are forecast."""
    rule = _rules()[dataset][protocol]
    if isinstance(rule, Protocol):
        return cut(dataset, read(dataset), rule, series)
    panel, (count, step) = PANELS[dataset], rule
    windows = windows_of(panel._replace(windows=count, step=step or panel.h), rolling=count > 1, series=series)
    settings = {"h": panel.h, "freq": panel.freq}
    return Task(windows.df, windows.past, None, settings, windows.count, windows.step, panel.season)


def forecasts(job: Default, task: Task) -> tuple[pd.DataFrame, str]:
    """Forecasts of all windows, and their name."""
    settings = told(task.settings)
    static = task.static if settings.get("stat_exog_list") else None
    if job.method == NAIVE:
        windows = Windows(task.df, task.train, task.windows, task.step)
        return seasonal_naive(windows, settings["h"], task.season), "naive"
    if job.method == LIGHTGBM:
        trees = Boosted(task.train, task.static, task.settings, task.season, job.seed)
        return trees.cross_validation(task.df, task.windows, task.step), "aru"
    if job.method in OTHERS:
        peer = REGISTRY[OTHERS[job.method]]
        known = {**task.settings, "hist_exog_list": []}  # other covariates cannot be told to peers
        windows = make_windows(task.df, static, known, task.windows, task.step, task.season)
        return run_peer(peer, windows, seed=job.seed, steps=job.steps or peer.steps).frame, peer.name
    steps = {"max_steps": job.steps} if job.steps else {}
    if job.method == ZERO_SHOT:
        model = Forecaster.from_pretrained("mini", **settings)
    elif job.method == FITTED:
        model = Forecaster(**settings, **steps, random_seed=job.seed).fit(task.train, static)
    else:
        named = {"model": job.method, "alias": "aru", "random_seed": job.seed}
        model = make(**settings, **named, **steps).fit(task.train, static)
    levels = sorted({*LEVELS, *FINE}) if job.dataset in COUNTS else LEVELS
    return model.cross_validation(task.df, task.windows, task.step, levels, True, static), "aru"


def coverage(frame: pd.DataFrame, name: str, counts: bool) -> dict[str, float]:
    """Share of values within the 80 % and 90 % intervals; of counts, of randomised ranks within .1 to .9 and so on."""
    frame = frame[frame.y.notna()]
    if f"{name}-lo-80" not in frame:
        return {}
    y = frame.y.to_numpy(np.float64)
    if not counts:
        ends = {level: (frame[f"{name}-lo-{level}"], frame[f"{name}-hi-{level}"]) for level in (80, 90)}
        return {f"coverage{level}": float(((low <= y) & (y <= high)).mean()) for level, (low, high) in ends.items()}
    sides = [(f"{name}-lo-{level}", 0.5 - level / 200) for level in reversed(FINE)]
    sides += [(f"{name}-hi-{level}", 0.5 + level / 200) for level in FINE]
    quantiles, levels = frame[[column for column, _ in sides]].to_numpy(np.float64), np.array([q for _, q in sides])

    def rank(value: np.ndarray) -> np.ndarray:
        below = (quantiles <= value[:, None]).sum(1)
        return np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2, [1.0]])[below]

    low, high = rank(y - 1), rank(y)
    at = low + np.random.default_rng(0).random(len(y)) * (high - low)
    return {f"coverage{level}": float((abs(at - 0.5) <= level / 200).mean()) for level in (80, 90)}
