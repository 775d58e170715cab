"""Forecasting methods, one file each, behind the interface of `aru.models.interface`.

A new method is a class in a file of its own, and a line in `MODELS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from aru.data.schema import Schema
from aru.errors import ConfigError, quoted
from aru.models.aru import ARU
from aru.models.baseline import Baseline
from aru.models.deepar import DeepAR
from aru.models.deepstate import DeepState
from aru.models.finetuned import FineTuned
from aru.models.generated import Control, Generated
from aru.models.interface import TrainedModel
from aru.models.snail import Snail
from aru.settings import PRETRAINED, Settings, nested


class Method(NamedTuple):
    """An entry of `MODELS`: a method that `Forecaster(model=...)` can name."""

    model: type[TrainedModel]
    about: str
    cost: str  # of a forecast; if the method adapts, of an observation and a forecast
    reference: str  # first author and year; docs/methods.md has the titles
    fixed: Mapping[str, Any] = MappingProxyType({})  # settings that this name implies

    @property
    def adapts(self) -> bool:
        """Whether it learns from new observations, besides reading them as context."""
        return self.model.adapts


MODELS: dict[str, Method] = {
    "aru": Method(ARU, "Global network and a local fit.", "a small solve", "Deshpande 2019"),
    "aru-direct": Method(ARU, "The local fit alone.", "a small solve", "Deshpande 2019", {"integration": "direct"}),
    "aru-generated": Method(Generated, "Local fit from the encoder.", "a network pass", "Deshpande 2019"),
    "aru-control": Method(Control, "ARU's weights, nothing local.", "a network pass", "none: a control"),
    "baseline": Method(Baseline, "Global encoder-decoder.", "a network pass", "Deshpande 2019"),
    "baseline-finetuned": Method(FineTuned, "Baseline, its output layer tuned.", "a gradient step", "Deshpande 2019"),
    "deepar": Method(DeepAR, "Autoregressive, sampled paths.", "200 paths", "Salinas 2020"),
    "deepstate": Method(DeepState, "RNN writes a state space model.", "a Kalman filter", "Rangapuram 2018"),
    "snail": Method(Snail, "Convolutions and attention.", "attention", "Mishra 2018"),
}


def method(name: str) -> Method:
    """The method behind `Forecaster(model=name)`."""
    if name == PRETRAINED:
        raise ConfigError(
            f"`model={quoted(name)}` needs no training", "Use Forecaster.from_pretrained('mini', h=..., freq=...)."
        )
    if name not in MODELS:
        raise ConfigError(f"`model={quoted(name)}` is not known", f"Choose one of {', '.join(sorted(MODELS))}.")
    return MODELS[name]


def resolve(settings: Settings) -> Settings:
    """Adjust the settings to their method.

    Settings that its name implies are fixed. If it has only one distribution, "auto" becomes that one. Settings that
    it ignores are not searched. Settings that it does not support are refused.
    """
    chosen = method(settings.model)
    model = chosen.model
    idle = model.ignores | set(chosen.fixed)
    search = {k: v for k, v in (settings.training.search or {}).items() if k not in idle} or None
    settings = with_settings(settings, {"search": search, **chosen.fixed})
    if settings.distribution == "auto" and len(model.distributions) == 1:
        settings = dataclasses.replace(settings, distribution=model.distributions[0])
    for name, value, allowed in (
        ("distribution", settings.distribution, ("auto", *model.distributions)),
        ("encoder", settings.network.encoder, model.encoders),
    ):
        if value not in allowed:
            choice = " or ".join(map(repr, allowed))
            raise ConfigError(
                f"`model={quoted(settings.model)}` does not work with `{name}={quoted(value)}`", f"Use {choice}."
            )
    if settings.gate and not model.adapts:
        raise ConfigError(
            f"`model={quoted(settings.model)}` does not adapt: `gate=True` has nothing to mix", "Use 'aru'."
        )
    joined = {settings.network.integration, *(search or {}).get("integration", ())}
    if settings.gate and issubclass(model, ARU) and "direct" in joined:
        raise ConfigError(
            "`gate=True` needs an unadapted forecast, which `integration='direct'` does not have",
            "Use 'residual'.",
        )
    return settings


def with_settings(settings: Settings, changed: Mapping[str, Any]) -> Settings:
    """The same settings with some changed, given by name, those of `network` and `training` included."""
    options = {"network": settings.network, "training": settings.training}
    return dataclasses.replace(settings, **nested({**options, **changed}))


def build(settings: Settings, schema: Schema) -> TrainedModel:
    """A model with fresh weights."""
    return method(settings.model).model(settings, schema)
