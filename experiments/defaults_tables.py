"""Tables of docs/choosing.md, and those of README.md and of two more pages: every panel with the defaults."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.defaults import FITTED, FIXED, NAIVE, STREAMING, ZERO_SHOT
from experiments.peers import ALONE, UNSCALED
from experiments.tables import RESULTS, table

TITLES = {
    "rossmann": "Rossmann",
    "walmart": "Walmart",
    "gefcom2012": "GEFCom2012",
    "nyc_flights": "flights",
    "electricity_10": "Electricity, 10 clients",
    "etth1": "ETTh1",
    "m4_hourly": "M4 hourly",
    "tourism_monthly": "Tourism monthly",
    "parts": "Parts",
    "m1_monthly": "M1 monthly",
    "m1_quarterly": "M1 quarterly",
    "m1_yearly": "M1 yearly",
}
OTHERS = {"lightgbm": "LightGBM", "ets": "AutoETS", "nhits": "NHITS"}
OURS = {"baseline": "baseline", "aru-rnn": "aru-rnn", ZERO_SHOT: "aru, zero-shot", FITTED: "**aru**"}
TUNED = "aru-rnn, tuned"
COLUMNS = {NAIVE: "seasonal naive", **OTHERS, TUNED: "aru-rnn, chosen for each", **OURS}
NUMBERS = ("nd", "rmse", "mase", "crps", "coverage90")
SURE = 500  # forecasts from which on coverage is judged
RIVALS = (NAIVE, *OTHERS)
M1 = ("m1_monthly", "m1_quarterly", "m1_yearly")
LIMITS = (  # what was aimed at with the defaults
    ("rossmann", FIXED, "nd", 0.073),
    ("rossmann", STREAMING, "nd", 0.077),
    ("walmart", FIXED, "nd", 0.079),
    ("walmart", STREAMING, "nd", 0.083),
    ("tourism_monthly", FIXED, "nd", 0.090),
    ("m4_hourly", FIXED, "nd", 0.029),
    ("gefcom2012", STREAMING, "nd", 0.045),
    ("electricity_10", STREAMING, "nd", 0.100),
    ("parts", FIXED, "rmse", 1.23),
)
M1_LIMITS = (("mase", "mase", "MASE", 0.78), ("crps", "nd", "WQL", 0.62))  # relative to this of seasonal naive
COVERED = (0.87, 0.93)  # by 90 % intervals


def read() -> pd.DataFrame:
    """Rows with the defaults, and those of others and of chosen configurations on the same windows."""
    own = pd.read_csv(RESULTS / "defaults.csv")
    runs = pd.read_csv(RESULTS / "runs.csv", keep_default_na=False, na_values={c: [""] for c in NUMBERS})
    alone = (runs.method == "nhits") & runs.dataset.isin(UNSCALED)  # does not stand the covariates there
    runs = runs[(runs.variant == np.where(alone, ALONE, "")) & runs.method.isin([*OTHERS, "aru"])]
    runs["protocol"] = runs.protocol.where(runs.dataset != "tourism_monthly", FIXED)
    runs["method"] = runs.method.replace("aru", TUNED)
    place = ["dataset", "protocol"]
    runs = runs[runs.set_index(place).index.isin(own.set_index(place).index)]
    entry = [*place, "method"]
    both = pd.concat([own, runs[~runs.set_index(entry).index.isin(own.set_index(entry).index)]], ignore_index=True)
    return both[both.protocol.isin([FIXED, STREAMING])]


def places(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Panels and protocols in the order of the tables."""
    known = set(zip(rows.dataset, rows.protocol, strict=True))
    return [(d, p) for d in TITLES for p in (FIXED, STREAMING) if (d, p) in known]


