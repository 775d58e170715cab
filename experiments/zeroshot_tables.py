"""Tables of docs/pretrained.md, from the result files and the published figures alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from aru.pretrained.weights import FOLDER, full_name
from experiments.tables import RESULTS, table
from experiments.zeroshot import SIZES, TRAINED, weights_of

PUBLISHED = Path(__file__).with_name("published-zeroshot.csv")
OF_MASE = ("m1_yearly", "m1_quarterly", "m1_monthly", "tourism_monthly")
MEANS = {"mase": OF_MASE, "wql": (*OF_MASE, "car_parts")}
"""Panels of the geometric means. The published MASE of car_parts has another scale than ours."""
NAIVE = "seasonal-naive"
NAMES = {
    NAIVE: "seasonal naive",
    "auto-ets": "AutoETS",
    "auto-arima": "AutoARIMA",
    "auto-theta": "AutoTheta",
    "ttm-r2": "TTM-R2",
    "chronos-tiny": "Chronos tiny",
    "chronos-bolt-tiny": "Chronos-Bolt tiny",
    "chronos-bolt-mini": "Chronos-Bolt mini",
    "chronos-bolt-small": "Chronos-Bolt small",
    "chronos-bolt-base": "Chronos-Bolt base",
    "moirai-small": "Moirai small",
    "timesfm-2.0": "TimesFM 2.0",
    "tirex": "TiRex",
    "baseline": "baseline",
}
PARAMETERS = {
    "chronos-tiny": 8e6,
    "chronos-bolt-tiny": 9e6,
    "chronos-bolt-mini": 21e6,
    "chronos-bolt-small": 48e6,
    "chronos-bolt-base": 205e6,
    "moirai-small": 14e6,
    "timesfm-2.0": 500e6,
    "tirex": 35e6,
}
"""As their authors give them."""
BESIDE = (NAIVE, "auto-ets", "auto-arima", "chronos-bolt-tiny", "chronos-bolt-base", "timesfm-2.0", "tirex")
"""Published methods of the tables by panel."""
AIMS = {"nano": (0.85, 0.70), "mini": (0.82, 0.68), "base": (0.80, 0.65)}
M4_AIM, ENOUGH, WITHIN = 0.80, 500, (0.77, 0.83)


def read(path: Path | None = None) -> pd.DataFrame:
    """Our rows; those of other weights than the latest are left out."""
    rows = pd.read_csv(path or RESULTS / "zeroshot.csv", dtype={"weights": str}, keep_default_na=True)
    return rows[rows.weights.isna() | rows.weights.isin([weights_of(size) for size in SIZES])]


def published() -> pd.DataFrame:
    """Published figures: a row for each dataset and metric, a column for each method."""
    rows = pd.read_csv(PUBLISHED)
    return rows.assign(metric=rows.metric.str.lower()).pivot(
        index=["dataset", "metric"], columns="method", values="value"
    )


def value(rows: pd.DataFrame, experiment: str, dataset: str, method: str, column: str) -> float:
    """Mean over seeds; NaN where there is none."""
    found = rows[(rows.experiment == experiment) & (rows.dataset == dataset) & (rows.method == method)]
    return float(found[column].mean())


def means(rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Geometric mean of MASE and of WQL relative to seasonal naive, ours and published, best MASE first."""
    theirs, out = published(), {}
    for method in (m for m in theirs if m != NAIVE):
        ratios = ([theirs[method][d, m] / theirs[NAIVE][d, m] for d in MEANS[m]] for m in MEANS)
        out[method] = geometric(*ratios)
    for size in SIZES:
        ratios = ([ratio(rows, "last", d, size, m) for d in MEANS[m]] for m in MEANS)
        out[size] = geometric(*ratios)
    return dict(sorted(out.items(), key=lambda item: item[1]))


def ratio(rows: pd.DataFrame, experiment: str, dataset: str, method: str, column: str) -> float:
    """Relative to seasonal naive."""
    return value(rows, experiment, dataset, method, column) / value(rows, experiment, dataset, NAIVE, column)


def geometric(mase: Sequence[float], wql: Sequence[float]) -> tuple[float, float]:
    """Geometric means of both."""
    return float(np.exp(np.mean(np.log(mase)))), float(np.exp(np.mean(np.log(wql))))


def parameters() -> dict[str, float]:
    """Of every network whose number is known, ours from their cards."""
    ours = {s: float(json.loads((FOLDER / f"{full_name(s)}.json").read_text())["parameters"]) for s in SIZES}
    return {**ours, **PARAMETERS}


