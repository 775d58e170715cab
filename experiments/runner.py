"""Runs jobs side by side, each in a process of its own, and appends every row as soon as it is there."""

from __future__ import annotations

import csv
import multiprocessing
import multiprocessing.connection
import os
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.evaluate import FIELDS, Job, evaluate
from experiments.provenance import commit

Key = tuple[str, str, str, str, int]


def read_keys(path: Path) -> set[Key]:
    """The rows that a result file has."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {(r["dataset"], r["protocol"], r["method"], r["variant"], int(r["seed"])) for r in csv.DictReader(file)}


def append(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows; a new file begins with the names of the columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def run_all(jobs: Sequence[Job], out: Path, processes: int, budget: float) -> int:
    """Run what `out` lacks, first things first, for at most `budget` seconds; the number of jobs that are left."""
    end = time.monotonic() + budget
    done = read_keys(out)
    waiting = [job for job in jobs if job.key not in done]
    print(f"{len(jobs)} rows, {len(waiting)} of them missing", flush=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["aru", "aru.training", "experiments.evaluate"])  # imports are paid for once
    running: dict[Any, tuple[Any, Job]] = {}
    revision = commit()
    failed = 0
    try:
        while time.monotonic() < end:
            for job in [j for j in waiting if j.expected_seconds < end - time.monotonic()]:
                if len(running) >= processes:
                    break
                waiting.remove(job)
                receive, send = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(job, send), daemon=True)
                process.start()
                send.close()
                running[receive] = (process, job)
            if not running:
                break
            ready = multiprocessing.connection.wait(list(running), timeout=max(0.0, end - time.monotonic()))
            for receive in ready:
                process, job = running.pop(receive)
                rows = _receive(receive)
                process.join()
                if isinstance(rows, str):
                    failed += 1
                    print("FAILED", job.key, rows, flush=True)
                    continue
                append(out, [{**row, "commit": revision} for row in rows])
                for row in rows:
                    print(_line(row), flush=True)
    finally:
        for process, _ in running.values():
            process.terminate()
    left = len(waiting) + len(running) + failed
    print(f"{left} rows left, {failed} failed", flush=True)
    return left


def _work(job: Job, send: Any) -> None:
    try:
        send.send(evaluate(job))
    except Exception:  # noqa: BLE001: reported by the parent, the other jobs go on
        send.send(traceback.format_exc(limit=-3))


def _receive(receive: Any) -> list[dict[str, Any]] | str:
    try:
        return receive.recv()  # type: ignore[no-any-return]
    except EOFError:
        return "the process died"


def _line(row: dict[str, Any]) -> str:
    name = " ".join(str(row[k]) for k in ("dataset", "protocol", "method"))
    return (
        f"{name} [{row['variant']}] {row['seed']}: ND {row['nd']} RMSE {row['rmse']} CRPS {row['crps']} "
        f"cov {row['coverage90']} MASE {row['mase']} {row['seconds']} s"
    )
