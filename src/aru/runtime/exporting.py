"""Export a model's networks for ONNX Runtime, with all that is needed to run them without torch.

<member>-<function>.onnx   the functions of each model of the ensemble
network.json               their inputs and outputs, settings and schema
series.npz                 the inputs of `emit` for every known series, as of now
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from aru.errors import ConfigError, StorageError, quoted, verbatim
from aru.nn.sessions import parameters
from aru.nn.tree import leaves
from aru.runtime.engine import NetworkEngine
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.state import SeriesState

NETWORK_FILE, SERIES_FILE = "network.json", "series.npz"


def write_networks(runtime: ForecastRuntime, folder: Path, ids: pd.Index[Any], state: SeriesState) -> list[Path]:
    """Write everything into a folder, and return the files."""
    engine = runtime.engine
    graphs = {f"{i}-{name}.onnx": g for i, functions in enumerate(engine.networks) for name, g in functions.items()}
    if not graphs:
        raise ConfigError(
            f"`model={quoted(engine.settings.model)}` runs in torch alone",
            "Choose another model; docs/methods.md says which.",
        )
    about = {
        "functions": {name: _describe(engine, name) for name in engine.networks[0]},
        "settings": engine.settings.to_json(),
        "schema": engine.schema.to_json(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, graph in graphs.items():
            (folder / name).write_bytes(graph)
        (folder / NETWORK_FILE).write_text(json.dumps(about, indent=1))
        np.savez(folder / SERIES_FILE, allow_pickle=False, **_inputs(runtime, ids, state))
    except OSError as error:
        raise StorageError(
            f"{verbatim(folder)} cannot be written ({verbatim(error)})", "Choose another folder."
        ) from error
    return [folder / name for name in (*graphs, NETWORK_FILE, SERIES_FILE)]


def _describe(engine: NetworkEngine, name: str) -> dict[str, Any]:
    """Type and shape of the inputs of a function, without the number of series, and the names of its outputs."""
    model = engine.models[0]
    arguments = zip(parameters(getattr(model, name)), model.samples(*engine.sample(1))[name], strict=True)
    inputs = dict(pair for argument, tree in arguments for pair in leaves(tree, argument))
    return {
        "inputs": {path: [str(v.dtype).removeprefix("torch."), list(v.shape[1:])] for path, v in inputs.items()},
        "outputs": list(model.exported[name]._fields),
    }


def _inputs(runtime: ForecastRuntime, ids: pd.Index[Any], state: SeriesState) -> dict[str, Any]:
    """The inputs of `emit` for each series: its context, the known part of future rows, and its local fit.

    Known-future covariates are left out; whoever runs the network must add them.
    """
    found: dict[str, Any] = {"unique_id": np.array([str(name) for name in ids]), **_arrays("context", state.context)}
    if runtime.freq.freq is not None and not runtime.engine.settings.futr_exog_list and len(ids):
        ds, rows = runtime.future(ids, state, None)
        found |= {"ds": ds, **_arrays("future", rows)}
    for i, (model, member) in enumerate(zip(runtime.engine.models, state.members, strict=True)):
        found |= {f"{i}-{path}": v for path, v in _arrays("fit", model.local_fit(member)).items()}
    return found


def _arrays(name: str, tree: Any) -> dict[str, Any]:
    with torch.no_grad():
        return {path: value.cpu().numpy() for path, value in leaves(tree, name)}
