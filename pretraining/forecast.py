"""Forecasts of plain arrays by a network, through the code that ships."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from aru.pretrained.ahead import forecast
from aru.pretrained.patches import CONTEXT, LEVELS, PatchNetwork
from aru.pretrained.seasons import found

Forecast = Callable[[list[np.ndarray], int, tuple[int, int] | None], np.ndarray]
"""From contexts, h and periods to the quantiles, of shape (series, h, levels)."""


@torch.no_grad()
def quantiles_of(
    network: PatchNetwork, contexts: list[np.ndarray], h: int, periods: tuple[int, int] | None
) -> np.ndarray:
    """Quantiles of the next h values of each series in the user's units, (series, h, levels). NaN is missing.

    Periods are those of the frequency, (0, 0) if there are none to tell, or None to find them in each series.
    """
    device = network.place.device
    rows = min(CONTEXT, max(map(len, contexts)))
    values = np.full((len(contexts), rows), np.nan)
    for row, context in zip(values, contexts, strict=True):
        row[rows - min(rows, len(context)) :] = context[-rows:]
    y = torch.from_numpy(values).to(device)

    def run(z: Tensor, known: Tensor, _: Tensor | None) -> Tensor:
        told = found(z, known) if periods is None else torch.tensor([periods], device=device)
        return network(z, known, told)

    observed = y.isfinite()
    return forecast(run, network.size, torch.where(observed, y, 0.0), observed, h, periods).cpu().numpy()


def forecaster(network: PatchNetwork, batch: int = 1024) -> Forecast:
    """A network as `evaluate` wants it; series of similar length share a batch."""

    def forecasts(contexts: list[np.ndarray], h: int, periods: tuple[int, int] | None) -> np.ndarray:
        network.eval()
        out = np.empty((len(contexts), h, len(LEVELS)))
        order = np.argsort([len(c) for c in contexts], kind="stable")
        for start in range(0, len(order), batch):
            which = order[start : start + batch]
            out[which] = quantiles_of(network, [contexts[i] for i in which], h, periods)
        return out

    return forecasts
