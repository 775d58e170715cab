"""ARU's network without local statistics; theta comes from elsewhere.

    generated   theta_o = W g_o + w   from the encoder's summary at the origin: a linear model of each window
    control     theta                 one for all series: as many weights as ARU, nothing local

m = theta [h, 1] and a spread a from the same source are combined with the network as in ARU.
"""

from __future__ import annotations

import abc

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from aru.data.schema import Schema
from aru.models.interface import HeadOnly, Losses, sum_losses
from aru.models.joint import Joint, Local
from aru.models.network import Features
from aru.nn.distributions import Params
from aru.nn.windows import Block, Grid
from aru.settings import Settings


class Unfitted(HeadOnly):
    """ARU with a theta that is not fitted to the series. It does not adapt."""

    ignores = frozenset({"ridge", "learn_ridge", "learn_alphas", "stride"})

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.shape = (len(settings.network.alphas), settings.network_size.hidden[-1] + 2)  # theta, and what gives a
        self.joint = Joint(settings, self.family)

    @abc.abstractmethod
    def parameters_at(self, g: Float[Tensor, "batch *window units"]) -> Float[Tensor, "batch *window J outputs"]:
        """theta and one number for the spread, at each origin."""

    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """Loss of every window, plus that of the global head's forecast, if there is one."""
        net = self.network
        features = net.run(block, grid)
        scale = features.origins.scale
        targets = net.targets(block, grid, scale, net.h)
        loss = self.value_losses(self.head_params(features), targets, scale.unsqueeze(-1))
        second = self.joint.second_forecast(features.h)
        if second is not None:
            loss = loss + self.value_losses(second, targets, scale.unsqueeze(-1))
        return sum_losses(loss, targets.observed, scored)

    def head_params(self, features: Features) -> Params:
        """Combine local and global forecast as ARU does."""
        h, local = features.h, self.parameters_at(features.origins.g)
        theta, a = local[..., :-1], softplus(local[..., -1])
        m = pad(h, (0, 1), value=1.0) @ theta.transpose(-1, -2)
        return self.joint(h, Local(m, a, torch.ones_like(a)), self.joint.prior(h))  # type: ignore[no-any-return]


class Generated(Unfitted):
    """theta from the encoder's summary of the context."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        J, outputs = self.shape
        self.generator = nn.Linear(self.network.encoder.units, J * outputs)

    def parameters_at(self, g: Float[Tensor, "batch *window units"]) -> Float[Tensor, "batch *window J outputs"]:
        """W g, cut into J thetas."""
        theta: Tensor = self.generator(g).reshape(-1, *(int(n) for n in g.shape[1:-1]), *self.shape)
        return theta


class Control(Unfitted):
    """theta common to all series and origins."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        J, outputs = self.shape
        self.theta = nn.Parameter(torch.empty(J, outputs).uniform_(-1, 1) / outputs**0.5)

    def parameters_at(self, g: Float[Tensor, "batch *window units"]) -> Float[Tensor, "batch *window J outputs"]:
        """The same everywhere."""
        return self.theta.expand(*g.shape[:-1], -1, -1)
