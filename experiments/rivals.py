"""Closed-form corrections of frozen zero-shot forecasts, on ETTh1 as in docs/adapt.md.

From the end of the first 60 % of the rows on, the network forecasts h rows from every row; the last 30 % are scored.
All else is learned as the truth arrives: a forecast for t + k issued at t teaches at t + k, not before.

    smoothed errors   the aged mean of past errors of the same lead is added
    ridge on errors   a ridge regression of the error of each lead on differences between recent values and the forecast
    adapter           `aru.Adapter`, default settings
    hindsight         what the library does by itself (`aru.pretrained.hindsight`), from the first row on
    linear            a linear forecaster of each series and lead: latest values, seasonal lags, levels, by ridge
    mixed, fixed      .3 of the linear forecast and .7 of the network's
    mixed, weights    weights of the two by their past squared errors, the mean of slow and fast ones (the idea of ELF)

Settings were chosen on the first 70 % of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru import Adapter, Forecaster
from experiments.adapt import BEFORE
from experiments.frozen import TRAIN, VALIDATION, load

HORIZONS = (24, 48)
EVERY = 24  # rows between two refits of a regression
DAYS = (24, 48, 72, 96, 120, 144, 168, 336, 504)  # lags of the linear forecaster, of the row that is forecast
LATEST, LEVELS, CENTRE = (0, 1, 2, 23), (24, 720, 2160), 168
RIDGE, SHARED = 100.0, 0.3  # penalty, and weight of the other series' rows
ERROR_RIDGE = 100.0  # in rows
SMOOTHING, SMOOTHING_ROWS = 0.9995, 30
SHARE = 0.3  # of the linear forecast
ETA, FAST = 5.0, 0.98
Array = np.ndarray


class Past(NamedTuple):
    """Values of all series (series, row), and forecasts (series, origin, lead) from rows `origins`."""

    y: Array
    origins: Array
    forecast: Array

    @property
    def truth(self) -> Array:
        """What came; NaN after the last row."""
        rows = self.origins[:, None] + 1 + np.arange(self.forecast.shape[2])
        return np.where(rows < self.y.shape[1], self.y[:, rows.clip(max=self.y.shape[1] - 1)], np.nan)

    def level(self, rows: int, at: Array) -> Array:
        """Mean of the latest rows."""
        total = np.concatenate([np.zeros((len(self.y), 1)), np.cumsum(self.y, 1)], 1)
        return (total[:, at + 1] - total[:, np.maximum(at + 1 - rows, 0)]) / np.minimum(at + 1, rows)


def corrections(size: str, h: int, series: int | None) -> Iterator[dict[str, Any]]:
    """Errors of the frozen network and of every correction."""
    df = load("etth1", development=False).df
    df = df[df.unique_id.isin(sorted(df.unique_id.unique())[:series])] if series else df
    frame = issued(df, size, h, hindsight=False)
    past = arrays(df, frame, h)
    first = int((TRAIN + VALIDATION) * past.y.shape[1]) - 1
    scored = (past.origins >= first) & (past.origins + h < past.y.shape[1])
    truth = past.truth[:, scored]
    straight = linear(past)
    forecasts = {
        "frozen": past.forecast,
        "smoothed errors": smoothed(past),
        "ridge on errors": error_ridge(past),
        "adapter": adapted(df, frame, past, h),
        "hindsight": arrays(df, issued(df, size, h, hindsight=True), h).forecast,
        "linear": straight,
        "mixed, fixed": past.forecast + SHARE * (straight - past.forecast),
        "mixed, weights": weighted(past, straight),
    }
    for name, values in forecasts.items():
        error = values[:, scored] - truth
        yield {
            "variant": name,
            "h": h,
            "series": len(past.y),
            "forecasts": error.shape[0] * error.shape[1],
            "mse": float(np.mean(error**2)),
            "nd": float(np.abs(error).sum() / np.abs(truth).sum()),
        }


def issued(df: pd.DataFrame, size: str, h: int, *, hindsight: bool) -> pd.DataFrame:
    """The mean from every row on, of the network alone or with hindsight."""
    rows = int(df.groupby("unique_id").size().iloc[0])
    model = Forecaster.from_pretrained(size, h=h, freq="h", hindsight=hindsight)
    return model.cross_validation(df, rows - h - int(TRAIN * rows) + 1, 1)[["unique_id", "ds", "cutoff", "aru"]]


def arrays(df: pd.DataFrame, frame: pd.DataFrame, h: int) -> Past:
    """Values and forecasts side by side."""
    wide = df.pivot(index="ds", columns="unique_id", values="y").sort_index()
    frame = frame.sort_values(["unique_id", "cutoff", "ds"])
    cutoffs = np.sort(frame.cutoff.unique())
    forecast = frame.aru.to_numpy(np.float64).reshape(wide.shape[1], len(cutoffs), h)
    return Past(wide.to_numpy(np.float64).T, wide.index.get_indexer(cutoffs), forecast)


def matured(values: Array, age: float) -> Array:
    """Aged sums over origins, of each lead, of what is known at every origin."""
    out, total = np.zeros_like(values), np.zeros_like(values[:, 0])
    lead = np.arange(values.shape[2])
    for i in range(values.shape[1]):
        origin = i - lead - 1
        total = age * total + np.where(origin >= 0, np.nan_to_num(values[:, origin.clip(0), lead]), 0.0)
        out[:, i] = total
    return out


def smoothed(past: Past) -> Array:
    """Forecasts and the aged mean of past errors."""
    errors = past.truth - past.forecast
    count = matured(np.ones_like(errors), SMOOTHING)
    return past.forecast + matured(errors, SMOOTHING) / (count + SMOOTHING_ROWS)


def regress(x: Array, y: Array, until: Array, ridge: Any, shared: float) -> Array:
    """Coefficients (series, at, k) of ridge regressions on the first `until` rows, refitted after whole days."""
    whole = x.shape[1] // EVERY * EVERY
    days = [v[:, :whole].reshape(len(x), -1, EVERY, *v.shape[2:]) for v in (x, y)]
    xx = np.cumsum(np.matmul(days[0].swapaxes(2, 3), days[0]), 1)
    xy = np.cumsum(np.matmul(days[0].swapaxes(2, 3), days[1][..., None]), 1)
    xx, xy = (v + shared * (v.sum(0) - v) for v in (xx, xy))
    unit = np.einsum("sdkk->sd", xx) / x.shape[2] / (np.arange(1, xx.shape[1] + 1) * EVERY)
    penalty = ridge(unit)[..., None, None] * np.eye(x.shape[2])
    theta = np.linalg.solve(xx + penalty, xy)[..., 0]
    day = until // EVERY - 1
    return np.where(day[None, :, None] >= 0, theta[:, day.clip(0)], 0.0)


def error_ridge(past: Past) -> Array:
    """Forecasts and regressions of their errors, lead by lead; each lead's rows overlap by as many."""
    out, at, errors = past.forecast.copy(), past.origins, past.truth - past.forecast
    levels = [past.level(rows, at) for rows in (24, 168, 720, 2016)]
    for k in range(1, out.shape[2] + 1):
        f = past.forecast[:, :, k - 1]
        back = at + k - EVERY * -(-k // EVERY)
        week = np.mean([past.y[:, back - EVERY * j] for j in range(7)], 0)
        now = past.y[:, at]
        x = [v - f for v in (now, past.y[:, back], week, *levels)]
        x += [now - past.y[:, at - 1], now - past.y[:, at - EVERY], np.full_like(f, 0.3)]
        stack = np.stack(x, -1)
        z = np.nan_to_num(errors[:, :, k - 1])
        theta = regress(stack, z, np.arange(len(at)) - k + 1, lambda unit, k=k: k * ERROR_RIDGE * unit, 0.0)
        out[:, :, k - 1] += (theta * stack).sum(-1)
    return out


def linear(past: Past) -> Array:
    """The linear forecaster, fitted from the first rows on."""
    out = np.empty_like(past.forecast)
    first = max(LEVELS)
    at = np.arange(first, past.y.shape[1])
    here = past.origins - first
    centre = past.level(CENTRE, at)
    fixed = [past.y[:, at - lag] - centre for lag in LATEST] + [past.level(rows, at) - centre for rows in LEVELS]
    fixed.append(np.full_like(centre, 0.3))
    for k in range(1, out.shape[2] + 1):
        lags = [at + k - lag * -(-k // lag) if k > lag else at + k - lag for lag in DAYS]
        x = np.stack([*fixed, *(past.y[:, rows] - centre for rows in lags)], -1)
        target = past.y[:, (at + k).clip(max=past.y.shape[1] - 1)] - centre
        theta = regress(x, target, here - k + 1, lambda unit: np.full_like(unit, RIDGE), SHARED)
        out[:, :, k - 1] = (theta * x[:, here]).sum(-1) + centre[:, here]
    return out


def weighted(past: Past, other: Array) -> Array:
    """Mixed by exponential weights of past squared errors, slow and fast."""
    share = np.zeros_like(other)
    for age in (1.0, FAST):
        own, theirs, count = (
            matured(v, age) for v in ((past.truth - past.forecast) ** 2, (past.truth - other) ** 2, np.ones_like(other))
        )
        better = (own - theirs) / np.maximum(own, 1e-9)
        share += 0.5 / (1 + np.exp(-ETA * np.where(count > 0, better, 0.0).clip(-10, 10)))
    return past.forecast + share * (other - past.forecast)


def adapted(df: pd.DataFrame, frame: pd.DataFrame, past: Past, h: int) -> Array:
    """What `Adapter` makes of the forecasts."""
    rows = past.y.shape[1]
    recent = df[df.groupby("unique_id").cumcount() >= int(TRAIN * rows) - BEFORE]
    out = Adapter(h, freq="h", season_length=24).cross_validation(frame, recent)
    return arrays(df, out, h).forecast
