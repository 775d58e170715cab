"""ARU: a global network and a linear model per series, refitted in closed form at every observation.

The cell regresses z (or its residual from the global forecast) on h with per-series statistics. `aru.models.joint`
combines its local mean m and variance a with the global network. With `robust`, an observation has the Student-t weight
of r / u: r is its residual from the forecast of a global head, which is trained together with the final forecast, in
units of that forecast's spread, and u = max(1, mean |r| of the latest rows). So a single outlier counts little, and a
lasting change is soon none. While u > 2, older statistics fade by sqrt(2 / u) at every observation.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aru.data.rows import Rows
from aru.data.schema import Schema
from aru.models.interface import Emitted, Losses, Output, sum_losses
from aru.models.joint import Joint, Local
from aru.models.network import Targets
from aru.models.windowed import Origin, WindowedModel, WindowState
from aru.nn.cell import ARUCell, ARUState, local_variance, solve_ridge
from aru.nn.distributions import RECENT_KEPT, fading, recent_after, recent_before, student_weight, unusual
from aru.nn.ridge import absorb
from aru.nn.windows import Block, Context, Grid, leads
from aru.settings import Settings


class Fitted(NamedTuple):
    """The statistics of a series, their solution theta at its latest origin, and their solution now."""

    stats: ARUState
    theta: Float[Tensor, "batch J dim"]
    now: Float[Tensor, "batch J dim"]  # NaN where the solve failed
    recent: Float[Tensor, "batch 2"]  # aged sum of |r| and number of the latest residuals


class LocalFit(NamedTuple):
    """What a forecast reads of the statistics."""

    theta: Float[Tensor, "batch J dim"]  # NaN where the solve failed
    sn: Float[Tensor, "batch J"]
    ss: Float[Tensor, "batch J"]


class Lesson(NamedTuple):
    """The cell's regression data: features h, target u, the global head's residual r, whether there was a value."""

    h: Float[Tensor, "*batch row dim"]
    u: Float[Tensor, "*batch row"]
    r: Float[Tensor, "*batch row"]
    seen: Float[Tensor, "*batch row"]


class ARU(WindowedModel):
    """The ARU model: it adapts each series with every observation."""

    exported = MappingProxyType({"encode": Origin, "decode": Lesson, "emit": Emitted})
    cell_type: type[ARUCell] = ARUCell
    joint_type: type[Joint] = Joint

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        options = settings.network
        self.robust = options.robust
        self.fits_residual = options.integration == "residual"
        self.cell = self.cell_type(
            self.feature_width(settings), options.alphas, options.ridge, options.learn_ridge, options.learn_alphas
        )
        self.joint = self.joint_type(settings, self.family)

    def feature_width(self, settings: Settings) -> int:
        """How many features the cell regresses on."""
        return settings.network_size.hidden[-1]

    def features(self, h: Float[Tensor, "batch *window row dim"], x: Tensor) -> Tensor:
        """The features that the cell regresses on: the decoder's h. `x` are the inputs of the same rows."""
        return h

    def init_local(self, n: int) -> Fitted:
        """Zero statistics: the local mean and variance are 0."""
        stats = self.cell.init_state(n)
        return Fitted(stats, torch.zeros_like(stats.sxy), torch.zeros_like(stats.sxy), stats.sn.new_zeros(n, 2))

    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """Loss of every window, given the statistics of the windows before it, with gradients through these."""
        net = self.network
        x, origins, h = net.run(block, grid)
        targets = net.targets(block, grid, origins.scale, net.h)
        scale = origins.scale.unsqueeze(-1)
        prior = self.joint.prior(h)
        S = net.stride
        u, r = (v[:, :, :S] for v in self._cell_rows(targets, prior, scale))
        seen = (targets.observed & origins.informed.unsqueeze(-1))[:, :, :S]
        weight, fade = self.influence(r, seen)
        out = self.cell.scan_windows(None, self.features(h, leads(x, grid, 0, net.h)), u, seen, weight, fade=fade)
        loss = self.value_losses(self.joint(h, Local(out.mean, out.variance, out.sn), prior), targets, scale)
        second = self.joint.second_forecast(h)
        if second is not None:
            loss = loss + self.value_losses(second, targets, scale)
        return sum_losses(loss, targets.observed, scored, out.failed)

    def emit(self, context: Context, future: Rows, fit: LocalFit) -> Emitted:
        """The forecast from a local fit and the context up to now."""
        x, origins, h = self.network.run_now(context, future)
        theta = torch.where(fit.theta.isnan(), 0.0, fit.theta)  # the prediction of an empty state
        m = (self.features(h, x).double() @ theta[..., :-1].transpose(1, 2) + theta[..., -1].unsqueeze(1)).float()
        local = Local(m, local_variance(fit.ss, fit.sn).float(), fit.sn)
        mu, sigma = self.joint(h, local, self.joint.prior(h))
        return Emitted(mu.double(), sigma.double(), origins.scale)

    def samples(self, context: Context, future: Rows) -> dict[str, tuple[Any, ...]]:
        """Arguments of the windowed model's functions, and of `emit` with empty statistics."""
        empty = WindowState(self.init_local(len(context.total)), context.total, context.total)
        return {**super().samples(context, future), "emit": (context, future, self.local_fit(empty))}

    def forecast(self, state: WindowState, context: Context, future: Rows) -> Output:
        """Forecast with theta from all observations so far and the context up to now."""
        emitted = self.call("emit", context, future, self.local_fit(state))
        return Output(self.predictive(emitted), state.local.now.sum((1, 2)).isnan())

    def local_fit(self, state: WindowState) -> LocalFit:
        """The local fit to all observations so far."""
        local: Fitted = state.local
        return LocalFit(local.now, local.stats.sn, local.stats.ss)

    def effective_sizes(self, state: WindowState) -> tuple[Tensor, Tensor]:
        """Effective number of observations by series and aging factor, and these factors."""
        return state.local.stats.sn, self.cell.alphas.detach()

    def update(
        self,
        state: WindowState,
        context: Context,
        rows: Rows,
        position: Int[Tensor, " batch"],
        steps: Int[Tensor, " batch"],
        after: Context,
    ) -> WindowState:
        """Update as every windowed model, then solve for theta, which all forecasts until the next update use."""
        return self._fit(super().update(state, context, rows, position, steps, after))

    def age(self, state: WindowState, steps: Int[Tensor, " batch"]) -> WindowState:
        """Unobserved steps only age the statistics."""
        local: Fitted = state.local
        recent = local.recent * (RECENT_KEPT ** steps.double()).unsqueeze(-1)
        return self._fit(state._replace(local=local._replace(stats=self.cell.age(local.stats, steps), recent=recent)))

    def _fit(self, state: WindowState) -> WindowState:
        """Solve for theta of all observations so far; NaN where the solve failed."""
        stats: ARUState = state.local.stats
        now, failed = solve_ridge(stats.sxx, stats.sxy, self.cell.ridge)
        if failed.any():
            now = torch.where(failed.unsqueeze(-1), torch.nan, now)
        return state._replace(local=state.local._replace(now=now))

    def begin_window(self, local: Fitted) -> Fitted:
        """Solve for theta at a new origin. It predicts all rows up to the next origin."""
        return local._replace(theta=self.cell.solve(local.stats)[0])

    def learn(self, local: Fitted, lesson: Lesson, steps: Int[Tensor, " batch"]) -> Fitted:
        """Add rows of the current window to the statistics."""
        weight, fade, recent = lesson.seen, None, local.recent
        if self.robust:
            units = []
            for t in range(lesson.r.shape[1]):  # one after the other: several calls or one give the same bits
                units.append(unusual(recent))
                after = recent_after(recent, lesson.r[:, t], lesson.seen[:, t])
                recent = torch.where((t < steps).unsqueeze(-1), after, recent)
            weight, fade = _influence(lesson.r, lesson.seen, torch.stack(units, 1))
        stats = absorb(local.stats, self.cell.alphas, local.theta, lesson.h, lesson.u, weight, steps, fade=fade)
        return local._replace(stats=ARUState(*stats), recent=recent)

    def lesson(
        self, h: Float[Tensor, "row 1 dim"], x: Tensor, targets: Targets, scale: Float[Tensor, "row 1"]
    ) -> Lesson:
        """Features, target and residual of each row."""
        u, r = (torch.where(targets.observed, v, 0.0) for v in self._cell_rows(targets, self.joint.prior(h), scale))
        return Lesson(self.features(h, x), u, r, targets.observed.to(u.dtype))

    def influence(
        self, r: Float[Tensor, "batch window row"], seen: Bool[Tensor, "batch window row"]
    ) -> tuple[Tensor | None, Tensor | None]:
        """Weight of all rows of consecutive windows, and what is kept of older statistics at each."""
        if not self.robust:
            return None, None
        unit = unusual(recent_before(r.flatten(1), seen.flatten(1))).view_as(r)
        return _influence(r, seen, unit)

    def _cell_rows(self, targets: Targets, prior: Tensor | None, scale: Tensor) -> tuple[Tensor, Tensor]:
        """The target of the cell, and the residual of the global head in units of its spread; 0 without such a head."""
        u, r = targets.z, torch.zeros_like(targets.z)
        if prior is not None:
            params = self.joint.global_params(prior)
            if self.robust:
                with torch.no_grad():
                    r = (targets.z - self.family.mean(params, scale)) / self.family.spread(params, scale)
            if self.fits_residual:
                u = u - params.mu
        return u, r


def _influence(r: Tensor, seen: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Robust weight of each row, and what is kept of older statistics. Missing values have no influence."""
    return student_weight(r / unit) * seen, torch.where(seen > 0, fading(unit), 1.0)
