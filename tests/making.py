"""Forecasters and settings from settings by name, wherever they live: tests vary them one by one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aru import Forecaster
from aru.nn.tree import leaves
from aru.settings import Settings, nested


def make(**settings: Any) -> Forecaster:
    """A forecaster with these settings."""
    return Forecaster(**nested(settings))


def make_settings(**settings: Any) -> Settings:
    """The settings of one."""
    return Settings(**nested(settings))


def flat(tree: Any) -> dict[str, Tensor]:
    """The tensors of states by path."""
    return dict(leaves(tree))