def wide(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Means over seeds: a row for each panel, a column for each method."""
    found = rows.pivot_table(index=["dataset", "protocol"], columns="method", values=metric, aggfunc="mean")
    columns = [method for method in COLUMNS if method in set(rows.method)]
    return found.reindex(index=pd.MultiIndex.from_tuples(places(rows)), columns=columns)


def nd_table(rows: pd.DataFrame) -> str:
    """ND of the median, the best in bold."""
    found = wide(rows, "nd")
    out = []
    for (dataset, protocol), row in found.iterrows():
        cells = ["" if np.isnan(v) else f"**{v:.4f}**" if v == row.min() else f"{v:.4f}" for v in row]
        out.append([f"{TITLES[str(dataset)]}, {protocol}", *cells])
    return table(["ND", *(COLUMNS[method] for method in found.columns)], out)


UNLIKE = ("panels", "ND of **aru**, relative to it")  # columns that are needed where methods have other panels


def summary_table(rows: pd.DataFrame, without: Sequence[str] = ()) -> str:
    """Geometric means relative to seasonal naive, ranks and seconds, over the panels that a method has.

    Columns of the names in `without` are left out.
    """
    nd, mase, wql, seconds = (wide(rows, metric) for metric in ("nd", "mase", "crps", "seconds"))
    rank = nd.rank(axis=1)
    out = []
    for method in nd.columns.drop(NAIVE):

        def mean(values: pd.DataFrame, others: pd.DataFrame, column: str = method, base: str = NAIVE) -> str:
            ratio = (values[column] / others[base]).dropna()
            return f"{np.exp(np.log(ratio).mean()):.3f}" if len(ratio) else ""

        known = nd[method].notna()
        typical = seconds.loc[known, method]
        ahead = "" if method == FITTED else mean(nd[[FITTED]].rename(columns={FITTED: method}), nd, base=method)
        out.append(
            [
                COLUMNS[method],
                str(int(known.sum())),
                mean(nd, nd),
                mean(mase, mase),
                mean(wql, nd),
                ahead,
                f"{rank.loc[known, method].mean():.1f}" if known.any() else "",
                f"{typical.median():.0f}" if method in OURS or method == "lightgbm" else "",
            ]
        )
    heads = [
        "relative to seasonal naive",
        "panels",
        "ND",
        "MASE",
        "WQL",
        "ND of **aru**, relative to it",
        "mean rank",
        "median seconds",
    ]
    kept = [at for at, head in enumerate(heads) if head not in without]
    return table([heads[at] for at in kept], [[row[at] for at in kept] for row in out])


def coverage_table(rows: pd.DataFrame) -> str:
    """Coverage of 80 % and 90 % intervals, where there are enough forecasts."""
    out = []
    for dataset, protocol in places(rows):
        row, count = [f"{TITLES[dataset]}, {protocol}"], 0
        for method in (ZERO_SHOT, FITTED):
            part = rows[(rows.dataset == dataset) & (rows.protocol == protocol) & (rows.method == method)]
            count = max(count, int(part.forecasts.max() if len(part) else 0))
            row += [f"{100 * part[f'coverage{level}'].mean():.1f}" if len(part) else "" for level in (80, 90)]
        if count >= SURE:
            out.append([row[0], f"{count:,}", *row[1:]])
    return table(["coverage", "forecasts", "zero-shot, 80 %", "90 %", "**aru**, 80 %", "90 %"], out)


def aims_table(rows: pd.DataFrame) -> str:
    """What was aimed at, what was found, and whether that is enough."""
    nd, mase, wql, rmse, covered = (wide(rows, metric) for metric in ("nd", "mase", "crps", "rmse", "coverage90"))
    found_in = {"nd": nd, "mase": mase, "crps": wql, "rmse": rmse}
    out = []

    def add(aim: str, found: str, met: bool) -> None:
        out.append([aim, found, "met" if met else "**missed**"])

    for dataset, protocol, metric, limit in LIMITS:
        value = found_in[metric].loc[(dataset, protocol), FITTED]
        add(f"{TITLES[dataset]}, {protocol}: {metric.upper()} at most {limit}", f"{value:.4f}", value <= limit)
    parts = wql.loc[("parts", FIXED)].dropna()
    best = parts.drop(FITTED)
    add(
        "Parts: WQL below every other row",
        f"{parts[FITTED]:.4f}; the best other row, {COLUMNS[str(best.idxmin())]}, {best.min():.4f}",
        parts[FITTED] < best.min(),
    )
    for metric, base, name, limit in M1_LIMITS:
        ratios = [found_in[metric].loc[(d, FIXED), FITTED] / found_in[base].loc[(d, FIXED), NAIVE] for d in M1]
        value = float(np.exp(np.log(ratios).mean()))
        add(f"M1: geometric mean of {name} at most {limit} of seasonal naive", f"{value:.3f}", value <= limit)
    others = nd[[name for name in RIVALS if name in nd]]
    behind = [
        f"{TITLES[str(d)]}, {p} ({COLUMNS[str(others.loc[(d, p)].idxmin())]} {others.loc[(d, p)].min():.4f})"
        for d, p in nd.index
        if not nd.loc[(d, p), FITTED] < others.loc[(d, p)].min()
    ]
    rivals = "LightGBM, NHITS, AutoETS and seasonal naive"
    add(f"ahead of {rivals} on each panel", f"not on {'; '.join(behind)}" if behind else "on each", not behind)
    own = rows[(rows.method == FITTED) & (rows.forecasts >= SURE)]
    outside = [
        f"{TITLES[str(d)]}, {p} ({100 * covered.loc[(d, p), FITTED]:.1f})"
        for d, p in places(own)
        if not COVERED[0] <= covered.loc[(d, p), FITTED] <= COVERED[1]
    ]
    low, high = (round(100 * end) for end in COVERED)
    add(
        f"90 % intervals cover {low} to {high} % where there are {SURE} forecasts",
        f"not on {'; '.join(outside)}" if outside else "on each",
        not outside,
    )
    return table(["aim", "found", ""], out)


def on_gpu(rows: pd.DataFrame) -> list[str]:
    """The methods that were trained on a GPU, all of them or in part."""
    own = rows[rows.command == "python -m experiments defaults"]
    return [m for m in COLUMNS if own.hardware[own.method == m].str.contains("NVIDIA").any()]


def source(rows: pd.DataFrame) -> str:
    """Where the figures come from."""
    own = rows[rows.command == "python -m experiments defaults"]
    seeds = own[own.method == FITTED].groupby(["dataset", "protocol"]).seed.nunique()
    count = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    count = "with one seed" if seeds.max() == 1 else f"with {count} seeds"
    gpu = " and ".join(COLUMNS[method].replace("*", "") for method in on_gpu(rows))
    where = f"; {gpu} mostly on a GPU" if gpu else ""
    commits = ", ".join(sorted(own.commit.astype(str).unique()))
    return (
        f"`python -m experiments defaults`, commits {commits}, {', '.join(sorted(own.hardware.unique()))}, one thread"
        f"{where}; aru {count}, other networks one. Where it is not from there: `runs.csv`."
    )


def results(rows: pd.DataFrame) -> str:
    """What stands between the marks of docs/choosing.md."""
    return f"""{nd_table(rows)}

{summary_table(rows)}

Fixed: the last h rows of every series. Streaming: rolling windows, true values fed after each; the panels below ETTh1
are forecast once. An empty cell was not run. WQL is relative to the ND of seasonal naive, which has no intervals. Means
are over the panels that a method has, so only the column of **aru** compares like with like. Ranks are among the
methods of a row. Seconds: training and all forecasts.

{coverage_table(rows)}

Panels with at least {SURE} forecasts; of the counts in Parts by randomised ranks. NHITS has y alone on Walmart, whose
covariates it does not stand.

### What was aimed at

{aims_table(rows)}

{source(rows)}"""


def readme(rows: pd.DataFrame) -> str:
    """The short version."""
    return f"""{summary_table(rows)}

With the defaults: nothing is chosen but horizon, frequency and covariates. Geometric means over the panels that a
method has; ranks by ND. Every panel, and where it is behind: [docs/choosing.md].
{source(rows)}"""


def start(rows: pd.DataFrame) -> str:
    """What docs/index.md says: means over the panels that all methods have, and how often others are ahead."""
    nd = wide(rows, "nd")
    complete = nd.dropna().index
    kept = rows.set_index(["dataset", "protocol"]).index.isin(complete)
    others = f"Of all {len(nd)} others are ahead on {len(behind(nd))}"
    return f"""{summary_table(rows[kept], without=UNLIKE)}

Retail, energy, tourism and parts; nothing is chosen but horizon, frequency and covariates. Geometric means over the
{len(complete)} panels and streams that all methods have; below 1 is better than seasonal naive. {others}:
[which, and when not to use it](explain/limits.md). [All rows](choosing.md#with-the-defaults).

{source(rows)}"""


def behind(nd: pd.DataFrame) -> pd.DataFrame:
    """The panels on which another method has the lowest ND."""
    return nd[~nd.idxmin(axis=1).isin([ZERO_SHOT, FITTED])]


def limits(rows: pd.DataFrame) -> str:
    """What stands between the marks of docs/explain/limits.md: every panel where others are ahead, and by how much."""
    nd = wide(rows, "nd")
    out = []
    for (dataset, protocol), row in behind(nd).iterrows():
        best, ours = row.min(), row[[ZERO_SHOT, FITTED]]
        cells = ["" if np.isnan(v) else f"{v:.4f} ({v / best - 1:+.0%})" for v in ours]
        out.append([f"{TITLES[str(dataset)]}, {protocol}", f"{COLUMNS[str(row.idxmin())]}, {best:.4f}", *cells])
    own = table(["ND", "ahead", "aru, zero-shot", "aru, fitted"], out)
    return f"""{own}

Of {len(nd)} rows in all: [the others](../choosing.md#with-the-defaults). {source(rows)}"""
