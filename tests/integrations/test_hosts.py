"""aru behind other libraries, each in its environment: `python -m tests.integrations` sets them up."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aru.integrations
from tests.integrations.environments import HOSTS, ROOT, command, is_ready
from tests.integrations.hosts.examples import HEADINGS, blocks

MODULES = sorted(Path(aru.integrations.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
def test_host(host: str, tmp_path: Path) -> None:
    if not is_ready(host):
        pytest.skip(f"no environment of {host}: python -m tests.integrations {host}")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    line = command(host, f"--basetemp={tmp_path / 'host'}", "-k", "not own_checks")  # those take minutes
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hosts_are_imported_by_their_own_module_alone() -> None:
    hosts = {path.stem for path in MODULES} - {"quantile_columns"}
    assert hosts == set(HOSTS) - {"nixtla"}
    found = set()
    for path in Path(aru.integrations.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {(path.stem, name.partition(".")[0]) for name in names} & {(path.stem, host) for host in hosts}
    assert found == {(host, host) for host in hosts}


def test_the_package_itself_imports_no_host() -> None:
    code = f"import sys, aru, aru.integrations; print([m for m in {sorted(HOSTS)} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_host_has_an_example() -> None:
    assert set(HEADINGS) == {*HOSTS, "sklearn"}
    for host in HEADINGS:
        assert blocks(host), host


def test_the_example_of_scikit_learn_runs() -> None:
    exec(compile(blocks("sklearn"), "integrations.md", "exec"), {})
