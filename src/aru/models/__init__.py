"""Forecasting methods, one file each, behind the interface of `aru.models.interface`.

A new method is a class in a file of its own, and a line in `MODELS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
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
from aru.pretrained.weights import full_name
from aru.settings import PAPER, PRETRAINED, Settings, default_of, fields_by_name, nested

DEFAULT_SIZE, DEFAULT_STEPS = "medium", 1000  # of networks that are trained from nothing
PRETRAINED_STEPS = 300  # at most, of a network that was trained beforehand
PRETRAINED_SETTINGS = frozenset(  # that apply to such a network
    [
        "h",
        "freq",
        "model",
        "futr_exog_list",
        "hist_exog_list",
        "stat_exog_list",
        "season_length",
        "size",
        "support",
        "calibration",
        "max_steps",
        "random_seed",
        "accelerator",
        "alias",
        "country",
        "hindsight",
        "network",
        "training",
        "trainer",
    ]
)


class Method(NamedTuple):
    """An entry of `MODELS`: a method that `Forecaster(model=...)` can name, trained from nothing."""

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
    "aru-rnn": Method(ARU, "Global network and a local fit.", "a small solve", "Deshpande 2019"),
    "aru-direct": Method(ARU, "The local fit alone.", "a small solve", "Deshpande 2019", {"integration": "direct"}),
    "aru-generated": Method(Generated, "Local fit from the encoder.", "a network pass", "Deshpande 2019"),
    "aru-control": Method(Control, "ARU's weights, nothing local.", "a network pass", "none: a control"),
    "baseline": Method(Baseline, "Global encoder-decoder.", "a network pass", "Deshpande 2019"),
    "baseline-finetuned": Method(FineTuned, "Baseline, its output layer tuned.", "a gradient step", "Deshpande 2019"),
    "deepar": Method(DeepAR, "Autoregressive, sampled paths.", "200 paths", "Salinas 2020"),
    "deepstate": Method(DeepState, "RNN writes a state space model.", "a Kalman filter", "Rangapuram 2018"),
    "snail": Method(Snail, "Convolutions and attention.", "attention", "Mishra 2018"),
}


class MethodFacts(NamedTuple):
    """A method as people read of it."""

    adapts: bool
    about: str
    cost: str
    reference: str


def all_methods() -> dict[str, MethodFacts]:
    """Every method that `Forecaster(model=...)` can name, the default first."""
    first = MethodFacts(True, "Pretrained network, tuned, and a local fit.", "a network pass", "this package")
    return {PRETRAINED: first, **{k: MethodFacts(m.adapts, m.about, m.cost, m.reference) for k, m in MODELS.items()}}


def method(name: str) -> Method:
    """The method behind `Forecaster(model=name)`, if it is trained from nothing."""
    if name not in MODELS:
        choice = ", ".join([PRETRAINED, *sorted(MODELS)])
        raise ConfigError(f"`model={quoted(name)}` is not known", f"Choose one of {choice}.")
    return MODELS[name]


def resolve(settings: Settings) -> Settings:
    """Adjust the settings to their method.

    Its defaults take the place of None. Settings that its name implies are fixed. If it has only one distribution,
    "auto" becomes that one. Settings that it ignores are not searched. Settings that do not apply are refused.
    """
    if settings.model == PRETRAINED:
        _refuse(settings, set(fields_by_name()) - PRETRAINED_SETTINGS, " or ".join(map(repr, ("aru-rnn", "baseline"))))
        size = full_name("mini" if settings.size is None else str(settings.size))
        return dataclasses.replace(settings, size=size, max_steps=settings.max_steps or PRETRAINED_STEPS)
    chosen = method(settings.model)
    model = chosen.model
    _refuse(settings, {"country", "hindsight"}, repr(PRETRAINED))
    _refuse(settings, model.ignores - set(chosen.fixed), repr("aru-rnn"))
    settings = dataclasses.replace(
        settings, size=settings.size or DEFAULT_SIZE, max_steps=settings.max_steps or DEFAULT_STEPS
    )
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
            f"`model={quoted(settings.model)}` does not adapt: `gate=True` has nothing to mix", "Use 'aru-rnn'."
        )
    joined = {settings.network.integration, *(search or {}).get("integration", ())}
    if settings.gate and issubclass(model, ARU) and "direct" in joined:
        raise ConfigError(
            "`gate=True` needs an unadapted forecast, which `integration='direct'` does not have",
            "Use 'residual'.",
        )
    return settings


def _refuse(settings: Settings, foreign: Set[str], takers: str) -> None:
    """An error if one of these settings was given. Those of the paper's preset may be: it serves every method."""
    flat = {**vars(settings), **vars(settings.network), **vars(settings.training)}
    preset = {**PAPER, **vars(PAPER["network"]), **vars(PAPER["training"])} if settings.model != PRETRAINED else {}
    for name in fields_by_name():
        if name in foreign and flat[name] != default_of(name) and flat[name] != preset.get(name, default_of(name)):
            raise ConfigError(
                f"`{name}={quoted(flat[name])}` does not apply to `model={quoted(settings.model)}`",
                f"Leave it out, or use a model that takes it, such as {takers}.",
            )


def with_settings(settings: Settings, changed: Mapping[str, Any]) -> Settings:
    """The same settings with some changed, given by name, those of `network` and `training` included."""
    options = {"network": settings.network, "training": settings.training}
    return dataclasses.replace(settings, **nested({**options, **changed}))


def build(settings: Settings, schema: Schema) -> TrainedModel:
    """A model with fresh weights."""
    return method(settings.model).model(settings, schema)
