"""The files of deploy/: the systemd unit starts a command that there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from aru import cli

UNIT = Path(__file__).resolve().parents[1] / "deploy" / "aru.service"


def test_the_unit_starts_a_command_with_options_that_it_knows() -> None:
    text = UNIT.read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^ExecStart=(.*)$", text, flags=re.MULTILINE)
    program, name, *words = command.split()
    assert program.endswith("/bin/aru")
    group: Any = typer.main.get_command(cli.app)
    known = {option for parameter in group.commands[name].params for option in parameter.opts}
    used = {word for word in words if word.startswith("--")}
    assert used
    assert used <= known


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    unit = tmp_path / "aru.service"
    unit.write_text(UNIT.read_text().replace("/opt/aru/bin/aru", "/usr/bin/env"))
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "aru.service" in line]
    assert (done.returncode, said) == (0, []), done.stderr
