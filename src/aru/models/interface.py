"""The interface that every method implements: state in, state out."""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from aru.data.rows import Rows
from aru.data.schema import Schema
from aru.models.network import Features, Inputs, Network, Targets
from aru.nn.distributions import DISTRIBUTIONS, Distribution, Params, Predictive
from aru.nn.sessions import PART, Sessions, parameters
from aru.nn.windows import NOW, Block, Context, Grid, join_block
from aru.settings import DistributionName, EncoderName, Settings


class Losses(NamedTuple):
    """Summed loss and number of scored values of each series, and the series whose local solve failed."""

    total: Float[Tensor, " batch"]
    values: Float[Tensor, " batch"]
    failed: Bool[Tensor, " batch"]


class Marginals(Protocol):
    """Forecast distributions of y at each step."""

    def quantile(self, q: float) -> Tensor:
        """Quantile of y."""

    def mean(self) -> Tensor:
        """Mean of y."""


class Output(NamedTuple):
    """Forecast distributions of y at one origin, and the series whose local solve failed."""

    forecast: Marginals  # of (batch, lead)
    failed: Bool[Tensor, " batch"]


class Hindcast(NamedTuple):
    """Forecasts that are made again from earlier origins, and the values that came; both of the same units."""

    quantiles: Float[Tensor, "batch lead level"]
    y: Float[Tensor, "batch lead"]  # NaN where missing


class Emitted(NamedTuple):
    """A network's output for the leads after one origin: location and spread of z, and the scale of y.

    In double precision, for the conversion to the user's units.
    """

    mu: Float[Tensor, "series lead"]
    sigma: Float[Tensor, "series lead"]
    scale: Float[Tensor, " series"]


class Empty(NamedTuple):
    """State of a model that keeps nothing about a series beyond its context."""


class Model(nn.Module, abc.ABC):
    """A forecasting method: how it is trained, forecasts, and takes in new observations.

    Functions in `exported` depend only on weights and arguments. If `sessions` is set, they run in ONNX Runtime on a
    CPU (`call`). All else runs in torch.
    """

    adapts: bool  # whether it learns from new observations, besides reading them as context
    rows_kept: ClassVar[int | None] = None  # rows that it reads with their covariates; None: the whole context
    part: ClassVar[int] = PART  # series that ONNX Runtime computes at once
    long_inputs: ClassVar[tuple[str, ...]] = ()  # arguments of exported functions whose number of rows varies
    exported: ClassVar[Mapping[str, type[Any]]] = MappingProxyType({})  # functions by name, and what they return

    def __init__(self) -> None:
        super().__init__()
        self.sessions: Sessions | None = None

    @abc.abstractmethod
    def init_state(self, n: int) -> Any:
        """State of `n` series without observations: a NamedTuple of tensors with leading dimension n."""

    def learn_common(self, state: Any, context: Context) -> Any:
        """What series have in common, from their states; None if nothing is learned."""
        return None

    def cold_starts(self, common: Any) -> bool:
        """Whether it forecasts series without any value."""
        return True

    def meet(self, state: Any, context: Context, common: Any) -> Any:
        """What `forecast` takes: the local states, and what series have in common."""
        return state

    @property
    def shares(self) -> bool:
        """Whether something is learned that all series have in common (`learn_common`)."""
        return False

    @property
    def coded(self) -> int:
        """Bytes of each older row that a forecast reads, besides its value."""
        return 0

    def codes(self, rows: Rows) -> UInt8[Tensor, "*rows coded"]:
        """These bytes."""
        return torch.zeros(*rows.y.shape, 0, dtype=torch.uint8, device=rows.y.device)

    def local_fit(self, state: Any) -> Any:
        """What a forecast reads of what was learned about each series: a tree of tensors. Nothing by default."""
        return ()

    def effective_sizes(self, state: Any) -> tuple[Tensor, Tensor] | None:
        """Effective number of observations in local statistics (series, J), and aging factors (J,). None if none."""
        return None

    @abc.abstractmethod
    def forecast(self, state: Any, context: Context, future: Rows) -> Output:
        """Forecast the (series, h) rows after the context."""

    def hindcast(
        self, state: Any, context: Context, back: Int[Tensor, " batch"], h: int, levels: Sequence[float]
    ) -> Hindcast | None:
        """Forecast h rows from `back` rows before the end of the context; None if it is not kept for that long."""
        return None

    def update(
        self,
        state: Any,
        context: Context,
        rows: Rows,
        position: Int[Tensor, " batch"],
        steps: Int[Tensor, " batch"],
        after: Context,
    ) -> Any:
        """Take in the first `steps` of the (series, row) rows after the context. `after` is the context after them.

        `position` counts the steps since the latest origin. A series without any value is one step before its first
        origin.
        """
        return state

    def age(self, state: Any, steps: Int[Tensor, " batch"]) -> Any:
        """Advance the state by `steps` unobserved steps at once."""
        return state

    def samples(self, context: Context, future: Rows) -> dict[str, tuple[Any, ...]]:
        """Example arguments of each exported function. Only their shapes and types matter."""
        return {}

    def call(self, name: str, *arguments: Any) -> Any:
        """Call an exported function, in ONNX Runtime if `sessions` is set."""
        if self.sessions is None:
            return getattr(self, name)(*arguments)
        named = dict(zip(_parameters(type(self), name), arguments, strict=True))
        return self.exported[name](*self.sessions.run(name, named))

    def possible(self, context: Context, values: Tensor, whole: bool) -> Tensor:
        """The (..., series, lead) values as y can have them; `whole` for quantiles, not for means."""
        return values


