"""The rows of the paper's tables and of the comparisons beyond them, most important first."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from experiments.candidates import chosen
from experiments.evaluate import Job

# What differs from the configuration chosen on validation; None: the default again. Models are those of the library
# and of `experiments.ablations`; their rows keep the name of the method that they vary.
VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    "ensemble": {"ensemble": 4},
    "alphas=1": {"alphas": [1.0], "learn_alphas": None},
    "alphas=1,.99": {"alphas": [1.0, 0.99], "learn_alphas": None},
    "alphas=1,.99,.95": {"learn_alphas": None},
    "alphas=1,.95,.9": {"alphas": [1.0, 0.95, 0.9], "learn_alphas": None},
    "alphas=learned": {"learn_alphas": True},
    "ridge=.01": {"ridge": 0.01, "learn_ridge": False},
    "ridge=1": {"ridge": 1.0, "learn_ridge": False},
    "ridge=100": {"ridge": 100.0, "learn_ridge": False},
    "integration=skip": {"integration": "skip"},
    "integration=paper": {"integration": "paper"},
    "stop_gradient=on": {"model": "aru-stop-gradient"},
    "stride=4": {"stride": 4},
    "stride=h": {"stride": None},
    "local_variance=off": {"model": "aru-no-variance"},
    "robust=off": {"robust": False},
    "transform=none": {"transform": None},
    "transform=log1p": {"transform": "log1p"},
    "transform=asinh": {"transform": "asinh"},
    "series_id=on": {"series_id": True},
    "cold_starts=0": {"cold_starts": 0.0},
    "cell_input=x": {"model": "aru-cell-x"},
    "fine-tuned": {"model": "baseline-finetuned"},
    # The cell as released, trained by our loop: FF2 of the paper, one alpha, fixed ridge, no gradient through the fit.
    "authors' cell": {
        "model": "aru-authors-cell",
        "integration": "paper",
        "distribution": "gaussian",
        "robust": False,
        "alphas": [1.0],
        "learn_alphas": None,
        "ridge": 0.08,
        "learn_ridge": False,
        "cold_starts": 0.0,
    },
    **{f"size={size}": {"size": size} for size in ("small", "medium", "large", "xlarge")},
    **{f"input_size={n}": {"input_size": n} for n in (50, 672)},
}
ABLATIONS = [
    "alphas=1", "stop_gradient=on", "integration=skip", "integration=paper", "robust=off", "local_variance=off",
    "series_id=on", "cold_starts=0", "authors' cell", "alphas=1,.99", "alphas=1,.99,.95", "alphas=1,.95,.9",
    "alphas=learned", "ridge=.01", "ridge=1", "ridge=100", "stride=4", "stride=h", "transform=none", "transform=log1p",
    "transform=asinh", "cell_input=x",
]  # fmt: skip
SIZES = ["size=small", "size=medium", "size=large", "size=xlarge"]

Cell = tuple[str, str]  # dataset, protocol
TOURISM: Cell = ("tourism_monthly", "deepstate")
PARTS: Cell = ("parts", "fixed")
MAIN: list[Cell] = [
    ("rossmann", "fixed"),
    ("walmart", "fixed"),
    TOURISM,
    ("gefcom2012", "streaming"),
    ("m4_hourly", "fixed"),
    PARTS,
    ("electricity_10", "streaming"),
    ("rossmann", "streaming"),
    ("walmart", "streaming"),
]
MORE: list[Cell] = [
    ("gefcom2012", "fixed"),
    ("electricity_10", "fixed"),
    ("parts", "deepstate"),
    ("electricity_10", "deepstate"),
    ("gefcom2012", "deepstate"),
]
HOURLY: list[Cell] = [("gefcom2012", "streaming"), ("electricity_10", "streaming"), ("m4_hourly", "fixed")]
RETAIL: list[Cell] = [("rossmann", "fixed"), ("walmart", "fixed")]
RETAIL_STREAMS: list[Cell] = [("rossmann", "streaming"), ("walmart", "streaming")]


def grid(seeds: Iterable[int]) -> list[Job]:
    """All rows in order of importance; what takes long and decides little with the first seed alone."""
    seeds = list(seeds)
    jobs: list[Job] = []

    def add(cells: list[Cell], methods: list[str], variants: list[str], seeds: list[int] = seeds) -> None:
        for seed, cell, method, variant in itertools.product(seeds, cells, methods, variants):
            choice = chosen(cell[0], method)
            settings = {k: v for k, v in {**choice, **VARIANTS[variant]}.items() if v is not None}
            if variant == "" or settings != choice:  # else it is what was chosen
                jobs.append(Job(*cell, method, variant, seed, settings))

    once = seeds[:1]
    add(MAIN, ["aru", "baseline"], [""])
    add([*RETAIL, TOURISM], ["aru"], ["ensemble"])
    add(MAIN, ["aru-control"], [""])
    add(RETAIL[:1], ["aru"], ABLATIONS)
    add([*RETAIL, TOURISM, PARTS], ["aru-direct", "snail", "deepar", "deepstate"], [""])
    add(RETAIL, ["aru"], SIZES)
    add(MORE, ["aru", "baseline"], [""])
    add(RETAIL[1:], ["aru"], ABLATIONS)
    add(RETAIL_STREAMS, ["snail", "deepar"], [""])
    add(RETAIL_STREAMS, ["aru"], ["ensemble"])
    add(RETAIL, ["baseline"], ["series_id=on"])
    add(RETAIL, ["baseline"], ["ensemble"], once)
    add(RETAIL, ["baseline"], SIZES)
    add(HOURLY, ["snail", "aru-direct", "deepar"], [""])
    add(MORE, ["aru-direct", "snail", "deepar", "deepstate"], [""], once)
    add(HOURLY, ["deepstate"], [""], once)
    add(RETAIL_STREAMS, ["baseline"], ["fine-tuned"])
    add([("walmart", "fixed")], ["snail"], ["input_size=50"], once)
    add([("gefcom2012", "streaming")], ["snail"], ["input_size=672"], once)
    return jobs
