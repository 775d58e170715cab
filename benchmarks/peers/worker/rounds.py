"""What an observation costs a peer: `python -m benchmarks.peers.worker.rounds FOLDER`.

In a round one new row of every series arrives, then the horizon is forecast. Beside the files of the other worker this
one reads plan.json: how many series, how long a round may take, and where the trained peer is kept. It writes
rounds.json.
"""

from __future__ import annotations

import json
import pickle
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.peers.worker.__main__ import after, make_peer, read_frames, until, version
from benchmarks.peers.worker.interface import Spec, Streaming


def main(folder: Path) -> None:
    """Train, or find what was trained before, then measure."""
    spec, plan = Spec.read(folder / "spec.json"), json.loads((folder / "plan.json").read_text())
    panel, static, cutoffs = read_frames(folder)
    kept = Path(plan["model"])
    if not kept.exists():
        peer = make_peer(spec, static)
        started = time.perf_counter()
        peer.fit(until(panel, cutoffs.iloc[:, 0]))
        kept.write_bytes(pickle.dumps({"peer": peer, "seconds": time.perf_counter() - started}))
    trained = pickle.loads(kept.read_bytes())
    peer = trained["peer"]
    sizes = measure(peer, panel, static, cutoffs, spec.h, plan["series"], plan["limit"])
    report = {"version": version(peer), "train_seconds": round(trained["seconds"], 1), "sizes": list(sizes)}
    (folder / "rounds.json").write_text(json.dumps(report))


def measure(
    peer: Streaming,
    panel: pd.DataFrame,
    static: pd.DataFrame,
    cutoffs: pd.DataFrame,
    h: int,
    sizes: Sequence[int],
    limit: float,
) -> Iterator[dict[str, Any]]:
    """Microseconds per observation for each number of series, of the clock and of all cores, and the error.

    The first round brings nothing new and warms up. Where a round would take longer than `limit` seconds, the figure
    is that of the largest number that did not: `timed` is smaller than `series`, and there is no error.
    """
    found: dict[str, Any] = {"us": 0.0}
    for n in sizes:
        if found["us"] * n > 1e6 * limit:
            yield {**found, "series": n, "nd": None}
            continue
        copies = choose(n, len(cutoffs))
        rows, ends = repeat(panel, copies), cutoffs.iloc[copies].reset_index(drop=True)
        names = np.arange(n)
        peer.host(until(rows, ends.iloc[:, 0]), static.iloc[copies].assign(unique_id=names), copies)
        clocks, frames = [], []
        for window in ends:
            asked = peer.read(until(rows, ends[window]), after(rows, ends[window], h))
            begun = clock()
            frame = peer.answer(asked)
            clocks.append([end - begin for begin, end in zip(begun, clock(), strict=True)])
            frames.append(frame[["unique_id", "step", "median"]])
        wall, cpu = (round(1e6 * statistics.median(kind[1:]) / n, 3) for kind in zip(*clocks, strict=True))
        found = {"series": n, "timed": n, "us": wall, "cpu_us": cpu, "nd": round(error(rows, frames), 5)}
        yield found


def clock() -> tuple[float, float]:
    """Seconds of the clock, and of all cores for this process and its children."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used)


def choose(n: int, real: int) -> NDArray[np.int64]:
    """Which series of the dataset each of n series is: a fixed sample, or all of them again and again."""
    if n > real:
        return np.sort(np.arange(n) % real)
    return np.sort(np.random.default_rng(0).choice(real, n, replace=False))


def repeat(panel: pd.DataFrame, copies: NDArray[np.int64]) -> pd.DataFrame:
    """The rows of series copies[i] as those of series i; a panel is sorted."""
    lengths = np.bincount(panel.unique_id)
    n = lengths[copies]
    before = (np.cumsum(lengths) - lengths)[copies] - (np.cumsum(n) - n)
    at = np.repeat(before, n) + np.arange(n.sum())
    return panel.iloc[at].assign(unique_id=np.repeat(np.arange(len(copies)), n)).reset_index(drop=True)


def error(rows: pd.DataFrame, frames: Sequence[pd.DataFrame]) -> float:
    """ND of the medians: sum of |y - median| over sum of |y|, all rounds pooled."""
    truth = rows[["unique_id", "step", "y"]]
    scored = pd.concat(frames).merge(truth, on=["unique_id", "step"], how="left", validate="many_to_one")
    lost = ~np.isfinite(scored["median"])
    if lost.any():
        raise ValueError(f"{int(lost.sum())} of {len(scored)} forecasts are not finite")
    return float((scored.y - scored["median"]).abs().sum() / scored.y[scored.y.notna()].abs().sum())


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main(Path(sys.argv[1]))
