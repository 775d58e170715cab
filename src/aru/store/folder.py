"""Saved models: JSON for settings and schema, safetensors for numbers, ONNX for networks. No pickle, no code.

    model.json             format version, settings, schema, names and checksums of the other files, its own checksum
    weights-*.safetensors  weights of each model of the ensemble
    series-*.json          the ids of the series, in the order of their states
    states-*.safetensors   their states
    network-*.onnx         the networks' functions, for ONNX Runtime

The names end with the first digits of the files' checksums, so that a name never changes its content. A save writes the
files that are not there yet, then replaces model.json, then removes files of older saves. Whenever it ends, and whoever
reads meanwhile, model.json and the files that it names are one model. Saves of one folder wait for each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save
from torch import Tensor

from aru.errors import StorageError, verbatim
from aru.store.atomic import locked, new_file, sync

_MODEL, _WEIGHTS, _SERIES, _STATES, _NETWORK = "model.json", "weights", "series", "states", "network"
_ENDINGS = {_WEIGHTS: ".safetensors", _SERIES: ".json", _STATES: ".safetensors", _NETWORK: ".onnx"}
_OURS = re.compile(rf"({_WEIGHTS}|{_SERIES}|{_STATES}|{_NETWORK}-\d+-\w+)-[0-9a-f]{{16}}\.(json|onnx|safetensors)")
_UNFINISHED = re.compile(rf"\.({_MODEL}|{_OURS.pattern})-[0-9a-f]{{12}}\.part")
MODEL_FORMAT = 2  # of settings, schema and states
ATTEMPTS = 1000  # at reading a folder that others save to meanwhile


class Saved(NamedTuple):
    """Contents of a save."""

    model: Mapping[str, Any]
    weights: dict[str, Tensor]
    series: Mapping[str, Any]
    states: dict[str, Tensor]
    networks: Mapping[str, bytes] = {}  # by number and name: "0-encode"


def check_folder(path: str | Path) -> None:
    """Refuse, before any work, a folder that `write_folder` would refuse: it replaces nothing but saves."""
    target = Path(path).resolve()
    if target.exists():
        names = [p.name for p in target.iterdir()] if target.is_dir() else [""]
        if not all(map(is_part, names)):
            raise StorageError(
                f"{verbatim(target)} holds other files", "Choose a new or empty folder, or an older save to replace."
            )
    above = next(folder for folder in (target, *target.parents) if folder.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise StorageError(
            f"{verbatim(target)} cannot be written: {verbatim(above)} does not allow it", "Choose another folder."
        )


@contextlib.contextmanager
def only_writer(path: str | Path) -> Iterator[None]:
    """Nobody else saves to this folder meanwhile: for changes that read a model and save it again."""
    target = Path(path)
    if not target.is_dir():  # whoever reads it will say so
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(target))
        except OSError as error:
            raise StorageError(
                f"{verbatim(target)} cannot be locked ({verbatim(error)})", "Use a folder on a local disk."
            ) from error
        yield


def write_folder(path: str | Path, saved: Saved) -> None:
    """Write into a new or empty folder, or over an older save."""
    target = Path(path).resolve()
    try:
        check_folder(target)
        target.mkdir(parents=True, exist_ok=True)
        sync(target.parent)
        with locked(target):
            check_folder(target)
            _write(target, saved)
    except OSError as error:
        raise StorageError(
            f"{verbatim(target)} cannot be written ({verbatim(error)})", "Choose another folder."
        ) from error


def _write(target: Path, saved: Saved) -> None:
    files = {  # `save_file` of safetensors would leave files of its own behind if it is killed
        _WEIGHTS: _add(target, _WEIGHTS, save(saved.weights)),
        _SERIES: _add(target, _SERIES, json.dumps(saved.series).encode()),
        _STATES: _add(target, _STATES, save(saved.states)),
        **{f"{_NETWORK}-{name}": _add(target, f"{_NETWORK}-{name}", graph) for name, graph in saved.networks.items()},
    }
    described = {"format": MODEL_FORMAT, **saved.model, "files": files}
    with new_file(target / _MODEL, replace=True) as file:
        file.write_text(json.dumps({**described, "sha256": _checksum(described)}, indent=1))
    kept = {_MODEL, *(entry["name"] for entry in files.values())}
    for old in target.iterdir():  # of older saves, and of some that were killed
        if old.name not in kept and is_part(old.name):
            old.unlink()


def _add(target: Path, part: str, content: bytes) -> dict[str, str]:
    """Write a file under the name that follows from its content. Returns name and checksum."""
    checksum = hashlib.sha256(content).hexdigest()
    name = f"{part}-{checksum[:16]}{_ENDINGS[part.partition('-')[0]]}"
    with new_file(target / name, replace=True) as file:  # one that is there already may be damaged
        file.write_bytes(content)
    return {"name": name, "sha256": checksum}


def is_part(name: str) -> bool:
    """Whether a file of this name belongs to a save."""
    return name == _MODEL or bool(_OURS.fullmatch(name) or _UNFINISHED.fullmatch(name))


def read_folder(path: str | Path) -> Saved:
    """Read a save, with a clear error for anything that is not one."""
    folder = Path(path)
    if not (folder / _MODEL).is_file():
        raise StorageError(
            f"{verbatim(folder)} is not a saved forecaster: it has no {_MODEL}", "Give the folder that save wrote."
        )
    try:
        return _read(folder)
    except StorageError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise StorageError(
            f"{verbatim(folder)} cannot be read ({verbatim(reason)})", "Save the forecaster again."
        ) from error


def _read(folder: Path) -> Saved:
    """What model.json says, and the files that it names. If one is gone, a save has replaced model.json meanwhile."""
    for attempt in itertools.count(1):
        with (folder / _MODEL).open("rb") as opened:
            identity, model = _identity(os.fstat(opened.fileno())), _parsed(opened.read())
        if model.get("format", MODEL_FORMAT) != MODEL_FORMAT:
            raise StorageError(
                f"{verbatim(folder)} was saved in another format: this version reads format {MODEL_FORMAT}",
                "Fit it again, or read it with the version of aru that wrote it.",
            )
        if model.pop("sha256", None) != _checksum(model):
            raise _damaged(folder / _MODEL)
        paths = {part: folder / Path(file["name"]).name for part, file in model["files"].items()}
        try:
            for part, file in model["files"].items():
                if _digest(paths[part]) != file["sha256"]:
                    raise _damaged(paths[part])
            return Saved(
                model={name: value for name, value in model.items() if name not in ("format", "files")},
                weights=load_file(paths[_WEIGHTS]),
                series=json.loads(paths[_SERIES].read_text()),
                states=load_file(paths[_STATES]),
                networks={
                    part.removeprefix(f"{_NETWORK}-"): path.read_bytes()
                    for part, path in paths.items()
                    if part.startswith(_NETWORK)
                },
            )
        except Exception:
            if attempt < ATTEMPTS and _identity((folder / _MODEL).stat()) != identity:
                continue
            missing = [path for path in paths.values() if not path.exists()]
            if missing:
                raise StorageError(f"{verbatim(missing[0])} is missing", "Save the forecaster again.") from None
            raise
    raise AssertionError


def _identity(file: os.stat_result) -> tuple[int, int]:
    """Tells a file from another one that has taken its place."""
    return file.st_ino, file.st_mtime_ns


def _parsed(text: bytes) -> dict[str, Any]:
    """The content of model.json; nothing where it is no JSON object."""
    try:
        model = json.loads(text)
    except ValueError:
        return {}
    return model if isinstance(model, dict) else {}


def _damaged(path: Path) -> StorageError:
    return StorageError(f"{verbatim(path)} is damaged: its checksum is wrong", "Save the forecaster again.")


def _checksum(model: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
