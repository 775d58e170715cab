"""Pretrained networks on real panels, as a user runs them: `from_pretrained`, `update`, `predict`; nothing is trained.

last      the last h values of each series, once, which is the protocol of the published figures
rolling   several windows up to the end, by `cross_validation`
single    one series with 100 hourly or 60 monthly values, 50 times

Beside them: the seasonal naive forecast, on hourly and daily panels our baseline trained on the panel with default
settings (up to the first window), and for single series AutoETS (`python -m benchmarks.peers setup auto-ets`).
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from aru import Forecaster
from aru.pretrained.weights import VERSIONS, full_name
from experiments.make import make
from experiments.metrics import score
from experiments.panels import PANELS, Windows, seasonal_naive, windows_of
from experiments.provenance import hardware

SIZES = ("nano", "mini", "base")
TRAINED = ("m4_hourly", "etth1", "electricity_10", "gefcom2012", "nyc_flights")
"""Panels that a baseline is trained on."""
LEVELS = list(range(1, 100))
"""Central intervals in percent; their ends are the quantiles .005, .01 and so on."""
SINGLE = {
    "hourly": (("m4_hourly", "etth1", "electricity_10", "gefcom2012"), 100, 24),
    "monthly": (("m1_monthly", "tourism_monthly"), 60, 12),
}
"""Panels that single series are drawn from, values that each has, steps ahead."""
DRAWN = 50
DIGITS = {"mase": 5, "wql": 6, "coverage80": 4, "coverage95": 4}
KEY = ("experiment", "dataset", "method", "weights", "seed")
FIELDS = (
    *KEY, "h", "windows", "series", "forecasts", *DIGITS, "seconds", "commit", "hardware", "date", "command",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Trial:
    """A row that is to be computed."""

    experiment: str
    dataset: str
    method: str
    seed: int
    series: int | None = None  # for a quick look: the first few series only
    steps: int | None = None  # and other numbers of training steps

    KEY: ClassVar[tuple[str, ...]] = KEY  # with the weights: other weights are measured anew
    FIELDS: ClassVar[tuple[str, ...]] = FIELDS

    @property
    def weights(self) -> str:
        """Version of the weights and the beginning of their checksum."""
        return weights_of(self.method) if self.method in SIZES else ""

    @property
    def expected_seconds(self) -> float:
        """A rough guess."""
        return 300.0 if self.method == "baseline" else 60.0

    def compute(self) -> list[dict[str, Any]]:
        """Its row."""
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = single(self) if self.experiment == "single" else panel(self)
        return [
            {
                **{name: getattr(self, name) for name in KEY},
                **{k: round(v, DIGITS[k]) if k in DIGITS else v for k, v in found.items()},
                "seconds": round(time.perf_counter() - started, 1),
                "hardware": hardware(),
                "date": datetime.date.today().isoformat(),
                "command": "python -m experiments zeroshot",
            }
        ]


def weights_of(size: str) -> str:
    """Version of the latest weights of a size and the beginning of their checksum."""
    return f"{full_name(size)} {VERSIONS[full_name(size)][:8]}"


def zero_shots(seeds: Iterable[int]) -> list[Trial]:
    """All rows; trainings, of one seed, last. Single series are drawn once for each seed."""
    seeds = list(seeds)
    both = [(experiment, name) for experiment in ("last", "rolling") for name in PANELS]
    out = [Trial(*at, method, 0) for at in both for method in ("seasonal-naive", *SIZES)]
    methods = ("seasonal-naive", *SIZES, "auto-ets")
    out += [Trial("single", name, method, seed) for name in SINGLE for method in methods for seed in seeds]
    return out + [Trial(*at, "baseline", 0) for at in reversed(both) if at[1] in TRAINED]


def forget_other_weights(path: Path) -> None:
    """Remove the rows of weights that are no longer the latest."""
    if not path.exists():
        return
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows, fields = list(reader), list(reader.fieldnames or ())
    kept = [row for row in rows if row["weights"] in ("", *map(weights_of, SIZES))]
    if len(kept) < len(rows):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fields, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)


def panel(job: Trial) -> dict[str, Any]:
    """Scores of a method on a panel."""
    about = PANELS[job.dataset]
    windows = windows_of(about, job.experiment == "rolling", job.series)
    if job.method == "seasonal-naive":
        frame, name = seasonal_naive(windows, about.h, about.season), "naive"
    else:
        frame, name = forecasts(job, windows), "aru"
    return {
        "h": about.h,
        "windows": windows.count,
        "series": frame.unique_id.nunique(),
        "forecasts": len(frame) // about.h,
        **judged(frame, name, windows.past, about.season),
    }


def forecasts(job: Trial, windows: Windows) -> pd.DataFrame:
    """Forecasts of all windows, with the values that came."""
    about = PANELS[job.dataset]
    if job.method in SIZES:
        options = {"season_length": about.season_length, "hindsight": False}  # the network alone
        model = Forecaster.from_pretrained(job.method, h=about.h, freq=about.freq, **options)
        if windows.count == 1:
            model.update(windows.past)
    else:
        steps = {"max_steps": job.steps} if job.steps else {}
        named: dict[str, Any] = {"model": job.method, "alias": "aru", "random_seed": job.seed}
        model = make(h=about.h, freq=about.freq, **named, **steps).fit(windows.past)
    if windows.count > 1:
        return model.cross_validation(windows.df, windows.count, windows.step, LEVELS)
    return model.predict(level=LEVELS).merge(windows.df, on=["unique_id", "ds"], validate="one_to_one")


def judged(frame: pd.DataFrame, name: str, past: pd.DataFrame, season: int) -> dict[str, float]:
    """MASE, WQL of the quantiles .1 to .9, and the share of values inside of intervals where there are any.

    A point forecast is all of its quantiles, so that its WQL is its ND.
    """
    found = score(frame, name, past, season)
    out = {"mase": found["mase"], "wql": found.get("crps", found["nd"])}
    if f"{name}-lo-80" in frame:
        out |= {f"coverage{level}": coverage(frame[frame.y.notna()], name, level) for level in (80, 95)}
    return out


def coverage(frame: pd.DataFrame, name: str, level: float) -> float:
    """Share of the values inside of a central interval, by randomised PIT.

    A value that several quantiles are equal to, as those of counts are, spans a range of levels; it is inside by the
    share of that range which the interval has. `frame` has the quantiles of all of LEVELS.
    """
    y = frame.y.to_numpy(np.float64)[:, None]
    ends = [f"{name}-{side}-{p}" for side in ("lo", "hi") for p in LEVELS]
    quantiles = frame[[*ends, f"{name}-median"]].to_numpy(np.float64)
    count = quantiles.shape[1] + 1  # levels are 1 / count apart
    low, high = ((share.sum(1) + 0.5) / count for share in (quantiles < y, quantiles <= y))
    inside = np.minimum(high, 0.5 + level / 200) - np.maximum(low, 0.5 - level / 200)
    width = np.where(high > low, high - low, 1.0)
    return float(np.where(high > low, inside.clip(0) / width, inside >= 0).mean())


def draw(dataset: str, seed: int) -> pd.DataFrame:
    """Stretches of 50 series without missing values: series "00" to "49", the last steps of each to be forecast."""
    names, length, h = SINGLE[dataset]
    rng, frames = np.random.default_rng(seed), []
    series = {name: [rows for _, rows in PANELS[name].read().groupby("unique_id")] for name in names}
    while len(frames) < DRAWN:
        name = names[len(frames) % len(names)]
        rows = series[name][rng.integers(len(series[name]))].sort_values("ds")
        if len(rows) < length + h:
            continue
        begin = int(rng.integers(len(rows) - length - h + 1))
        rows = rows.iloc[begin : begin + length + h]
        y = rows.y.to_numpy()[:length]
        season = PANELS[name].season
        if rows.y.notna().all() and np.abs(y[season:] - y[:-season]).sum() > 0:
            frames.append(rows.assign(unique_id=f"{len(frames):02}"))
    return pd.concat(frames, ignore_index=True)


def single(job: Trial) -> dict[str, Any]:
    """Mean MASE over single series, each forecast by a forecaster that knows no other."""
    names, _, h = SINGLE[job.dataset]
    df, freq, season = draw(job.dataset, job.seed), PANELS[names[0]].freq, PANELS[names[0]].season
    windows = Windows(df, df[df.groupby("unique_id").cumcount(ascending=False) >= h], 1, h)
    if job.method == "seasonal-naive":
        frame, name = seasonal_naive(windows, h, season), "naive"
    elif job.method == "auto-ets":
        frame, name = auto_ets(df, h, freq, season), "auto-ets"
    else:
        model, parts = Forecaster.from_pretrained(job.method, h=h, freq=freq, hindsight=False), []
        for _, past in windows.past.groupby("unique_id"):
            alone = model.without_series()
            alone.update(past)
            parts.append(alone.predict())
        frame, name = pd.concat(parts).merge(df, on=["unique_id", "ds"], validate="one_to_one"), "aru"
    mase = score(frame, name, windows.past, season)["mase"]
    return {"h": h, "windows": 1, "series": DRAWN, "forecasts": DRAWN, "mase": mase}


def auto_ets(df: pd.DataFrame, h: int, freq: str | int, season: int) -> pd.DataFrame:
    """Forecasts of statsforecast's AutoETS, which fits each series for itself."""
    from benchmarks.peers.exchange import run_peer
    from benchmarks.peers.registry import PEERS
    from benchmarks.peers.task import make_task

    return run_peer(PEERS["auto-ets"], make_task(df, None, {"h": h, "freq": freq}, 1, h, season)).frame
