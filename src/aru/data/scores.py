"""Scores of a frame of forecasts beside what came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aru.data.columns import as_frame, require_columns


def scores(frame: Any, name: str, level: float | None = None) -> Mapping[str, float]:
    """Accuracy pooled over all series and steps with a known y.

    ND is scored on the median and RMSE on the mean; with `level`, coverage and mean width (relative to mean |y|) of
    that central interval.
    """
    # By hand: utilsforecast scores each series and averages, which gives small series the weight of large ones.
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
