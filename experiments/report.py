"""Write the tables of README.md, docs/adapt.md and docs/results.md from the committed result files.

python -m experiments.report
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments" / "results"
BEGIN, END = "<!-- results: begin (python -m experiments.report) -->", "<!-- results: end -->"

ROSSMANN_ROWS = {
    "baseline 4000": "Baseline: the same network without adaptation, 4,000 steps",
    "baseline 8000": "Baseline, 8,000 steps",
    "aru": "ARU, default settings (1,000 steps)",
    "aru batch 32": "**ARU, `batch_size=32`, chosen on validation**",
}
CLAIM = "aru batch 32"


def rossmann_table() -> str:
    """Mean and standard deviation over seeds on the Rossmann test rows."""
    runs = pd.read_csv(RESULTS / "rossmann.csv")
    lines = [
        "| Rossmann, last 16 open days of 1,115 shops | seeds | ND | RMSE | 90 % coverage |",
        "|---|---|---|---|---|",
    ]
    for variant, text in ROSSMANN_ROWS.items():
        part = runs[runs.variant == variant]
        if len(part):
            lines.append(
                f"| {text} | {len(part)} | {part.nd.mean():.4f} ± {part.nd.std():.4f} | {part.rmse.mean():.0f} "
                f"| {part.coverage90.mean():.3f} |"
            )
    base, aru = runs[runs.variant == best_baseline(runs)].nd.mean(), runs[runs.variant == CLAIM].nd.mean()
    commits = ", ".join(sorted(runs.commit.unique()))
    source = runs.iloc[0]
    lines += [
        "",
        f"ARU's error against the better baseline's: {100 * (aru / base - 1):+.1f} %. Medium size, no series id,",
        f"nothing chosen on test rows. `{source.command}`, commit {commits}, {source.hardware}, {source.date};",
        "one row per run in `experiments/results/rossmann.csv`.",
    ]
    return "\n".join(lines)


def best_baseline(runs: pd.DataFrame) -> str:
    """The baseline with the lower mean error: the claim is against that one."""
    means = runs[runs.method == "baseline"].groupby("variant").nd.mean()
    return str(means.idxmin())


def study_table() -> str:
    """Mean ND of each variant on the validation windows of each dataset."""
    runs = pd.read_csv(RESULTS / "study.csv")
    table = runs.pivot_table(index="variant", columns="dataset", values="nd", aggfunc=["mean", "count"])
    names = sorted(runs.dataset.unique())
    lines = ["| variant | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for variant in table.index:
        cells = []
        for name in names:
            mean, count = table.loc[variant, ("mean", name)], table.loc[variant, ("count", name)]
            cells.append("" if pd.isna(mean) else f"{mean:.4f} ({int(count)})")
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def deepar_table() -> str:
    """Our DeepAR beside GluonTS's: ND of every seed."""
    ours = pd.read_csv(RESULTS / "deepar.csv")
    theirs = pd.read_csv(ROOT / "benchmarks" / "results" / "peers-deepar.csv")
    lines = ["| | `deepar`: ND by seed | mean | `gluonts-deepar`: ND by seed | mean |", "|---|---|---|---|---|"]
    for dataset in ours.dataset.unique():
        cells = []
        for runs in (ours, theirs):
            nd = runs[runs.dataset == dataset].sort_values("seed").nd
            cells += [", ".join(f"{v:.4f}" for v in nd), f"{nd.mean():.4f}"]
        lines.append(f"| {dataset} | " + " | ".join(cells) + " |")
    lines += [
        "",
        f"`{ours.command.iloc[0]}`, commits {', '.join(sorted(ours.commit.unique()))}; GluonTS by "
        f"`{theirs.command.iloc[0]}`, {theirs.version.iloc[0]}, {ours.hardware.iloc[0]}. Rossmann: 100 shops.",
    ]
    return "\n".join(lines)


PUBLISHED = (
    "ETTh1 with a TimeFilter backbone, as published, h = 1 / 24 / 48: frozen .120 / .316 / .365, PROCEED .120 / .312 / "
    ".351, DSOF .121 / .319 / .363, SOLID .119 / .316 / .361, ADAPT-Z .111 / .294 / .343."
)


def adapt_table() -> str:
    """Frozen models with and without the adapter."""
    runs = pd.read_csv(RESULTS / "adapt.csv").sort_values(["dataset", "model", "h", "gate"])
    lines = [
        "| dataset | frozen model | h | gate | MSE | adapted | change | ND | adapted | worst | hurt > 1 % |",
        "|---" * 11 + "|",
    ]
    for r in runs.itertuples():
        change = 100 * (r.mse / r.mse_frozen - 1)
        lines.append(
            f"| {r.dataset} | {r.model} | {r.h} | {'yes' if r.gate else 'no'} "
            f"| {r.mse_frozen:.4g} | {r.mse:.4g} | {change:+.1f} % "
            f"| {r.nd_frozen:.4f} | {r.nd:.4f} | {100 * r.worst_series:+.1f} % | {100 * r.hurt:.1f} % |"
        )
    first = runs.iloc[0]
    lines += [
        "",
        "MSE over all series and leads of the last 30 % of rows, every step; ETTh1 and exchange_rate standardised by",
        "training rows. ND: mean absolute error over mean |y|. Worst: change of MSE of the series that fared worst.",
        "Hurt: share of series whose MSE",
        f"rose by more than 1 %. `{first.command}` on forecasts of `experiments.frozen`, seed 0, commits "
        f"{', '.join(sorted(runs.commit.unique()))}, {first.hardware}, {first.date}.",
        "",
        PUBLISHED,
        "",
        "| dataset | frozen model | h | gate | coverage of the frozen 90 % interval | moved | calibrated |",
        "|---" * 7 + "|",
    ]
    for r in runs.dropna(subset="coverage90").itertuples():
        gate = "yes" if r.gate else "no"
        cells = " | ".join(f"{v:.3f}" for v in (r.coverage90_frozen, r.coverage90, r.coverage90_calibrated))
        lines.append(f"| {r.dataset} | {r.model} | {r.h} | {gate} | {cells} |")
    return "\n".join(lines)


def rewrite(path: Path, table: str) -> None:
    """Put a table between the marks of a page."""
    before, rest = path.read_text().split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}")


def main() -> None:
    """Rewrite the generated parts."""
    rewrite(ROOT / "README.md", rossmann_table())
    rewrite(ROOT / "docs" / "adapt.md", adapt_table())
    study = pd.read_csv(RESULTS / "study.csv")
    (ROOT / "docs" / "results.md").write_text(
        "# Results\n\nGenerated by `python -m experiments.report` from the files in `experiments/results`.\n\n"
        f"## Rossmann\n\n{rossmann_table()}\n\n## Validation study behind the defaults\n\n"
        "Mean ND (number of seeds) on validation windows before the test rows, which this study never reads. Single "
        f"seeds differ by several percent, on Walmart by more.\n\n{study_table()}\n\n"
        f"`{study.command.iloc[0]}` and resumptions, commits {', '.join(sorted(study.commit.unique()))}, "
        f"{study.hardware.iloc[0]}; rows in `experiments/results/study.csv`.\n\n"
        f"## DeepAR, ours and GluonTS's\n\n{deepar_table()}\n"
    )


if __name__ == "__main__":
    main()