def mean_table(rows: pd.DataFrame) -> str:
    """All methods, best first."""
    known, lines = parameters(), []
    for method, (mase, wql) in means(rows).items():
        size = f"{known[method] / 1e6:.3g} M" if method in known else ""
        lines.append([_name(method), size, f"{mase:.3f}", f"{wql:.3f}"])
    return table(["relative to seasonal naive", "parameters", "MASE", "WQL"], lines)


def panel_table(rows: pd.DataFrame, metric: str) -> str:
    """Published figures and ours by panel, the last h values once."""
    theirs, lines, digits = published(), [], 3 if metric == "mase" else 4
    for dataset in (*MEANS["wql"], "m4_hourly"):
        ours = [value(rows, "last", dataset, size, metric) for size in SIZES]
        row = [theirs[method].get((dataset, metric), np.nan) for method in BESIDE] + ours
        if dataset == "car_parts" and metric == "mase":
            continue
        note = " *" if dataset == "m4_hourly" else ""
        lines.append([dataset + note, *(f"{v:.{digits}f}" if np.isfinite(v) else "" for v in row)])
    return table([metric.upper(), *(NAMES[m] for m in BESIDE), *(_name(s) for s in SIZES)], lines)


def further_table(rows: pd.DataFrame) -> str:
    """Hourly and daily panels and exchange rates: ratios to seasonal naive, once and over rolling windows."""
    lines = []
    for dataset in (*TRAINED, "exchange_rate"):
        for experiment in ("last", "rolling"):
            found = rows[(rows.experiment == experiment) & (rows.dataset == dataset) & (rows.method == NAIVE)].iloc[0]
            cells = []
            for method in ("baseline", *SIZES):
                both = [ratio(rows, experiment, dataset, method, m) for m in ("mase", "wql")]
                cells.append(f"{both[0]:.3f} / {both[1]:.3f}" if np.isfinite(both).all() else "")
            windows = f"{found.windows} x {found.h}"
            lines.append([dataset, windows, f"{found.series}", f"{found.mase:.3f} / {found.wql:.4f}", *cells])
    heads = [
        "MASE / WQL",
        "windows x h",
        "series",
        "seasonal naive",
        "baseline, trained here",
        *(_name(s) for s in SIZES),
    ]
    return table(heads, lines)


def coverage_table(rows: pd.DataFrame) -> str:
    """Share of values inside of 80 % intervals over rolling windows."""
    lines = []
    for dataset in rows[rows.experiment == "rolling"].dataset.unique():
        count = int(value(rows, "rolling", dataset, "nano", "forecasts"))
        shares = {s: value(rows, "rolling", dataset, s, "coverage80") for s in SIZES}
        good = {s: count < ENOUGH or _calibrated(v) for s, v in shares.items()}
        cells = [f"{100 * v:.1f}" if good[s] else f"**{100 * v:.1f}**" for s, v in shares.items()]
        wide = [f"{100 * value(rows, 'rolling', dataset, s, 'coverage95'):.1f}" for s in SIZES]
        lines.append([dataset, f"{count:,}", *cells, *wide])
    heads = ["values inside, %", "forecasts", *(f"{s}, 80 %" for s in SIZES), *(f"{s}, 95 %" for s in SIZES)]
    return table(heads, lines)


def single_table(rows: pd.DataFrame) -> str:
    """One short series at a time."""
    part = rows[rows.experiment == "single"]
    lines = []
    for dataset, words in (("hourly", "100 hourly values, 24 ahead"), ("monthly", "60 monthly values, 12 ahead")):
        draws = part[(part.dataset == dataset) & (part.method == NAIVE)].seed.nunique()
        cells = [f"{value(part, 'single', dataset, m, 'mase'):.3f}" for m in (NAIVE, "auto-ets", *SIZES)]
        lines.append([f"{words}, {draws} x 50 series", *cells])
    return table(["MASE", NAMES[NAIVE], "AutoETS", *(_name(s) for s in SIZES)], lines)


