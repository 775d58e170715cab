"""Run one peer on one task: `python -m benchmarks.peers.worker FOLDER`.

Reads spec.json, panel.parquet, static.parquet and cutoffs.parquet; writes forecasts.parquet and report.json. The peer
sees y up to the cutoff of a window and never beyond: the rows are cut here.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import platform
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.peers.worker.interface import FORECAST, Peer, Spec


def main(folder: Path) -> None:
    """Fit once on the rows before the first cutoff, then forecast from every cutoff."""
    spec = Spec.read(folder / "spec.json")
    panel, static, cutoffs = read_frames(folder)
    peer: Peer = make_peer(spec, static)
    started = time.perf_counter()
    peer.fit(until(panel, cutoffs.iloc[:, 0]))
    train_seconds = time.perf_counter() - started
    frames = []
    started = time.perf_counter()
    for window in cutoffs:
        frame = peer.predict(until(panel, cutoffs[window]), after(panel, cutoffs[window], spec.h))
        columns = [c for c in FORECAST if c in frame]
        frames.append(frame[columns].assign(window=int(window)))
    predict_seconds = time.perf_counter() - started
    pd.concat(frames, ignore_index=True).to_parquet(folder / "forecasts.parquet")
    report = {
        "version": version(peer),
        "hardware": hardware(spec),
        "train_seconds": train_seconds,
        "predict_seconds": predict_seconds,
    }
    (folder / "report.json").write_text(json.dumps(report))


def read_frames(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Rows, static covariates and cutoffs: one row per series, one column per window."""
    panel, static, cutoffs = (pd.read_parquet(folder / f"{name}.parquet") for name in ("panel", "static", "cutoffs"))
    return panel, static, cutoffs


def make_peer(spec: Spec, static: pd.DataFrame) -> Any:
    """The peer that the specification names."""
    module, name = spec.entry.split(":")
    return getattr(importlib.import_module(module), name)(spec, static)


def version(peer: Peer) -> str:
    """The distributions that a result depends on."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in peer.libraries)


def until(panel: pd.DataFrame, cutoff: pd.Series[int]) -> pd.DataFrame:
    """The rows of each series up to its cutoff."""
    last = cutoff.to_numpy()[panel.unique_id]
    return panel[panel.step <= last].reset_index(drop=True)


def after(panel: pd.DataFrame, cutoff: pd.Series[int], h: int) -> pd.DataFrame:
    """The h rows of each series after its cutoff, without y."""
    last = cutoff.to_numpy()[panel.unique_id]
    return panel[(panel.step > last) & (panel.step <= last + h)].drop(columns="y").reset_index(drop=True)


def hardware(spec: Spec) -> str:
    """The GPU, if torch has been imported and may use it, or the processor."""
    torch = sys.modules.get("torch")
    if torch is not None and spec.accelerator != "cpu" and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    return f"{platform.machine()} CPU"


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main(Path(sys.argv[1]))
