"""The house rules that a machine can check: names used once, files that fit one sitting, few layers, one signature."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
from collections import defaultdict
from pathlib import Path

import pytest

import aru
from aru.settings import Settings

ROOT = Path(aru.__file__).parent
PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
FILES = sorted(ROOT.rglob("*.py"))
FRONT_DOORS = {"__init__", "__main__"}
LINES = 400
LISTS = ("futr_exog_list", "hist_exog_list", "stat_exog_list")


def places(path: Path) -> str:
    return str(path.relative_to(ROOT))


def repeated(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def test_there_is_a_house() -> None:
    assert len(FILES) > 50
    assert {path.name for path in FILES} >= {"forecaster.py", "runtime.py", "sessions.py"}


def test_a_module_name_is_used_once() -> None:
    found = defaultdict(list)
    for path in FILES:
        if path.stem not in FRONT_DOORS:
            found[path.stem].append(places(path))
    assert repeated(found) == {}


def test_a_class_name_is_used_once() -> None:
    found = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(places(path))
    assert repeated(found) == {}


def constants(path: Path) -> set[str]:
    """Names in capitals that a module gives a value."""
    assigned = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    targets = [t for node in assigned for t in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    return {node.id for t in targets for node in ast.walk(t) if isinstance(node, ast.Name) and node.id.isupper()}


def test_the_name_of_a_constant_is_used_once() -> None:
    """It may be imported wherever it is needed."""
    found = defaultdict(list)
    for path in FILES:
        for name in constants(path):
            found[name].append(places(path))
    assert {"SHOWN", "NEGATIVE", "NO_COUNT", "_LOADERS"} <= set(found)
    assert repeated(found) == {}


def test_a_file_fits_one_sitting() -> None:
    lengths = {places(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > LINES} == {}


def test_there_are_at_most_eight_layers_and_all_exist() -> None:
    tomllib = pytest.importorskip("tomllib", reason="tomllib came with Python 3.11")
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert 1 < len(layers) <= 8
    names = [name.strip() for layer in layers for name in layer.replace("|", ":").split(":")]
    assert len(names) == len(set(names))
    for name in names:
        assert importlib.util.find_spec(f"aru.{name}") is not None, name
    packages = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"__pycache__"}
    modules = {path.stem for path in ROOT.glob("*.py")} - FRONT_DOORS
    assert packages | modules == set(names)


def test_the_forecaster_takes_the_fields_of_its_settings() -> None:
    """Written twice, for the sake of completion and help. No columns may be None there, as in other libraries."""
    parameters = {n: p for n, p in inspect.signature(aru.Forecaster.__init__).parameters.items() if n != "self"}
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    assert list(parameters) == list(fields)
    for name, parameter in parameters.items():
        assert parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD, name
        default = fields[name].default
        if name in LISTS:
            assert (parameter.default, default) == (None, ()), name
        elif default is dataclasses.MISSING:
            assert parameter.default is inspect.Parameter.empty, name
        else:
            assert parameter.default == default, name
            assert type(parameter.default) is type(default), name
