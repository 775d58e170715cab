"""Variants of ARU that nothing but the experiments needs: what each of its parts is worth.

`make` puts them beside the library's own models, under the names in `ABLATIONS`, when one of them is asked for.
"""

from __future__ import annotations

from torch import Tensor, nn

from aru.data.schema import Schema
from aru.models import Method
from aru.models.aru import ARU
from aru.settings import Settings


class StopGradient(ARU):
    """Training takes the local fit as given: no gradient reaches the network through the ridge regression."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.cell.stop_gradient = True


class NoVariance(ARU):
    """The spread of the forecast comes from the network alone: it does not read the variance of the local fit."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.joint.use_variance = False


class AuthorsCell(StopGradient):
    """The cell as its authors released it, as far as settings cannot say it: neither gradient nor variance."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.joint.use_variance = False


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
