"""What a model around a pretrained network learns in closed form: by default nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from aru.data.rows import Rows
from aru.models.interface import Empty
from aru.nn.windows import Context

Network = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""Quantiles (series, step, level) from values, what is read of them, their mask, and a number of steps."""


class PastValues(NamedTuple):
    """All values that a context keeps."""

    y: Float[Tensor, "series row"]
    observed: Tensor


class Seen(NamedTuple):
    """What a network is shown of series, and what it does not see."""

    read: Float[Tensor, "series row"]  # past values without the effects of their covariates
    ahead: Float[Tensor, "series step"] | None = None  # effects of the rows ahead
    middle: Float[Tensor, " series"] | None = None  # the mean effect of the past rows
    x: Float[Tensor, "series step k"] | None = None  # covariates of the rows ahead, for a head


class ClosedForm:
    """Learns nothing: forecasts are those of the network."""

    shares = False  # whether series have something in common that is learned
    coded = 0  # bytes that are kept of each older row
    steps = 0  # that forecasts are completed for together, if that is more than are asked for

    def empty(self, n: int, device: torch.device) -> Any:
        """States of n series without rows."""
        return Empty()

    def codes(self, rows: Rows) -> UInt8[Tensor, "*rows coded"]:
        """What is kept of rows that grow old."""
        return torch.zeros(*rows.y.shape, 0, dtype=torch.uint8, device=rows.y.device)

    def update(self, state: Any, context: Context, rows: Rows, steps: Tensor, network: Network) -> Any:
        """States after the first `steps` of the (series, row) rows."""
        return state

    def aged(self, state: Any, steps: Tensor) -> Any:
        """States after some rows without a value."""
        return state

    def learn_common(self, state: Any, context: Context, network: Network) -> Any:
        """What series have in common; None if nothing."""
        return None

    def cold_starts(self, common: Any) -> bool:
        """Whether series without values can be forecast."""
        return False

    def meet(self, state: Any, context: Context, common: Any) -> Any:
        """What forecasts of these series take from their states and from the panel."""
        return state

    def show(
        self, met: Any, context: Context, future: Rows, past: PastValues, head: bool, trust: float | Tensor = 1
    ) -> Seen:
        """What the network reads, without effects as far as they are trusted, 0 to 1; for a head also x."""
        return Seen(past.y)

    def complete(self, values: Tensor, met: Any, seen: Seen, context: Context, past: PastValues) -> Tensor:
        """Forecasts (series, step, level) from those of the network."""
        return values

    def unseen_support(self, met: Any) -> tuple[bool, bool]:
        """Whether values of series without any are nonnegative, and whole."""
        return False, False
