"""How pretrained networks take a break or an outlier: `python -m experiments.breaks` writes rows, table and figure.

`python -m experiments.breaks outliers` measures these alone again.

From one row on every series is multiplied by 1.5 ("level"), or by factors of the weekday, in hourly data of the time
of day ("pattern"). ND of the next h rows, against that of the same values without a break: multiplied throughout. Both
are means over several breaks, of which each ends another history, a number of rows shorter. Or one value, 3 h rows
before the end, is replaced by a multiple of the series' mean ("outlier"): the share of series whose median, and whose
width, differ by more than 10 % from the forecast without it. All rows lie before those that the other experiments test.
"""

from __future__ import annotations

import itertools
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aru import Forecaster
from aru.data.scores import scores
from aru.datasets import DESCRIPTIONS, load
from aru.demo.svg import Scale
from experiments.curves import broken
from experiments.data import DATA
from experiments.figures import chart, write
from experiments.provenance import commit, hardware
from experiments.tables import table

RESULTS = Path(__file__).parent / "results" / "breaks.csv"
PAGE = Path(__file__).parents[1] / "docs" / "pretrained.md"
BEGIN, END = "<!-- breaks: begin (python -m experiments.breaks) -->", "<!-- breaks: end -->"
# Windows, rows between them, rows at the end that are left alone, most series, most rows of a series.
PANELS = {
    "rossmann": (13, 8, 32, 100, None),
    "gefcom2012": (15, 12, 168, 20, 2500),
    "nyc_flights": (9, 7, 56, 50, None),
}
# By how many rows each history is shorter: in hourly data breaks come at all times of day and days of the week.
SHORTER = {"rossmann": (0, 40, 100), "gefcom2012": tuple(range(0, 1500, 127)), "nyc_flights": (0, 17, 36, 61)}
SIZE = "mini"
OUTLIERS = (5.0, 20.0, -1.0, -20.0, 1e5)
NAME = "aru"
COLOURS = {"level": "#c2410c", "pattern": "#1d4ed8"}


