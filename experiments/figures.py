"""Figures of docs/reproduction.md as SVG files, from the result files alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aru.datasets import DESCRIPTIONS
from aru.demo.svg import Chart, Margins, Scale
from experiments.curves import curves as all_curves
from experiments.runner import settings_by_entry
from experiments.tables import RESULTS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
WIDTH, HEIGHT, HEAD, LEGEND = 460, 260, 22, 28
COLOURS = {
    "aru": "#c2410c",
    "baseline": "#1d4ed8",
    "aru-control": "#64748b",
    "deepstate": "#047857",
    "aru-generated": "#7c3aed",
    "frozen": "#d97706",
    "auto": "#db2777",
    "truth": "#111827",
}
MARKS = (
    "svg{font:12px system-ui,sans-serif;fill:#374151}.paper{fill:#fff}.title{font-weight:600;fill:#111827}"
    ".rule{stroke:#e5e7eb;stroke-width:1}polyline{fill:none;stroke-width:2;stroke-linejoin:round}"
    ".area{fill:#c2410c;opacity:.15}.origin{fill:#9ca3af;opacity:.8}.ideal{stroke:#9ca3af;stroke-dasharray:4 4}"
    ".thin{stroke-width:1.2;opacity:.6}.hollow{fill:#fff;stroke-width:2}"
)
Panel = tuple[str, Chart]


def write(
    name: str,
    panels: list[Panel],
    columns: int,
    legend: Mapping[str, str],
    colours: Mapping[str, str] = COLOURS,
) -> None:
    """Panels of one size in rows, under one legend if there is any."""
    wide, high = panels[0][1].width, panels[0][1].height
    rows, top = -(-len(panels) // columns), LEGEND if legend else 0
    width, height = columns * wide, top + rows * (HEAD + high)
    parts = [f'<rect class="paper" width="{width}" height="{height}"/>']
    at = 12.0
    for css, text in legend.items():
        parts.append(f'<line class="{css}" x1="{at}" y1="14" x2="{at + 22}" y2="14" stroke-width="3"/>')
        parts.append(f'<text x="{at + 28}" y="18">{escape(text)}</text>')
        at += 44 + 7.0 * len(text)
    for i, (title, chart) in enumerate(panels):
        x, y = wide * (i % columns), top + (HEAD + high) * (i // columns)
        parts.append(f'<text class="title" x="{x + 12}" y="{y + 16}">{escape(title)}</text>')
        inner = chart.render().replace("<svg ", f'<svg x="{x}" y="{y + HEAD}" width="{wide}" height="{high}" ', 1)
        parts.append(inner)
    style = "".join(f".{k}{{stroke:{c}}}.dot-{k}{{fill:{c}}}" for k, c in colours.items())
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"<style>{MARKS}{style}</style>{''.join(parts)}</svg>\n"
    )


def chart(
    x: Scale,
    y: Scale,
    label: str,
    titles: tuple[str, str],
    specs: tuple[str, str] = ("g", "g"),
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Chart:
    """An empty panel with axes."""
    picture = Chart(size, x, y, label, Margins(top=20, bottom=44, left=52))
    picture.y_axis(specs[1], titles[1])
    picture.x_axis(specs[0], titles[0])
    return picture


def mean_line(picture: Chart, part: pd.DataFrame, value: str, css: str, dots: bool = True) -> None:
    """Mean over seeds against x."""
    means = part.groupby("x")[value].mean()
    x, y = means.index.to_numpy(np.float64), means.to_numpy(np.float64)
    picture.line(x, y, css)
    if dots:
        picture.dots(x, y, f"dot-{css.split()[-1]}", 2.2)


def read_curves() -> pd.DataFrame:
    """All points that count."""
    numbers = ("nd", "rmse", "coverage90", "width90")
    rows = pd.read_csv(RESULTS / "curves.csv", keep_default_na=False, na_values={c: [""] for c in numbers})
    return rows[current(rows)]


def current(rows: pd.DataFrame) -> pd.Series:
    """Which points count: those of the configurations that validation chooses."""
    expected = settings_by_entry(all_curves([0]))
    keys = zip(rows.experiment, rows.dataset, rows.method, rows.variant, strict=True)
    return pd.Series([expected.get(key) for key in keys], rows.index) == rows.settings


def synthetic(curves: pd.DataFrame) -> None:
    """RMSE against length: gamma by column, with and without id by row; one figure per level of noise."""
    runs = curves[curves.experiment == "synthetic"].copy()
    for part in ("gamma", "id", "noise"):
        runs[part] = runs.variant.str.extract(rf"{part}=([^,]+)")
    methods = {"aru": "ARU", "deepstate": "DeepState", "aru-generated": "generated parameters"}
    for noise, cases in runs.groupby("noise"):
        panels = []
        for series_id in ("yes", "no"):
            for gamma in ("20", "1"):
                part = cases[(cases.id == series_id) & (cases.gamma == gamma)]
                if part.empty:
                    continue
                low = 0.8 * min(float(noise), float(cases.rmse.min()))
                high = 1.3 * float(cases[cases.gamma == gamma].rmse.max())
                title = f"gamma = {gamma}, {'with' if series_id == 'yes' else 'without'} series id, noise {noise}"
                picture = chart(Scale(45, 3300, log=True), Scale(low, high, log=True), title, ("length", "RMSE"))
                picture.line(np.array([45.0, 3300.0]), np.full(2, float(noise)), "ideal")
                for method in methods:
                    mean_line(picture, part[part.method == method], "rmse", method)
                panels.append((title, picture))
        name = "synthetic" if noise == "1" else "synthetic-code-noise"
        write(name, panels, 2, {**methods, "ideal": "noise: no forecast is better"})


def cold_start(curves: pd.DataFrame) -> None:
    """ND against the number of values observed."""
    runs = curves[(curves.experiment == "cold-start") & (curves.x > 0)]
    panels = []
    lines = {
        "aru": ("aru", ""),
        "auto": ("aru", "scaler=auto"),
        "baseline": ("baseline", ""),
        "aru-control": ("aru-control", ""),
    }
    for dataset in sorted(runs.dataset.unique()):
        part = runs[runs.dataset == dataset]
        title = f"{DESCRIPTIONS[dataset].title}: shops that training never saw"
        high = 1.05 * float(part.groupby(["method", "variant", "x"]).nd.mean().max())
        picture = chart(Scale(0, 52), Scale(0, high), title, ("values observed", "ND"))
        for css, (method, variant) in lines.items():
            mean_line(picture, part[(part.method == method) & (part.variant == variant)], "nd", css)
        panels.append((title, picture))
    legend = {"aru": "ARU", "auto": "ARU, default scale", "baseline": "Baseline"}
    write("cold-start", panels, 2, {**legend, "aru-control": "ARU's layers, nothing local"})


def breaks(curves: pd.DataFrame) -> None:
    """ND of the next horizon against the rows observed since a break; thin: without a break."""
    runs = curves[(curves.experiment == "stream") & ~curves.case.str.startswith("calibration")]
    lines = {
        "frozen": ("aru", "", ", adapt=off"),
        "baseline": ("baseline", "", ""),
        "auto": ("aru", "scaler=auto", ""),
        "aru": ("aru", "", ""),
    }
    panels = []
    for dataset in sorted(runs.dataset.unique()):
        for kind, words in (("level", "level times 1.5"), ("pattern", "another pattern over the calendar")):
            part = runs[runs.dataset == dataset]
            shown = part[part.case.str.startswith(kind)]
            title = f"{DESCRIPTIONS[dataset].title}: {words}"
            high = 1.05 * float(shown.groupby(["method", "variant", "case", "x"]).nd.mean().max())
            picture = chart(Scale(0, float(part.x.max())), Scale(0, high), title, ("rows since the break", "ND"))
            for css, (method, variant, suffix) in lines.items():
                own = part[(part.method == method) & (part.variant == variant)]
                mean_line(picture, own[own.case == f"none{suffix}"], "nd", f"thin {css}", dots=False)
                mean_line(picture, own[own.case == f"{kind}{suffix}"], "nd", css)
            panels.append((title, picture))
    legend = {"aru": "ARU adapting", "auto": "ARU adapting, default scale", "frozen": "ARU frozen at the break"}
    write("break", panels, 2, {**legend, "baseline": "Baseline"})


def calibration(curves: pd.DataFrame) -> None:
    """Coverage against nominal level, and coverage of 90 % intervals along the stream."""
    runs = curves[(curves.experiment == "stream") & (curves.variant == "")]
    lines = {"aru": ("aru", ""), "frozen": ("aru", ", adapt=off"), "baseline": ("baseline", "")}
    panels = []
    for dataset in sorted(runs.dataset.unique()):
        part = runs[runs.dataset == dataset]
        title = f"{DESCRIPTIONS[dataset].title}: intervals"
        reliability = chart(Scale(0, 100), Scale(0, 1), title, ("nominal level, %", "coverage"))
        reliability.line(np.array([0.0, 100.0]), np.array([0.0, 1.0]), "ideal")
        stream = chart(Scale(0, float(part.x.max())), Scale(0.5, 1), title, ("rows into the stream", "coverage"))
        stream.line(np.array([0.0, float(part.x.max())]), np.array([0.9, 0.9]), "ideal")
        for css, (method, suffix) in lines.items():
            own = part[part.method == method]
            mean_line(reliability, own[own.case == f"calibration{suffix}"], "coverage90", css)
            mean_line(stream, own[own.case == f"none{suffix}"], "coverage90", css)
        panels += [(title, reliability), (f"{DESCRIPTIONS[dataset].title}: 90 % intervals over time", stream)]
    legend = {"aru": "ARU adapting", "frozen": "ARU frozen at the start", "baseline": "Baseline", "ideal": "ideal"}
    write("calibration", panels, 2, legend)


def anecdotes() -> None:
    """Four shops: what was sold, and what ARU and the baseline forecast."""
    rows = pd.read_csv(RESULTS / "forecasts.csv", dtype={"unique_id": str}, parse_dates=["ds"])
    panels = []
    for shop, part in rows.groupby("unique_id"):
        aru, base = (part[part.method == m].sort_values("ds") for m in ("aru", "baseline"))
        x = np.arange(len(aru), dtype=np.float64)
        ahead = aru["median"].notna().to_numpy()
        first = float(x[ahead][0]) - 0.5
        high = 1.05 * float(np.nanmax([aru.y.max(), aru.high.max(), base["median"].max()]))
        title = f"Shop {shop}"
        picture = chart(Scale(0, len(x) - 1), Scale(0, high), title, ("open days", "sales"), ("g", ",.0f"))
        picture.span(first - 0.08, first + 0.08, "origin")
        picture.band(x[ahead], aru.low.to_numpy()[ahead], aru.high.to_numpy()[ahead], "area")
        picture.line(x, aru.y.to_numpy(np.float64), "truth")
        picture.line(x, base["median"].to_numpy(np.float64), "baseline")
        picture.line(x, aru["median"].to_numpy(np.float64), "aru")
        panels.append((title, picture))
    write("anecdotes", panels, 2, {"truth": "sales", "aru": "ARU (band: 90 %)", "baseline": "Baseline"})


def draw_all() -> list[str]:
    """Every figure whose results are there; their names."""
    drawn: list[str] = []
    figures: list[tuple[str, Callable[..., Any], str]] = [
        ("synthetic", synthetic, "synthetic"),
        ("cold-start", cold_start, "cold-start"),
        ("break", breaks, "stream"),
        ("calibration", calibration, "stream"),
    ]
    if (RESULTS / "curves.csv").exists():
        curves = read_curves()
        for name, draw, experiment in figures:
            if (curves.experiment == experiment).any():
                draw(curves)
                drawn.append(name)
    if (RESULTS / "forecasts.csv").exists():
        anecdotes()
        drawn.append("anecdotes")
    return drawn
