"""Figure of docs/choosing.md: what each method costs, and how accurate it is, with the defaults."""

from __future__ import annotations

import numpy as np
import pandas as pd

from aru.demo.svg import Scale
from experiments.defaults import FITTED, NAIVE, ZERO_SHOT
from experiments.defaults_tables import COLUMNS, OURS, on_gpu, wide
from experiments.figures import chart, write

COLOURS = {"ours": "#c2410c", "others": "#475569"}
TIMED = (NAIVE, "lightgbm", *OURS)
MOST = 0.5  # share of the panels that a method must have to be shown
SIZE = (560, 330)


def points(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Median seconds and geometric mean of the relative ND, over the panels that all of the methods have."""
    nd, seconds = wide(rows, "nd"), wide(rows, "seconds")
    shown = [m for m in TIMED if m in nd and (nd[m].notna() & seconds[m].notna()).mean() >= MOST]
    both = (nd[shown].notna() & seconds[shown].notna()).all(axis=1)
    relative = np.exp(np.log(nd.loc[both, shown].div(nd.loc[both, NAIVE], axis=0)).mean())
    return pd.DataFrame({"seconds": seconds.loc[both, shown].median(), "nd": relative}), int(both.sum())


def draw(rows: pd.DataFrame) -> None:
    """Write choosing.svg."""
    found, panels = points(rows)
    x = Scale(found.seconds.min() / 3, found.seconds.max() * 8, log=True)
    y = Scale(found.nd.min() - 0.05, found.nd.max() + 0.05)
    gpu = on_gpu(rows)
    title = f"Cost and accuracy with the defaults, {panels} panels"
    axes = ("median seconds for training and all forecasts, one CPU thread", "ND relative to seasonal naive")
    picture = chart(x, y, title, axes, (",g", ".2f"), SIZE)
    for method, row in found.iterrows():
        ours = method in (FITTED, ZERO_SHOT)
        css = "dot-ours" if ours else "dot-others"
        picture.dots(np.array([row.seconds]), np.array([row.nd]), css, 5)
        name = COLUMNS[str(method)].replace("*", "") + (" (GPU)" if method in gpu else "")
        picture.note(row.seconds * 1.15, row.nd, name, css)
    write("choosing", [(title, picture)], 1, {"ours": "the default model", "others": "others"}, COLOURS)
