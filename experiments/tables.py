"""Tables of docs/reproduction.md, from the result files alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from aru.datasets import DESCRIPTIONS
from aru.settings import SIZES
from experiments.candidates import CHOICES, criterion
from experiments.grid import ABLATIONS, grid
from experiments.runner import settings_by_entry

RESULTS = Path(__file__).with_name("results")
PUBLISHED = Path(__file__).with_name("published.csv")
NAMES = {
    "baseline": "Baseline",
    "aru-control": "ARU's layers, nothing local",
    "deepar": "DeepAR",
    "snail": "SNAIL",
    "deepstate": "DeepState",
    "aru-direct": "ARU-Direct",
    "aru": "**ARU**",
    "seasonal-naive": "Seasonal naive",
    "ets": "ETS",
    "arima": "ARIMA",
    "lightgbm": "LightGBM",
    "nhits": "NHITS",
}


def read_runs(path: Path | None = None) -> pd.DataFrame:
    """The rows of the grid; those of configurations that validation no longer chooses are left out."""
    runs = pd.read_csv(path or RESULTS / "runs.csv", keep_default_na=False, na_values={c: [""] for c in _NUMBERS})
    return runs[current(runs)]


def current(runs: pd.DataFrame) -> pd.Series:
    """Which rows count: of configurations that validation chooses, the latest of each seed."""
    expected = settings_by_entry(grid([0]))
    base = runs.variant.str.replace(r"(, )?adapt=off$", "", regex=True)
    keys = zip(runs.dataset, runs.protocol, runs.method, base, strict=True)
    trained = runs.method.isin({method for _, _, method, _ in expected})  # here; the others are other libraries'
    chosen = ~trained | (pd.Series([expected.get(key, "") for key in keys], runs.index) == runs.settings)
    return chosen & ~runs[chosen].duplicated(ROW, keep="last").reindex(runs.index, fill_value=False)


def prune(path: Path) -> int:
    """Remove the rows that no longer count from a file; how many they were."""
    runs = pd.read_csv(path, dtype=str, keep_default_na=False)
    keep = current(runs)
    if not keep.all():
        runs[keep].to_csv(path, index=False, lineterminator="\n")
    return int((~keep).sum())


ROW = ["dataset", "protocol", "method", "variant", "seed"]
_NUMBERS = ("nd", "rmse", "crps", "coverage90", "mase", "seconds", "width90")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown, numbers to the right."""
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def pick(runs: pd.DataFrame, dataset: str, protocol: str, method: str, variant: str = "") -> pd.DataFrame:
    """The seeds of one entry."""
    same = (runs.dataset == dataset) & (runs.protocol == protocol) & (runs.method == method)
    return runs[same & (runs.variant == variant)]


def mean_sd(values: pd.Series, digits: int) -> str:
    """Mean and standard deviation over seeds; the mean alone of a single run."""
    values = values.dropna()
    if not len(values):
        return ""
    return f"{values.mean():.{digits}f}" + (f" ± {values.std():.{digits}f}" if len(values) > 1 else "")


def digits_of(rmse: float) -> int:
    """Enough for four figures."""
    return 0 if rmse >= 100 else 2 if rmse >= 10 else 3


def entry(label: str, part: pd.DataFrame, paper: pd.DataFrame) -> list[str]:
    """One line: the paper's figures, ours, number of seeds."""
    theirs = ["", ""]
    if len(paper):
        row = paper.iloc[0]
        theirs = [f"{row.nd:g}", "" if pd.isna(row.rmse) else f"{row.rmse:g}"]
    if not len(part):
        return [label, *theirs, *[""] * 7]
    return [
        label,
        *theirs,
        mean_sd(part.nd, 4),
        mean_sd(part.rmse, digits_of(part.rmse.mean())),
        *(f"{part[c].mean():.{d}f}" if part[c].notna().any() else "" for c, d in _DIGITS),
        str(len(part)),
    ]


