"""Forecasters and settings from settings by name, wherever they live: tests vary them one by one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aru import Forecaster
from aru.models import resolve
from aru.nn.tree import leaves
from aru.settings import Settings, nested


def make(**settings: Any) -> Forecaster:
    """A forecaster with these settings. Model "aru" is the recurrent network here, which trains fast at small sizes."""
    return Forecaster(**nested(recurrent(settings)))


def make_settings(**settings: Any) -> Settings:
    """The settings of one."""
    return resolve(Settings(**nested(recurrent(settings))))


def recurrent(settings: dict[str, Any]) -> dict[str, Any]:
    """The recurrent network instead of the pretrained one. Its forecasts are named "aru"."""
    return {"alias": "aru", **settings, "model": "aru-rnn"} if settings.get("model", "aru") == "aru" else settings


def flat(tree: Any) -> dict[str, Tensor]:
    """The tensors of states by path."""
    return dict(leaves(tree))
