"""Forecasting methods, one file each, behind the interface of `aru.models.base`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from aru.errors import ConfigError
from aru.models.aru import ARU
from aru.models.base import Model
from aru.models.baseline import Baseline
from aru.models.deepar import DeepAR
from aru.models.finetuned import FineTuned
from aru.models.generated import Control, Generated
from aru.models.snail import Snail
from aru.schema import Schema
from aru.settings import Settings


class Method(NamedTuple):
    """What `Forecaster(model=...)` can name."""

    model: type[Model]
    about: str
    cost: str  # of a forecast, or of an observation and a forecast where it adapts
    reference: str  # first author and year; docs/methods.md has the titles
    fixed: Mapping[str, Any] = MappingProxyType({})  # settings that the name stands for

    @property
    def adapts(self) -> bool:
        """Whether observations change it beyond moving its context on."""
        return self.model.adapts


# One line each on a terminal of 80 columns.
MODELS: Mapping[str, Method] = MappingProxyType(
    {
        "aru": Method(ARU, "Global network and a local fit.", "a small solve", "Deshpande 2019"),
        "aru-direct": Method(ARU, "The local fit alone.", "a small solve", "Deshpande 2019", {"integration": "direct"}),
        "aru-generated": Method(Generated, "Local fit from the encoder.", "a network pass", "Deshpande 2019"),
        "aru-control": Method(Control, "ARU's weights, nothing local.", "a network pass", "none: a control"),
        "baseline": Method(Baseline, "Global encoder-decoder.", "a network pass", "Deshpande 2019"),
        "deepar": Method(DeepAR, "Autoregressive, sampled paths.", "200 paths", "Salinas 2020"),
        "snail": Method(Snail, "Convolutions and attention.", "attention", "Mishra 2018"),
    }
)


def method(name: str) -> Method:
    """The method behind `Forecaster(model=name)`."""
    if name not in MODELS:
        raise ConfigError(f"model={name!r} is not known: choose one of {', '.join(sorted(MODELS))}.")
    return MODELS[name]


def check(settings: Settings) -> None:
    """Refuse what the chosen method cannot do, before any data is read."""
    chosen = method(settings.model)
    if settings.finetune_steps and chosen.model is not Baseline:
        raise ConfigError(
            f"finetune_steps moves the output layer of the baseline, which model={settings.model!r} does not have: "
            "use model='baseline', or finetune_steps=0."
        )
    chosen.model.check(settings)


def build(settings: Settings, schema: Schema) -> Model:
    """A model with fresh weights."""
    chosen = method(settings.model)
    settings = dataclasses.replace(settings, **chosen.fixed)
    return (FineTuned if settings.finetune_steps else chosen.model)(settings, schema)
