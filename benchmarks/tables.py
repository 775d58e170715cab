"""What all tables of result files share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def called(value: Any) -> Any:
    """What readers call a method: "aru" in these result files is the recurrent network."""
    return "aru-rnn" if value == "aru" else value


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def source(name: str, what: Any) -> str:
    return f"`benchmarks/results/{name}`, commit {what['commit']}, {what['date']}."


def machine(found: dict[str, Any]) -> str:
    machine = found["machine"]
    before, after = machine["load_average"][0], machine["load_average_after"][0]
    return f"{machine['cores']} cores, {machine['threads']} threads of torch, load {before:.1f} to {after:.1f}; "
