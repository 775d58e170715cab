"""Runs jobs side by side, each in a process of its own, and appends every row as soon as it is there."""

from __future__ import annotations

import csv
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from experiments.provenance import commit

Key = tuple[str, ...]


class Work(Protocol):
    """Something to compute: columns of its rows, those that name it, a guess of its time."""

    KEY: ClassVar[tuple[str, ...]]
    FIELDS: ClassVar[tuple[str, ...]]

    @property
    def expected_seconds(self) -> float: ...

    def compute(self) -> list[dict[str, Any]]: ...


def key_of(job: Work) -> Key:
    """What makes a row the same row, as a result file writes it."""
    return tuple(_text(getattr(job, name)) for name in job.KEY)


def settings_by_entry(jobs: Sequence[Work]) -> dict[Key, str]:
    """The settings of each entry, which all its seeds share. Keys end with the seed and the settings."""
    return {key[:-2]: key[-1] for key in map(key_of, jobs)}


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)


def missing(jobs: Sequence[Work], path: Path) -> list[Work]:
    """The jobs whose rows a result file does not have."""
    done: set[Key] = set()
    if path.exists() and jobs:
        with path.open(newline="") as file:
            done = {tuple(row[name] for name in jobs[0].KEY) for row in csv.DictReader(file)}
    return [job for job in jobs if key_of(job) not in done]


def append(path: Path, fields: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Add rows; a new file begins with the names of the columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def run_all(jobs: Sequence[Work], out: Path, processes: int, budget: float) -> int:
    """Run what `out` lacks, first things first, for at most `budget` seconds; the number of jobs that are left."""
    end = time.monotonic() + budget
    waiting = missing(jobs, out)
    print(f"{len(jobs)} runs, {len(waiting)} of them missing", flush=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "aru",
            "aru.training",
            *(f"experiments.{name}" for name in ("evaluate", "curves", "forecasts", "zeroshot", "learning")),
        ]
    )  # imports are paid for once
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the processes below end, too
    running: dict[Any, tuple[Any, Work]] = {}
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
                    print("FAILED", *key_of(job), rows, flush=True)
                    continue
                append(out, job.FIELDS, [{**row, "commit": revision} for row in rows])
                print(_line(rows[0], job), f"and {len(rows) - 1} more rows" if rows[1:] else "", flush=True)
    finally:
        for process, _ in running.values():
            process.kill()  # Lightning takes its time over a request to end
    left = len(waiting) + len(running) + failed
    print(f"{left} runs left, {failed} of them failed", flush=True)
    return left


def _work(job: Work, send: Any) -> None:
    try:
        send.send(job.compute())
    except Exception:  # noqa: BLE001 - the parent reports it, the other jobs go on
        send.send(traceback.format_exc(limit=-3))


def _receive(receive: Any) -> list[dict[str, Any]] | str:
    try:
        return receive.recv()  # type: ignore[no-any-return]
    except EOFError:
        return "the process died"


def _line(row: dict[str, Any], job: Work) -> str:
    name = ", ".join(str(row[k]) for k in job.KEY if row[k] != "" and k != "settings")
    shown = ("nd", "rmse", "coverage90", "mase", "wql", "seconds")
    return f"{name}: " + " ".join(f"{k} {row[k]}" for k in shown if k in row)
