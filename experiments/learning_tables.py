"""Tables of docs/learning.md, from the result files alone. What was not run is left empty."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.change_aims import change_goals
from experiments.figures import read_curves
from experiments.first_values import OBSERVED, PANELS
from experiments.learning import (
    ALONE,
    COVARIATES,
    FIRST_VALUES,
    FLIGHTS,
    FROZEN,
    HINDSIGHT,
    SIZES,
    START,
    STARTS,
    STREAMED,
    STREAMING,
    STREAMS,
    WITHOUT,
)
from experiments.rivals import HORIZONS
from experiments.tables import RESULTS, read_runs, table
from experiments.zeroshot import weights_of
from experiments.zeroshot_tables import met

NAIVE, OFF = "seasonal-naive", "adapt=off"
TITLES = {
    "rossmann": "Rossmann",
    "walmart": "Walmart",
    "gefcom2012": "GEFCom2012",
    "electricity_10": "electricity_10",
    FLIGHTS: "flights",
    "m4_hourly": "M4 hourly",
    "m1_monthly": "M1 monthly",
}
PROTOCOLS = {"fixed": "once", STREAMING: "stream", START: "from the start"}
BESIDE = {NAIVE: "seasonal naive", "lightgbm": "LightGBM", "baseline": "baseline", "aru": "ARU"}
RIVALS = {
    "frozen": "frozen",
    "smoothed errors": "errors, smoothed",
    "ridge on errors": "errors, ridge regression",
    "adapter": "`Adapter`",
    "hindsight": "**hindsight**, in the library",
    "linear": "linear forecaster alone",
    "mixed, weights": "the two mixed by weights",
    "mixed, fixed": ".3 linear, .7 network",
}
AIMS = {("rossmann", "fixed"): 0.084, ("rossmann", STREAMING): 0.085, ("walmart", "fixed"): 0.083}
GAIN, ETTH1, ETTH1_GAIN, BEHIND = 0.03, {24: 0.290, 48: 0.335}, 0.08, 0.05
NO_HARM = 0.005


def read() -> pd.DataFrame:
    """All rows that count: ours of the latest weights, and of the other files what stands beside them."""
    missing = {column: ["", "nan"] for column in ("nd", "mse", "x")}
    rows = pd.read_csv(RESULTS / "learning.csv", keep_default_na=False, na_values=missing)
    rows = rows[rows.weights.isin(["", *map(weights_of, SIZES)])]
    runs = read_runs().assign(part=COVARIATES, weights="")
    runs = runs[runs.method.isin(BESIDE) & runs.variant.isin(["", OFF])]
    curves = read_curves()
    curves = curves[(curves.experiment == "cold-start") & (curves.variant == "") & curves.method.isin(BESIDE)]
    curves = curves.assign(part=FIRST_VALUES, protocol="", weights="")
    beside = pd.concat([runs, curves])[["part", "dataset", "protocol", "method", "variant", "x", "nd"]]
    return pd.concat([rows, beside.assign(command="")], ignore_index=True)


def nd(
    rows: pd.DataFrame,
    dataset: str,
    protocol: str,
    method: str,
    variant: str = "",
    quarter: int = 0,
    part: str = COVARIATES,
) -> float:
    """Mean over seeds, of all of a stream or of a quarter; NaN where there is none."""
    chosen = (rows.part == part) & (rows.dataset == dataset) & (rows.protocol == protocol)
    chosen &= (rows.x == quarter) if quarter else rows.x.isna()
    return float(rows[chosen & (rows.method == method) & (rows.variant == variant)].nd.mean())


def covariate_table(rows: pd.DataFrame) -> str:
    """ND with covariates, of the network alone, and of what is trained on the same rows."""
    lines = []
    for dataset, protocol in STREAMS:
        if dataset == "electricity_10" or protocol == START:
            continue
        cells = [_figure(nd(rows, dataset, protocol, m)) for m in (*BESIDE, f"{STREAMED}{ALONE}", STREAMED)]
        lines.append([f"{TITLES[dataset]}, {PROTOCOLS[protocol]}", *cells])
    return table(["ND", *BESIDE.values(), f"{STREAMED} alone", f"**{STREAMED}**"], lines)


def stream_table(rows: pd.DataFrame) -> str:
    """Frozen at the first cutoff, adapting, and the change."""
    lines = []
    for dataset, protocol in STREAMS:
        if protocol == "fixed":
            continue
        cells = []
        for method in ("aru", STREAMED):
            frozen, adapting = (nd(rows, dataset, protocol, method, v) for v in (OFF, ""))
            known = np.isfinite([frozen, adapting]).all()
            cells.append(f"{_figure(frozen)} → {_figure(adapting)} ({adapting / frozen - 1:+.1%})" if known else "")
        lines.append([f"{TITLES[dataset]}, {PROTOCOLS[protocol]}", *cells])
    return table(["ND, frozen → adapting", "ARU, trained", f"**{STREAMED}**"], lines)


def hindsight_table(rows: pd.DataFrame) -> str:
    """The network alone, and with what its errors taught: frozen at the first cutoff, and adapting."""
    lines = []
    for dataset, protocol in WITHOUT:
        found = {v: nd(rows, dataset, protocol, STREAMED, v, part=HINDSIGHT) for v in ("alone", OFF, "")}
        alone = found.pop("alone")
        cells = [f"{v:.4f} ({v / alone - 1:+.1%})" if np.isfinite(v) else "" for v in found.values()]
        lines.append([f"{TITLES[dataset]}, {PROTOCOLS[protocol]}", _figure(alone), *cells])
    heads = (f"{STREAMED} alone", f"{STREAMED}, frozen", f"**{STREAMED}, adapting**")
    return table(["ND", *heads], lines)


def mean_gain(rows: pd.DataFrame, size: str, protocol: str, variant: str) -> dict[str, float]:
    """Change of ND without covariates against the network alone, or the frozen one, by dataset."""
    pairs = {
        dataset: [nd(rows, dataset, protocol, size, v, part=HINDSIGHT) for v in ("", variant)]
        for dataset, found in WITHOUT
        if found == protocol
    }
    return {dataset: a / b - 1 for dataset, (a, b) in pairs.items() if np.isfinite([a, b]).all()}


def gains(rows: pd.DataFrame, method: str, protocol: str) -> dict[str, float]:
    """Change of ND by adapting, by dataset."""
    found = {}
    for dataset in STARTS:
        change = nd(rows, dataset, protocol, method) / nd(rows, dataset, protocol, method, OFF) - 1
        if np.isfinite(change):
            found[dataset] = change
    return found


def mse(rows: pd.DataFrame, size: str, h: int, variant: str) -> float:
    """On ETTh1."""
    part = rows[(rows.part == FROZEN) & (rows.method == size) & (rows.protocol == f"h={h}")]
    return float(part[part.variant == variant].mse.astype(float).mean())


def rival_table(rows: pd.DataFrame) -> str:
    """MSE of all corrections."""
    lines = []
    for variant, name in RIVALS.items():
        cells = []
        for size in SIZES:
            for h in HORIZONS:
                frozen, found = mse(rows, size, h, "frozen"), mse(rows, size, h, variant)
                change = "" if variant == "frozen" else f" ({found / frozen - 1:+.1%})"
                cells.append(f"{found:.4f}{change}" if np.isfinite(found) else "")
        lines.append([name, *cells])
    return table(["MSE on ETTh1", *(f"{size}, h = {h}" for size in SIZES for h in HORIZONS)], lines)


def curve(rows: pd.DataFrame, dataset: str, method: str) -> pd.Series:
    """ND by the number of known values, mean over seeds."""
    part = rows[(rows.part == FIRST_VALUES) & (rows.dataset == dataset) & (rows.method == method)]
    return part[part.x.isin(OBSERVED)].groupby("x").nd.mean()


def curve_table(rows: pd.DataFrame, dataset: str) -> str:
    """All methods by the number of known values, and the mean from one value on."""
    lines = []
    for method, name in _of_curves().items():
        found = curve(rows, dataset, method)
        if found.empty:
            continue
        cells = [_figure(found.get(n, np.nan)) for n in OBSERVED]
        lines.append([name, *cells, _figure(found[found.index > 0].mean())])
    return table([f"{TITLES[dataset]}: ND", *(f"n = {n}" for n in OBSERVED), "mean of 1 to 50"], lines)


def standing(rows: pd.DataFrame, dataset: str, method: str) -> tuple[float, float, int]:
    """Mean over n from 1 on relative to the best other method's, and how far behind the best at any n, and where."""
    ours = curve(rows, dataset, method)
    others = pd.DataFrame({m: curve(rows, dataset, m) for m in BESIDE})
    n = [x for x in ours.index if x > 0 and x in others.index]
    if not n:
        return np.nan, np.nan, 0
    ratio = ours[n] / others.loc[n].min(axis=1)
    return float(ours[n].mean() / others.loc[n].mean().min()), float(ratio.max() - 1), int(ratio.idxmax())


