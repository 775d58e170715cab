"""Tables of docs/choosing.md, and those of README.md and of two more pages: every panel with the defaults."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.defaults import FITTED, FIXED, NAIVE, STREAMING, ZERO_SHOT
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
SURE = 500  # forecasts from which on coverage is judged


def read() -> pd.DataFrame:
    """Rows with the defaults, and those of others and of chosen configurations on the same windows."""
    own = pd.read_csv(RESULTS / "defaults.csv")
    runs = pd.read_csv(RESULTS / "runs.csv", keep_default_na=False, na_values={c: [""] for c in ("nd", "mase", "crps")})
    runs = runs[(runs.variant == "") & runs.method.isin([*OTHERS, "aru"])]
    runs["protocol"] = runs.protocol.where(runs.dataset != "tourism_monthly", FIXED)
    runs["method"] = runs.method.replace("aru", TUNED)
    kept = runs.set_index(["dataset", "protocol"]).index.isin(own.set_index(["dataset", "protocol"]).index)
    both = pd.concat([own, runs[kept & ~runs.method.isin(own.method.unique())]], ignore_index=True)
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


def summary_table(rows: pd.DataFrame, counted: bool = True) -> str:
    """Geometric means relative to seasonal naive, ranks and seconds, over the panels that a method has.

    With `counted` it says how many these are.
    """
    nd, mase, wql, seconds = (wide(rows, metric) for metric in ("nd", "mase", "crps", "seconds"))
    rank = nd.rank(axis=1)
    out = []
    for method in nd.columns.drop(NAIVE):

        def mean(values: pd.DataFrame, base: pd.DataFrame, column: str = method) -> str:
            ratio = (values[column] / base[NAIVE]).dropna()
            return f"{np.exp(np.log(ratio).mean()):.3f}" if len(ratio) else ""

        known = nd[method].notna()
        typical = seconds.loc[known, method]
        out.append(
            [
                COLUMNS[method],
                *([str(int(known.sum()))] if counted else []),
                mean(nd, nd),
                mean(mase, mase),
                mean(wql, nd),
                f"{rank.loc[known, method].mean():.1f}" if known.any() else "",
                f"{typical.median():.0f}" if method in OURS or method == "lightgbm" else "",
            ]
        )
    heads = ["relative to seasonal naive", *(["panels"] if counted else [])]
    return table([*heads, "ND", "MASE", "WQL", "mean rank", "median seconds"], out)


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


def source(rows: pd.DataFrame) -> str:
    """Where the figures come from."""
    own = rows[rows.command == "python -m experiments defaults"]
    seeds = own[own.method == FITTED].groupby(["dataset", "protocol"]).seed.nunique()
    count = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    count = "one seed" if seeds.max() == 1 else f"{count} seeds"
    commits = ", ".join(sorted(own.commit.astype(str).unique()))
    return (
        f"`python -m experiments defaults`, commits {commits}, {', '.join(sorted(own.hardware.unique()))}, one thread; "
        f"{count} of what is trained. AutoETS, NHITS, and aru-rnn chosen for each: `runs.csv`."
    )


def results(rows: pd.DataFrame) -> str:
    """What stands between the marks of docs/choosing.md."""
    return f"""{nd_table(rows)}

{summary_table(rows)}

Fixed: the last h rows of every series. Streaming: rolling windows, true values fed after each. WQL is relative to the
ND of seasonal naive, which has no intervals. Ranks are among the methods of a row. Seconds: training and all forecasts.

{coverage_table(rows)}

Panels with at least {SURE} forecasts; of the counts in Parts by randomised ranks.

{source(rows)}"""


def readme(rows: pd.DataFrame) -> str:
    """The short version."""
    return f"""{nd_table(rows)}

ND with the defaults: nothing is chosen but horizon, frequency and covariates. More, and where it is behind:
[docs/choosing.md](docs/choosing.md). {source(rows)}"""


def start(rows: pd.DataFrame) -> str:
    """What docs/index.md says: means over the panels that all methods have, and how often others are ahead."""
    nd = wide(rows, "nd")
    complete = nd.dropna().index
    kept = rows.set_index(["dataset", "protocol"]).index.isin(complete)
    others = f"Of all {len(nd)} others are ahead on {len(behind(nd))}"
    return f"""{summary_table(rows[kept], counted=False)}

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
