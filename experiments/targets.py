"""The goals set beforehand, and what was reached: met or missed, by how much."""

from __future__ import annotations

import math
from typing import NamedTuple

import pandas as pd

from experiments.tables import pick, table

SEEDS = 3
HOURLY = (("gefcom2012", "streaming"), ("electricity_10", "streaming"), ("m4_hourly", "fixed"))


class Score(NamedTuple):
    """Mean over seeds, NaN where there is no run, and how many seeds there are."""

    mean: float
    seeds: int


def score(runs: pd.DataFrame, dataset: str, protocol: str, method: str, variant: str = "", column: str = "nd") -> Score:
    """One entry of the grid; peers that draw no random numbers count as complete."""
    part = pick(runs, dataset, protocol, method, variant)[column]
    return Score(float(part.mean()), SEEDS if method in ("seasonal-naive", "ets", "lightgbm") else len(part))


def line(name: str, goal: str, reached: str, met: bool, *scores: Score) -> list[str]:
    """A row; a goal counts only with enough seeds."""
    if any(math.isnan(s.mean) for s in scores):
        return [name, goal, "", "not run"]
    fewest = min(s.seeds for s in scores)
    few = "" if fewest >= SEEDS else f", {fewest} of {SEEDS} seeds so far"
    return [name, goal, reached, ("met" if met else "**missed**") + few]


def below(name: str, value: Score, goal: float) -> list[str]:
    """A goal that is an upper limit."""
    over = f" ({100 * (value.mean / goal - 1):+.1f} %)"
    return line(name, f"≤ {goal:g}", f"{value.mean:.4f}{over}", value.mean <= goal, value)


def gain(name: str, runs: pd.DataFrame, dataset: str, protocol: str, goal: float) -> list[str]:
    """ARU's gain over the baseline, in percent of ND."""
    base, aru = score(runs, dataset, protocol, "baseline"), score(runs, dataset, protocol, "aru")
    value = 100 * (1 - aru.mean / base.mean)
    return line(name, f"≥ {goal:g} %", f"{value:.1f} %", value >= goal, base, aru)


def better(name: str, first: Score, second: Score) -> list[str]:
    """Something must be smaller than something else."""
    return line(name, "smaller", f"{first.mean:.4f} and {second.mean:.4f}", first.mean < second.mean, first, second)


def target_table(runs: pd.DataFrame) -> str:
    """All goals."""
    rows = [
        below("Rossmann fixed, ND", score(runs, "rossmann", "fixed", "aru"), 0.080),
        below("Rossmann fixed, ensemble, ND", score(runs, "rossmann", "fixed", "aru", "ensemble"), 0.074),
        below("Walmart fixed, ND", score(runs, "walmart", "fixed", "aru"), 0.086),
        below("Walmart fixed, ensemble, ND", score(runs, "walmart", "fixed", "aru", "ensemble"), 0.082),
    ]
    for dataset, goal in (("rossmann", 0.080), ("walmart", 0.090)):
        on, off = (score(runs, dataset, "streaming", "aru", v) for v in ("", "adapt=off"))
        rows.append(below(f"{dataset.title()} streaming, ND", on, goal))
        rows.append(better(f"{dataset.title()} streaming, ND adapting and frozen", on, off))
    tourism = score(runs, "tourism_monthly", "deepstate", "aru")
    rows += [
        below("Parts fixed, RMSE", score(runs, "parts", "fixed", "aru", column="rmse"), 1.25),
        better("Parts fixed, ND of ARU and of zeros", score(runs, "parts", "fixed", "aru"), Score(1.0, SEEDS)),
        below("Tourism 48-24, ND", tourism, 0.096),
    ]
    for peer in ("seasonal-naive", "ets"):
        rows.append(
            better(f"Tourism, ND of ARU and {peer}", tourism, score(runs, "tourism_monthly", "deepstate", peer))
        )
    for other in ("baseline", "seasonal-naive", "lightgbm"):
        for dataset, protocol in HOURLY:
            aru = score(runs, dataset, protocol, "aru")
            rows.append(better(f"{dataset}, ND of ARU and {other}", aru, score(runs, dataset, protocol, other)))
    rows.append(gain("Rossmann fixed, ARU's gain over the baseline", runs, "rossmann", "fixed", 12))
    rows.append(gain("gefcom2012, ARU's gain over the baseline", runs, "gefcom2012", "streaming", 15))
    rows.append(control_row(runs))
    return table(["goal", "", "reached", ""], rows)


def control_row(runs: pd.DataFrame) -> list[str]:
    """Nowhere worse than the parameter-matched control by more than two standard errors."""
    cells = runs[(runs.method == "aru-control") & (runs.variant == "")][["dataset", "protocol"]].drop_duplicates()
    worse, compared, alone = [], 0, 0
    for dataset, protocol in cells.itertuples(index=False):
        aru, control = (pick(runs, dataset, protocol, m).nd for m in ("aru", "aru-control"))
        if min(len(aru), len(control)) < SEEDS:
            alone += 1
            continue
        compared += 1
        error = math.sqrt(aru.var() / len(aru) + control.var() / len(control))
        if aru.mean() - control.mean() > 2 * error:
            worse.append(f"{dataset} {protocol}")
    name = "ND nowhere worse than the parameter-matched control's beyond two standard errors"
    reached = f"worse on {', '.join(worse) or 'none'} of {compared}; {alone} with fewer than {SEEDS} seeds"
    return [name, "", reached, "not run" if not compared else "**missed**" if worse else "met"]