def goal_table(rows: pd.DataFrame) -> str:
    """What was aimed at, and what came of it."""
    lines = []
    for (dataset, protocol), aim in AIMS.items():
        found = {size: nd(rows, dataset, protocol, size) for size in SIZES}
        goal = f"{TITLES[dataset]}, {PROTOCOLS[protocol]}: ND at most {aim:.3f}"
        lines.append([goal, _each(found, ".4f"), met(_all(v <= aim for v in _known(found)))])
    for protocol in (STREAMING, START):
        for size in SIZES:
            found = gains(rows, size, protocol)
            if found:
                mean = float(np.mean(list(found.values())))
                goal = f"{size}, {PROTOCOLS[protocol]}: adapting better than frozen on each, {GAIN:.0%} in the mean"
                said = ", ".join(f"{TITLES[d]} {v:+.1%}" for d, v in found.items())
                ok = max(found.values()) < 0 and mean <= -GAIN and len(found) == 5
                lines.append([goal, f"{mean:+.1%} in the mean of {len(found)} ({said})", met(ok)])
    for size in SIZES:
        found = mean_gain(rows, size, START, "alone")
        if found:
            each = ", ".join(f"{TITLES[d]} {v:+.1%}" for d, v in found.items())
            goal = f"{size}, from the start, without covariates: nowhere {NO_HARM:.1%} worse than the network alone"
            said = f"{np.mean(list(found.values())):+.1%} in the mean of {len(found)} ({each})"
            lines.append([goal, said, met(max(found.values()) <= NO_HARM)])
    for h, aim in ETTH1.items():
        best = {v: mse(rows, "base", h, v) for v in RIVALS}
        best = {v: m for v, m in best.items() if np.isfinite(m)}
        if best:
            name = min(best, key=lambda v: best[v])
            change = best[name] / best["frozen"] - 1
            goal = f"ETTh1, base, h = {h}: MSE below {aim:.3f}"
            lines.append([goal, f"{best[name]:.4f} ({RIVALS[name]})", met(best[name] < aim)])
            lines.append([f"and {ETTH1_GAIN:.0%} below frozen", f"{change:+.1%}", met(change <= -ETTH1_GAIN)])
    for dataset in PANELS:
        missing = [name for m, name in BESIDE.items() if curve(rows, dataset, m).empty]
        mean, worst, where = standing(rows, dataset, "mini")
        goal = f"first values, {TITLES[dataset]}, mini: level with the best in the mean, nowhere {BEHIND:.0%} behind"
        said = f"mean {mean:.3f} of the best one's, at worst {worst:+.1%} (n = {where})" if where else ""
        verdict = met(mean <= 1 and worst <= BEHIND)
        lines.append([goal, said, f"{verdict}, without {' and '.join(missing)}" if missing else verdict])
    return table(["aim", "found", ""], lines + change_goals())