def goal_table(rows: pd.DataFrame) -> str:
    """What was aimed at, and what came of it."""
    found, lines = means(rows), []
    for size, aims in AIMS.items():
        said = " / ".join(f"{v:.3f}" for v in found[size])
        reached = all(v <= aim for v, aim in zip(found[size], aims, strict=True))
        lines.append([f"{size}: mean MASE / WQL at most {aims[0]:.2f} / {aims[1]:.2f}", said, met(reached)])
    m4 = {s: ratio(rows, "last", "m4_hourly", s, "mase") for s in SIZES}
    lines.append([f"MASE of m4_hourly at most {M4_AIM:.2f}", _each(m4), met(max(m4.values()) <= M4_AIM)])
    for other in (NAIVE, "baseline"):
        behind = _behind(rows, other)
        said = "; ".join(f"{size} on {', '.join(where)}" for size, where in behind.items() if where)
        goal = f"hourly and daily panels, once and rolling: ahead of {NAMES[other]} in MASE and WQL"
        lines.append([goal, f"behind: {said}" if said else "everywhere", met(not said)])
    missed = _off(rows)
    goal = f"80 % intervals cover 77 to 83 % where there are {ENOUGH} forecasts or more"
    said = "; ".join(f"{size} on {', '.join(where)}" for size, where in missed.items() if where)
    lines.append([goal, f"not: {said}" if said else "everywhere", met(not said)])
    for dataset in ("hourly", "monthly"):
        best = min(value(rows, "single", dataset, m, "mase") for m in (NAIVE, "auto-ets"))
        ours = {s: value(rows, "single", dataset, s, "mase") / best for s in SIZES}
        goal = f"one short {dataset} series: MASE below the better of seasonal naive and AutoETS (1)"
        lines.append([goal, _each(ours), met(max(ours.values()) < 1)])
    return table(["aim", "found", ""], lines)


def _behind(rows: pd.DataFrame, other: str) -> dict[str, list[str]]:
    """Where a size is no better than another method, by size."""
    out: dict[str, list[str]] = {}
    for size in SIZES:
        out[size] = []
        for dataset in TRAINED:
            for experiment, words in (("last", "once"), ("rolling", "rolling")):
                pairs = [[value(rows, experiment, dataset, m, k) for m in (size, other)] for k in ("mase", "wql")]
                if not all(ours < theirs for ours, theirs in pairs):
                    out[size].append(f"{dataset} ({words})")
    return out


def _off(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Panels with enough forecasts whose coverage is off, by size."""
    part = rows[(rows.experiment == "rolling") & (rows.forecasts >= ENOUGH)]
    return {s: [r.dataset for r in part[part.method == s].itertuples() if not _calibrated(r.coverage80)] for s in SIZES}


def _calibrated(share: float) -> bool:
    return WITHIN[0] <= share <= WITHIN[1]


def met(reached: bool) -> str:
    """In a table of aims."""
    return "met" if reached else "**missed**"


def _each(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {v:.3f}" for name, v in values.items())


def _name(method: str) -> str:
    return f"**{method}**" if method in SIZES else NAMES[method]


def results(rows: pd.DataFrame) -> str:
    """What the page shows."""
    return f"""![Accuracy against parameters and speed](figures/pretrained.svg)

The last h values of each series are forecast once; geometric means over the four panels of the next table (WQL: and
car_parts). Others as published in autogluon/fev, `chronos_zeroshot`; our seasonal naive gives the figures published
there. MASE is of the median; WQL is the mean weighted loss of the quantiles .1 to .9.

{mean_table(rows)}

By panel, h = 6, 8, 18, 24, 12 and 48:

{panel_table(rows, "mase")}

{panel_table(rows, "wql")}

\\* As published by the authors of Chronos, whose training had seen these series up to the last 48 values.

Hourly and daily panels, beside our `baseline` with default settings, trained on the rows before the first window, and
exchange rates, which are outside of all means. All but the first figures are relative to seasonal naive.

{further_table(rows)}

Coverage over the same windows, and over several windows of the panels above, up to the last row. Bold: off by more than
3 points with {ENOUGH} forecasts or more. Randomised PIT, because quantiles of counts are whole numbers.

{coverage_table(rows)}

One series at a time, stretches drawn from the panels. AutoETS is statsforecast's.

{single_table(rows)}

What was aimed at:

{goal_table(rows)}

{source(rows)}"""


def source(rows: pd.DataFrame) -> str:
    """Where the rows come from."""
    weights = ", ".join(sorted(rows.weights.dropna().unique()))
    return (
        f"`{rows.command.iloc[0]}`, commits {', '.join(sorted(rows.commit.unique()))}, "
        f"{', '.join(sorted(rows.hardware.unique()))}, {rows.date.max()}; weights {weights}."
    )
