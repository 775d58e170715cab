"""`aru serve`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tests.cli.running import fails, write_text


def test_serve_refuses_what_is_not_safe(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi", reason="the service needs the extra serve")
    monkeypatch.delenv("ARU_TOKEN", raising=False)
    serve = ["serve", model, "--state", tmp_path / "state.db"]
    assert "can be reached by other machines. Give a token" in fails(*serve, "--host", "0.0.0.0")
    assert "at least 16 characters" in fails(*serve, "--token-file", write_text(tmp_path / "token", "short\n"))
    monkeypatch.setenv("ARU_TOKEN", "short")
    assert "at least 16 characters" in fails(*serve)
    monkeypatch.delenv("ARU_TOKEN")
    assert "cannot be read" in fails(*serve, "--token-file", tmp_path / "nothing")
    assert "--port must lie between" in fails(*serve, "--port", "70000")
    assert "--max-rows must be" in fails(*serve, "--max-rows", "0")
    assert "Nothing can listen on 192.0.2.1" in fails(
        *serve, "--host", "192.0.2.1", "--token-file", write_text(tmp_path / "token", "a-long-and-secret-token\n")
    )
    assert not (tmp_path / "state.db").exists()


def test_serve_without_its_packages(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = importlib.import_module("aru.serve")
    monkeypatch.setattr(sys.modules["aru"], "serve", package)  # which the import that fails replaces
    for name in [name for name in sys.modules if name.startswith("aru.serve")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("fastapi", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install 'aru-forecast[serve]'" in fails("serve", model, "--state", tmp_path / "state.db")
