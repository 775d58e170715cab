"""Write tables of docs (`PAGES`), and figures, from committed results.

python -m benchmarks.report
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from benchmarks import figures, production_tables, summary
from benchmarks.tables import RESULTS, ROOT, called, machine, read, source, table


def in_a_minute() -> str:
    found = {
        name: read(f"{name}.json")
        for name in ("cost", "pretrained", "growth", "stream", "service", "postgres", "spark")
    }
    head = ["", "the default, `mini`", "`aru-rnn`", "others"]
    return f"{table(head, summary.rows(found))}\n\n{summary.commits(found)}"


def solve() -> str:
    runs = pd.read_csv(RESULTS / "solve.csv")
    rows = [(r.device, r.threads, r.dim, f"{r.torch_us:.3f}", f"{r.aru_us:.3f}", r.ratio) for r in runs.itertuples()]
    head = ["device", "threads", "dimension", "torch, microseconds", "aru, microseconds", "ratio"]
    return f"{table(head, rows)}\n\n{source('solve.csv', runs.iloc[0])}"


def inference() -> str:
    runs = pd.read_csv(RESULTS / "inference.csv")
    rows = []
    for (series, work), part in runs.groupby(["series", "work"], sort=False):
        by = part.set_index("method")
        cells = [f"{by.us_per_series[m]:.1f} ({by.ratio[m]:.2f})" for m in ("baseline", "aru", "snail")]
        rows.append((f"{series:,}", work, *cells))
    head, threads = ["series", "", "baseline", "aru-rnn", "snail"], f"{runs.threads.iloc[0]} threads; "
    return f"{table(head, rows)}\n\n{threads}{source('inference.csv', runs.iloc[0])}"


WORK = {
    "seasonal-naive": "repeats the last season",
    "snarimax": "`learn_one`, `forecast`",
    "auto-ets": "refits and forecasts",
    "lightgbm": "`update`, `predict`",
    "nhits": "`predict` with new context",
    **dict.fromkeys(("baseline", "aru-rnn", "aru-zero-shot", "aru"), "`update`, `predict`"),
}


def training() -> str:
    rows, sources = [], []
    for name in ("training.csv", "training-cpu.csv"):
        runs = pd.read_csv(RESULTS / name)
        for (size, graphs), part in runs.groupby(["size", "graphs"], sort=False):
            by = part.set_index("method")
            base, aru = by.ms_per_step["baseline"], by.ms_per_step["aru"]
            epoch = by.seconds_per_epoch["aru"]
            threads = f", {runs.threads.iloc[0]} threads" if "CPU" in runs.hardware.iloc[0] else ""
            hardware = f"{runs.hardware.iloc[0]}{threads}"
            rows.append((hardware, size, graphs, f"{base:.1f}", f"{aru:.1f}", f"{aru / base:.2f}", f"{epoch:.2f}"))
        sources.append(source(name, runs.iloc[0]))
    head = ["", "size", "graphs", "baseline, ms a step", "aru-rnn, ms a step", "ratio", "aru-rnn, seconds an epoch"]
    return f"{table(head, rows)}\n\n" + "\n".join(sources)


def resident() -> str:
    runs = pd.read_csv(RESULTS / "resident.csv")
    rows = [(f"{r.series:,}", called(r.method), f"{r.per_second:,}", r.bytes_per_series) for r in runs.itertuples()]
    head = ["series", "method", "updates with forecasts/s", "bytes a series"]
    return f"{table(head, rows)}\n\n{runs.hardware.iloc[0]}; {source('resident.csv', runs.iloc[0])}"


def cost() -> str:
    found = read("cost.json")
    own = {size["series"]: size["us"] for size in next(m for m in found["found"] if m["method"] == "aru")["sizes"]}

    def cell(size: dict[str, Any]) -> str:
        mark = "*" if size["timed"] < size["series"] else ""
        ratio = size["us"] / own[size["series"]]
        return f"{size['us']:,.1f}{mark} ({ratio:,.{0 if ratio >= 10 else 2}f})"

    ordered = sorted(found["found"], key=lambda method: method["sizes"][-1]["us"])
    rows = [
        (
            figures.NAMES[method["method"]],
            WORK[method["method"]],
            f"{figures.nd(method):.4f}",
            f"{method['train_seconds']:,.0f}",
            *map(cell, method["sizes"]),
            f"{method['sizes'][-1]['cpu_us']:,.1f}",
        )
        for method in ordered
    ]
    sizes = [*(f"{n:,} series" for n in own), f"{max(own):,} series, CPU time"]
    head = ["method", "at an observation", "ND", "training, s", *sizes]
    versions = "; ".join(dict.fromkeys(method["version"] for method in ordered))
    picture = "![Error against cost per observation](figures/cost.svg)"
    return f"{picture}\n\n{table(head, rows)}\n\n{machine(found)}{source('cost.json', found)}\n\n{versions}."


def growth() -> str:
    found = read("growth.json")
    parts = []
    for part, name, column in (
        ("history", "observations of each series so far", "observations"),
        ("series", "series", "series"),
        ("dimension", "dimension", "dim"),
    ):
        head = [name, "microseconds per observation", "bytes of a series' state", "resident MB"]
        rows = [
            (f"{r[column]:,}", f"{r['us']:,.1f}", f"{r['state_bytes']:,}", f"{r['resident_mb']:,}") for r in found[part]
        ]
        parts.append(table(head, rows))
    picture = "![Growth of cost and memory](figures/growth.svg)"
    return "\n\n".join([picture, *parts, machine(found) + source("growth.json", found)])


def update() -> str:
    path = RESULTS / "update.csv"
    if not path.exists():
        return "Not run yet."
    runs = pd.read_csv(path)
    rows = [(f"{r.series:,}", r.updated, f"{r.ms:.1f}", f"{r.first_ms:.1f}", f"{r.bytes:,}") for r in runs.itertuples()]
    head = ["series", "of them updated", "ms", "ms of the first update", "bytes"]
    return f"{table(head, rows)}\n\n{runs.threads.iloc[0]} threads; {source('update.csv', runs.iloc[0])}"


def turns() -> str:
    """One table for each benchmark that was run with `--old`."""
    parts = []
    for name in ("inference", "stream", "update"):
        path = RESULTS / f"{name}-turns.csv"
        if not path.exists():
            continue
        runs = pd.read_csv(path)
        labels = {"work": "", "old_us": "old, microseconds", "new_us": "new, microseconds", "cpu_ratio": "of CPU time"}
        shown = [column for column in runs if column not in ("threads", "old_commit", "commit", "date")]
        rows = [[f"{v:,}" if isinstance(v, int) else called(v) for v in r] for r in runs[shown].itertuples(index=False)]
        about = f"old: commit {runs.old_commit.iloc[0]}; {runs.threads.iloc[0]} threads; "
        parts += [table([labels.get(c, c.replace("_", " ")) for c in shown], rows)]
        parts += [f"`python -m benchmarks.{name} --old FOLDER`, {about}{source(path.name, runs.iloc[0])}"]
    return "\n\n".join(parts) or "Not run yet."


def stream() -> str:
    found = read("stream.json")
    rows = [
        (
            f"{r['series']:,}",
            "SQLite" if r["durable"] else "memory",
            r["correctable"],
            f"{r['updates_per_second']:,}",
            f"{r['updates_with_forecasts_per_second']:,}",
            f"{r['updates_with_forecasts_per_cpu_second']:,}",
            r["bytes_per_series"],
        )
        for r in found["bulk"]
    ]
    head = ["series", "store", "correctable", "updates/s", "with forecasts/s", "per CPU second", "bytes a series"]
    single = [
        (f"{r['observations']:,}", "SQLite" if r["durable"] else "memory", r["form"], r["p50_ms"], r["p99_ms"])
        for r in found["history"]
    ]
    one = table(["observations before", "store", "given and returned as", "p50 ms", "p99 ms"], single)
    origin = machine(found) + source("stream.json", found)
    return f"{table(head, rows)}\n\nOne update and its forecast:\n\n{one}\n\n{origin}"


def pretrained() -> str:
    found = read("pretrained.json")
    rows = [
        (
            r["weights"],
            f"{r['parameters']:,}",
            f"{r['forecasts_per_second']:,}",
            f"{r['forecasts_per_cpu_second']:,}",
            f"{r['network_per_second']:,}",
            f"{r['torch_per_second']:,}",
            f"{r['ratio']} ({r['cpu_ratio']})",
            f"{r['one_ms']} ({r['torch_one_ms']})",
            f"{r['updates_per_second']:,}",
            r["update_one_ms"],
            f"{r['state_bytes']:,}",
        )
        for r in found["sizes"]
    ]
    speeds = ["forecasts/s", "per CPU second", "network alone/s", "in plain torch/s", "ratio (of CPU time)"]
    rest = ["one forecast, ms (torch)", "updates/s", "one update, ms", "bytes of a state"]
    head = ["weights", "parameters", *speeds, *rest]
    about = f"{found['series']:,} series of {found['rows']:,} rows, h = {found['h']}; "
    return f"{table(head, rows)}\n\n{about}{machine(found)}{source('pretrained.json', found)}"


def budget() -> str:
    found, million = read("pretrained.json"), 1_000_000
    rows = [
        (
            r["weights"],
            r["one_ms"],
            f"{r['forecasts_per_cpu_second']:,}",
            f"{million / r['forecasts_per_cpu_second'] / 60:.0f}",
            f"{r['state_bytes']:,}",
            f"{million * r['state_bytes'] / 1e9:.1f}",
        )
        for r in found["sizes"]
    ]
    million_series = ["a million forecasts, CPU minutes", "bytes of a state", "a million states, GB"]
    head = ["weights", "one forecast, ms", "forecasts per CPU second", *million_series]
    about = f"Series of {found['rows']:,} rows, h = {found['h']}; "
    return f"{table(head, rows)}\n\n{about}{machine(found)}{source('pretrained.json', found)}"


def learning() -> str:
    found = read("learning.json")
    rows = [
        (
            r["covariates"],
            r["regressors"],
            f"{r['rows']:,}",
            f"{r['update_us']:,.0f}",
            f"{r['forecast_us']:,.0f}",
            f"{r['network_us']:,.0f} ({r['network_us'] / r['forecast_us']:.0%})",
            f"{r['epoch_ms']:,.0f}",
            f"{r['state_bytes']:,}",
        )
        for r in (*found["by_covariates"], *found["by_rows"])
    ]
    each = ["one update, microseconds", "one forecast", "of which the network", "an epoch of all series, ms"]
    head = ["covariates", "regressors", "rows of history", *each, "bytes of a state"]
    about = f"CPU time in calls with {found['series']} series, h = {found['h']}, weights {found['weights']}; "
    return f"{table(head, rows)}\n\n{about}{machine(found)}{source('learning.json', found)}"


def fitting() -> str:
    found = read("fitting.json")
    rows = [
        (
            r["panel"],
            f"{r['series']:,}",
            f"{r['rows']:,}",
            f"{r['seconds']:,.0f}",
            f"{r['cpu_seconds']:,.0f}",
            r["chosen"],
        )
        for r in found["panels"]
    ]
    head = ["panel", "series", "rows of a typical one", "seconds", "of the processor", "the network"]
    return f"{table(head, rows)}\n\n`python -m benchmarks.fitting`; {machine(found)}{source('fitting.json', found)}"


PAGES = {
    "performance.md": {
        "summary": in_a_minute,
        "solve": solve,
        "inference": inference,
        "update": update,
        "turns": turns,
        "training": training,
        "resident": resident,
        "cost": cost,
        "growth": growth,
        "stream": stream,
        "service": production_tables.service,
        "postgres": production_tables.postgres,
        "postgres-aims": production_tables.postgres_aims,
    },
    "operations.md": {"sizing": production_tables.sizing, "soak": production_tables.soak},
    "scale.md": {
        "spark": production_tables.spark,
        "spark-aims": production_tables.spark_aims,
        "layouts": production_tables.layouts,
    },
    "pretrained.md": {"pretrained": pretrained},
    "learning.md": {"learning": learning},
    "howto/cost.md": {"budget": budget},
    "choosing.md": {"fitting": fitting},
}


def main() -> None:
    """Rewrite the generated parts, and draw the figures."""
    figures.cost(read("cost.json"))
    figures.growth(read("growth.json"))
    for name, parts in PAGES.items():
        page = ROOT / "docs" / name
        text = page.read_text()
        for part, make in parts.items():
            begin, end = f"<!-- {part}: begin (python -m benchmarks.report) -->", f"<!-- {part}: end -->"
            before, rest = text.split(begin)
            text = f"{before}{begin}\n{make()}\n{end}{rest.split(end)[1]}"
        page.write_text(text)


if __name__ == "__main__":
    main()
