"""Variants of ARU that nothing but the experiments needs: what each of its parts is worth.

`make` puts them beside the library's own models, under the names in `ABLATIONS`, when one of them is asked for.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aru.data.schema import Schema
from aru.models import Method
from aru.models.aru import ARU
from aru.models.joint import Joint, Local
from aru.nn.cell import ARUCell
from aru.settings import Settings


class DetachedCell(ARUCell):
    """A cell whose fit is a constant to whatever uses it."""

    def as_used(self, fitted: Tensor) -> Tensor:
        """No gradient passes through it."""
        return fitted.detach()


class JointWithoutVariance(Joint):
    """Joins the local means, and nothing of the local variances."""

    def spread(self, local: Local) -> Tensor:
        """Zero, whatever the local fit is like."""
        return torch.zeros_like(local.a)


class StopGradient(ARU):
    """Training takes the local fit as given: no gradient reaches the network through the ridge regression."""

    cell_type = DetachedCell


class NoVariance(ARU):
    """The spread of the forecast comes from the network alone: it does not read the variance of the local fit."""

    joint_type = JointWithoutVariance


class AuthorsCell(StopGradient):
    """The cell as its authors released it, as far as settings cannot say it: neither gradient nor variance."""

    joint_type = JointWithoutVariance


class CellOfX(ARU):
    """The cell regresses on a small network of the inputs x instead of on the decoder's h."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        _, second, dim = settings.network_size.hidden
        x_width = self.network.x_width
        self.of_x = nn.Sequential(nn.Linear(x_width, second), nn.ReLU(), nn.Linear(second, dim), nn.ReLU())

    def features(self, h: Tensor, x: Tensor) -> Tensor:
        """Features of x alone."""
        found: Tensor = self.of_x(x)
        return found


class CellOfRawX(ARU):
    """The cell regresses on the inputs x as they are."""

    def feature_width(self, settings: Settings) -> int:
        """One feature for each input."""
        return self.network.x_width

    def features(self, h: Tensor, x: Tensor) -> Tensor:
        """The inputs themselves."""
        return x


def _method(model: type[ARU], about: str) -> Method:
    return Method(model, about, "a small solve", "none: an ablation")


ABLATIONS: dict[str, Method] = {
    "aru-stop-gradient": _method(StopGradient, "No gradient through the local fit."),
    "aru-no-variance": _method(NoVariance, "Without the local variance."),
    "aru-authors-cell": _method(AuthorsCell, "Neither of the two."),
    "aru-cell-x": _method(CellOfX, "Local fit of features of x."),
    "aru-cell-raw": _method(CellOfRawX, "Local fit of x itself."),
}
