"""Figures of docs/performance.md as SVG files, from the result files alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from aru.demo.svg import Chart, Scale
from experiments.figures import chart, write

NAMES = {
    "aru": "aru",
    "aru-zero-shot": "aru, zero-shot",
    "aru-rnn": "aru-rnn",
    "baseline": "baseline",
    "seasonal-naive": "seasonal naive",
    "snarimax": "River SNARIMAX",
    "auto-ets": "statsforecast AutoETS",
    "lightgbm": "mlforecast LightGBM",
    "nhits": "neuralforecast NHITS",
}
COLOURS = {
    "aru": "#c2410c",
    "aru-zero-shot": "#ea9a5b",
    "aru-rnn": "#0891b2",
    "baseline": "#1d4ed8",
    "seasonal-naive": "#64748b",
    "snarimax": "#047857",
    "auto-ets": "#b45309",
    "lightgbm": "#7c3aed",
    "nhits": "#be185d",
}
RADII = (3.0, 5.0, 7.0)
MICROSECONDS = "microseconds per observation"


def nd(found: dict[str, Any]) -> float:
    """The error of the largest number of series for which nobody's was left out or repeats a series."""
    return float(next(size["nd"] for size in found["sizes"] if size["series"] == 1_000))


def cost(results: dict[str, Any]) -> None:
    """Error against cost per observation: a line per method, a dot per number of series."""
    found = results["found"]
    costs = [size["us"] for method in found for size in method["sizes"]]
    errors = [nd(method) for method in found]
    x = Scale(10.0 ** np.floor(np.log10(min(costs))), 20 * max(costs), log=True)
    room = 0.08 * (max(errors) - min(errors))
    y = Scale(min(errors) - room, max(errors) + room)
    sizes = ", ".join(f"{n:,}" for n in [size["series"] for size in found[0]["sizes"]])
    title = f"Error against cost: small, medium and large dots for {sizes} series; hollow: extrapolated"
    picture = chart(x, y, title, (MICROSECONDS, "ND, lower is better"), (",.7g", ".3g"), (920, 380))
    labels = apart(errors, 15 * (y.high - y.low) / (picture.bottom - picture.top))
    for method, error, label in zip(found, errors, labels, strict=True):
        css = method["method"]
        us = np.array([size["us"] for size in method["sizes"]])
        picture.line(us, np.full(len(us), error), f"thin {css}")
        for size, radius in zip(method["sizes"], RADII, strict=False):
            hollow = size["timed"] < size["series"]
            picture.dots(np.array([size["us"]]), np.array([error]), f"hollow {css}" if hollow else f"dot-{css}", radius)
        picture.note(float(us.max()), label, NAMES[css], f"dot-{css}")
    write("cost", [(title, picture)], 1, {}, COLOURS)


def apart(values: Sequence[float], least: float) -> list[float]:
    """The values, moved upwards until no two are closer than `least`."""
    out = list(values)
    for before, at in itertools.pairwise(sorted(range(len(out)), key=out.__getitem__)):
        out[at] = max(out[at], out[before] + least)
    return out


def growth(results: dict[str, Any]) -> None:
    """Cost on the left, memory on the right; history, series and dimension from top to bottom."""
    past, series, dim = "observations of each series so far", "number of series", "dimension of the local fit"
    state, resident = "bytes of a series' state", "resident MB of the process"
    history, many, dims = results["history"], results["series"], results["dimension"]
    panels = [
        ("Cost against history", _line(history, "observations", "us", (past, MICROSECONDS))),
        ("Memory against history", _line(history, "observations", "state_bytes", (past, state))),
        ("Cost against series", _line(many, "series", "us", (series, MICROSECONDS), log_y=True)),
        ("Memory against series", _line(many, "series", "resident_mb", (series, resident), log_y=True)),
        ("Cost against dimension", _line(dims, "dim", "us", (dim, MICROSECONDS), log_x=False)),
        ("Memory against dimension", _line(dims, "dim", "state_bytes", (dim, state), log_x=False)),
    ]
    write("growth", panels, 2, {}, COLOURS)


def _line(
    rows: Sequence[dict[str, Any]],
    x: str,
    y: str,
    titles: tuple[str, str],
    log_x: bool = True,
    log_y: bool = False,
) -> Chart:
    across, up = (np.array([row[name] for row in rows], dtype=np.float64) for name in (x, y))
    ends = (across[0] / 1.5, across[-1] * 2) if log_x else (0.0, across[-1] * 1.05)
    low = 10.0 ** np.floor(np.log10(up.min())) if log_y else 0.0
    scales = Scale(*ends, log=log_x), Scale(low, up.max() * (2 if log_y else 1.25), log=log_y)
    picture = chart(*scales, f"{titles[1]} against {titles[0]}", titles, (",.7g", ",.7g"))
    css = "aru" if y == "us" else "baseline"
    picture.line(across, up, css)
    picture.dots(across, up, f"dot-{css}", 3.0)
    return picture
