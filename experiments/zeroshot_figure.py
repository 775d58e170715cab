"""Figure of docs/pretrained.md: accuracy against parameters and against forecasts per second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from aru.demo.svg import Chart, Scale
from experiments.figures import chart, write
from experiments.zeroshot import SIZES
from experiments.zeroshot_tables import NAMES, PARAMETERS, means, parameters

COLOURS = {"ours": "#c2410c", "published": "#475569"}
LINES = {"left": ("auto-arima",), "right": ("tirex", "chronos-bolt-base")}
"""Methods without a place on the axis below, as dashed lines."""
SIZE = (460, 330)
BESIDE = {  # pixels of a label from its place to the right of the dot, where it would meet another
    ("mase", "tirex"): (-4, 15),
    ("mase", "chronos-bolt-tiny"): (0, -3),
    ("mase", "chronos-bolt-mini"): (0, 3),
    ("wql", "chronos-bolt-tiny"): (0, -12),
    ("wql", "chronos-bolt-mini"): (-122, 11),
    ("wql", "chronos-bolt-small"): (-26, 17),
    ("wql", "chronos-bolt-base"): (0, 5),
}


def draw(rows: pd.DataFrame, speeds: Mapping[str, Any]) -> None:
    """Write pretrained.svg from our rows and the result of `benchmarks.pretrained`."""
    found, known = means(rows), parameters()
    per_second = {size["weights"].rpartition("-")[0]: size["forecasts_per_second"] for size in speeds["sizes"]}
    panels = []
    for i, metric in enumerate(("MASE", "WQL")):
        shown = [found[m][i] for m in (*SIZES, *PARAMETERS)]
        y = Scale(min(shown) - 0.03, max(shown) + 0.03)
        title = f"{metric} against parameters"
        left = chart(Scale(0.1, 9000, log=True), y, title, ("million parameters", _axis(metric)), (",g", ".2f"), SIZE)
        for method in LINES["left"]:
            _across(left, found[method][i], NAMES[method])
        for method in PARAMETERS:
            at = known[method] / 1e6, found[method][i]
            left.dots(np.array(at[:1]), np.array(at[1:]), "dot-published", 4)
            _label(left, at, NAMES[method], "dot-published", BESIDE.get((metric.lower(), method), (0, 0)))
        _ours(left, {s: (known[s] / 1e6, found[s][i]) for s in SIZES})
        panels.append((title, left))
        title = f"{metric} against speed on {speeds['machine']['cores']} CPU cores"
        fast = list(per_second.values())
        across = Scale(min(fast) / 3, max(fast) * 3, log=True)
        right = chart(
            across, y, title, ("forecasts per second, contexts of 1,024", _axis(metric)), (",.0f", ".2f"), SIZE
        )
        for method in LINES["right"]:
            _across(right, found[method][i], NAMES[method])
        _ours(right, {s: (per_second[s], found[s][i]) for s in SIZES})
        panels.append((title, right))
    legend = {
        "ours": "aru, pretrained",
        "published": "others, as published (dashed where they have no place on the axis)",
    }
    write("pretrained", panels, 2, legend, COLOURS)


def _axis(metric: str) -> str:
    return f"{metric} relative to seasonal naive, lower is better"


def _across(picture: Chart, y: float, name: str) -> None:
    """A dashed line over the whole width, named at its left end."""
    picture.line(np.array([picture.x.low, picture.x.high]), np.array([y, y]), "ideal")
    _label(picture, (picture.x.low, y), name, "dot-published", (-4, -9))


def _ours(picture: Chart, points: Mapping[str, tuple[float, float]]) -> None:
    x, y = (np.array(part) for part in zip(*points.values(), strict=True))
    picture.line(x, y, "ours")
    picture.dots(x, y, "dot-ours", 5)
    for name, at in points.items():
        _label(picture, at, name, "dot-ours", (-22, 17))


def _label(picture: Chart, at: tuple[float, float], text: str, css: str, moved: tuple[int, int]) -> None:
    """Words to the right of a point, moved by some pixels."""
    share = (picture.px(at[0]) + moved[0] - picture.left) / (picture.right - picture.left)
    scale = picture.x
    x = scale.low * (scale.high / scale.low) ** float(share)  # both axes below are logarithmic
    y = at[1] - moved[1] * (picture.y.high - picture.y.low) / (picture.bottom - picture.top)
    picture.note(x, y, text, css)