def panel(name: str, shorter: int = 0) -> tuple[pd.DataFrame, Any]:
    """Some series of a dataset, without the rows that are left alone, and some more."""
    _, _, reserve, most, rows = PANELS[name]
    reserve += shorter
    df, _, about = load(name) if name == "nyc_flights" else load(name, DATA)
    age = df.groupby("unique_id").cumcount(ascending=False)
    df = df[(age >= reserve) & (age < (rows or len(df)) + reserve)]
    df = df[df.groupby("unique_id").y.transform("size") >= 200]
    ids = np.sort(df.unique_id.unique())
    return df[df.unique_id.isin(ids[:: max(1, len(ids) // most)][:most])].reset_index(drop=True), about


def forecaster(about: Any, covariates: bool) -> Forecaster:
    """A pretrained network, with the known covariates of the panel or without any."""
    futr = list(about.futr_exog_list) if covariates else []
    return Forecaster.from_pretrained(SIZE, h=about.h, freq=about.freq, futr_exog_list=futr)


def breaks(name: str, covariates: bool) -> Iterator[dict[str, Any]]:
    """ND of the rows after every origin, with a break and without."""
    windows, step, *_ = PANELS[name]
    for case in ("level", "pattern"):
        found = []
        for shorter in SHORTER[name]:
            df, about = panel(name, shorter)
            f = forecaster(about, covariates)
            after = df.groupby("unique_id").cumcount(ascending=False) < about.h + step * (windows - 1)
            found.append([_curve(f, broken(df, rows)[case], windows, step) for rows in (after, after | True)])
        for window, (nd, usual) in enumerate(np.mean(found, 0).T):
            yield {"case": case, "x": window * step / about.h, "value": nd, "usual": usual}


def _curve(f: Forecaster, df: pd.DataFrame, windows: int, step: int) -> list[float]:
    """ND of each window."""
    frame = f.cross_validation(df, windows, step, [90])
    order = frame.groupby("unique_id").cutoff.rank(method="dense").astype(int) - 1
    return [scores(part, NAME, 90)["nd"] for _, part in frame.groupby(order)]


def outliers(name: str, covariates: bool) -> Iterator[dict[str, Any]]:
    """Share of the series whose median or width is off by more than 10 %, 3 h rows after an outlier."""
    df, about = panel(name)
    h = about.h
    age = df.groupby("unique_id").cumcount(ascending=False)
    futr, past = df[age < h].drop(columns="y"), df[age >= h]
    size = past.groupby("unique_id").y.transform(lambda y: y.abs().mean())
    cases = {0.0: past}
    for factor in OUTLIERS:
        cases[factor] = past.assign(y=past.y.where(age[past.index] != 4 * h - 1, (factor * size).round()))
    ends = {factor: _end(forecaster(about, covariates), rows, futr, h) for factor, rows in cases.items()}
    usual = ends[0.0]
    for factor in OUTLIERS:
        median, width = (np.abs(a - b) for a, b in zip(ends[factor], usual, strict=True))
        # Counts are rounded: half a unit is no difference.
        yield {
            "case": "outlier",
            "x": factor,
            "value": float(np.mean(median > 0.1 * np.abs(usual[0]) + 0.5)),
            "usual": float(np.mean(width > 0.1 * usual[1] + 0.5)),
        }


def _end(f: Forecaster, past: pd.DataFrame, futr: pd.DataFrame, h: int) -> tuple[Any, Any]:
    """Mean over the next h rows of the median and of the width of each series."""
    f.update(past)
    needed = bool(f.settings.futr_exog_list) or f.settings.freq is None
    out = f.predict(futr if needed else None, level=[90]).sort_values(["unique_id", "ds"])
    width = out[f"{NAME}-hi-90"] - out[f"{NAME}-lo-90"]
    return tuple(v.to_numpy().reshape(-1, h).mean(1) for v in (out[f"{NAME}-median"], width))


def draw(rows: pd.DataFrame) -> None:
    """Write pretrained-break.svg: errors as multiples of the usual ones."""
    panels = []
    for name, covariates in itertools.product(PANELS, (False, True)):
        part = rows[(rows.dataset == name) & (rows.covariates == covariates)]
        title = f"{DESCRIPTIONS[name].title}, {'with' if covariates else 'without'} covariates"
        end = float(part[part.case == "level"].x.max())
        axes = ("rows since the break, in horizons", "ND / usual ND")
        one = chart(Scale(0, end), Scale(0.5, 8, log=True), title, axes, (".1f", ".1f"))
        one.line(np.array([0.0, end]), np.array([1.2, 1.2]), "ideal")
        for case in COLOURS:
            at = part[part.case == case]
            one.line(at.x.to_numpy(), (at.value / at.usual).to_numpy(), case)
        panels.append((title, one))
    legend = {"level": "level times 1.5", "pattern": "another pattern over the calendar", "ideal": "1.2"}
    write("pretrained-break", panels, 2, legend, COLOURS)


def break_table(rows: pd.DataFrame) -> str:
    """Errors as multiples of the usual ones."""
    cases = [("level", x) for x in (0.5, 1.0, 1.5, 2.0)] + [("pattern", x) for x in (1.0, 1.5, 2.0, 4.0)]
    names = [f"{case}, after {x:g} h" if i in (0, 4) else f"{x:g} h" for i, (case, x) in enumerate(cases)]
    lines = []
    for (name, covariates), part in rows.groupby(["dataset", "covariates"], sort=False):
        ratio = (part.value / part.usual).groupby([part.case, part.x]).first()
        title = f"{DESCRIPTIONS[name].title}{', covariates' if covariates else ''}"
        lines.append([title, *(f"{ratio[case]:.2f}" for case in cases)])
    return table(["ND / usual ND", *names], lines)


def main(cases: Sequence[str]) -> None:
    """Compute rows, and write the table and the figure. Rows of other cases stay as they are."""
    parts = {"breaks": breaks, "outliers": outliers}
    wanted = [parts[case] for case in cases or parts]
    rows = []
    for name in PANELS:
        for covariates in (False, True):
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [row for part in wanted for row in part(name, covariates)]
            end = {"seconds": round(time.perf_counter() - started, 1), "commit": commit(), "hardware": hardware()}
            rows += [{"dataset": name, "method": SIZE, "covariates": covariates, **row, **end} for row in found]
            print(name, covariates, end["seconds"], flush=True)
    found = pd.DataFrame(rows).round(5)
    if cases:
        kept = pd.read_csv(RESULTS)
        found = pd.concat([kept[~kept.case.isin(found.case.unique())], found], ignore_index=True)
    found.to_csv(RESULTS, index=False)
    draw(found)
    begin, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{begin}{BEGIN}\n{break_table(found)}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main(sys.argv[1:])
