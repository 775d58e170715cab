"""A saved forecaster: JSON for what people read, safetensors for numbers. No pickle, no code.

    model.json           format version, settings, schema
    weights.safetensors  weights of each model of the ensemble
    series.json          the ids of the series, in the order of their states
    states.safetensors   their states

A save is written beside its destination and moved there when it is complete: a reader never sees half of one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

from aru.errors import StorageError

FORMAT = 1
_MODEL, _WEIGHTS, _SERIES, _STATES = "model.json", "weights.safetensors", "series.json", "states.safetensors"
_FILES = {_MODEL, _WEIGHTS, _SERIES, _STATES}


class Saved(NamedTuple):
    """Contents of a save."""

    model: Mapping[str, Any]
    weights: dict[str, Tensor]
    series: Mapping[str, Any]
    states: dict[str, Tensor]


def write(path: str | Path, saved: Saved) -> None:
    """Write into a new or empty folder, or over an older save. Nothing that is not ours is ever replaced."""
    target = Path(path).resolve()
    try:
        if target.exists() and (not target.is_dir() or {p.name for p in target.iterdir()} not in (set(), _FILES)):
            raise StorageError(
                f"{target} holds other files: choose a new or empty folder, or an older save to replace."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, saved)
    except OSError as error:
        raise StorageError(f"{target} cannot be written ({error}). Choose another folder.") from error


def _write(target: Path, saved: Saved) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    old = temporary.with_name(f"{temporary.name}-old")
    try:
        (temporary / _MODEL).write_text(json.dumps({"format": FORMAT, **saved.model}, indent=1))
        (temporary / _SERIES).write_text(json.dumps(saved.series))
        save_file(saved.weights, temporary / _WEIGHTS)
        save_file(saved.states, temporary / _STATES)
        temporary.chmod(0o755)
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(temporary, target)
        except BaseException:
            if old.exists():
                os.replace(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read(path: str | Path) -> Saved:
    """Read a save, with a clear error for anything that is not one."""
    folder = Path(path)
    if not (folder / _MODEL).is_file():
        raise StorageError(f"{folder} is not a saved forecaster: it has no {_MODEL}. Give the folder that save wrote.")
    try:
        model = json.loads((folder / _MODEL).read_text())
        if model.pop("format", None) != FORMAT:
            raise StorageError(f"{folder} was saved in another format: this version reads format {FORMAT}.")
        series = json.loads((folder / _SERIES).read_text())
        return Saved(model, load_file(folder / _WEIGHTS), series, load_file(folder / _STATES))
    except StorageError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise StorageError(f"{folder} cannot be read ({reason}). Save the forecaster again.") from error
