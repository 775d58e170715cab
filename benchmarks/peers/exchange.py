"""Run a peer in its own process and environment: files in, files out."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.peers.environments import ROOT, PeerError, interpreter
from benchmarks.peers.registry import PeerInfo
from benchmarks.peers.task import Task


class Outcome(NamedTuple):
    """Forecasts of all windows, and the worker's report: version, hardware, seconds."""

    frame: pd.DataFrame
    report: dict[str, Any]


def run_peer(
    peer: PeerInfo, task: Task, *, seed: int = 0, steps: int | None = None, accelerator: str = "auto"
) -> Outcome:
    """Forecast every window of a task with a peer."""
    with tempfile.TemporaryDirectory(prefix="aru-peer-") as name:
        folder = Path(name)
        task.write(folder)
        task.spec(peer.entry, seed, steps or peer.steps, accelerator).write(folder / "spec.json")
        work(peer, "benchmarks.peers.worker", folder)
        forecasts = pd.read_parquet(folder / "forecasts.parquet")
        report = json.loads((folder / "report.json").read_text())
    frame = task.backtest(forecasts, peer.name)
    _check(frame, peer)
    return Outcome(frame, report)


def work(peer: PeerInfo, module: str, folder: Path, **variables: str) -> None:
    """Run a worker's module on a folder in the peer's environment, with further environment variables."""
    python = interpreter(peer.group)
    command, environment = [str(python), "-m", module, str(folder)], _environment() | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise PeerError(f"{peer.name} failed in {python}:\n{last}")


def _environment() -> dict[str, str]:
    """The parent's variables, but of its Python path only the repository's root."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return inherited | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def _check(frame: pd.DataFrame, peer: PeerInfo) -> None:
    """Every row of every window must have finite forecasts."""
    columns = [c for c in frame if c.startswith(peer.name)]
    lost = frame[~np.isfinite(frame[columns]).all(axis=1)]
    if len(lost):
        shown = lost[["unique_id", "ds", "cutoff"]].head(3).to_dict("records")
        raise PeerError(f"{peer.name} gave no finite forecast for {len(lost)} of {len(frame)} rows, first {shown}")
