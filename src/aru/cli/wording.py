"""Names of files and options in place of the tables and arguments in messages of the library."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Wording:
    """Translates the names that messages mark with backticks (see `aru.errors`).

    Args:
        names: File or option for each table and argument that the command knows: `{"df": Path("sales.csv"), "late":
            "--late", "gate": "--gate/--no-gate"}`. Other names stay as they are: a command that loads a model has no
            options for the model's settings.
    """

    names: Mapping[str, str | Path] = dataclasses.field(default_factory=dict)

    def __call__(self, marked: str) -> str:
        """`df` as a file, `late='skip'` as an option with its value."""
        name, given, value = marked.partition("=")
        if name not in self.names:
            return marked
        option, switch, off = str(self.names[name]).partition("/--no-")
        if not given:
            return option
        if switch:
            return f"--no-{off}" if value == "False" else option
        return f"{option} {_typed(value)}"


def flags(*names: str) -> dict[str, str | Path]:
    """Options that are spelled as the library's arguments are."""
    return {name: f"--{name.replace('_', '-')}" for name in names}


COLUMN_FLAGS: Mapping[str, str | Path] = flags("id_col", "time_col", "target_col")
ALLOW_JUMP: Mapping[str, str | Path] = {
    "allow_jump": "--allow-jump/--no-allow-jump"
}  # `allow_jump=True` is --allow-jump


def _typed(value: str) -> str:
    """A Python value as it is typed after an option."""
    try:
        read = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    if read is None:
        return "none"
    return ",".join(map(str, read)) if isinstance(read, (list, tuple)) else str(read)
