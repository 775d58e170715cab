"""Forecasting methods, one file each, behind the interface of `aru.models.base`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aru.errors import ConfigError
from aru.models.aru import ARU
from aru.models.base import Model
from aru.models.baseline import Baseline
from aru.models.snail import Snail
from aru.schema import Schema
from aru.settings import Settings

MODELS: Mapping[str, type[Model]] = MappingProxyType({"aru": ARU, "baseline": Baseline, "snail": Snail})


def model_class(name: str) -> type[Model]:
    """The class behind `Forecaster(model=name)`."""
    if name not in MODELS:
        raise ConfigError(f"model={name!r} is not known: choose one of {', '.join(sorted(MODELS))}.")
    return MODELS[name]


def build(settings: Settings, schema: Schema) -> Model:
    """A model with fresh weights."""
    return model_class(settings.model)(settings, schema)
