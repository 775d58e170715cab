"""Baseline: the global network with an independent decoder.

mu = theta_mu [h, 1], sigma = softplus(theta_sigma [h, 1]).
"""

from __future__ import annotations

from aru.data.schema import Schema
from aru.models.interface import HeadOnly
from aru.models.network import Features
from aru.nn.distributions import Params
from aru.nn.linear import Linear
from aru.settings import Settings


class Baseline(HeadOnly):
    """The baseline. It does not adapt: new observations only move its context."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.head = Linear(settings.network_size.hidden[-1], 2)

    def head_params(self, features: Features) -> Params:
        """The global forecast."""
        mu, raw = self.head(features.h).unbind(-1)
        return self.family.params(mu, raw)
