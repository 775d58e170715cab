"""Combine local predictions with the global network: local means m and variances a, one of each per aging factor.

    paper     mu = theta_mu FF2([h, m])                 sigma = softplus(theta_sigma FF2([h, a]))
    skip      mu = w . m + theta_mu FF2([h, m])         w starts at 1/J, theta_mu at zero
    residual  mu = mu_global + (w + FF2([h, m])) . m    m fits z - mu_global: empty, it IS the global forecast
    direct    mu = w . m                                sigma = softplus(w' . log sqrt(a)), small: about sqrt(a)

`residual` and the robust weights of the statistics need a global head on h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aru.nn.distributions import Distribution, Params
from aru.nn.linear import Linear, affine
from aru.settings import Settings

SPREAD_PRIOR = 0.1  # ss of one pseudo-observation, so that the local spread of an empty state is moderate
GLOBAL_SHARE = 0.3  # share of the global head's gradient that reaches the network; with `skip` all of it does


class Local(NamedTuple):
    """Local predictions of the rows after each origin."""

    m: Float[Tensor, "batch *window lead J"]
    a: Float[Tensor, "batch *window J"]
    sn: Float[Tensor, "batch *window J"]  # effective number of observations


class Joint(nn.Module):
    """From h and local predictions to the parameters of the output distribution."""

    def __init__(self, settings: Settings, family: Distribution) -> None:
        super().__init__()
        options = settings.network
        dim, J = settings.network_size.hidden[-1], len(options.alphas)
        self.integration = options.integration
        self.family = family
        residual, direct = options.integration == "residual", options.integration == "direct"
        self.global_head = Linear(dim, 2) if options.robust or residual else None
        self.global_share = 1.0 if options.integration == "skip" else GLOBAL_SHARE
        if options.integration != "paper":
            self.mix = nn.Parameter(torch.full((J,), 1 / J))
        if direct:
            self.out_sigma = Linear(J, 1)
            nn.init.constant_(self.out_sigma.weight, 1 / J)
            nn.init.zeros_(self.out_sigma.bias)
            return
        self.ff_mu = _two_layers(dim + J, dim)
        self.ff_sigma = _two_layers(dim + J, dim)
        self.out_mu = Linear(dim, J if residual else 1)
        self.out_sigma = Linear(dim, 1)
        if options.integration != "paper":
            _zero(self.out_mu)
        if residual:
            _zero(self.out_sigma)

    def prior(self, h: Tensor) -> Tensor | None:
        """The two outputs of the global head; None without one."""
        return None if self.global_head is None else self.global_head(h)

    def global_params(self, prior: Float[Tensor, "*shape 2"]) -> Params:
        """The global forecast."""
        mu, raw = prior.unbind(-1)
        return self.family.params(mu, raw)

    def second_forecast(self, h: Tensor) -> Params | None:
        """The global forecast, trained with the final one. Only a share of its gradient reaches the network."""
        if self.global_head is None:
            return None
        return self.global_params(self.global_head(h.detach() + self.global_share * (h - h.detach())))

    def spread(self, local: Local) -> Float[Tensor, "batch *window J"]:
        """What sigma reads of the local fit: its standard deviation, or with `direct` the logarithm of that.

        The pseudo-observation makes it moderate after few or no observations.
        """
        sn = local.sn.to(local.a.dtype)
        deviation = ((local.a * sn + SPREAD_PRIOR) / (sn + 1)).sqrt().clamp(0.01, 10.0)
        return deviation.log() if self.integration == "direct" else deviation

    def forward(self, h: Float[Tensor, "batch *window lead dim"], local: Local, prior: Tensor | None) -> Params:
        """Parameters of the forecast of every lead; `prior` is the result of `self.prior`."""
        m, spread = local.m, self.spread(local).unsqueeze(-2)  # the same for every lead
        if self.integration == "direct":
            raw = self.out_sigma(spread)[..., 0]
            return self.family.params(m @ self.mix, raw.expand(m.shape[:-1]))
        mu = _run([*self.ff_mu, self.out_mu], h, m)
        raw = _run([*self.ff_sigma, self.out_sigma], h, spread)[..., 0]
        if self.integration == "residual":
            assert prior is not None
            prior_mu, prior_raw = prior.unbind(-1)
            sn = local.sn.to(h.dtype)
            known = (sn / (sn + 1)).mean(-1).unsqueeze(-1)
            return self.family.params(prior_mu + ((self.mix + mu) * m).sum(-1), prior_raw + known * raw)
        mu = mu[..., 0]
        return self.family.params(mu + m @ self.mix if self.integration == "skip" else mu, raw)


def _two_layers(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(Linear(inputs, width), nn.ReLU(), Linear(width, width), nn.ReLU())


def _run(layers: Sequence[nn.Module], h: Tensor, local: Tensor) -> Tensor:
    """layers([h, local]) without concatenation, so that parts that are equal for all leads are computed once."""
    first, *rest = layers
    assert isinstance(first, Linear)
    of_h, of_local = first.weight.split([int(h.shape[-1]), int(local.shape[-1])], 1)
    x = affine(h, of_h, first.bias) + affine(local, of_local)
    rows = x.reshape(-1, first.out_features)  # matrices are fastest in exported networks
    for layer in rest:
        rows = layer(rows)
    return rows.reshape(-1, *(int(n) for n in x.shape[1:-1]), int(rows.shape[-1]))


def _zero(layer: Linear) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
