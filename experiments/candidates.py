"""Configurations that validation windows choose between, and the choice."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from aru.models import method as find_method
from experiments.evaluate import Job
from experiments.make import model_of
from experiments.tasks import PROTOCOLS, VALIDATION

CHOICES = Path(__file__).with_name("choices.json")
Settings = dict[str, Any]

_SKIP: Settings = {"integration": "skip"}
_XL: Settings = {"size": "xlarge"}
_XL32: Settings = {"size": "xlarge", "batch_size": 32}
_LEVEL: Settings = {"scaler": "level", "lags": [24, 36]}
_DROPOUT: Settings = {"dropout": 0.1}
_LOG: Settings = {"transform": "log1p", "dropout": 0.1}
_WEEKS: Settings = {"lags": [51, 52, 53]}
_AUTO: Settings = {"lags": "auto"}
_SIZE: Settings = {"size_weight": 0.5}  # ND is pooled: large series decide it
_SEASON: Settings = {"scaler": "level", "lags": [24, 36], "season_length": 12}
_LONG: Settings = {"max_steps": 4000, "learning_rate": 5e-3}
_LOCAL: Settings = {"scaler": "level"}
_BETWEEN: Settings = {"scaler": "auto"}
_BOTH: Settings = {"scaler": "auto", "lags": "auto"}  # the defaults


def _ridge(value: float) -> Settings:
    return {"ridge": value, "learn_ridge": False}


# The first of each list is what is used as long as nothing was compared.
CANDIDATES: dict[str, dict[str, dict[str, Settings]]] = {
    "aru": {
        "rossmann": {
            "batch 32": {"batch_size": 32},
            "xlarge, batch 32": _XL32,
            "xlarge, batch 32, 2000 steps": {**_XL32, "max_steps": 2000},
            "large, batch 32": {"size": "large", "batch_size": 32},
            "xlarge, batch 32, skip": {**_XL32, **_SKIP},
            "xlarge, batch 32, lags": {**_XL32, "lags": [18, 24]},
            "xlarge, batch 32, log1p": {**_XL32, "transform": "log1p"},
            "xlarge, batch 32, dropout": {**_XL32, **_DROPOUT},
            # Second round, around the best of the first.
            "xlarge, batch 32, dropout, 2000 steps": {**_XL32, **_DROPOUT, "max_steps": 2000},
            "xlarge, batch 32, dropout .2": {**_XL32, "dropout": 0.2},
            "xlarge, batch 32, dropout, log1p": {**_XL32, **_DROPOUT, "transform": "log1p"},
            "xlarge, batch 16, dropout": {**_XL, **_DROPOUT, "batch_size": 16},
            # Third round: the loss weighted by size.
            "xlarge, batch 32, dropout, weighted": {**_XL32, **_DROPOUT, **_SIZE},
            # Fourth round: as long as the networks that do not adapt.
            "xlarge, batch 32, dropout, long": {**_XL32, **_DROPOUT, **_LONG},
            # Fifth round: scaled by the level.
            "level, batch 32": {**_LOCAL, "batch_size": 32},
            "auto, batch 32": {**_BETWEEN, "batch_size": 32},
            "level, xlarge, batch 32, dropout": {**_LOCAL, **_XL32, **_DROPOUT},
        },
        "walmart": {
            "default": {},
            "dropout": _DROPOUT,
            "rate .005": {"learning_rate": 5e-3},
            "xlarge, dropout": {**_XL, **_DROPOUT},
            "lags 51-53": _WEEKS,
            "xlarge, dropout, lags 51-53": {**_XL, **_DROPOUT, **_WEEKS},
            "xlarge, dropout, skip": {**_XL, **_DROPOUT, **_SKIP},
            "log1p, dropout": _LOG,
            # Second round.
            "log1p, dropout, lags 51-53": {**_LOG, **_WEEKS},
            "xlarge, log1p, dropout": {**_XL, **_LOG},
            "xlarge, log1p, dropout, lags 51-53": {**_XL, **_LOG, **_WEEKS},
            "log1p, dropout, rate .005": {**_LOG, "learning_rate": 5e-3},
            # Third round.
            "log1p, dropout, weighted": {**_LOG, **_SIZE},
            "log1p, dropout, lags 51-53, weighted": {**_LOG, **_WEEKS, **_SIZE},
            "xlarge, log1p, dropout, weighted": {**_XL, **_LOG, **_SIZE},
            "log1p, dropout, lags 51-53, rate .005": {**_LOG, **_WEEKS, "learning_rate": 5e-3},
            # Fourth round.
            "log1p, dropout, lags 51-53, weighted, long": {**_LOG, **_WEEKS, **_SIZE, **_LONG},
            "xlarge, log1p, dropout, lags 51-53, weighted, long": {**_XL, **_LOG, **_WEEKS, **_SIZE, **_LONG},
            # Fifth round: a local fit that is held back more, or less.
            "log1p, dropout, lags 51-53, weighted, ridge 1": {**_LOG, **_WEEKS, **_SIZE, **_ridge(1.0)},
            "log1p, dropout, lags 51-53, weighted, ridge 10": {**_LOG, **_WEEKS, **_SIZE, **_ridge(10.0)},
            "log1p, dropout, lags 51-53, weighted, one alpha": {**_LOG, **_WEEKS, **_SIZE, "alphas": [1.0]},
            "log1p, dropout, lags 51-53, weighted, stride 4": {**_LOG, **_WEEKS, **_SIZE, "stride": 4},
            "large, log1p, dropout, lags 51-53, weighted": {"size": "large", **_LOG, **_WEEKS, **_SIZE},
            "xlarge, log1p, dropout, lags 51-53, weighted": {**_XL, **_LOG, **_WEEKS, **_SIZE},
            # Sixth round: aging factors that are learned.
            "log1p, dropout, lags 51-53, weighted, learned alphas": {**_LOG, **_WEEKS, **_SIZE, "learn_alphas": True},
            "log1p, dropout, lags 51-53, weighted, stride 4, learned alphas": {
                **_LOG,
                **_WEEKS,
                **_SIZE,
                "stride": 4,
                "learn_alphas": True,
            },
            # Seventh round: scaled by the level.
            "level": _LOCAL,
            "auto, lags": _BOTH,
            "level, lags 51-53": {**_LOCAL, **_WEEKS},
            "level, log1p, dropout, lags 51-53, weighted, stride 4, learned alphas": {
                **_LOCAL,
                **_LOG,
                **_WEEKS,
                **_SIZE,
                "stride": 4,
                "learn_alphas": True,
            },
            "level, dropout, lags 51-53, weighted, stride 4, learned alphas": {
                **_LOCAL,
                **_DROPOUT,
                **_WEEKS,
                **_SIZE,
                "stride": 4,
                "learn_alphas": True,
            },
        },
        "tourism_monthly": {
            "level, lags": _LEVEL,
            "level, lags, log1p": {**_LEVEL, "transform": "log1p"},
            "level, lags, 500 steps": {**_LEVEL, "max_steps": 500},
            "level, lags, large, dropout": {**_LEVEL, **_DROPOUT, "size": "large"},
            "level, lags, skip": {**_LEVEL, **_SKIP},
            "level, three lags": {"scaler": "level", "lags": [24, 36, 48]},
            "level, lags, asinh, dropout": {**_LEVEL, **_DROPOUT, "transform": "asinh"},
            "lags, log1p": {"lags": [24, 36], "transform": "log1p"},
            # Second round: the latest season as an input, which lags of 24 months and more cannot show.
            "level, season": {"scaler": "level", "season_length": 12},
            "level, lags, season": _SEASON,
            "level, lags, season, log1p": {**_SEASON, "transform": "log1p"},
            # Third round.
            "level, lags, season, weighted": {**_SEASON, **_SIZE},
            "level, lags, season, weighted by 1": {**_SEASON, "size_weight": 1.0},
            "level, lags, season, skip, weighted": {**_SEASON, **_SKIP, **_SIZE},
            # Fourth round.
            "level, lags, season, long": {**_SEASON, **_LONG},
            # Fifth round: a local fit that is held back more.
            "level, lags, season, ridge 1": {**_SEASON, **_ridge(1.0)},
            "level, lags, season, ridge 10": {**_SEASON, **_ridge(10.0)},
            "level, lags, season, one alpha": {**_SEASON, "alphas": [1.0]},
            # Sixth round: fresher forecasts to learn from, aging factors that are learned.
            "level, lags, season, stride 12": {**_SEASON, "stride": 12},
            "level, lags, season, ridge 10, stride 12": {**_SEASON, **_ridge(10.0), "stride": 12},
            "level, lags, season, ridge 10, learned alphas": {**_SEASON, **_ridge(10.0), "learn_alphas": True},
            # Seventh round: the local prediction alone.
            "level, lags, season, stride 12, direct": {**_SEASON, "stride": 12, "integration": "direct"},
            "level, lags, season, ridge 10, stride 12, direct": {
                **_SEASON,
                **_ridge(10.0),
                "stride": 12,
                "integration": "direct",
            },
            # What the level is worth alone.
            "default": {},
            "level": _LOCAL,
            "auto, lags": _BOTH,
        },
        "gefcom2012": {
            "default": {},
            "lags": _AUTO,
            "large": {"size": "large"},
            "xlarge": _XL,
            "large, lags": {"size": "large", **_AUTO},
            "large, lags, log1p": {"size": "large", **_AUTO, "transform": "log1p"},
            # Second round.
            "xlarge, dropout": {**_XL, **_DROPOUT},
            "xlarge, lags": {**_XL, **_AUTO},
            # Third round.
            "xlarge, weighted": {**_XL, **_SIZE},
            # Fourth round.
            "xlarge, weighted, long": {**_XL, **_SIZE, **_LONG},
            # Fifth round: scaled by the level.
            "level": _LOCAL,
            "auto": _BETWEEN,
            "auto, lags": _BOTH,
            "level, xlarge, weighted": {**_LOCAL, **_XL, **_SIZE},
        },
        "electricity_10": {
            "default": {},
            "lags": _AUTO,
            "large, lags": {"size": "large", **_AUTO},
            "lags, asinh": {**_AUTO, "transform": "asinh"},
            "lags, dropout": {**_AUTO, **_DROPOUT},
            # Second round.
            "large, lags, weighted": {"size": "large", **_AUTO, **_SIZE},
            # Third round.
            "large, lags, weighted, long": {"size": "large", **_AUTO, **_SIZE, **_LONG},
            # Fourth round: scaled by the level.
            "level": _LOCAL,
            "level, lags": {**_LOCAL, **_AUTO},
            "level, large, lags, weighted": {**_LOCAL, "size": "large", **_AUTO, **_SIZE},
            "level, large, lags, weighted, long": {**_LOCAL, "size": "large", **_AUTO, **_SIZE, **_LONG},
            "auto, lags": _BOTH,
        },
        "m4_hourly": {
            "default": {},
            "asinh": {"transform": "asinh"},
            "lags, asinh": {**_AUTO, "transform": "asinh"},
            "lags": _AUTO,
            "level, lags, asinh": {**_AUTO, "scaler": "level", "transform": "asinh"},
            "skip, asinh": {**_SKIP, "transform": "asinh"},
            # Second round.
            "lags, weighted": {**_AUTO, **_SIZE},
            "lags, dropout": {**_AUTO, **_DROPOUT},
            "level, lags, asinh, weighted": {**_AUTO, **_SIZE, "scaler": "level", "transform": "asinh"},
            # Third round.
            "level, lags, asinh, long": {**_AUTO, "scaler": "level", "transform": "asinh", **_LONG},
            "lags, asinh, long": {**_AUTO, "transform": "asinh", **_LONG},
            # Fourth round.
            "level": _LOCAL,
            "level, lags": {**_LOCAL, **_AUTO},
            "auto, lags": _BOTH,
            # Fifth round: the local prediction alone.
            "level, lags, asinh, direct": {**_LOCAL, **_AUTO, "transform": "asinh", "integration": "direct"},
        },
        "parts": {
            "small": {},
            "medium": {"size": "medium"},
            "small, dropout": _DROPOUT,
            "small, 300 steps": {"max_steps": 300},
            "small, lag 12": {"lags": [12]},
            # Second round.
            "small, lag 12, 300 steps": {"lags": [12], "max_steps": 300},
            "medium, lag 12": {"lags": [12], "size": "medium"},
            "medium, lag 12, 300 steps": {"lags": [12], "size": "medium", "max_steps": 300},
            "medium, lag 12, dropout": {"lags": [12], "size": "medium", **_DROPOUT},
            # Third round.
            "medium, lag 12, long": {"lags": [12], "size": "medium", **_LONG},
            # Fourth round.
            "level": _LOCAL,
            "auto, lags": _BOTH,
        },
    },
    "baseline": {
        "rossmann": {
            "medium": {},
            "xlarge": _XL,
            "xlarge, dropout": {**_XL, **_DROPOUT},
            "8000 steps": {"max_steps": 8000},
            # Second round: what helped ARU.
            "xlarge, batch 32, dropout": {**_XL32, **_DROPOUT},
            "xlarge, dropout, weighted": {**_XL, **_DROPOUT, **_SIZE},
            # Third round.
            "level, xlarge, dropout": {**_LOCAL, **_XL, **_DROPOUT},
        },
        "walmart": {
            "medium": {},
            "xlarge, dropout": {**_XL, **_DROPOUT},
            "lags 51-53": _WEEKS,
            # Second round.
            "log1p, dropout": _LOG,
            "xlarge, log1p, dropout": {**_XL, **_LOG},
            "xlarge, dropout, weighted": {**_XL, **_DROPOUT, **_SIZE},
            # Third round.
            "level, xlarge, dropout": {**_LOCAL, **_XL, **_DROPOUT},
        },
        "tourism_monthly": {
            "level, lags": _LEVEL,
            "level, lags, log1p": {**_LEVEL, "transform": "log1p"},
            "level, lags, 1000 steps": {**_LEVEL, "max_steps": 1000},
            # Second round.
            "level, lags, season, 1000 steps": {**_SEASON, "max_steps": 1000},
            "level, lags, season, weighted, 1000 steps": {**_SEASON, **_SIZE, "max_steps": 1000},
        },
        "gefcom2012": {
            "medium": {},
            "lags": _AUTO,
            "large, lags": {"size": "large", **_AUTO},
            # Second round.
            "xlarge, dropout": {**_XL, **_DROPOUT},
            # Third round.
            "level, xlarge, dropout": {**_LOCAL, **_XL, **_DROPOUT},
        },
        "electricity_10": {
            "medium": {},
            "lags": _AUTO,
            "lags, dropout": {**_AUTO, **_DROPOUT},
            # Second round.
            "level, lags": {**_LOCAL, **_AUTO},
        },
        "m4_hourly": {
            "medium": {},
            "asinh": {"transform": "asinh"},
            "lags, asinh": {**_AUTO, "transform": "asinh"},
            # Second round.
            "lags, asinh, weighted": {**_AUTO, **_SIZE, "transform": "asinh"},
            # Third round.
            "level, lags, asinh": {**_LOCAL, **_AUTO, "transform": "asinh"},
        },
        "parts": {
            "small": {},
            "small, 1000 steps": {"max_steps": 1000},
            "medium": {"size": "medium"},
        },
    },
}

# Trained to convergence: networks that do not adapt need more steps, at a lower rate, than ARU does.
DEFAULTS: dict[str, Settings] = {
    "aru": {},
    "aru-direct": {},
    "aru-generated": _LONG,
    "aru-control": _LONG,
    "baseline": _LONG,
    "snail": {"max_steps": 2000, "learning_rate": 5e-3},
    # As GluonTS has it: two layers of 40 units, dropout, the scale of the context.
    "deepar": {
        "max_steps": 1000,
        "learning_rate": 5e-3,
        "size": [40, 40, 40, 40],
        "encoder_layers": 2,
        "dropout": 0.1,
        "scaler": "level",
    },
    "deepstate": {"max_steps": 500},
}
# Whose choice a method takes over that has no candidates of its own; what is in brackets stays its own.
INHERITS = {
    "aru-direct": ("aru", ()),
    "aru-control": ("aru", ("max_steps", "learning_rate")),
    "aru-generated": ("aru", ("max_steps", "learning_rate")),
    "snail": ("baseline", ("max_steps",)),
    "deepar": ("baseline", ("max_steps", "size", "encoder_layers", "dropout", "scaler")),
    "deepstate": ("baseline", ("max_steps",)),
}


def selection_jobs(seeds: Iterable[int]) -> list[Job]:
    """Every candidate on the validation windows of its dataset, one seed of all before the next."""
    jobs = []
    for seed in seeds:
        for method, datasets in CANDIDATES.items():
            for dataset, candidates in datasets.items():
                assert VALIDATION in PROTOCOLS[dataset]
                for name, settings in candidates.items():
                    jobs.append(Job(dataset, VALIDATION, method, name, seed, {**DEFAULTS[method], **settings}))
    return jobs


def criterion(dataset: str) -> str:
    """What is compared: ND, but where a forecast of zeros has an ND of 1, as for the parts, CRPS."""
    return "crps" if dataset == "parts" else "nd"


def choose(selection: Path) -> dict[str, dict[str, Any]]:
    """For each dataset and method the candidate with the lowest mean, over the seeds that all of them have.

    Longer training has to show: of the candidates within one standard error of the lowest mean, estimated from the
    seeds of all of them, those with the fewest steps come first.
    """
    runs = pd.read_csv(selection)
    choices: dict[str, dict[str, Any]] = {}
    for (dataset, method), part in runs.groupby(["dataset", "method"]):
        by = criterion(str(dataset))
        candidates = CANDIDATES[str(method)][str(dataset)]
        part = part[part.variant.isin(list(candidates))]
        everywhere = part.groupby("seed").variant.nunique()
        part = part[part.seed.isin(everywhere[everywhere == part.variant.nunique()].index)]
        found = part.groupby("variant")[by].agg(["mean", "count", "var"])
        error = math.sqrt(found["var"].mean() / found["count"].max()) if found["count"].max() > 1 else 0.0
        found["steps"] = [
            {**DEFAULTS[str(method)], **candidates[str(name)]}.get("max_steps", 1000) for name in found.index
        ]
        near = found[found["mean"] <= found["mean"].min() + error]
        best = str(near[near.steps == near.steps.min()]["mean"].idxmin())
        choices.setdefault(str(dataset), {})[str(method)] = {
            "candidate": best,
            by: round(float(found.loc[best, "mean"]), 5),
            "seeds": int(found.loc[best, "count"]),
            "settings": candidates[best],
        }
    return choices


def write_choices(selection: Path) -> None:
    """Record the choice."""
    CHOICES.write_text(json.dumps(choose(selection), indent=1) + "\n")


def chosen(dataset: str, method: str) -> Settings:
    """The settings of a method on a dataset: its defaults, and over them what validation chose and the method heeds."""
    source, own = INHERITS.get(method, (method, ()))
    choices = json.loads(CHOICES.read_text()) if CHOICES.exists() else {}
    first = next(iter(CANDIDATES[source][dataset].values()))
    settings = choices.get(dataset, {}).get(source, {}).get("settings", first)
    idle = {*own, *find_method(model_of(method)).model.ignores}
    return {**DEFAULTS[method], **{k: v for k, v in settings.items() if k not in idle}}
