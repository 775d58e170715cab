"""What was aimed at with PostgreSQL and Spark, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.zeroshot_tables import met

BULK, TWO_PROCESSES = 0.5, 1.6  # times SQLite's speed; times that of one process
DENSE, SPARSE, MANY = 15_000, 1.5, 100_000  # events a second; seconds a batch; series

Goal = tuple[str, str, str]  # aim, found, verdict


def postgres_goals(found: dict[str, Any]) -> Iterator[Goal]:
    ratios = [row["ratio"] for row in found["bulk"]]
    goal = f"updates in bulk with forecasts at least {BULK:g} times as fast as with SQLite"
    yield goal, " and ".join(f"{ratio:g}" for ratio in ratios), met(min(ratios) >= BULK)
    posts = {(row["clients"], row["store"]): row for row in found["single"]}
    crowds = [clients for clients, store in posts if store == "sqlite" and clients > 1]
    taken, allowed = list[float](), list[float]()
    for clients in crowds:
        one, two = posts[clients, "postgres"], posts[clients, "postgres, 2 workers"]
        taken.append(two["per_second"] / one["per_second"])
        allowed.append(2 * one["service_cpu_us"] / two["service_cpu_us"])
    said = ", ".join(f"{ratio:.2f} with {clients} clients" for ratio, clients in zip(taken, crowds, strict=True))
    bound = ", ".join(f"{ratio:.2f}" for ratio in allowed)
    yield (
        f"two processes take at least {TWO_PROCESSES} times the single posts of one, where cores allow",
        f"{said}, on {found['machine']['cores']} cores that all share; with a core for each, by their CPU: {bound}",
        met(min(taken) >= TWO_PROCESSES),
    )


def spark_goals(found: dict[str, Any]) -> Iterator[Goal]:
    streams = found["streams"]
    for series in sorted({row["series"] for row in streams}):
        best = max(
            (row for row in streams if row["series"] == series), key=lambda row: row["dense"]["events_per_second"]
        )
        speed = best["dense"]["events_per_second"]
        yield (
            f"at least {DENSE:,} dense events/s with {series:,} series, on two cores",
            f"{speed:,}; {best['doubled']['events_per_second']:,} with two observations of each a batch",
            met(speed >= DENSE),
        )
    sparse = [row["sparse"] for row in streams if row["series"] == MANY]
    slowest = max(row["seconds_per_batch"] for row in sparse)
    goal = f"a batch of {sparse[0]['rows_per_batch']:,} series out of {MANY:,} in at most {SPARSE} s"
    yield goal, f"{slowest:.1f} s", met(slowest <= SPARSE)
