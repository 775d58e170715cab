"""Baseline: the global network with an independent decoder.

mu = theta_mu [h, 1], sigma = softplus(theta_sigma [h, 1]).
"""

from __future__ import annotations

from torch import Tensor

from aru.distributions import Params
from aru.models.base import Stateless
from aru.models.linear import Linear
from aru.models.network import Network
from aru.schema import Schema
from aru.settings import Settings
from aru.windows import Block, Grid


class Baseline(Stateless):
    """Frozen between trainings: new observations only move the context on."""

    network: Network

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.head = Linear(settings.network_size.hidden[-1], 2)

    def params(self, block: Block, grid: Grid) -> tuple[Params, Tensor]:
        """The global forecast."""
        _, origins, h = self.network.run(block, grid)
        mu, raw = self.head(h).unbind(-1)
        return self.family.params(mu, raw), origins.scale
