"""The baseline, fine-tuned for each series: a gradient step on its output layer at every observation.

    W_i <- W_i - rate / (1 + |h|^2) dNLL(z; mu, sigma) / dW_i      with [mu, raw] = W_i [h, 1]

Training is the baseline's. Each series then fine-tunes its own copy of the output layer: what a library user would do
with an optimiser, for all series at once. Dividing by 1 + |h|^2 makes the rate independent of the size of h. The
gradient is clipped at norm 1, so that a single outlier cannot ruin the layer. Rows are learned from in order.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from aru.data.rows import Rows
from aru.data.schema import Schema
from aru.models.interface import CELL, Emitted, Losses, Output, sum_losses
from aru.models.network import Targets
from aru.models.windowed import Origin, WindowedModel, WindowState
from aru.nn.distributions import Params
from aru.nn.windows import Block, Context, Grid
from aru.settings import Settings

STEP_RATE = 0.01


class Moved(NamedTuple):
    """The difference between a series' output layer and the common one."""

    delta: Float[Tensor, "batch 2 dim"]


class Read(NamedTuple):
    """The input of the output layer at each lead, and the scale of the series."""

    h: Float[Tensor, "batch lead dim"]
    scale: Float[Tensor, " batch"]


class Examples(NamedTuple):
    """Rows to take a gradient step on."""

    h: Float[Tensor, "*batch row dim"]
    z: Float[Tensor, "*batch row"]
    observed: Bool[Tensor, "*batch row"]
    scale: Float[Tensor, "*batch row"]


class FineTuned(WindowedModel):
    """The fine-tuned baseline: it adapts by gradient steps, where ARU adapts in closed form."""

    ignores = CELL
    exported = MappingProxyType({"encode": Origin, "decode": Examples, "read": Read})

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.head = nn.Linear(settings.network_size.hidden[-1], 2)

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

    def begin_window(self, local: Moved) -> Moved:
        """Nothing to do: only h depends on the origin."""
        return local

    def read(self, context: Context, future: Rows) -> Read:
        """h of the leads after the context."""
        _, origins, h = self.network.run_now(context, future)
        return Read(h, origins.scale)

    def samples(self, context: Context, future: Rows) -> dict[str, tuple[Any, ...]]:
        """Arguments of the windowed model's functions, and of `read`."""
        return {**super().samples(context, future), "read": (context, future)}

    def forecast(self, state: WindowState, context: Context, future: Rows) -> Output:
        """The forecast of each series' own output layer."""
        h, scale = self.call("read", context, future)
        mu, sigma = self._params(self._common() + state.local.delta, h.unsqueeze(1))
        emitted = Emitted(mu.squeeze(1).double(), sigma.squeeze(1).double(), scale)
        return Output(self.predictive(emitted), torch.zeros(len(h), dtype=torch.bool, device=h.device))

    def lesson(
        self, h: Float[Tensor, "row 1 dim"], x: Tensor, targets: Targets, scale: Float[Tensor, "row 1"]
    ) -> Examples:
        """The rows unchanged."""
        return Examples(h, targets.z, targets.observed, scale.expand_as(targets.z))

    def learn(self, local: Moved, lesson: Examples, steps: Int[Tensor, " batch"]) -> Moved:
        """A gradient step on each row, in order."""
        delta = local.delta
        for t in range(lesson.h.shape[1]):
            row = Examples(*(v[:, t : t + 1] for v in lesson))
            delta = self._step(delta, row._replace(observed=row.observed & (t < steps).unsqueeze(1)))
        return Moved(delta)

    def _step(self, delta: Tensor, row: Examples) -> Tensor:
        """One gradient step of every series whose row was observed."""
        with torch.enable_grad():
            moved = delta.detach().requires_grad_()
            params = self._params(self._common().detach() + moved, row.h.unsqueeze(1))
            params = Params(*(p.squeeze(1) for p in params))
            loss = self.value_losses(params, Targets(row.z, row.observed), row.scale).sum()
            (gradient,) = torch.autograd.grad(loss, moved)
        size = (1 + row.h.square().sum(-1, keepdim=True)).sqrt()
        gradient = gradient / size
        step = STEP_RATE * gradient / (gradient.norm(dim=(1, 2), keepdim=True).clamp(min=1) * size)
        return torch.where(step.isfinite().all(-1, keepdim=True).all(1, keepdim=True), delta - step, delta)

    def _params(self, layer: Float[Tensor, "series 2 dim"], h: Float[Tensor, "batch window lead size"]) -> Params:
        mu, raw = (pad(h, (0, 1), value=1.0) @ layer.unsqueeze(1).mT).unbind(-1)
        return self.family.params(mu, raw)

    def _common(self) -> Tensor:
        return torch.cat([self.head.weight, self.head.bias.unsqueeze(1)], 1)