def results(rows: pd.DataFrame) -> str:
    """What the page shows."""
    curves = "\n\n".join(curve_table(rows, dataset) for dataset in PANELS)
    return f"""### Covariates

{covariate_table(rows)}

Once: the last h rows. Stream: the paper's streaming protocol, two to seven blocks; the flights every evening of the
last quarter, as in the demo. LightGBM, baseline and ARU are trained on the rows before the first cutoff (`runs.csv`; on
the flights here, with settings chosen on earlier rows).

### Adapting against frozen

![ND of adapting and frozen models](figures/learning-streams.svg)

{stream_table(rows)}

Frozen: what was learned up to the first cutoff, while contexts move on. Stream: as above, with all history before it.
From the start: {starts()}.

### Without covariates: hindsight

{hindsight_table(rows)}

Streams as above, the columns of covariates left out; M4 hourly {STARTS["m4_hourly"][0]} rows before
{STARTS["m4_hourly"][1].windows} cutoffs. In brackets: change against the network alone.

### Beyond the context

{rival_table(rows)}

### The first values

![ND against the number of known values](figures/first-values.svg)

{curves}

### What was aimed at

{goal_table(rows)}

{source(rows)}"""


def starts() -> str:
    """Rows before and after the first cutoff, in words."""
    with_covariates = [(name, *STARTS[name]) for name, protocol in STREAMS if protocol == START]
    words = [f"{TITLES[name]} {before} / {rule.windows}" for name, before, rule in with_covariates]
    return f"rows before the first cutoff / cutoffs, h rows apart (flights: one): {', '.join(words)}"


def source(rows: pd.DataFrame) -> str:
    """Where the rows come from."""
    own = rows[rows.command != ""]
    weights = ", ".join(sorted(set(own.weights) - {""}))
    return (
        f"`{own.command.iloc[0]}`, commits {', '.join(sorted(own.commit.unique()))}, "
        f"{', '.join(sorted(own.hardware.unique()))}, {own.date.max()}; weights {weights}. Trained rows of Rossmann, "
        "Walmart, GEFCom2012 and Electricity: `runs.csv` and `curves.csv` ([reproduction](reproduction.md))."
    )


def _of_curves() -> dict[str, str]:
    ours = {m: f"**{m}**" if m in SIZES else m for size in SIZES for m in (f"{size}{ALONE}", size)}
    return {**BESIDE, **ours}


def _figure(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else ""


def _known(found: dict[str, float]) -> list[float]:
    return [v for v in found.values() if np.isfinite(v)]


def _all(values: object) -> bool:
    seen = list(values)  # type: ignore[call-overload]
    return bool(seen) and all(seen)


def _each(values: dict[str, float], spec: str) -> str:
    return ", ".join(f"{name} {v:{spec}}" for name, v in values.items() if np.isfinite(v))
