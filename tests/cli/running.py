"""Commands run in this process, and small files for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from aru import cli
from aru.cli import table_files

ROOT = Path(__file__).resolve().parents[2]
MODEL = ["--model", "aru-rnn", "--alias", "aru"]
TINY = ["--h", "3", "--freq", "D", "--max-steps", "5", *MODEL, "--size", "4,4,4,3", "--val-size", "3", "--quiet"]
IDS = ["007", "NA", "a,b"]


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def aru(*arguments: str | Path, columns: int = 200) -> Result:
    """Run a command."""
    result = CliRunner().invoke(cli.app, [str(a) for a in arguments], env={"COLUMNS": str(columns)})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Result(result.exit_code, result.stdout, result.stderr)


def fails(*arguments: str | Path) -> str:
    """The one line with which a command refuses its input."""
    result = aru(*arguments)
    assert result.code == 2, result
    assert result.out == ""
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1
    assert result.err.endswith(".\n")
    assert "Traceback" not in result.err
    assert "`" not in result.err
    return result.err.removeprefix("Error: ").strip()


def sales(begin: int = 0, end: int = 24, ids: list[str] = IDS) -> pd.DataFrame:
    """Daily values of a few series with a weekly pattern; `kind` is a category that often looks like a number."""
    t = np.arange(begin, end)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(t, unit="D")
    frames = [
        pd.DataFrame(
            {
                "unique_id": name,
                "ds": days,
                "y": 10.0 * (i + 1) + t % 7 + (t * (i + 3) % 5) / 7,
                "promo": t % 3,
                "kind": np.where(t % 4 == 1, "x", "0"),
            }
        )
        for i, name in enumerate(ids)
    ]
    return pd.concat(frames, ignore_index=True)


def write(frame: pd.DataFrame, path: Path) -> Path:
    table_files.write(frame, path)
    return path


def write_text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}
