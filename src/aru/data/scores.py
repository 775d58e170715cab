"""Scores of a frame that holds forecasts and actual values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aru.data.columns import as_frame, require_columns


def scores(frame: Any, name: str, level: float | None = None) -> Mapping[str, float]:
    """ND of the median and RMSE of the mean, pooled over all series and steps with a known y.

    With `level` also the coverage and mean width (relative to mean |y|) of that central interval.
    """
    # Not by utilsforecast, which averages the scores of series, so that small series weigh as much as large ones.
    data = as_frame(frame, "frame")
    needed = ["y", name, f"{name}-median"] + ([f"{name}-lo-{level:g}", f"{name}-hi-{level:g}"] if level else [])
    require_columns(data, needed, "frame")
    columns = {c: np.asarray(data[c].to_numpy(), dtype=np.float64) for c in needed}
    known = ~np.isnan(columns["y"])
    y = columns["y"][known]
    mean, median = columns[name][known], columns[f"{name}-median"][known]
    size = float(np.abs(y).sum())
    out = {
        "nd": float(np.abs(y - median).sum() / size) if size else float("nan"),
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "values": float(len(y)),
    }
    if level:
        low, high = columns[f"{name}-lo-{level:g}"][known], columns[f"{name}-hi-{level:g}"][known]
        out["coverage"] = float(np.mean((low <= y) & (y <= high)))
        out["width"] = float((high - low).sum() / size) if size else float("nan")
    return out
