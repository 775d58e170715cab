"""The table at the top of docs/performance.md: what a reader wants to know first, from all result files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import figures

DEFAULT = ("aru-zero-shot", "aru")
OTHERS = ("seasonal-naive", "lightgbm", "nhits", "auto-ets")
SERIES = 1_000  # of `benchmarks.cost`: the largest number for which nobody's figure is extrapolated


def rows(found: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """What, the default model, `aru-rnn`, others; `found` has the result files by name."""
    methods = {method["method"]: method for method in found["cost"]["found"]}
    mini = next(r for r in found["pretrained"]["sizes"] if r["weights"].startswith("mini"))
    new, old = (r["us"] for r in (found["growth"]["history"][0], found["growth"]["history"][-1]))
    durable = next(
        r for r in found["stream"]["bulk"] if r["durable"] and not r["correctable"] and r["series"] == 10_000
    )
    posts = max((r for r in found["service"]["single"] if r["monitor"]), key=lambda r: r["updates_per_second"])
    bulk = max(found["postgres"]["bulk"], key=lambda r: r["postgres_per_second"])
    spark = max(found["spark"]["streams"], key=lambda r: r["dense"]["events_per_second"])

    def micro(name: str) -> str:
        return f"{next(s['us'] for s in methods[name]['sizes'] if s['series'] == SERIES):,.0f}"

    def said(values: Mapping[str, str]) -> str:
        return ", ".join(f"{figures.NAMES[name]} {value}" for name, value in values.items())

    return [
        (
            f"one new value and a new forecast, microseconds a series; {SERIES:,} series",
            said({name: micro(name) for name in DEFAULT}),
            micro("aru-rnn"),
            said({name: micro(name) for name in OTHERS}),
        ),
        (
            "error of these forecasts, ND",
            said({name: f"{figures.nd(methods[name]):.4f}" for name in DEFAULT}),
            f"{figures.nd(methods['aru-rnn']):.4f}",
            said({name: f"{figures.nd(methods[name]):.4f}" for name in OTHERS}),
        ),
        ("one forecast of one series, ms", f"{mini['one_ms']}", "", ""),
        ("bytes of a state", f"{mini['state_bytes']:,}", f"{found['growth']['history'][0]['state_bytes']:,}", ""),
        ("a value after a million values, against one after a hundred", "", f"{old / new:.1f} times the time", ""),
        ("updates a second, on disk (SQLite)", "", f"{durable['updates_per_second']:,}", ""),
        ("the same in PostgreSQL, with new forecasts", "", f"{bulk['postgres_per_second']:,}", ""),
        (
            f"posts a second of {posts['clients']} clients that wait",
            "",
            f"{posts['updates_per_second']:,}, median {posts['p50_ms']:.0f} ms",
            "",
        ),
        ("events a second on Spark, two cores", "", f"{spark['dense']['events_per_second']:,}", ""),
    ]


def commits(found: Mapping[str, Mapping[str, Any]]) -> str:
    """From which commit the figures are: one, or which is from which."""
    by: dict[str, list[str]] = {}
    for name, about in found.items():
        by.setdefault(about["commit"], []).append(name)
    if len(by) == 1:
        return f"All from commit {next(iter(by))}."
    return "From " + "; ".join(f"commit {commit}: {', '.join(names)}" for commit, names in by.items()) + "."
