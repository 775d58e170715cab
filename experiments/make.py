"""Forecasters from settings by name, wherever a name lives: candidates, choices and result files hold flat settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aru import Forecaster
from aru.models import MODELS
from aru.settings import nested
from experiments.ablations import ABLATIONS

RECURRENT = "aru"
QUIET = {"enable_progress_bar": False}  # options of Lightning's Trainer
TOLD = ("h", "freq", "futr_exog_list", "hist_exog_list", "stat_exog_list")


def told(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What everyone has to say who takes the defaults: horizon, frequency and covariates."""
    return {key: settings[key] for key in TOLD if key in settings}


def model_of(method: str) -> str:
    """The model that result files call so: there "aru" is the recurrent network of the paper's family."""
    return "aru-rnn" if method == RECURRENT else method


def make(**settings: Any) -> Forecaster:
    """A forecaster with these settings and without a progress bar. The model may be an ablation."""
    method = settings.get("model", RECURRENT)
    if method in ABLATIONS:
        MODELS.update(ABLATIONS)
    settings = {"alias": method, **settings, "model": model_of(method)}
    return Forecaster(**nested({"trainer": QUIET, **settings}))
