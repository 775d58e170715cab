"""The ridge solve: our kernel beside the Cholesky of torch.linalg, microseconds per system, in one run.

    python -m benchmarks.solve [--threads 2] [--out benchmarks/results/solve.csv]

On the CPU; elsewhere there is no kernel. The median of several rounds that alternate between the two.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from aru.nn import ridge as solver
from benchmarks.recording import RESULTS, write_table

DIMS = (7, 11, 16, 21, 33)
ALPHAS = 3


def systems(n: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(n, ALPHAS, dim + 5, dim, dtype=torch.float64)
    ridge = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    return x.mT @ x, torch.randn(n, ALPHAS, dim, dtype=torch.float64), ridge


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(dim: int, rounds: int) -> dict[str, object]:
    n = 2**17 // dim
    data = systems(n, dim)
    ways = {"torch": solver.solve_torch, "aru": solver.solve}
    for way in ways.values():
        way(*data)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(seconds(functools.partial(way, *data)))
    each = {name: 1e6 * statistics.median(values) / (n * ALPHAS) for name, values in times.items()}
    return {
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "dim": dim,
        "systems": n * ALPHAS,
        "torch_us": round(each["torch"], 4),
        "aru_us": round(each["aru"], 4),
        "ratio": round(each["torch"] / each["aru"], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS / "solve.csv")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for dim in DIMS:
        rows.append(compare(dim, options.rounds))
        print(*(f"{k} {v}" for k, v in rows[-1].items()), sep="  ", flush=True)
    write_table(options.out, rows)


if __name__ == "__main__":
    main()
