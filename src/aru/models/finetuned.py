"""The baseline, fine-tuned for each series: `finetune_steps` gradient steps on its output layer at every observation.

    W_i <- W_i - rate / (1 + |h|^2) dNLL(z; mu, sigma) / dW_i      with [mu, raw] = W_i [h, 1]

Training is the baseline's. Each series then moves a copy of the output layer of its own, starting from the common one:
what a library user would do with an optimiser, for all series at once. Dividing by 1 + |h|^2 makes the rate independent
of the size of h; the gradient is cut at norm 1, so that a single outlier cannot throw the layer away. Rows are learned
from one after the other: the weights of a row depend on those before it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from aru.distributions import Params
from aru.models.adapting import AdaptingModel, AdaptingState, Decoded
from aru.models.base import CELL, Losses, Output, sum_losses
from aru.models.network import Targets
from aru.schema import Schema
from aru.settings import Settings
from aru.windows import Block, Grid

RATE = 0.01


class Moved(NamedTuple):
    """How far a series' output layer has moved from the common one."""

    delta: Float[Tensor, "batch 2 dim"]


class FineTuned(AdaptingModel):
    """Adapts by gradients where ARU adapts in closed form."""

    ignores = CELL

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.head = nn.Linear(settings.network_size.hidden[-1], 2)
        self.steps = settings.finetune_steps

    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """The baseline's: all series share one output layer."""
        _, origins, h = self.network.run(block, grid)
        scale = origins.scale
        targets = self.network.targets(block, grid, scale, self.network.h)
        loss = self.value_losses(self._params(self._common()[None], h), targets, scale.unsqueeze(-1))
        return sum_losses(loss, targets.observed, scored)

    def init_local(self, n: int) -> Moved:
        """The common output layer."""
        return Moved(torch.zeros(n, *self._common().shape, device=self._common().device))

    def forecast(self, state: AdaptingState, block: Block) -> Output:
        """The forecast of each series' own output layer."""
        _, origins, h = self.network.run(block, Grid(0, 1, 1))
        params = self._params(self._common() + state.local.delta, h)
        return Output(self.predictive(params, origins.scale), torch.zeros(len(h), dtype=torch.bool, device=h.device))

    def learn(self, local: Moved, rows: Decoded, steps: Int[Tensor, " batch"]) -> Moved:
        """Gradient steps on each of the rows."""
        return self.learn_windows(local, rows, steps.unsqueeze(1), torch.zeros_like(steps))

    def learn_windows(
        self, local: Moved, rows: Decoded, steps: Int[Tensor, "batch window"], last: Int[Tensor, " batch"]
    ) -> Moved:
        """Gradient steps on each row of each window, in order."""
        exists = torch.arange(rows.h.shape[2], device=steps.device) < steps.unsqueeze(-1)
        z, usable = rows.targets.z.flatten(1), (rows.targets.observed & exists).flatten(1)
        scale = rows.scale.expand_as(rows.targets.z).flatten(1)
        h, delta = rows.h.flatten(1, 2), local.delta
        for t in range(h.shape[1]):
            at = slice(t, t + 1)
            for _ in range(self.steps):
                delta = self._step(delta, h[:, at], Targets(z[:, at], usable[:, at]), scale[:, at])
        return Moved(delta)

    def _step(self, delta: Tensor, h: Float[Tensor, "batch 1 dim"], row: Targets, scale: Tensor) -> Tensor:
        """One gradient step of every series whose row was observed."""
        with torch.enable_grad():
            moved = delta.detach().requires_grad_()
            params = self._params(self._common().detach() + moved, h.unsqueeze(1))
            loss = self.value_losses(Params(*(p.squeeze(1) for p in params)), row, scale).sum()
            (gradient,) = torch.autograd.grad(loss, moved)
        size = (1 + h.square().sum(-1, keepdim=True)).sqrt()
        gradient = gradient / size
        step = RATE * gradient / (gradient.norm(dim=(1, 2), keepdim=True).clamp(min=1) * size)
        return torch.where(step.isfinite().all(-1, keepdim=True).all(1, keepdim=True), delta - step, delta)

    def _params(self, layer: Float[Tensor, "series 2 dim"], h: Float[Tensor, "batch window lead size"]) -> Params:
        mu, raw = (pad(h, (0, 1), value=1.0) @ layer.unsqueeze(1).mT).unbind(-1)
        return self.family.params(mu, raw)

    def _common(self) -> Tensor:
        return torch.cat([self.head.weight, self.head.bias.unsqueeze(1)], 1)
