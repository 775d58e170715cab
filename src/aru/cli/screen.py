"""What a command says: results on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aru.errors import AruError, AruWarning

if TYPE_CHECKING:
    import pandas as pd

PREVIEW = 20  # rows of a table on the terminal

# The library's messages speak of frames and arguments, a command of files and options.
_MISSING_FILES = {"futr_df": "--futr FILE", "static_df": "--static FILE"}
_OPTIONS = {
    "futr_exog_list": "--futr",
    "hist_exog_list": "--hist",
    "stat_exog_list": "--stat",
    "random_seed": "--seed",
    "n_windows": "--windows",
    "step_size": "--step",
    **{
        name: "--" + name.replace("_", "-")
        for name in (
            "h", "freq", "model", "input_size", "lags", "size", "alphas", "ridge", "integration", "scaler",
            "transform", "distribution", "support", "alias", "max_steps", "learning_rate", "batch_size", "ensemble",
            "val_size", "accelerator", "late", "level", "correctable",
        )
    },
}  # fmt: skip
_ALWAYS = {"n_windows", "step_size", "accelerator", "late", "level", "correctable"}  # no settings of a saved model
_FRAME = r"\b(?P<frame>(?:new_|futr_|static_)?df)\b(?!\[)"
_GIVEN = rf"\b(?P<given>{'|'.join(_OPTIONS)})=(?P<value>'[^']*'|-?\w+(?:\.\w+)?)"
_NAMED = rf"\b(?P<named>{'|'.join(name for name in _OPTIONS if '_' in name)})\b"
_WORDS = re.compile(f"{_FRAME}|{_GIVEN}|{_NAMED}")


class Screen:
    """The two streams of a command, and the names of the files that it works with."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet or as_json
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)
        self.files: dict[str, Path] = {}
        self.notes: list[str] = []
        self.trained = False  # settings are those of a saved model, and no options of the command

    def say(self, text: str) -> None:
        """A line for people; machines get the JSON object instead."""
        if not self.as_json:
            self.out.print(Text(text), soft_wrap=not self.out.is_terminal)

    def show(self, table: Table) -> None:
        """A table for people."""
        if not self.as_json:
            self.out.print(table)

    def result(self, values: Mapping[str, Any]) -> None:
        """The JSON object for machines, with the notes that people saw on stderr."""
        if self.as_json:
            typer.echo(json.dumps(_plain({**values, "notes": self.notes}), allow_nan=False))

    def note(self, message: str) -> None:
        """Something that the user should know, on stderr."""
        text = self.translate(message)
        if text not in self.notes:
            self.notes.append(text)
            self._remark("Note: ", "yellow", text)

    def error(self, message: str) -> None:
        """What was wrong, in one line on stderr."""
        self._remark("Error: ", "bold red", self.translate(message))

    @contextlib.contextmanager
    def working(self, text: str) -> Iterator[None]:
        """A spinner while something takes a while."""
        if self.quiet or not self.err.is_terminal:
            yield
        else:
            with self.err.status(Text(text)):
                yield

    def translate(self, message: str) -> str:
        """A message of the library in one line, with files and options for its frames and arguments."""

        def word(match: re.Match[str]) -> str:
            if frame := match["frame"]:
                return str(self.files[frame]) if frame in self.files else _MISSING_FILES.get(frame, frame)
            if self.trained and (match["given"] or match["named"]) not in _ALWAYS:
                return match[0]
            if given := match["given"]:
                value = match["value"].strip("'")
                return f"{_OPTIONS[given]} {'none' if value == 'None' else value}"
            return _OPTIONS[match["named"]]

        return _WORDS.sub(word, " ".join(message.split()))

    def _remark(self, label: str, style: str, text: str) -> None:
        self.err.print(Text.assemble((label, style), text), soft_wrap=not self.err.is_terminal)


@contextlib.contextmanager
def screen(as_json: bool, quiet: bool = False, debug: bool = False) -> Iterator[Screen]:
    """Run a command: our own errors end it with exit code 2 and one line, our own warnings become notes."""
    result = Screen(as_json, quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("always", AruWarning)
        usual = warnings.showwarning

        def show(message: Any, category: Any, filename: Any, lineno: Any, file: Any = None, line: Any = None) -> None:
            if issubclass(category, AruWarning):
                result.note(str(message))
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        try:
            yield result
        except AruError as error:
            if debug:
                typer.echo(traceback.format_exc(), err=True)
            result.error(str(error))
            raise typer.Exit(2) from None


def new_table(*headings: str) -> Table:
    """An empty table in the style of all commands."""
    return Table(*headings, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def facts(values: Mapping[str, str]) -> Table:
    """A table of one row."""
    table = new_table()
    for name in values:
        table.add_column(name, justify="right")
    table.add_row(*(Text(value) for value in values.values()))
    return table


def preview(frame: pd.DataFrame, name: str = "") -> Table:
    """The first rows of a frame; forecast columns without the `name` that they all begin with."""
    table = new_table()
    numeric = [head for head in frame.columns if frame[head].dtype.kind == "f"]
    digits = decimals(float(frame[numeric].head(PREVIEW).abs().max().max())) if numeric else 0
    cells = []
    for head in frame.columns:
        column = times(frame[head]).head(PREVIEW)
        title = "mean" if head == name else str(head).removeprefix(f"{name}-")
        if head in numeric:
            table.add_column(Text(title), justify="right")
        else:
            table.add_column(Text(title), overflow="fold", no_wrap=head == "ds")
        cells.append([_cell(value, digits) for value in column.tolist()])
    for row in zip(*cells, strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table


def times(column: pd.Series[Any]) -> pd.Series[Any]:
    """Timestamps as text, without a time of day where it is midnight throughout; anything else as it is."""
    if column.dtype.kind != "M":
        return column
    midnight = bool((column == column.dt.normalize()).all())
    text: pd.Series[Any] = column.dt.strftime("%Y-%m-%d" if midnight else "%Y-%m-%d %H:%M:%S")
    return text


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as JSON has them."""
    columns = {str(name): times(frame[name]).tolist() for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def decimals(largest: float) -> int:
    """Decimals that show four significant digits of the largest number."""
    return max(0, min(6, 3 - math.floor(math.log10(largest)))) if 0 < largest < math.inf else 0


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:,.{digits}f}"
    return str(value)


def _plain(value: Any) -> Any:
    """NaN and infinity as null, since JSON has neither; paths as text."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _console(stderr: bool) -> Console:
    """Wide where nobody looks, so that tables in pipes and files keep all their columns."""
    console = Console(stderr=stderr)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(stderr=stderr, width=200)
