"""Results of the monitor as responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from aru.data.clock import Clock
from aru.serve import outgoing
from aru.serve.monitor import AccuracySums, Monitor

DRIFTING = 20  # drifting series in the overview
RECENT = 42  # rows of each drifting series
POINTS = 250  # points of the accuracy over time


def accuracy(sums: AccuracySums) -> dict[str, Any]:
    """Ratios of the sums; None where undefined."""
    errors = (sums.error, sums.global_error)
    nd, nd_global = outgoing.numbers([error / sums.size if sums.size else np.nan for error in errors])
    coverage = sums.covered / sums.scored if sums.scored else None
    return {"observations": sums.scored, "nd": nd, "nd_global": nd_global, "coverage_80": coverage}


def fleet(monitor: Monitor, window: int, datetime: Clock | None) -> dict[str, Any]:
    """The accuracy of all series, now and over time, and the series that drift most."""
    scored, improved, worsened = monitor.helped()
    drifting = monitor.drifting(DRIFTING)
    rings = monitor.rings([key for key, _, _ in drifting])
    return {
        "accuracy": accuracy(monitor.fleet()),
        "series_scored": scored,
        "series_improved": improved,
        "series_worsened": worsened,
        "timeline": rolling(monitor.timeline(), window, datetime),
        "drifting": [
            {
                "unique_id": key,
                "drift": drift,
                **accuracy(score),
                **{name: outgoing.numbers(rings[key][name][-RECENT:]) for name in ("y", "median")},
            }
            for key, drift, score in drifting
            if key in rings  # not forgotten since
        ],
    }


def rolling(timeline: Sequence[tuple[int, AccuracySums]], window: int, datetime: Clock | None) -> list[dict[str, Any]]:
    """The accuracy over the latest `window` times, at every time, or at POINTS of them."""
    if not timeline:
        return []
    every = -(-len(timeline) // POINTS)
    at = np.arange(len(timeline) - 1, -1, -every)[::-1]
    sums = np.array([AccuracySums()] * (window - 1) + [score for _, score in timeline], float)
    moving = sums[at[:, None] + np.arange(window)].sum(1)
    ds = outgoing.times([timeline[i][0] for i in at], datetime)
    rows = [accuracy(AccuracySums(int(n), *rest)) for n, *rest in moving.tolist()]
    return [{"ds": time, **row} for time, row in zip(ds, rows, strict=True)]


def history(ring: Any, datetime: Clock | None) -> list[dict[str, Any]]:
    """Kept rows, oldest first."""
    return outgoing.to_rows({name: ring[name] for name in cast(Any, ring.dtype).names}, datetime)
