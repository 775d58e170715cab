"""Forecasters from settings by name, wherever a name lives: candidates, choices and result files hold flat settings."""

from __future__ import annotations

from typing import Any

from aru import Forecaster
from aru.models import MODELS
from aru.settings import nested
from experiments.ablations import ABLATIONS

QUIET = {"enable_progress_bar": False}  # options of Lightning's Trainer


def make(**settings: Any) -> Forecaster:
    """A forecaster with these settings and without a progress bar. The model may be an ablation."""
    if settings.get("model") in ABLATIONS:
        MODELS.update(ABLATIONS)
    return Forecaster(**nested({"trainer": QUIET, **settings}))
