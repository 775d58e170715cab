"""Scores of a backtest on raw y, pooled over series and steps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from aru.data.scores import scores

LEVELS = [20, 40, 60, 80, 90]  # with the median: quantiles .1, .2 ... .9, and the 90 % interval


def score(frame: pd.DataFrame, name: str, train: pd.DataFrame, season: int) -> dict[str, float]:
    """ND of the median, RMSE of the mean, MASE of the median, and as far as the frame has intervals the rest.

    CRPS: the mean over the quantiles .1 to .9 of twice the quantile loss, relative to the sum of |y|.
    """
    frame = frame[frame.y.notna()]
    with_interval = f"{name}-lo-90" in frame
    basic = scores(frame, name, 90 if with_interval else None)
    y, median = frame.y.to_numpy(np.float64), frame[f"{name}-median"].to_numpy(np.float64)
    out = {"nd": basic["nd"], "rmse": basic["rmse"], "mase": mase(frame.unique_id, np.abs(y - median), train, season)}
    if with_interval:
        out |= {"coverage90": basic["coverage"], "width90": basic["width"]}
    quantiles = {0.5: median}
    for level in LEVELS[:-1]:
        for side, sign in (("lo", -1), ("hi", 1)):
            if f"{name}-{side}-{level}" in frame:
                quantiles[0.5 + sign * level / 200] = frame[f"{name}-{side}-{level}"].to_numpy(np.float64)
    if len(quantiles) > 1:
        out["crps"] = float(np.mean([2 * pinball(y, v, q).sum() for q, v in quantiles.items()]) / np.abs(y).sum())
    return out


def pinball(y: np.ndarray, forecast: np.ndarray, q: float) -> np.ndarray:
    """The loss whose minimum is the quantile q."""
    return np.maximum(q * (y - forecast), (q - 1) * (y - forecast))


def mase(ids: pd.Series, error: np.ndarray, train: pd.DataFrame, season: int) -> float:
    """Mean of errors in units of the seasonal naive error within each series' own training rows.

    Series without a seasonal difference, or whose differences are all zero, have no such unit and are left out.
    """
    differences = train.y.sub(train.groupby("unique_id").y.shift(season)).abs()
    unit = differences.groupby(train.unique_id).mean()
    unit = ids.map(unit[unit > 0]).to_numpy(np.float64)
    return float(np.nanmean(error / unit))
