"""ARU: the global network beside a linear model of each series, refitted in closed form at every observation.

The cell regresses z (or its residual against the global forecast) on h with per-series statistics. Its local mean m and
variance a join the global network as `aru.models.joint` says. With `robust`, an observation enters the statistics with
the Student-t weight of its residual against a global head, which is trained beside the final one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aru.cell import ARUCell, ARUState, solve_ridge
from aru.distributions import student_weight
from aru.models.adapting import AdaptingModel, AdaptingState, Decoded, pick
from aru.models.base import Losses, Output, sum_losses
from aru.models.joint import Joint, Local
from aru.models.network import Targets
from aru.schema import Schema
from aru.settings import Settings
from aru.windows import Block, Grid, leads


class Fitted(NamedTuple):
    """The statistics of a series, what they gave at its latest grid origin, and what they give now."""

    stats: ARUState
    theta: Float[Tensor, "batch J dim"]
    now: Float[Tensor, "batch J dim"]  # NaN where there is no answer


class ARU(AdaptingModel):
    """Adapts to every observation of every series."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        _, second, dim = settings.network_size.hidden
        self.robust = settings.robust
        self.fits_residual = settings.integration == "residual"
        self.cell_input = settings.cell_input
        width = {"h": dim, "x": dim, "raw": self.network.x_width}[settings.cell_input]
        self.cell_features = (
            nn.Sequential(nn.Linear(self.network.x_width, second), nn.ReLU(), nn.Linear(second, dim), nn.ReLU())
            if settings.cell_input == "x"
            else nn.Identity()
        )
        self.cell = ARUCell(
            width, settings.alphas, settings.ridge, settings.learn_ridge, settings.learn_alphas, settings.stop_gradient
        )
        self.joint = Joint(settings, self.family)

    def init_local(self, n: int) -> Fitted:
        """Zero statistics: the local mean and variance are 0."""
        stats = self.cell.init_state(n)
        return Fitted(stats, torch.zeros_like(stats.sxy), torch.zeros_like(stats.sxy))

    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """Likelihood of every window given the statistics of those before it, with gradients through them."""
        net = self.network
        x, origins, h = net.run(block, grid)
        targets = net.targets(block, grid, origins.scale, net.h)
        scale = origins.scale.unsqueeze(-1)
        prior = self.joint.prior(h)
        u, w = self._cell_rows(targets, prior, scale)
        S = net.stride
        out = self.cell.scan_windows(
            None,
            self._cell_input(h, x, grid),
            u[:, :, :S],
            (targets.observed & origins.informed.unsqueeze(-1))[:, :, :S],
            None if w is None else w[:, :, :S],
        )
        loss = self.value_losses(self.joint(h, Local(out.mean, out.variance, out.sn), prior), targets, scale)
        beside = self.joint.second_forecast(h)
        if beside is not None:
            loss = loss + self.value_losses(beside, targets, scale)
        return sum_losses(loss, targets.observed, scored, out.failed)

    def forecast(self, state: AdaptingState, block: Block) -> Output:
        """Forecast with theta of all observations so far and the context up to now."""
        net, grid, stats, now = self.network, Grid(0, 1, 1), state.local.stats, state.local.now
        x, origins, h = net.run(block, grid)
        failed = now.isnan()
        theta = torch.where(failed, 0.0, now)
        hc = self._cell_input(h, x, grid).squeeze(1)
        m = (nn.functional.pad(hc.double(), (0, 1), value=1.0) @ theta.mT).to(h.dtype).unsqueeze(1)
        a = self.cell.variance(stats).to(h.dtype).unsqueeze(1)
        params = self.joint(h, Local(m, a, stats.sn.unsqueeze(1)), self.joint.prior(h))
        return Output(self.predictive(params, origins.scale), failed.any(-1).any(-1))

    def update(
        self, state: AdaptingState, block: Block, position: Int[Tensor, " batch"], steps: Int[Tensor, " batch"]
    ) -> AdaptingState:
        """The same as every adapting model, and the fit to all of it, which forecasts then use as it is."""
        return self._fit(super().update(state, block, position, steps))

    def age(self, state: AdaptingState, steps: Int[Tensor, " batch"]) -> AdaptingState:
        """Unobserved steps only age the statistics."""
        kept = self.cell.alphas ** steps.unsqueeze(1)
        stats = ARUState(*(kept.reshape(*kept.shape, *(1,) * (v.ndim - 2)) * v for v in state.local.stats))
        return self._fit(state._replace(local=state.local._replace(stats=stats)))

    def _fit(self, state: AdaptingState) -> AdaptingState:
        now = self.fit_all(state.local.stats.sxx, state.local.stats.sxy)
        return state._replace(local=state.local._replace(now=now))

    def fit_all(
        self, sxx: Float[Tensor, "batch J dim dim"], sxy: Float[Tensor, "batch J dim"]
    ) -> Float[Tensor, "batch J dim"]:
        """theta of all observations so far, NaN where there is no answer."""
        theta, failed = solve_ridge(sxx, sxy, self.cell.ridge)
        return torch.where(failed.unsqueeze(-1), torch.nan, theta)

    def learn(self, local: Fitted, rows: Decoded, steps: Int[Tensor, " batch"]) -> Fitted:
        """Add rows of a window whose origin had theta."""
        u, w = self._cell_rows(rows.targets, self.joint.prior(rows.h), rows.scale)
        stats = self.cell.absorb(
            local.stats,
            local.theta,
            self._cell_input(rows.h, rows.x, rows.grid).squeeze(1),
            u.squeeze(1),
            rows.targets.observed.squeeze(1),
            None if w is None else w.squeeze(1),
            steps,
        )
        return local._replace(stats=stats)

    def learn_windows(
        self, local: Fitted, rows: Decoded, steps: Int[Tensor, "batch window"], last: Int[Tensor, " batch"]
    ) -> Fitted:
        """Add the rows of several windows, and keep theta of the last one's origin."""
        u, w = self._cell_rows(rows.targets, self.joint.prior(rows.h), rows.scale)
        features = self._cell_input(rows.h, rows.x, rows.grid)
        out = self.cell.scan_windows(local.stats, features, u, rows.targets.observed, w, steps)
        return Fitted(out.state, pick(out.theta, last), local.now)

    def _cell_input(self, h: Tensor, x: Tensor, grid: Grid) -> Tensor:
        """What the cell regresses on: the decoder's h, or features of x alone."""
        if self.cell_input == "h":
            return h
        features: Tensor = self.cell_features(leads(x, grid, 0, h.shape[2]))
        return features

    def _cell_rows(self, targets: Targets, prior: Tensor | None, scale: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the cell fits, and the weight of each observation."""
        u, weight = targets.z, None
        if prior is not None:
            params = self.joint.global_params(prior)
            if self.robust:
                with torch.no_grad():
                    r = (targets.z - self.family.mean(params, scale)) / self.family.spread(params, scale)
                    weight = student_weight(r)
            if self.fits_residual:
                u = u - params.mu
        return u, weight
