"""`aru models` and `aru datasets`, the demo, and help."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from aru import cli
from tests.cli.running import ROOT, aru


def test_demo_hands_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(output: Path, seed: int = 0, quick: bool = False, console: Any = None) -> Path:
        console.print(f"a table for seed {seed}")
        return output / "report.html"

    monkeypatch.setattr("aru.demo.run", run, raising=False)
    assert aru("demo", "--output", tmp_path, "--seed", "4").out == "a table for seed 4\n"
    result = aru("demo", "--output", tmp_path, "--json")
    assert result.json == {"report": str(tmp_path / "report.html"), "notes": []}
    assert result.err == "a table for seed 0\n"


def test_models_are_listed() -> None:
    from aru.models import MODELS

    listed = aru("models", "--json").json["models"]
    assert {m["name"]: m["adapts"] for m in listed} == {"aru": True, **{name: m.adapts for name, m in MODELS.items()}}
    assert all(m["about"].endswith(".") for m in listed)
    out = aru("models").out
    assert all(name in out for name in MODELS)


def test_datasets_are_listed_with_what_is_missing(tmp_path: Path) -> None:
    from aru.datasets import DESCRIPTIONS

    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "carparts.csv").touch()
    result = aru("datasets", "--data-dir", tmp_path, "--json").json
    listed = {d["name"]: d for d in result["datasets"]}
    assert set(listed) == set(DESCRIPTIONS)
    assert {name: listed[name]["present"] for name in ("parts", "walmart", "synthetic")} == {
        "parts": "original",
        "walmart": "",
        "synthetic": "generated",
    }
    assert listed["rossmann"]["paper"] == {"series": 1115, "length": 1600, "features": 39}
    out = aru("datasets", "--data-dir", tmp_path).out
    assert "- Walmart store sales: Put train.csv, features.csv and stores.csv from kaggle.com" in out
    lines = [line for line in out.splitlines() if line.startswith("- ")]
    assert len(lines) > len([d for d in listed.values() if not d["present"]])
    for line in lines:  # one or more whole sentences about each
        title, sentence = line[2:].split(": ", 1)
        assert title in {about.title for about in DESCRIPTIONS.values()}
        assert re.fullmatch(r"(Put|It|T|Install) \S.*[^ ,;(]\.", sentence), sentence
        assert "  " not in sentence


@pytest.mark.parametrize("command", ["models", "datasets"])
def test_names_are_whole_on_a_narrow_terminal(command: str) -> None:
    listed = aru(command, "--json").json[command]
    out = aru(command, columns=80).out
    assert all(re.search(rf"^ {re.escape(row['name'])} ", out, re.MULTILINE) for row in listed), out


def test_version() -> None:
    from aru import __version__

    assert aru("--version").out == f"aru {__version__}\n"


def test_every_option_has_help() -> None:
    group: Any = typer.main.get_command(cli.app)
    groups = [group.commands[name] for name in ("state", "rollout")]
    commands = [command for command in group.commands.values() if command not in groups]
    commands += [command for inner in groups for command in inner.commands.values()]
    for command in [group, *groups, *commands]:
        assert command.help, command.name
        for param in command.params:
            assert getattr(param, "help", None), (command.name, param.name)
    shared = {"--json", "--debug"}
    assert all(shared <= {o for p in c.params for o in p.opts} for c in commands)


def test_the_reference_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_cli", ROOT / "docs" / "generate_cli.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == generator.reference(), (
        "docs/cli.md is out of date: run python docs/generate_cli.py"
    )