_SHOWN = {
    "adapt=off": "frozen at the start of the test",
    "ensemble": "ensemble of 4",
    "100 series": "a sample of 100 series",
    "y alone": "without covariates",
    "fine-tuned": "fine-tuned at every observation",
}
_DIGITS = (("crps", 4), ("coverage90", 3), ("width90", 3), ("mase", 3))
HEADS = ["", "paper ND", "paper RMSE", "ND", "RMSE", "CRPS", "coverage", "width", "MASE", "seeds"]


def protocol_table(runs: pd.DataFrame, protocol: str, datasets: Sequence[str]) -> str:
    """All methods on all datasets of a protocol."""
    published = pd.read_csv(PUBLISHED)
    published = published[published.table == protocol]
    rows: list[list[str]] = []
    for dataset in datasets:
        about = DESCRIPTIONS[dataset]
        rows.append([f"**{about.title}**", *[""] * 9])
        paper = published[published.dataset == dataset]
        for method, name in NAMES.items():
            theirs = paper[paper.method == method]
            part = pick(runs, dataset, protocol, method)
            if len(part) or len(theirs):
                rows.append(entry(name, part, theirs))
            for variant, label in _SHOWN.items():
                part = pick(runs, dataset, protocol, method, variant)
                if len(part):
                    rows.append(entry(f"{name}, {label}", part, theirs[:0]))
    return table(HEADS, rows)


def data_table() -> str:
    """The paper's Table 1 beside what the files hold."""
    rows = []
    for about in DESCRIPTIONS.values():
        low, high = about.lengths
        covariates = len(about.futr_exog_list) + len(about.hist_exog_list) + len(about.stat_exog_list)
        paper = about.paper or (None, None, None)
        rows.append(
            [
                about.title,
                *("" if v is None else f"{v:,}" for v in paper),
                f"{about.series:,}",
                f"{low:,}" if low == high else f"{low:,} to {high:,}",
                str(about.h),
                str(about.input_size),
                str(covariates),
                about.note,
            ]
        )
    heads = ["", "paper N", "paper T", "paper #features", "N", "T", "K", "context", "covariates", ""]
    return table(heads, rows)


def size_table(runs: pd.DataFrame) -> str:
    """The paper's Table 2, and what size does on Rossmann and Walmart; a chosen size has no rows of its own."""
    differs = {(job.dataset, job.method, job.variant) for job in grid([0]) if job.protocol == "fixed"}
    rows = []
    for name, size in SIZES.items():
        row = [name, str(size.rnn), ", ".join(map(str, size.hidden))]
        for dataset in ("rossmann", "walmart"):
            for method in ("baseline", "aru"):
                variant = f"size={name}" if (dataset, method, f"size={name}") in differs else ""
                row.append(mean_sd(pick(runs, dataset, "fixed", method, variant).nd, 4))
        rows.append(row)
    heads = ["set", "RNN units", "hidden layers", "Rossmann, baseline", "Rossmann, ARU", "Walmart, baseline",
             "Walmart, ARU"]  # fmt: skip
    return table(heads, rows)


def direct_table(runs: pd.DataFrame) -> str:
    """Baseline, ARU and ARU-Direct."""
    published = pd.read_csv(PUBLISHED)
    rows = []
    for dataset, protocol in (("rossmann", "fixed"), ("walmart", "fixed"), ("parts", "fixed"), ("m4_hourly", "fixed"),
                              ("gefcom2012", "streaming"), ("electricity_10", "streaming"),
                              ("tourism_monthly", "deepstate")):  # fmt: skip
        row = [f"{DESCRIPTIONS[dataset].title}, {protocol}"]
        for method in ("baseline", "aru", "aru-direct"):
            paper = published[
                (published.table == protocol) & (published.dataset == dataset) & (published.method == method)
            ]
            row.append(f"{paper.nd.iloc[0]:g}" if len(paper) and pd.notna(paper.nd.iloc[0]) else "")
            row.append(mean_sd(pick(runs, dataset, protocol, method).nd, 4))
        if any(row[2::2]):
            rows.append(row)
    heads = ["", "Baseline, paper", "ours", "ARU, paper", "ours", "ARU-Direct, paper", "ours"]
    return table(heads, rows)


