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
from aru.models.stateless import Control, Generated
from aru.schema import Schema
from aru.settings import Settings


class Method(NamedTuple):
    """What `Forecaster(model=...)` can name."""

    model: type[Model]
    about: str
    cost: str
    reference: str
    fixed: Mapping[str, Any] = MappingProxyType({})  # settings that the name stands for

    @property
    def adapts(self) -> bool:
        """Whether observations change it beyond moving its context on."""
        return self.model.adapts


_PAPER = "Deshpande and Sarawagi 2019"
MODELS: Mapping[str, Method] = MappingProxyType(
    {
        "aru": Method(
            ARU,
            "Global network beside a linear model of each series, refitted in closed form at every observation.",
            "one small solve per observation",
            _PAPER,
        ),
        "aru-direct": Method(
            ARU, "ARU whose local prediction is the forecast.", "as aru", _PAPER, {"integration": "direct"}
        ),
        "aru-generated": Method(
            Generated,
            "ARU's network with local parameters generated from the encoder's state instead of fitted.",
            "a network pass per forecast",
            "Rangapuram et al. 2018, as in the ARU paper's synthetic experiment",
        ),
        "aru-control": Method(
            Control,
            "ARU's network with as many weights and no local state: one theta for all series.",
            "a network pass per forecast",
            "this package",
        ),
        "baseline": Method(
            Baseline,
            "Global encoder-decoder, frozen between trainings; with finetune_steps, gradient steps for each series.",
            "a network pass per forecast; finetune_steps gradients per observation",
            _PAPER,
        ),
        "deepar": Method(
            DeepAR,
            "Autoregressive RNN that forecasts by sampling paths.",
            "paths times h RNN steps per forecast",
            "Salinas et al. 2020",
        ),
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
