"""The peers: where each is implemented, which environment it needs, what it can do."""

from __future__ import annotations

import dataclasses

WORKER = "benchmarks.peers.worker"


@dataclasses.dataclass(frozen=True)
class PeerInfo:
    """A peer, by what the parent has to know about it."""

    name: str
    group: str  # environment, see environments.py
    entry: str  # "module:callable" on the worker's side
    about: str
    steps: int = 0  # training steps (trees for boosting) unless told otherwise; 0: it has none
    max_series: int | None = None  # where the whole dataset would take days


PEERS = {
    peer.name: peer
    for peer in (
        PeerInfo("seasonal-naive", "own", f"{WORKER}.naive:SeasonalNaive", "the latest value of the same season"),
        PeerInfo("auto-ets", "nixtla", f"{WORKER}.statistical:auto_ets", "statsforecast, refitted at every cutoff"),
        PeerInfo(
            "auto-arima",
            "nixtla",
            f"{WORKER}.statistical:auto_arima",
            "statsforecast, refitted at every cutoff",
            max_series=100,
        ),
        PeerInfo(
            "lightgbm",
            "nixtla",
            f"{WORKER}.boosting:LightGBMPeer",
            "mlforecast: lags, covariates, calendar",
            steps=500,
        ),
        PeerInfo("nhits", "nixtla", f"{WORKER}.neural:nhits", "neuralforecast, quantile loss", steps=1000),
        PeerInfo("deepar", "nixtla", f"{WORKER}.neural:deepar", "neuralforecast, Student-t", steps=1000),
        PeerInfo(
            "snarimax",
            "river",
            f"{WORKER}.online:SNARIMAXPeer",
            "River, online, one model per series",
        ),
        PeerInfo(
            "gluonts-deepar", "gluonts", f"{WORKER}.gluon:GluonDeepARPeer", "GluonTS in torch, Student-t", steps=5000
        ),
    )
}