def ablation_table(runs: pd.DataFrame) -> str:
    """ND of what differs from the chosen configuration, relative to it; the baseline and its variants below."""
    entries = [("aru", variant) for variant in ["", *ABLATIONS]]
    entries += [("baseline", variant) for variant in ("", "series_id=on", "ensemble")]
    differs = {(job.dataset, job.method, job.variant) for job in grid([0]) if job.protocol == "fixed"}
    rows = []
    for method, variant in entries:
        row = [f"{method} `{variant}`" if variant else method]
        for dataset in ("rossmann", "walmart"):
            base, part = (pick(runs, dataset, "fixed", *entry).nd for entry in (("aru", ""), (method, variant)))
            change = 100 * (part.mean() / base.mean() - 1)
            if (dataset, method, variant) not in differs:
                row += ["as chosen", "", ""]
            else:
                row += [mean_sd(part, 4), f"{change:+.1f} %", str(len(part))] if len(part) else ["", "", ""]
        if any(row[2::3]):
            rows.append(row)
    return table(["", "Rossmann ND", "against ARU", "seeds", "Walmart ND", "against ARU", "seeds"], rows)


def choice_table() -> str:
    """What validation chose."""
    choices = json.loads(CHOICES.read_text())
    rows = []
    for dataset, methods in sorted(choices.items()):
        for method, choice in sorted(methods.items()):
            by = criterion(dataset)
            settings = ", ".join(f"{k}={v}" for k, v in choice["settings"].items()) or "none"
            rows.append(
                [dataset, method, choice["candidate"], settings, f"{choice[by]:.4f} ({by})", str(choice["seeds"])]
            )
    return table(["dataset", "method", "candidate", "settings beyond the defaults", "validation", "seeds"], rows)


def timing_table() -> str:
    """Updates and forecasts of all series, and the sum relative to the baseline's with the same context."""
    timing = pd.read_csv(RESULTS / "timing.csv")
    timing["both"] = timing.forecast_seconds + timing.update_seconds
    published = pd.read_csv(PUBLISHED)
    published = published[published.table == "time"].set_index(["dataset", "method"]).seconds
    rows = []
    for _, row in timing.sort_values(["hardware", "dataset", "input_size", "method"]).iterrows():
        same = timing[(timing.hardware == row.hardware) & (timing.dataset == row.dataset)]
        base = same[(same.input_size == row.input_size) & (same.method == "baseline")].both.mean()
        rows.append(
            [
                f"{DESCRIPTIONS[row.dataset].title}, {row.hardware}",
                NAMES[row.method],
                str(row.input_size or DESCRIPTIONS[row.dataset].input_size),
                f"{1000 * row.forecast_seconds:.1f}",
                f"{1000 * row.update_seconds:.1f}",
                f"{row.both / base:.2f}",
                f"{published.get((row.dataset, row.method), float('nan')):g}".replace("nan", ""),
            ]
        )
    heads = ["", "method", "context", "forecast, ms", "update, ms", "both / Baseline's", "paper's forecast, s"]
    return table(heads, rows)


def sources(paths: Sequence[str]) -> str:
    """Commits, hardware and number of rows of result files."""
    rows = []
    for name in paths:
        path = RESULTS / name
        if path.exists():
            frame = pd.read_csv(path, dtype=str)
            rows.append([f"`experiments/results/{name}`", str(len(frame)), ", ".join(sorted(frame.commit.unique())),
                         ", ".join(sorted(frame.hardware.unique()))])  # fmt: skip
    return table(["file", "rows", "commits", "hardware"], rows)
