"""Saved models: JSON for settings and schema, safetensors for numbers, ONNX for networks. No pickle, no code.

    model.json           format version, settings, schema, and a checksum of every other file
    weights.safetensors  weights of each model of the ensemble
    series.json          the ids of the series, in the order of their states
    states.safetensors   their states
    network-*.onnx       the networks' functions, for ONNX Runtime

A save is written next to its destination and moved there when complete, so that a reader never sees half of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

from aru.errors import StorageError, verbatim
from aru.store.layout import FORMAT

_MODEL, _WEIGHTS, _SERIES, _STATES = "model.json", "weights.safetensors", "series.json", "states.safetensors"
_FILES = {_MODEL, _WEIGHTS, _SERIES, _STATES}
_NETWORK = ("network-", ".onnx")


class Saved(NamedTuple):
    """Contents of a save."""

    model: Mapping[str, Any]
    weights: dict[str, Tensor]
    series: Mapping[str, Any]
    states: dict[str, Tensor]
    networks: Mapping[str, bytes] = {}  # by name, without "network-" and ".onnx"


def check_folder(path: str | Path) -> None:
    """Refuse, before any work, a folder that `write_folder` would refuse: it replaces nothing but saves."""
    target = Path(path).resolve()
    if target.exists():
        names = {p.name for p in target.iterdir()} if target.is_dir() else {""}
        others = {name for name in names - _FILES if not (name.startswith(_NETWORK[0]) and name.endswith(_NETWORK[1]))}
        if others or (names and not names >= _FILES):
            raise StorageError(
                f"{verbatim(target)} holds other files", "Choose a new or empty folder, or an older save to replace."
            )
    above = next(folder for folder in target.parents if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise StorageError(
            f"{verbatim(target)} cannot be written: {verbatim(above)} does not allow it", "Choose another folder."
        )


def write_folder(path: str | Path, saved: Saved) -> None:
    """Write into a new or empty folder, or over an older save."""
    target = Path(path).resolve()
    try:
        check_folder(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, saved)
    except OSError as error:
        raise StorageError(
            f"{verbatim(target)} cannot be written ({verbatim(error)})", "Choose another folder."
        ) from error


def _write(target: Path, saved: Saved) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    old = temporary.with_name(f"{temporary.name}-old")
    try:
        save_file(saved.weights, temporary / _WEIGHTS)
        save_file(saved.states, temporary / _STATES)
        (temporary / _SERIES).write_text(json.dumps(saved.series))
        for name, graph in saved.networks.items():
            (temporary / name.join(_NETWORK)).write_bytes(graph)
        sums = {file.name: _checksum(file) for file in sorted(temporary.iterdir())}
        (temporary / _MODEL).write_text(json.dumps({"format": FORMAT, **saved.model, "files": sums}, indent=1))
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


def read_folder(path: str | Path) -> Saved:
    """Read a save, with a clear error for anything that is not one."""
    folder = Path(path)
    if not (folder / _MODEL).is_file():
        raise StorageError(
            f"{verbatim(folder)} is not a saved forecaster: it has no {_MODEL}", "Give the folder that save wrote."
        )
    try:
        model = json.loads((folder / _MODEL).read_text())
        if model.pop("format", None) != FORMAT:
            raise StorageError(f"{verbatim(folder)} was saved in another format: this version reads format {FORMAT}")
        files = model.pop("files")
        damaged = [name for name, checksum in files.items() if _checksum(folder / name) != checksum]
        if damaged:
            raise StorageError(
                f"{verbatim(folder / damaged[0])} is damaged: its checksum is wrong", "Save the forecaster again."
            )
        begin, end = _NETWORK
        networks = {
            name.removeprefix(begin).removesuffix(end): (folder / name).read_bytes()
            for name in files
            if name.startswith(begin)
        }
        series = json.loads((folder / _SERIES).read_text())
        return Saved(model, load_file(folder / _WEIGHTS), series, load_file(folder / _STATES), networks)
    except StorageError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise StorageError(
            f"{verbatim(folder)} cannot be read ({verbatim(reason)})", "Save the forecaster again."
        ) from error


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
