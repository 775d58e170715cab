"""aru: a global deep forecaster that adapts to every series, in closed form, as each observation arrives."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aru.adapter import Adapter as Adapter
    from aru.forecaster import Forecaster as Forecaster
    from aru.nn.adaptive_linear import AdaptiveLinear as AdaptiveLinear
    from aru.nn.cell import ARUCell as ARUCell
    from aru.nn.cell import ARUState as ARUState
    from aru.settings import PAPER as PAPER
    from aru.settings import NetworkOptions as NetworkOptions
    from aru.settings import TrainingOptions as TrainingOptions
    from aru.stream import Stream as Stream

__version__ = "0.2.0"

# Loaded on first use: `aru --help` and error handling need neither torch nor pandas.
_EXPORTS = {
    "Adapter": "aru.adapter",
    "ARUCell": "aru.nn.cell",
    "ARUState": "aru.nn.cell",
    "AdaptiveLinear": "aru.nn.adaptive_linear",
    "Forecaster": "aru.forecaster",
    "NetworkOptions": "aru.settings",
    "PAPER": "aru.settings",
    "Stream": "aru.stream",
    "TrainingOptions": "aru.settings",
}

__all__ = [
    "PAPER",
    "ARUCell",
    "ARUState",
    "Adapter",
    "AdaptiveLinear",
    "Forecaster",
    "NetworkOptions",
    "Stream",
    "TrainingOptions",
]


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'aru' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
