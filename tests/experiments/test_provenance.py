"""Results name commits that can be looked up."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "experiments" / "results", ROOT / "benchmarks" / "results")
JOINED = re.compile(r"^## Results whose commits were joined.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("there is no git repository")
    return done.stdout.strip()


def cited() -> dict[str, set[str]]:
    """Commits in the files of results, by file."""
    out: dict[str, set[str]] = {}
    for folder in FOLDERS:
        for path in folder.glob("*.csv"):
            frame = pd.read_csv(path, dtype=str, keep_default_na=False)
            columns = [name for name in frame if name.endswith("commit")]
            out[path.name] = {value for name in columns for value in frame[name]}
        for path in folder.glob("*.json"):
            found = json.loads(path.read_text())
            out[path.name] = {found["commit"]} if "commit" in found else set()
    return out


def test_commits_of_results_are_in_the_history() -> None:
    """Or in the log's list of those that landed as one."""
    if git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("the history is cut short")
    history = git("log", "--format=%H").splitlines()
    section = JOINED.search((ROOT / "docs" / "log.md").read_text())
    joined = set(re.findall(r"`([0-9a-f]{7})`", section[0])) if section else set()
    commits = cited()
    assert sum(map(len, commits.values())) > 50
    missing = {
        (name, commit)
        for name, found in commits.items()
        for commit in found - joined
        if not any(full.startswith(commit) for full in history)
    }
    assert not missing
