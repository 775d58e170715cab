"""Write the tables of docs/performance.md from the committed result files.

python -m benchmarks.report
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def source(name: str, what: Any) -> str:
    return f"`benchmarks/results/{name}`, commit {what['commit']}, {what['date']}."


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
    threads = f"{runs.threads.iloc[0]} threads; "
    return (
        f"{table(['series', '', 'baseline', 'aru', 'snail'], rows)}\n\n{threads}{source('inference.csv', runs.iloc[0])}"
    )


def stream() -> str:
    found = json.loads((RESULTS / "stream.json").read_text())
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
    single = [(f"{r['observations']:,}", r["bytes"], r["p50_ms"], r["p99_ms"]) for r in found["history"]]
    one = table(["observations before", "bytes", "p50 ms", "p99 ms"], single)
    origin = _machine(found) + source("stream.json", found)
    return f"{table(head, rows)}\n\nOne durable update and its forecast:\n\n{one}\n\n{origin}"


def service() -> str:
    found = json.loads((RESULTS / "service.json").read_text())
    rows = [
        (
            r["clients"],
            "on" if r["monitor"] else "off",
            f"{r['updates_per_second']:,}",
            f"{r['updates_per_cpu_second']:,}",
            r["p50_ms"],
            r["p99_ms"],
        )
        for r in found["single"]
    ]
    head = ["clients", "monitoring", "updates/s", "per CPU second", "p50 ms", "p99 ms"]
    return f"{table(head, rows)}\n\n{_machine(found)}{source('service.json', found)}"


def _machine(found: dict[str, Any]) -> str:
    machine = found["machine"]
    before, after = machine["load_average"][0], machine["load_average_after"][0]
    return f"{machine['cores']} cores, {machine['threads']} threads of torch, load {before:.1f} to {after:.1f}; "


def main() -> None:
    """Rewrite the generated parts."""
    text = PAGE.read_text()
    for name, make in {"solve": solve, "inference": inference, "stream": stream, "service": service}.items():
        begin, end = f"<!-- {name}: begin (python -m benchmarks.report) -->", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{make()}\n{end}{rest.split(end)[1]}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
