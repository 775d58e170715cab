"""Zero-shot accuracy on real panels: validation windows to choose by, and the last rows as the report.

The report is the published protocol: the last h values of each series, once. Validation windows end before those h
values, so that nothing that was chosen has seen them. MASE is the mean over series (and windows) of the mean absolute
error of the median over the in-sample error of the seasonal naive forecast; WQL is the mean over the levels .1 to .9
of twice the pinball loss over the sum of absolute values. The windows "outlier" are those of validation, with one value
of each context moved by 50 standard deviations. The windows "origins" are like those of validation, fewer series at up
to 12 origins each: where all series of a panel meet the same weather, holidays or crises, coverage over two or three
origins says little.

    python -m pretraining.evaluate pretraining/weights/mini.safetensors
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from aru.pretrained.patches import LEVELS, MEDIAN, PatchNetwork
from pretraining.forecast import Forecast, forecaster

DECILES = [LEVELS.index(k / 10) for k in range(1, 10)]
COVERS = {"cover80": 0.1, "cover95": 0.025, "cover98": 0.01}
"""Central intervals by the level of their lower bound."""
KINDS = ("validation", "report", "outlier", "origins")
"""Kinds of windows."""
ORIGINS, THINNED = 12, 3
"""Origins of a series at least where "origins" are asked for, and of how many series of a large panel one is taken."""
PERIODS = {"told": lambda panel: panel.periods, "unknown": lambda _: (0, 0), "found": lambda _: None}
"""What a network is told: the periods of the frequency, nothing, or what is found in the series."""
MASE_AIM = ("m1_yearly", "m1_quarterly", "m1_monthly", "tourism_monthly")
WQL_AIM = (*MASE_AIM, "car_parts")
BEYOND = ("m4_hourly", "ETTh1", "electricity_10", "gefcom2012", "rossmann", "walmart")


class Panel(NamedTuple):
    """Where a panel lies and how it is judged.

    Attributes:
        file: Path below the data folder.
        h: Steps ahead.
        season: Season of the seasonal naive forecast and of the MASE.
        periods: Periods that a user's frequency implies, as the network is told them.
        windows: Validation windows of a series at most.
        step: Rows between the ends of two of them.
        least: Rows that the context of a validation window has at least.
        every: One series out of this many, to keep large panels cheap.
        whole: Whether the values are small whole numbers, whose coverage is that of rounded quantiles.
    """

    file: str
    h: int
    season: int
    periods: tuple[int, int]
    windows: int
    step: int
    least: int
    every: int = 1
    whole: bool = False


PANELS = {
    "m1_yearly": Panel("m1_yearly/data", 6, 1, (1, 0), 4, 2, 8),
    "m1_quarterly": Panel("m1_quarterly/data", 8, 4, (4, 0), 4, 3, 10),
    "m1_monthly": Panel("m1_monthly/data", 18, 12, (12, 0), 3, 7, 24),
    "tourism_monthly": Panel("tourism_monthly/data", 24, 12, (12, 0), 4, 11, 30),
    "car_parts": Panel("parts/data", 12, 12, (12, 0), 2, 5, 14, 2, True),
    "exchange_rate": Panel("exchange_rate/data", 30, 5, (5, 0), 20, 30, 100),
    "m4_hourly": Panel("m4_hourly/data", 48, 24, (24, 168), 3, 53, 200),
    "ETTh1": Panel("ett/ETTh1", 24, 24, (24, 168), 40, 127, 200),
    "electricity_10": Panel("electricity_10/data", 24, 24, (24, 168), 40, 127, 200),
    "gefcom2012": Panel("gefcom2012/data", 24, 24, (24, 168), 30, 631, 200),
    "rossmann": Panel("rossmann/data", 28, 7, (7, 365), 2, 31, 200, 4, True),
    "walmart": Panel("walmart/data", 13, 52, (52, 0), 2, 9, 60, 6),
}


class Windows(NamedTuple):
    """Contexts of any length, and the h values that follow each of them (NaN where missing)."""

    contexts: list[np.ndarray]
    futures: np.ndarray


def data_folder() -> Path:
    """Folder of the real panels: `ARU_DATA`, else `../shared/data` beside the checkout."""
    return Path(os.environ.get("ARU_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@cache
def series_of(name: str) -> list[np.ndarray]:
    """Values of every series of a panel, in the order of time.

    Missing rows of car_parts are zeros, and values of M1 have two decimals, as in the published copies of both.
    """
    panel = PANELS[name]
    frame = pd.read_parquet(data_folder() / f"{panel.file}.parquet")
    if "unique_id" not in frame:
        frame = frame.melt("ds", var_name="unique_id", value_name="y")
    if name == "car_parts":
        wide = frame.pivot(index="unique_id", columns="ds", values="y").fillna(0.0)
        return list(wide.to_numpy(np.float64))
    frame = frame.sort_values(["unique_id", "ds"])
    if name == "walmart":  # missing weeks are gaps, not absent time
        wide = frame.pivot(index="unique_id", columns="ds", values="y").to_numpy(np.float64)
        rows = [row[np.flatnonzero(np.isfinite(row))[0] :] for row in wide]
        return [row for row in rows if np.isfinite(row[-13:]).all() and len(row) >= 80]
    values = [group.y.to_numpy(np.float64) for _, group in frame.groupby("unique_id", sort=False)]
    return [v.round(2) for v in values] if name.startswith("m1_") else values


def windows_of(name: str, kind: str) -> Windows:
    """Windows of a panel: the last h rows for "report", windows before them for the other kinds."""
    if kind == "outlier":
        return with_outlier(windows_of(name, "validation"))
    panel, h = PANELS[name], PANELS[name].h
    if kind == "origins":
        every = panel.every * (THINNED if panel.every > 1 else 1)
        panel = panel._replace(windows=max(ORIGINS, panel.windows), every=every)
    contexts, futures = [], []
    for values in series_of(name)[:: 1 if kind == "report" else panel.every]:
        back = [0] if kind == "report" else [h + i * panel.step for i in range(panel.windows)]
        for end in (len(values) - b for b in back):
            future = values[end - h : end]
            if np.isfinite(future).any() and (kind == "report" or end - h >= panel.least):
                contexts.append(values[: end - h])
                futures.append(future)
    return Windows(contexts, np.stack(futures))


def with_outlier(windows: Windows, seed: int = 0) -> Windows:
    """The same windows, where one value of the context, at most 1,000 rows back, is off by 50 standard deviations."""
    rng, contexts = np.random.default_rng(seed), []
    for context in windows.contexts:
        values, back = context.copy(), rng.integers(2, max(3, min(1000, len(context))))
        values[-back] += rng.choice([-50, 50]) * np.nanstd(values[-1000:])
        contexts.append(values)
    return Windows(contexts, windows.futures)


def seasonal_naive(contexts: list[np.ndarray], h: int, season: int) -> np.ndarray:
    """Last observed season, repeated; missing values come from the season before."""
    out = np.empty((len(contexts), h))
    for i, values in enumerate(contexts):
        rows = pd.Series(values)
        filled = rows.groupby(np.arange(len(values))[::-1] % season).ffill().fillna(rows.ffill()).to_numpy()
        last = filled[-season:] if len(filled) >= season else np.full(season, filled[-1])
        out[i] = np.resize(last, h)
    return out


def scales_of(contexts: list[np.ndarray], season: int) -> np.ndarray:
    """In-sample mean absolute error of the seasonal naive forecast, NaN where it is not positive."""
    changes = [np.abs(c[season:] - c[:-season]) for c in contexts]
    means = [np.nanmean(change) if np.isfinite(change).any() else np.nan for change in changes]
    return np.where(np.asarray(means) > 0, means, np.nan)


def reached(quantiles: np.ndarray, values: np.ndarray, side: str) -> np.ndarray:
    """Level at which the quantile function arrives at a value ("left") or leaves it ("right"); 0 and 1 outside."""
    below = quantiles < values[..., None] if side == "left" else quantiles <= values[..., None]
    count = below.sum(-1)
    levels, high = np.asarray(LEVELS), np.clip(count, 1, len(LEVELS) - 1)[..., None]
    ends = [np.take_along_axis(quantiles, high - k, -1)[..., 0] for k in (1, 0)]
    share = (values - ends[0]) / np.where(ends[1] > ends[0], ends[1] - ends[0], 1)
    inner = levels[high[..., 0] - 1] + share * (levels[high[..., 0]] - levels[high[..., 0] - 1])
    return np.where(count == 0, 0.0, np.where(count == len(LEVELS), 1.0, inner))


def coverage(quantiles: np.ndarray, future: np.ndarray, tail: float, whole: bool = False) -> float:
    """Share of the values whose randomised PIT lies between `tail` and 1 - `tail`.

    A value at which several quantiles lie, or a whole number that quantiles are rounded to, spans a range of levels; it
    is inside by the share of that range.
    """
    known = np.isfinite(future)
    values, quantiles, half = future[known], quantiles[known], 0.5 * whole
    low = reached(quantiles, values - half, "left") * (values > 0 if whole else 1)
    high = reached(quantiles, values + half, "right")
    overlap = np.minimum(high, 1 - tail) - np.maximum(low, tail)
    return float(np.where(high > low, overlap.clip(0) / np.where(high > low, high - low, 1), overlap >= 0).mean())


def judge(quantiles: np.ndarray, windows: Windows, season: int, whole: bool = False) -> dict[str, float]:
    """MASE, WQL and the share of values inside central intervals."""
    future, known = windows.futures, np.isfinite(windows.futures)
    errors = np.where(known, np.abs(future - quantiles[..., MEDIAN]), np.nan)
    ratio = np.nanmean(errors, 1) / scales_of(windows.contexts, season)
    gap = np.where(known[..., None], future[..., None] - quantiles[..., DECILES], 0.0)
    levels = np.arange(1, 10) / 10
    pinball = 2 * np.maximum(levels * gap, (levels - 1) * gap).sum((0, 1)) / np.abs(future[known]).sum()
    covers = {name: coverage(quantiles, future, tail, whole) for name, tail in COVERS.items()}
    return {"MASE": float(np.nanmean(ratio)), "WQL": float(pinball.mean())} | covers


@cache
def naive_figures(name: str, kind: str) -> dict[str, float]:
    """Figures of the seasonal naive forecast, whose quantiles are one and the same value."""
    panel, windows = PANELS[name], windows_of(name, kind)
    values = seasonal_naive(windows.contexts, panel.h, panel.season)
    return judge(np.repeat(values[..., None], len(LEVELS), -1), windows, panel.season)


def evaluate(
    forecast: Forecast, kind: str, names: Sequence[str] = tuple(PANELS), periods: str = "told"
) -> dict[str, dict[str, float]]:
    """Figures per panel, each also relative to seasonal naive, and geometric means of the latter.

    "aim" is over the panels of the aims; "beyond" over the hourly, daily and weekly ones.
    """
    table: dict[str, dict[str, float]] = {}
    for name in names:
        panel, windows, clean = PANELS[name], windows_of(name, kind), "validation" if kind == "outlier" else kind
        quantiles = forecast(windows.contexts, panel.h, PERIODS[periods](panel))
        row = judge(quantiles, windows_of(name, clean), panel.season, panel.whole)
        naive = naive_figures(name, clean)
        table[name] = row | {f"r{m}": row[m] / naive[m] for m in ("MASE", "WQL")} | {"forecasts": len(windows.futures)}
    for group, of in (("aim", {"MASE": MASE_AIM, "WQL": WQL_AIM}), ("beyond", {"MASE": BEYOND, "WQL": BEYOND})):
        rows = {m: [table[n][f"r{m}"] for n in panels if n in table] for m, panels in of.items()}
        if all(rows.values()):
            table[group] = {f"r{m}": float(np.exp(np.mean(np.log(r)))) for m, r in rows.items()}
    return table


def short(table: dict[str, dict[str, float]]) -> str:
    """One line: per panel MASE and WQL relative to seasonal naive, and the coverage in percent."""
    parts = []
    for name, row in table.items():
        cover = f" {100 * row['cover80']:.0f}%" if "cover80" in row else ""
        parts.append(f"{name} {row['rMASE']:.3f}/{row['rWQL']:.3f}{cover}")
    return " | ".join(parts)


def say(*words: object) -> None:
    """A line for whoever watches."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print, and write if asked, the figures of weight files."""
    parser = argparse.ArgumentParser(prog="python -m pretraining.evaluate", description=__doc__.split("\n")[0])
    parser.add_argument("weights", type=Path, nargs="+", help="safetensors files")
    parser.add_argument("--periods", choices=PERIODS, default="told", help="what the networks are told")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args(arguments)
    figures = {}
    for path in options.weights:
        forecast = forecaster(PatchNetwork.load(path))
        figures[path.stem] = {kind: evaluate(forecast, kind, periods=options.periods) for kind in KINDS}
        for kind, table in figures[path.stem].items():
            say(path.stem, kind, short(table))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
