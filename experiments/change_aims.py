"""What was aimed at with changes, outliers, gate, calibration, cost and size, and what came of it: docs/learning.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from experiments.tables import RESULTS
from experiments.zeroshot_tables import met

COST = Path(__file__).parents[1] / "benchmarks" / "results" / "learning.json"
TITLES = {"rossmann": "Rossmann", "gefcom2012": "GEFCom2012", "nyc_flights": "flights"}
BACK, LEVEL_AT = 1.2, 1.5  # times the usual ND, so many horizons after a new level
FOUR_WEEKS = {"rossmann": 1.5, "gefcom2012": 28.0, "nyc_flights": 2.0}  # in horizons; a curve may end before
HURT, SERIES, ROUNDS = 0.02, 100, 48  # 50 rounds were asked for; Rossmann has 48
INSIDE, FORECASTS, GATE_COST = (0.88, 0.92), 500, 0.005
EMPTY_STATE, A_COVARIATE = 5_000, 1_200  # bytes


def change_goals() -> list[list[str]]:
    """Rows of a table: aim, found, verdict."""
    breaks, gated = pd.read_csv(RESULTS / "breaks.csv"), pd.read_csv(RESULTS / "gated.csv")
    cost = json.loads(COST.read_text())["by_covariates"]
    return [*_breaks(breaks), *_gated(gated), *_cost(cost)]


def _breaks(rows: pd.DataFrame) -> Iterator[list[str]]:
    for case, goal in (
        ("level", f"level + 50 %: ND at most {BACK} times the usual one after {LEVEL_AT} h rows"),
        ("pattern", f"another pattern of the week or day: the same within four weeks (GEFCom2012: {_last(rows):g} h)"),
    ):
        found, ok = [], []
        for (dataset, covariates), part in rows[rows.case == case].groupby(["dataset", "covariates"], sort=False):
            at = min(LEVEL_AT if case == "level" else FOUR_WEEKS[str(dataset)], part.x.max())
            row = part[part.x == at].iloc[0]
            ratio = row.value / row.usual
            ok.append(ratio <= BACK)
            found.append(f"{TITLES[str(dataset)]} {ratio:.2f}{' with covariates' * covariates}")
        yield [f"mini, {goal}", ", ".join(found), met(all(ok))]
    part = rows[rows.case == "outlier"]
    found = [
        f"{TITLES[str(d)]}{' with covariates' * c} {p.value.max():.0%}, {p.usual.max():.0%}"
        for (d, c), p in part.groupby(["dataset", "covariates"], sort=False)
    ]
    goal = "mini, one outlier: no median and no width off by more than 10 % after 3 h rows (share of series that are)"
    yield [goal, "; ".join(found), met(bool(part[["value", "usual"]].to_numpy().max() == 0))]


def _last(rows: pd.DataFrame) -> float:
    return float(rows[(rows.dataset == "gefcom2012") & (rows.case == "pattern")].x.max())


def _gated(rows: pd.DataFrame) -> Iterator[list[str]]:
    model = rows.dataset + ", " + rows.model
    long = rows[(rows.series >= SERIES) & (rows["rounds"] + rows.windows >= ROUNDS) & ~rows.variant.str.contains("cal")]
    found = ", ".join(f"{model[i]}, {r.variant} {r.hurt:.1%}" for i, r in long.iterrows())
    goal = f"at most 2 % of series lose more than 2 % against the network alone ({SERIES} series, {ROUNDS} rounds)"
    yield [goal, found, met(bool((long.hurt <= HURT).all()))]
    gate = rows[rows.variant == "gate"]
    mean = float(gate.cost.mean())
    said = f"{mean:+.1%} in the mean of {len(gate)}, so it is off by default"
    yield [f"the gate costs at most {GATE_COST:.1%} on average", said, met(mean <= GATE_COST)]
    part = rows[(rows.variant == "calibration") & (rows["rows"] / rows.h >= FORECASTS)]
    found = ", ".join(f"{model[i]} {100 * r.coverage90:.1f} ({r['rounds']})" for i, r in part.iterrows())
    goal = '90 % intervals with `calibration="online"` cover 88 to 92 % (rounds before the scored ones)'
    yield [goal, found, met(bool(part.coverage90.between(*INSIDE).all()))]


def _cost(sizes: list[dict[str, float]]) -> Iterator[list[str]]:
    empty = sizes[0]["state_bytes"]
    yield [f"a state without covariates: at most {EMPTY_STATE:,} bytes", f"{empty:,}", met(empty <= EMPTY_STATE)]
    found = ", ".join(f"{row['state_bytes']:,.0f} with {row['covariates']:.0f}" for row in sizes[1:])
    ok = all(row["state_bytes"] <= EMPTY_STATE + A_COVARIATE * row["covariates"] for row in sizes[1:])
    goal = f"each covariate about {A_COVARIATE:,} bytes more (here of three years, whose calendar is kept, too)"
    yield [goal, found, met(ok)]
    share = {int(row["covariates"]): row["network_us"] / row["forecast_us"] for row in sizes}
    said = ", ".join(f"{part:.0%} with {count}" for count, part in share.items())
    yield ["the network is the larger part of a forecast's time, by covariates", said, met(min(share.values()) > 0.5)]
