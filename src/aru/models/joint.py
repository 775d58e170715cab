"""How local predictions join the global network. m: local means, a: local variances, one of each per aging factor.

    paper     mu = theta_mu FF2([h, m])                 sigma = softplus(theta_sigma FF2([h, a]))
    skip      mu = w . m + theta_mu FF2([h, m])         w starts at 1/J, theta_mu at zero
    residual  mu = mu_global + (w + FF2([h, m])) . m    m fits z - mu_global: empty, it IS the global forecast
    direct    mu = w . m                                sigma = softplus(w' . log sqrt(a)), small: about sqrt(a)

A global head on h is needed by `residual`, and by the robust weights of the statistics.
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
GLOBAL_SHARE = 0.3  # how far the loss of the global head shapes the network; with `skip` as much as the final loss does


class Local(NamedTuple):
    """Local predictions of the rows after each origin."""

    m: Float[Tensor, "batch *window lead J"]
    a: Float[Tensor, "batch *window J"]
    sn: Float[Tensor, "batch *window J"]  # how many observations stand behind them


class Joint(nn.Module):
    """From h and local predictions to the parameters of the output distribution."""

    def __init__(self, settings: Settings, family: Distribution) -> None:
        super().__init__()
        options = settings.network
        dim, J = settings.network_size.hidden[-1], len(options.alphas)
        self.integration = options.integration
        self.use_variance = True
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
        """The global head's two outputs, where there is one."""
        return None if self.global_head is None else self.global_head(h)

    def global_params(self, prior: Float[Tensor, "*shape 2"]) -> Params:
        """The global forecast."""
        mu, raw = prior.unbind(-1)
        return self.family.params(mu, raw)

    def second_forecast(self, h: Tensor) -> Params | None:
        """The global forecast to train beside the final one. Its loss shapes the network by a share alone."""
        if self.global_head is None:
            return None
        return self.global_params(self.global_head(h.detach() + self.global_share * (h - h.detach())))

    def forward(self, h: Float[Tensor, "batch *window lead dim"], local: Local, prior: Tensor | None) -> Params:
        """Parameters of the forecast of every lead; `prior` as given by the method of that name."""
        m, sn = local.m, local.sn.to(h.dtype)
        # Local standard deviation with one pseudo-observation: defined for an empty state, tame for a young one.
        spread = ((local.a * sn + SPREAD_PRIOR) / (sn + 1)).sqrt().clamp(0.01, 10.0)
        if not self.use_variance:
            spread = torch.zeros_like(spread)
        spread = spread.unsqueeze(-2)  # the same for every lead
        if self.integration == "direct":
            raw = self.out_sigma(spread.log() if self.use_variance else spread)[..., 0]
            return self.family.params(m @ self.mix, raw.expand(m.shape[:-1]))
        mu = _run([*self.ff_mu, self.out_mu], h, m)
        raw = _run([*self.ff_sigma, self.out_sigma], h, spread)[..., 0]
        if self.integration == "residual":
            assert prior is not None
            prior_mu, prior_raw = prior.unbind(-1)
            known = (sn / (sn + 1)).mean(-1).unsqueeze(-1)
            return self.family.params(prior_mu + ((self.mix + mu) * m).sum(-1), prior_raw + known * raw)
        mu = mu[..., 0]
        return self.family.params(mu + m @ self.mix if self.integration == "skip" else mu, raw)


def _two_layers(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(Linear(inputs, width), nn.ReLU(), Linear(width, width), nn.ReLU())


def _run(layers: Sequence[nn.Module], h: Tensor, local: Tensor) -> Tensor:
    """layers([h, local]) without concatenating, so that what is the same for every lead is computed once."""
    first, *rest = layers
    assert isinstance(first, Linear)
    of_h, of_local = first.weight.split([int(h.shape[-1]), int(local.shape[-1])], 1)
    x = affine(h, of_h, first.bias) + affine(local, of_local)
    rows = x.reshape(-1, first.out_features)  # as a matrix, which is an exported network's fastest form
    for layer in rest:
        rows = layer(rows)
    return rows.reshape(-1, *(int(n) for n in x.shape[1:-1]), int(rows.shape[-1]))


def _zero(layer: Linear) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