class TrainedModel(Model):
    """A method that is trained on the user's series, around the shared network."""

    network_class: ClassVar[type[Inputs]] = Network
    distributions: ClassVar[tuple[DistributionName, ...]] = ("student-t", "negative-binomial", "gaussian")
    encoders: ClassVar[tuple[EncoderName, ...]] = ("lstm", "gru", "sru", "fru")
    ignores: ClassVar[frozenset[str]] = frozenset()  # settings without effect

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__()
        self.network = self.network_class(settings, schema)
        self.transform = settings.transform
        self.nonnegative = schema.nonnegative
        self.family: Distribution = DISTRIBUTIONS[schema.distribution]

    @abc.abstractmethod
    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """Training loss over the windows of the grid, from empty states; only windows in `scored` count.

        Windows that begin before a series' first value count, too: they teach cold starts.
        """

    def block(self, context: Context, rows: Rows | None) -> Block:
        """The context of each series, and the rows that follow."""
        return join_block(context, rows, self.network.input_size, self.network.lags)

    def predictive(self, emitted: Emitted) -> Predictive:
        """Forecast distributions of y from the network's output."""
        params = Params(emitted.mu, emitted.sigma)
        return Predictive(self.family, params, emitted.scale.unsqueeze(-1), self.transform, self.nonnegative)

    def value_losses(self, params: Params, targets: Targets, scale: Tensor) -> Tensor:
        """Negative log likelihood of every target, 0 where it was not observed."""
        return torch.where(targets.observed, self.family.nll(params, targets.z, scale), 0.0)


@functools.cache
def _parameters(model: type[Model], name: str) -> list[str]:
    return parameters(getattr(model, name))[1:]


# Settings of the cell, which methods without one ignore.
CELL = frozenset({"alphas", "ridge", "learn_ridge", "learn_alphas", "integration", "robust"})


class Stateless(TrainedModel):
    """A method whose forecasts depend only on the context of a series."""

    adapts = False
    ignores = CELL | {"stride"}
    exported = MappingProxyType({"emit": Emitted})

    @abc.abstractmethod
    def params(self, block: Block, grid: Grid) -> tuple[Params, Float[Tensor, "batch window"]]:
        """Parameters of every (batch, window, lead), and the scale at every origin."""

    def init_state(self, n: int) -> Empty:
        """No state beyond the context."""
        return Empty()

    def losses(self, block: Block, grid: Grid, scored: slice = slice(None)) -> Losses:
        """Likelihood of every window."""
        params, scale = self.params(block, grid)
        targets = self.network.targets(block, grid, scale, self.network.h)
        loss = self.value_losses(params, targets, scale.unsqueeze(-1))
        return sum_losses(loss, targets.observed, scored)

    def emit(self, context: Context, future: Rows) -> Emitted:
        """The global forecast."""
        (mu, sigma), scale = self.params(self.block(context, future), NOW)
        return Emitted(mu[:, 0].double(), sigma[:, 0].double(), scale[:, 0])

    def samples(self, context: Context, future: Rows) -> dict[str, tuple[Any, ...]]:
        """Example arguments of `emit`."""
        return {"emit": (context, future)} if self.exported else {}

    def forecast(self, state: Empty, context: Context, future: Rows) -> Output:
        """The global forecast."""
        emitted: Emitted = self.call("emit", context, future)
        failed = torch.zeros(len(emitted.scale), dtype=torch.bool, device=emitted.scale.device)
        return Output(self.predictive(emitted), failed)


class HeadOnly(Stateless):
    """A stateless method: the shared network with its own head."""

    network: Network

    @abc.abstractmethod
    def head_params(self, features: Features) -> Params:
        """Parameters of every (batch, window, lead)."""

    def params(self, block: Block, grid: Grid) -> tuple[Params, Float[Tensor, "batch window"]]:
        """The global forecast of every window."""
        features = self.network.run(block, grid)
        return self.head_params(features), features.origins.scale

    def emit(self, context: Context, future: Rows) -> Emitted:
        """The global forecast."""
        features = self.network.run_now(context, future)
        mu, sigma = self.head_params(features)
        return Emitted(mu.double(), sigma.double(), features.origins.scale)


def sum_losses(loss: Tensor, observed: Tensor, scored: slice, failed: Tensor | None = None) -> Losses:
    """Sum (batch, window, lead) losses by series, over the scored windows."""
    if failed is None:
        failed = torch.zeros(len(loss), dtype=torch.bool, device=loss.device)
    return Losses(loss[:, scored].sum((1, 2)), observed[:, scored].sum((1, 2)).to(loss.dtype), failed)
