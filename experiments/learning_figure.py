"""Figures of docs/learning.md: streams, and the first values."""

from __future__ import annotations

import numpy as np
import pandas as pd

from aru.demo.svg import Scale
from experiments.figures import chart, write
from experiments.first_values import PANELS
from experiments.learning import ALONE, COVARIATES, HINDSIGHT, START, STARTS, STREAMS
from experiments.learning_tables import NAIVE, OFF, TITLES, curve, nd

LINES = {
    "mini": "mini, with the panel",
    f"mini{ALONE}": "mini alone",
    "aru": "ARU, trained",
    "baseline": "baseline, trained",
    "lightgbm": "LightGBM",
    NAIVE: "seasonal naive",
}
COLOURS = {
    "mini": "#c2410c",
    "mini-alone": "#fb923c",
    "aru": "#7c3aed",
    "baseline": "#1d4ed8",
    "lightgbm": "#047857",
    "seasonal-naive": "#9ca3af",
    "frozen": "#64748b",
}
FIRST = 0.7  # where n = 0 is drawn on an axis of logarithms


def draw(rows: pd.DataFrame) -> None:
    """Both figures."""
    first_values(rows)
    streams(rows)


def first_values(rows: pd.DataFrame) -> None:
    """ND against the number of known values."""
    panels = []
    for dataset in PANELS:
        found = {method: curve(rows, dataset, method) for method in LINES}
        later = pd.concat([c[c.index > 0] for c in found.values()])
        high = 1.05 * float(later.max())  # without any value most methods are far off
        scales = Scale(FIRST, 60, log=True), Scale(0, high)
        picture = chart(*scales, TITLES[dataset], ("values known", "ND"), ("g", ".2g"))
        for method, points in reversed(found.items()):  # ours on top
            x, y = points.index.to_numpy(np.float64), points.to_numpy(np.float64)
            css = method.replace(" ", "-")
            picture.line(np.where(x == 0, FIRST, x), np.where(y > high, np.nan, y), css)
            picture.dots(np.where(x == 0, FIRST, x)[y <= high], y[y <= high], f"dot-{css}", 2.2)
        panels.append((TITLES[dataset], picture))
    legend = {method.replace(" ", "-"): words for method, words in LINES.items()}
    write("first-values", panels, 2, legend, COLOURS)


def streams(rows: pd.DataFrame) -> None:
    """ND of each quarter of the streams that begin with little history, adapting and frozen."""
    panels = []
    for dataset in STARTS:
        quarters = np.arange(1.0, 5.0)
        own = COVARIATES if (dataset, START) in STREAMS else HINDSIGHT
        lines = {"mini": ("mini", "", own), "frozen": ("mini", OFF, own), "mini-alone": ("mini", "alone", HINDSIGHT)}
        found = {
            css: np.array([nd(rows, dataset, START, method, variant, int(q), part) for q in quarters])
            for css, (method, variant, part) in lines.items()
        }
        known = np.concatenate(list(found.values()))
        if not np.isfinite(known).any():
            continue
        scales = Scale(0.8, 4.2), Scale(0, 1.15 * float(np.nanmax(known)))
        picture = chart(*scales, TITLES[dataset], ("quarter of the stream", "ND"), ("g", ".2g"))
        for css, values in reversed(found.items()):
            picture.line(quarters, values, css)
            picture.dots(quarters, values, f"dot-{css}", 2.6)
        panels.append((TITLES[dataset], picture))
    legend = {"mini": "mini, adapting", "frozen": "frozen at the first cutoff", "mini-alone": "the network alone"}
    write("learning-streams", panels, 2, legend, COLOURS)
