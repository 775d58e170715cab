"""PostgreSQL against SQLite, and two processes against one: `python -m benchmarks.postgres [--rounds 9]`.

Starts a server of its own (tests/postgres.py) on this machine. All parties take turns in one run, so that what else the
machine does meets all of them; ratios are of middle rounds. "cpu" beside a figure is what the processes themselves
used. Writes `benchmarks/results/postgres.json`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psycopg
import torch

from aru import Stream
from benchmarks.recording import machine, write_json
from benchmarks.service import Service, cpu_of, single
from benchmarks.stream import frame, trained
from benchmarks.turns import Clock, in_turn
from tests.postgres import Server, new_url, running

SERIES = (1_000, 10_000)
CLIENTS = (1, 16, 64, 256)
POSTS = 24  # of each client in a round


class Costs(NamedTuple):
    """Seconds of a piece of work: on the clock, of CPU in this process, of CPU in the server."""

    wall: float
    cpu: float
    server: float


def bulk(server: Server, folder: Path, series: int, rounds: int) -> dict[str, Any]:
    """One observation of each series and new forecasts for all of them, in turn with each store."""
    ids = np.array([f"series-{i:06}" for i in range(series)])
    streams = {
        "sqlite": Stream(trained(), folder / f"bulk-{series}.db"),
        "postgres": Stream(trained(), new_url(server)),
    }
    found: dict[str, list[Costs]] = {name: [] for name in streams}
    for stream in streams.values():
        stream.update(frame(np.repeat(ids, 4), np.tile(np.arange(16, 20), series)))
    for turn in range(rounds):
        rows = frame(ids, 20 + turn)
        for name in in_turn(list(streams), turn):
            before = cpu_of(server.pid)
            stream = streams[name]
            clock = Clock.of(lambda stream=stream, rows=rows: (stream.update(rows), stream.predict(ids=ids)))  # type: ignore[misc]
            found[name].append(Costs(*clock, cpu_of(server.pid) - before))
    for stream in streams.values():
        stream.close()

    def middle(name: str, of: str) -> float:
        return statistics.median(getattr(costs, of) for costs in found[name][1:])

    return {
        "series": series,
        "sqlite_per_second": round(series / middle("sqlite", "wall")),
        "postgres_per_second": round(series / middle("postgres", "wall")),
        "ratio": round(middle("sqlite", "wall") / middle("postgres", "wall"), 2),
        "sqlite_cpu_us": round(1e6 * middle("sqlite", "cpu") / series, 1),
        "postgres_cpu_us": round(1e6 * middle("postgres", "cpu") / series, 1),
        "server_cpu_us": round(1e6 * middle("postgres", "server") / series, 1),
    }


def posts(server: Server, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Single posts to a service on SQLite, and to one of one and one of two processes on PostgreSQL."""
    trained().save(folder / "model")
    services = {
        "sqlite": Service(folder / "model", folder / "posts.db", "--no-monitor"),
        "postgres": Service(folder / "model", new_url(server), "--no-monitor"),
        "postgres, 2 workers": Service(folder / "model", new_url(server), "--no-monitor", "--workers", "2"),
    }
    results = []
    for clients in CLIENTS:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in services}
        for turn in range(rounds):
            for name in in_turn(list(services), turn):
                service = services[name]
                own, theirs, me = cpu_of(service.child.pid), cpu_of(server.pid), time.process_time()
                done = single(service, clients, POSTS, turn)
                count = clients * POSTS
                found[name].append(
                    {
                        "per_second": done["updates_per_second"],
                        "p50_ms": done["p50_ms"],
                        "service_cpu_us": 1e6 * (cpu_of(service.child.pid) - own) / count,
                        "server_cpu_us": 1e6 * (cpu_of(server.pid) - theirs) / count,
                        "client_cpu_us": 1e6 * (time.process_time() - me) / count,
                    }
                )
        for name, rows in found.items():
            middle = {key: round(statistics.median(row[key] for row in rows), 1) for key in rows[0]}
            results.append({"clients": clients, "store": name, **middle})
            print(results[-1], flush=True)
    for service in services.values():
        service.stop()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    before, results = machine(), {"bulk": [], "single": []}  # type: ignore[var-annotated]
    with tempfile.TemporaryDirectory() as name, running() as server:
        with psycopg.connect(server.url("postgres")) as session:
            version = session.info.server_version
        for series in SERIES:
            results["bulk"].append(bulk(server, Path(name), series, rounds))
            print(results["bulk"][-1], flush=True)
        results["single"] = posts(server, Path(name), rounds)
    write_json("postgres", results, before, postgresql=f"{version // 10000}.{version % 10000}")


if __name__ == "__main__":
    main()
