"""Exported networks, run as docs/onnx.md shows: without torch and without aru."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aru.errors import ConfigError
from tests.making import make
from tests.shops import BASE, both

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "aru", "pandas"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
"""


def test_the_example_of_the_docs_runs_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "docs/onnx.md").read_text(), flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(first, "docs/onnx.md", "exec"), names)
    script = f"{ALONE}\n{second}\nnp.savez('found.npz', median=median, high=high, ids=series['unique_id'])"
    subprocess.run([sys.executable, "-c", script], check=True)
    found, expected = np.load("found.npz"), names["f"].predict(level=[90])  # type: ignore[attr-defined]
    assert found["ids"].tolist() == ["a", "b"]
    np.testing.assert_allclose(found["median"].ravel(), expected["aru-rnn-median"], rtol=1e-6)
    np.testing.assert_allclose(found["high"].ravel(), expected["aru-rnn-hi-90"], rtol=1e-4)


def test_a_model_that_needs_torch_says_so(tmp_path: Path) -> None:
    f = make(**BASE, model="deepstate").fit(both(range(20))[["unique_id", "ds", "y"]])
    with pytest.raises(ConfigError, match="model='deepstate' runs in torch alone"):
        f.export_onnx(tmp_path / "networks")
