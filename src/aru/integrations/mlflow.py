"""MLflow: a flavour, so that forecasters are logged, registered, loaded and served like other models."""

from __future__ import annotations

import importlib
import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.models.model import ModelInfo
from mlflow.types import DataType, ParamSchema, ParamSpec

from aru.errors import ColumnError, quoted
from aru.forecaster import Forecaster

FLAVOR = "aru"
DATA, REQUIREMENTS, PYTHON = "forecaster", "requirements.txt", "python_env.yaml"  # in the folder of a model


def save_model(
    forecaster: Forecaster,
    path: str | Path,
    mlflow_model: Model | None = None,
    signature: ModelSignature | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write a trained or pretrained forecaster with the states of its series as an MLflow model."""
    version, folder = importlib.import_module("aru").__version__, Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    forecaster.save(folder / DATA)
    model = Model() if mlflow_model is None else mlflow_model
    if metadata is not None:
        model.metadata = metadata
    parameters = ParamSchema(
        [ParamSpec("h", DataType.long, forecaster.settings.h), ParamSpec("level", DataType.double, [90.0], (-1,))]
    )
    model.signature = signature or ModelSignature(params=parameters)
    model.add_flavor(FLAVOR, aru_version=version, data=DATA)
    mlflow.pyfunc.add_to_model(model, loader_module=__name__, data=DATA, python_env=PYTHON)
    (folder / REQUIREMENTS).write_text(f"aru-forecast=={version}\nmlflow=={mlflow.__version__}\n")
    environment = {"python": platform.python_version(), "dependencies": [f"-r {REQUIREMENTS}"]}
    (folder / PYTHON).write_text(json.dumps(environment))  # which is YAML, too
    model.save(str(folder / "MLmodel"))


def log_model(
    forecaster: Forecaster,
    name: str,
    registered_model_name: str | None = None,
    signature: ModelSignature | None = None,
    metadata: dict[str, Any] | None = None,
) -> ModelInfo:
    """Log a forecaster to the run that is active, or to a new one, and register it under a name if one is given."""
    return Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[__name__],
        registered_model_name=registered_model_name,
        forecaster=forecaster,
        signature=signature,
        metadata=metadata,
    )


def load_model(model_uri: str) -> Forecaster:
    """The forecaster of a model, by its address: `runs:/...`, `models:/...`, or a folder."""
    return Forecaster.load(Path(mlflow.artifacts.download_artifacts(artifact_uri=model_uri)) / DATA)


class Scored:
    """What `mlflow.pyfunc.load_model` gives: forecasts of rows. No call changes the model."""

    def __init__(self, forecaster: Forecaster) -> None:
        self.forecaster = forecaster

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Forecast the series of some rows; without rows, all series that the model knows.

        Rows with a value of y are taken in first: what came since the model was saved, or the history of new series.
        Rows without one are those of the future, with their covariates. Static covariates are columns of these rows.

        Args:
            model_input: Rows with `unique_id`, `ds`, `y` (or as the model calls them) and covariates.
            params: `h`, the number of steps, and `level`, central intervals in percent.
        """
        chosen, names = dict(params or {}), self.forecaster.names
        model_input = pd.DataFrame(model_input)
        if len(model_input) and names.unique_id not in model_input:
            raise ColumnError(f"The rows have no column {quoted(names.unique_id)}", "Add it.")
        model, settings = self.forecaster.__copy__(), self.forecaster.settings
        known = model_input[names.y].notna() if names.y in model_input else pd.Series(False, model_input.index)
        static = None
        if settings.stat_exog_list and len(model_input):
            static = model_input[[names.unique_id, *settings.stat_exog_list]].drop_duplicates(names.unique_id)
        if known.any():
            model.update(model_input[known].drop(columns=list(settings.stat_exog_list)), static)
        futr = (
            model_input.loc[~known, [names.unique_id, names.ds, *settings.futr_exog_list]]
            if settings.futr_exog_list
            else None
        )
        ids = list(pd.unique(model_input[names.unique_id])) if len(model_input) else None
        made: pd.DataFrame = model.predict(futr, list(chosen.get("level", [90.0])) or None, ids, chosen.get("h"))
        return made


def _load_pyfunc(path: str) -> Scored:
    """As MLflow calls it."""
    return Scored(Forecaster.load(path))
