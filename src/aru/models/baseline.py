"""Baseline: the global network with an independent decoder.

mu = theta_mu [h, 1], sigma = softplus(theta_sigma [h, 1]).
"""

from __future__ import annotations

from torch import Tensor, nn

from aru.distributions import Params
from aru.models.base import Empty, Losses, Model, Output, sum_losses
from aru.models.network import Network
from aru.schema import Schema
from aru.settings import Settings
from aru.windows import Block, Grid


class Baseline(Model):
    """Frozen between trainings: new observations only move the context on."""

    adapts = False
    network: Network

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.head = nn.Linear(settings.network_size.hidden[-1], 2)

    def init_state(self, n: int) -> Empty:
        """Nothing but the context is kept."""
        return Empty()

    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """Likelihood of every window."""
        params, scale = self._run(block, grid)
        targets = self.network.targets(block, grid, scale, self.network.h)
        loss = self.value_losses(params, targets, scale.unsqueeze(-1))
        return sum_losses(loss, targets.observed, scored)

    def forecast(self, state: Empty, block: Block) -> Output:
        """The global forecast."""
        params, scale = self._run(block, Grid(0, 1, 1))
        failed = params.mu.new_zeros(len(scale), dtype=bool)  # type: ignore[call-overload]
        return Output(self.predictive(params, scale), failed)

    def _run(self, block: Block, grid: Grid) -> tuple[Params, Tensor]:
        x = self.network.inputs(block)
        origins = self.network.origins(block, x, grid)
        h, _ = self.network.decode(block, x, grid, origins, self.network.h)
        mu, raw = self.head(h).unbind(-1)
        return self.family.params(mu, raw), origins.scale
