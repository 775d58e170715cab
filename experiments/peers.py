"""What practitioners use, on the same windows and scores: rows for the grid from `benchmarks.peers`.

Peers forecast mean, median and a 90 % interval, so their CRPS stays empty.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

from experiments.evaluate import FIELDS, KEY, rounded
from experiments.grid import MAIN, MORE
from experiments.metrics import score
from experiments.tasks import make_task

PEERS = {"seasonal-naive": "seasonal-naive", "lightgbm": "lightgbm", "ets": "auto-ets", "arima": "auto-arima",
         "nhits": "nhits"}  # fmt: skip
ALONE = "y alone"  # without covariates
UNSCALED = ("walmart",)  # covariates that are constant in many a window, which NHITS does not stand


@dataclasses.dataclass(frozen=True)
class Peer:
    """One peer under one protocol."""

    dataset: str
    protocol: str
    method: str
    variant: str
    seed: int
    series: int | None = None
    steps: int | None = None

    KEY: ClassVar[tuple[str, ...]] = KEY
    FIELDS: ClassVar[tuple[str, ...]] = FIELDS

    @property
    def expected_seconds(self) -> float:
        """A rough guess."""
        return 30.0

    def compute(self) -> list[dict[str, Any]]:
        """Its row."""
        from benchmarks.peers.exchange import run_peer
        from benchmarks.peers.registry import PEERS as REGISTRY
        from benchmarks.peers.task import make_task as make_windows
        from benchmarks.peers.task import sample

        task = make_task(self.dataset, self.protocol, self.series)
        peer = REGISTRY[PEERS[self.method]]
        df = sample(task.df, peer.max_series)
        static = None if task.static is None else task.static[task.static.unique_id.isin(df.unique_id.unique())]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            windows = make_windows(df, static, task.settings, task.windows, task.step, task.season)
        if self.variant == ALONE:
            windows = windows.without_covariates()
        started = time.perf_counter()
        outcome = run_peer(peer, windows, seed=self.seed, steps=self.steps or peer.steps)
        result = score(outcome.frame, peer.name, task.train, task.season)
        return [
            {
                **{name: getattr(self, name) for name in KEY},
                **rounded(result),
                "seconds": round(time.perf_counter() - started, 1),
                "hardware": outcome.report["hardware"],
                "settings": outcome.report["version"],
            }
        ]


def peers(seeds: Iterable[int]) -> list[Peer]:
    """Quick ones first. Only NHITS draws random numbers; ARIMA has but a sample of series."""
    jobs = []
    for method in PEERS:
        for seed in seeds if method == "nhits" else [0]:
            for dataset, protocol in [*MAIN, *MORE]:
                jobs.append(Peer(dataset, protocol, method, "100 series" if method == "arima" else "", seed))
                if method == "nhits" and dataset in UNSCALED:
                    jobs.append(Peer(dataset, protocol, method, ALONE, seed))
    return jobs
