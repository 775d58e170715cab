"""What docs/scale.md shows, runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import MARKS, ROOT

pytestmark = MARKS


def test_the_example_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "scale.md").read_text(), flags=re.DOTALL)
    # Spark keeps to the folder that it was started in.
    for name in ("model", "observations", "checkpoint", "forecasts"):
        program = program.replace(f'"{name}/"', f'"{tmp_path / name}"')
    exec(compile(program, "docs/scale.md", "exec"), {})
