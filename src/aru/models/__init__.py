"""Forecasting methods, one file each, behind the interface of `aru.models.base`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from aru.errors import ConfigError
from aru.models.aru import ARU
from aru.models.base import Model
from aru.models.baseline import Baseline
from aru.models.deepstate import DeepState
from aru.schema import Schema
from aru.settings import Settings

MODELS: Mapping[str, type[Model]] = MappingProxyType({"aru": ARU, "baseline": Baseline, "deepstate": DeepState})


def model_class(name: str) -> type[Model]:
    """The class behind `Forecaster(model=name)`."""
    if name not in MODELS:
        raise ConfigError(f"model={name!r} is not known: choose one of {', '.join(sorted(MODELS))}.")
    return MODELS[name]


def resolve(settings: Settings) -> Settings:
    """The settings as their model takes them.

    Where it has but one distribution, that is what "auto" means; what it cannot do is refused.
    """
    model = model_class(settings.model)
    if settings.distribution == "auto" and len(model.distributions) == 1:
        settings = dataclasses.replace(settings, distribution=model.distributions[0])
    for name, value, allowed in (
        ("distribution", settings.distribution, ("auto", *model.distributions)),
        ("loss", settings.loss, model.loss_names),
    ):
        if value not in allowed:
            choice = " or ".join(map(repr, allowed))
            raise ConfigError(f"model={settings.model!r} does not work with {name}={value!r}: use {choice}.")
    return settings


def build(settings: Settings, schema: Schema) -> Model:
    """A model with fresh weights."""
    return model_class(settings.model)(settings, schema)
