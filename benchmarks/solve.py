"""The ridge solve: our kernel beside torch.linalg's Cholesky, microseconds per system, in one run.

    python benchmarks/solve.py [--threads 2] [--out benchmarks/results/solve.csv]

On the machine's GPU, too, where there is one. The median of several rounds that alternate between the two.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from aru import kernels

DIMS = (7, 11, 16, 21, 33)
ALPHAS = 3


def systems(n: int, dim: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(n, ALPHAS, dim + 5, dim, dtype=torch.float64, device=device)
    ridge = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, device=device)
    return x.mT @ x, torch.randn(n, ALPHAS, dim, dtype=torch.float64, device=device), ridge


def seconds(work: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def compare(dim: int, device: str, rounds: int) -> dict[str, object]:
    n = 2**17 // dim if device == "cpu" else 2**21 // dim
    data = systems(n, dim, device)
    ways = {"torch": kernels.solve_plain, "aru": kernels.solve}
    for way in ways.values():
        way(*data)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(seconds(lambda way=way: way(*data), device))
    each = {name: 1e6 * statistics.median(values) / (n * ALPHAS) for name, values in times.items()}
    return {
        "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu",
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
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "solve.csv")
    parser.add_argument("--commit", help="where there is no repository")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    commit = options.commit or subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    rows = []
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        for dim in DIMS:
            row = compare(dim, device, options.rounds)
            rows.append({**row, "commit": commit, "date": datetime.date.today().isoformat()})
            print(*(f"{k} {v}" for k, v in row.items()), sep="  ", flush=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
