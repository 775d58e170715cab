"""The interface that every method implements: state in, state out."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from aru.distributions import DISTRIBUTIONS, Distribution, Params, Predictive, Samples
from aru.models.network import Inputs, Network, Targets
from aru.schema import Schema
from aru.settings import DistributionName, Loss, Settings
from aru.windows import Block, Grid


class Losses(NamedTuple):
    """Summed loss and number of scored values of each series, and the series whose local solve failed."""

    total: Float[Tensor, " batch"]
    values: Float[Tensor, " batch"]
    failed: Bool[Tensor, " batch"]


class Output(NamedTuple):
    """Forecast distributions of y at one origin, and the series whose local solve failed."""

    forecast: Predictive | Samples  # of (batch, lead)
    failed: Bool[Tensor, " batch"]


class Empty(NamedTuple):
    """State of a model that keeps nothing about a series beyond its context."""


class Model(nn.Module, abc.ABC):
    """A forecasting method: how it is trained, forecasts, and takes in new observations."""

    adapts: ClassVar[bool]  # whether observations change it beyond moving its context on
    network_class: ClassVar[type[Inputs]] = Network
    distributions: ClassVar[tuple[DistributionName, ...]] = ("student-t", "negative-binomial", "gaussian")
    loss_names: ClassVar[tuple[Loss, ...]] = ("nll", "mse")
    encoders: ClassVar[tuple[str, ...]] = ("lstm", "gru", "sru", "fru")
    ignores: ClassVar[frozenset[str]] = frozenset()  # settings that make no difference

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__()
        self.network = self.network_class(settings, schema)
        self.transform = settings.transform
        self.nonnegative = schema.nonnegative
        self.family: Distribution = DISTRIBUTIONS[schema.distribution]
        self.loss_name = settings.loss

    @abc.abstractmethod
    def init_state(self, n: int) -> Any:
        """State of `n` series that have seen nothing: a NamedTuple of tensors with leading dimension n."""

    @abc.abstractmethod
    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """Training loss over the windows of the grid, from empty states; only windows in `scored` count.

        Windows that begin before a series' first value count, too: they teach forecasts from covariates alone.
        """

    @abc.abstractmethod
    def forecast(self, state: Any, block: Block) -> Output:
        """Forecast the rows after origin 0 of the block."""

    def update(self, state: Any, block: Block, position: Int[Tensor, " batch"], steps: Int[Tensor, " batch"]) -> Any:
        """Take in the first `steps` rows after origin 0.

        `position` counts the steps since the latest grid origin; a series that has no value yet stands one step before
        its first origin.
        """
        return state

    def age(self, state: Any, steps: Int[Tensor, " batch"]) -> Any:
        """Let `steps` unobserved steps pass at once."""
        return state

    def predictive(self, params: Params, scale: Float[Tensor, "batch 1"]) -> Predictive:
        """Forecast distributions of y, from those of z at one origin: (batch, 1, lead) parameters."""
        params = Params(*(p.squeeze(1).double() for p in params))
        return Predictive(self.family, params, scale, self.transform, self.nonnegative)

    def value_losses(self, params: Params, targets: Targets, scale: Tensor) -> Tensor:
        """Loss of every target, 0 where it was not observed."""
        z = targets.z
        if self.loss_name == "mse":
            # The spread learns from the residuals of a mean that it does not move.
            fixed = Params(params.mu.detach(), params.sigma)
            loss = (z - params.mu).square() + self.family.nll(fixed, z, scale)
        else:
            loss = self.family.nll(params, z, scale)
        return torch.where(targets.observed, loss, 0.0)


# Settings of the cell, which methods without one ignore.
CELL = frozenset(
    {"alphas", "ridge", "learn_ridge", "learn_alphas", "integration", "cell_input", "local_variance"}
    | {"stop_gradient", "robust", "global_loss"}
)


class Stateless(Model):
    """A method that keeps nothing about a series beyond its context: each window is forecast from that alone."""

    adapts = False
    ignores = CELL | {"stride"}

    @abc.abstractmethod
    def params(self, block: Block, grid: Grid) -> tuple[Params, Float[Tensor, "batch window"]]:
        """Parameters of every (batch, window, lead), and the scale at every origin."""

    def init_state(self, n: int) -> Empty:
        """Nothing but the context is kept."""
        return Empty()

    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """Likelihood of every window."""
        params, scale = self.params(block, grid)
        targets = self.network.targets(block, grid, scale, self.network.h)
        loss = self.value_losses(params, targets, scale.unsqueeze(-1))
        return sum_losses(loss, targets.observed, scored)

    def forecast(self, state: Empty, block: Block) -> Output:
        """The global forecast."""
        params, scale = self.params(block, Grid(0, 1, 1))
        failed = torch.zeros(len(scale), dtype=torch.bool, device=scale.device)
        return Output(self.predictive(params, scale), failed)


def sum_losses(loss: Tensor, observed: Tensor, scored: slice, failed: Tensor | None = None) -> Losses:
    """Sum (batch, window, lead) losses by series, over the scored windows."""
    if failed is None:
        failed = torch.zeros(len(loss), dtype=torch.bool, device=loss.device)
    return Losses(loss[:, scored].sum((1, 2)), observed[:, scored].sum((1, 2)).to(loss.dtype), failed)
