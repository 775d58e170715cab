"""ARU: the global network whose last layer is refitted for every series, in closed form, at every observation.

The cell regresses z on h with per-series statistics. Its local mean m and variance a join the global network by one of

    paper     mu = theta_mu FF2([h, m])                 sigma = softplus(theta_sigma FF2([h, a]))
    skip      mu = w . m + theta_mu FF2([h, m])         w starts at 1/J, theta_mu at zero
    residual  mu = mu_global + (w + FF2([h, m])) . m    the cell fits z - mu_global: empty, it IS the global forecast

With `robust`, an observation enters the statistics with the Student-t weight of its residual against a global head,
which is trained beside the final one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aru.cell import ARUCell, ARUState
from aru.distributions import Params, student_weight
from aru.models.base import Losses, Model, Output, sum_losses
from aru.models.network import Network, Origins, Targets
from aru.schema import Schema
from aru.settings import Settings
from aru.state import put, take
from aru.windows import Block, Grid, leads, shift_block

SPREAD_PRIOR = 0.1  # ss of one pseudo-observation, so that the local spread of an empty state is moderate


class LocalState(NamedTuple):
    """What ARU keeps of a series: its statistics, and what the latest grid origin knew."""

    stats: ARUState
    theta: Float[Tensor, "batch J dim"]
    g: Float[Tensor, "batch units"]
    scale: Float[Tensor, " batch"]
    carry: Float[Tensor, "batch _"]  # memory of the decoder's RNN, if it has one


class Local(NamedTuple):
    """Local predictions beside the h they were made from."""

    h: Float[Tensor, "batch window lead dim"]
    m: Float[Tensor, "batch window lead J"]
    a: Float[Tensor, "batch window J"]
    sn: Float[Tensor, "batch window J"]
    prior: Tensor | None  # output of the global head, before activation


class ARU(Model):
    """Adapts to every observation of every series."""

    adapts = True
    network: Network

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        _, second, dim = settings.network_size.hidden
        J = len(settings.alphas)
        self.integration = settings.integration
        self.robust = settings.robust
        self.use_variance = settings.local_variance
        self.global_weight = settings.global_loss
        self.global_head = nn.Linear(dim, 2) if settings.robust or settings.integration == "residual" else None
        width = {"h": dim, "x": dim, "raw": self.network.x_width}[settings.cell_input]
        self.cell_input = settings.cell_input
        self.cell_features = (
            nn.Sequential(nn.Linear(self.network.x_width, second), nn.ReLU(), nn.Linear(second, dim), nn.ReLU())
            if settings.cell_input == "x"
            else nn.Identity()
        )
        self.cell = ARUCell(
            width, settings.alphas, settings.ridge, settings.learn_ridge, settings.learn_alphas, settings.stop_gradient
        )
        self.ff_mu = _two_layers(dim + J, dim)
        self.ff_sigma = _two_layers(dim + J, dim)
        self.out_mu = nn.Linear(dim, J if settings.integration == "residual" else 1)
        self.out_sigma = nn.Linear(dim, 1)
        if settings.integration != "paper":
            self.mix = nn.Parameter(torch.full((J,), 1 / J))
            _zero(self.out_mu)
        if settings.integration == "residual":
            _zero(self.out_sigma)

    def init_state(self, n: int) -> LocalState:
        """Zero statistics: the local mean and variance are 0."""
        stats = self.cell.init_state(n)
        device = stats.sn.device
        carry = self.network.decoder.widths[0] if self.network.decoder.rnn is not None else 0
        return LocalState(
            stats=stats,
            theta=torch.zeros_like(stats.sxy),
            g=torch.zeros(n, self.network.encoder.units, device=device),
            scale=torch.ones(n, dtype=torch.float64, device=device),
            carry=torch.zeros(n, carry, device=device),
        )

    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """Likelihood of every window given the statistics of those before it, with gradients through them."""
        net = self.network
        x = net.inputs(block)
        origins = net.origins(block, x, grid)
        h, _ = net.decode(block, x, grid, origins, net.h)
        targets = net.targets(block, grid, origins.scale, net.h)
        scale = origins.scale.unsqueeze(-1)
        prior = None if self.global_head is None else self.global_head(h)
        u, w = self._cell_rows(targets, prior, scale)
        S = net.stride
        out = self.cell.scan_windows(
            self.cell.init_state(h.shape[0]),
            self._cell_input(h, x, grid),
            u[:, :, :S],
            (targets.observed & origins.begun.unsqueeze(-1))[:, :, :S],
            None if w is None else w[:, :, :S],
        )
        params = self._head(Local(h, out.mean, out.variance, out.sn, prior))
        loss = self.value_losses(params, targets, scale)
        if self.global_head is not None:
            # The global head always learns; how far its loss shapes the network is a setting.
            shaped = h.detach() + self.global_weight * (h - h.detach())
            loss = loss + self.value_losses(self._global_params(self.global_head(shaped)), targets, scale)
        return sum_losses(loss, targets.observed, scored, out.failed)

    def forecast(self, state: LocalState, block: Block) -> Output:
        """Forecast with theta of all observations so far and the context up to now."""
        net, grid = self.network, Grid(0, 1, 1)
        x = net.inputs(block)
        origins = net.origins(block, x, grid)
        h, _ = net.decode(block, x, grid, origins, net.h)
        prior = None if self.global_head is None else self.global_head(h)
        theta, failed = self.cell.solve(state.stats)
        hc = self._cell_input(h, x, grid).squeeze(1)
        m = (nn.functional.pad(hc.double(), (0, 1), value=1.0) @ theta.mT).to(h.dtype).unsqueeze(1)
        a = self.cell.variance(state.stats).to(h.dtype).unsqueeze(1)
        params = self._head(Local(h, m, a, state.stats.sn.unsqueeze(1), prior))
        return Output(self.predictive(params, origins.scale), failed)

    def update(
        self, state: LocalState, block: Block, position: Int[Tensor, " batch"], steps: Int[Tensor, " batch"]
    ) -> LocalState:
        """Each row updates the statistics once, with the h of the latest grid origin before it.

        First the rest of the current window, whose origin the state remembers; then, for series that reach their next
        origin, all further windows at once.
        """
        S = self.network.stride
        left = S - position  # rows until the next origin; a new series reaches its first one with its first value
        state = self._finish_window(state, block, position, torch.minimum(left, steps))
        reached = (steps >= left).nonzero().squeeze(-1)
        if len(reached) == 0:
            return state
        rest = steps[reached] - left[reached]
        windows = int(rest.max()) // S + 1
        further = shift_block(
            Block._make(v[reached] for v in block), left[reached], windows * S, self.network.input_size
        )
        return put(state, reached, self._run_windows(take(state, reached), further, rest, windows))

    def age(self, state: LocalState, steps: Int[Tensor, " batch"]) -> LocalState:
        """Unobserved steps only age the statistics."""
        kept = self.cell.alphas ** steps.unsqueeze(1)
        stats = ARUState(*(kept.reshape(*kept.shape, *(1,) * (v.ndim - 2)) * v for v in state.stats))
        return state._replace(stats=stats)

    def _finish_window(self, state: LocalState, block: Block, position: Tensor, steps: Tensor) -> LocalState:
        """Absorb rows that follow the origin in the state."""
        net, n, grid = self.network, int(steps.max()), Grid(0, 1, 1)
        x = net.inputs(block)
        begun = block.count > 0
        origins = Origins(state.g.unsqueeze(1), state.scale.unsqueeze(1), begun.unsqueeze(1))
        h, memory = net.decode(block, x, grid, origins, n, state.carry if net.decoder.rnn is not None else None)
        targets = net.targets(block, grid, origins.scale, n)
        targets = targets._replace(observed=targets.observed & begun[:, None, None])
        prior = None if self.global_head is None else self.global_head(h)
        u, w = self._cell_rows(targets, prior, origins.scale.unsqueeze(-1))
        stats = self.cell.absorb(
            state.stats,
            state.theta,
            self._cell_input(h, x, grid).squeeze(1),
            u.squeeze(1),
            targets.observed.squeeze(1),
            None if w is None else w.squeeze(1),
            steps,
        )
        carry = _pick(memory.squeeze(1), steps - 1) if net.decoder.rnn is not None else state.carry
        return state._replace(stats=stats, carry=carry)

    def _run_windows(self, state: LocalState, block: Block, rest: Tensor, windows: int) -> LocalState:
        """From a grid origin on: absorb `rest` rows in up to `windows` windows, and remember the last origin."""
        net, S = self.network, self.network.stride
        grid = Grid(0, S, windows)
        x = net.inputs(block)
        origins = net.origins(block, x, grid)
        h, memory = net.decode(block, x, grid, origins, S)
        targets = net.targets(block, grid, origins.scale, S)
        prior = None if self.global_head is None else self.global_head(h)
        u, w = self._cell_rows(targets, prior, origins.scale.unsqueeze(-1))
        steps = (rest[:, None] - S * torch.arange(windows, device=rest.device)).clamp(0, S)
        out = self.cell.scan_windows(state.stats, self._cell_input(h, x, grid), u, targets.observed, w, steps)
        last = rest // S
        carry = state.carry
        if net.decoder.rnn is not None:
            inside = rest % S
            carry = torch.where((inside > 0).unsqueeze(1), _pick(_pick(memory, last), (inside - 1).clamp(min=0)), 0.0)
        return LocalState(out.state, _pick(out.theta, last), _pick(origins.g, last), _pick(origins.scale, last), carry)

    def _cell_input(self, h: Tensor, x: Tensor, grid: Grid) -> Tensor:
        """What the cell regresses on: the decoder's h, or features of x alone."""
        if self.cell_input == "h":
            return h
        features: Tensor = self.cell_features(leads(x, grid, self.network.input_size, h.shape[2]))
        return features

    def _cell_rows(self, targets: Targets, prior: Tensor | None, scale: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the cell fits, and the weight of each observation."""
        u, weight = targets.z, None
        if prior is not None:
            params = self._global_params(prior)
            if self.robust:
                with torch.no_grad():
                    r = (targets.z - self.family.mean(params, scale)) / self.family.spread(params, scale)
                    weight = student_weight(r)
            if self.integration == "residual":
                u = u - params.mu
        return u, weight

    def _global_params(self, prior: Tensor) -> Params:
        mu, raw = prior.unbind(-1)
        return self.family.params(mu, raw)

    def _head(self, local: Local) -> Params:
        """Join global and local predictions into the parameters of the output distribution."""
        h, m = local.h, local.m
        # Local standard deviation with one pseudo-observation: defined for an empty state, tame for a young one.
        sn = local.sn.to(h.dtype)
        spread = ((local.a * sn + SPREAD_PRIOR) / (sn + 1)).sqrt().clamp(0.01, 10.0)
        if not self.use_variance:
            spread = torch.zeros_like(spread)
        spread = spread.unsqueeze(2).expand_as(m)
        mu = self.out_mu(self.ff_mu(torch.cat([h, m], -1)))
        raw = self.out_sigma(self.ff_sigma(torch.cat([h, spread], -1))).squeeze(-1)
        if self.integration == "residual":
            assert local.prior is not None
            mu = local.prior[..., 0] + ((self.mix + mu) * m).sum(-1)
            known = (sn / (sn + 1)).mean(-1).unsqueeze(-1)
            raw = local.prior[..., 1] + known * raw
        else:
            mu = mu.squeeze(-1)
            if self.integration == "skip":
                mu = mu + m @ self.mix
        return self.family.params(mu, raw)


def _pick(x: Tensor, index: Tensor) -> Tensor:
    """x[b, index[b]] for every b."""
    return x[torch.arange(x.shape[0], device=x.device), index]


def _two_layers(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())


def _zero(layer: nn.Linear) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
