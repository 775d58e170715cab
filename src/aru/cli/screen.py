"""Output of commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import json
import math
import os
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

from aru.cli.wording import Wording
from aru.errors import AruError, AruWarning, Offending, as_text, reword

if TYPE_CHECKING:
    import pandas as pd

    from aru.data.scores import Scorecard

PREVIEW = 20  # rows of a table on the terminal


class Screen:
    """stdout and stderr of a command, and its names for the tables and arguments of the library."""

    def __init__(self, as_json: bool = False, quiet: bool = False, wording: Wording | None = None) -> None:
        self.as_json = as_json
        self.quiet = quiet or as_json
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)
        self.wording = wording or Wording()
        self.notes: list[str] = []

    def say(self, text: str) -> None:
        """Print a line, unless the output is JSON."""
        if not self.as_json:
            self.out.print(Text(text), soft_wrap=not self.out.is_terminal)

    def show(self, table: Table) -> None:
        """Print a table, unless the output is JSON."""
        if not self.as_json:
            self.out.print(table)

    def result(self, values: Mapping[str, Any]) -> None:
        """Print the JSON object, if asked for, with the notes that went to stderr."""
        if self.as_json:
            typer.echo(json.dumps(_plain({**values, "notes": self.notes}), allow_nan=False))

    def note(self, text: str) -> None:
        """Print a note on stderr."""
        line = _one_line(text)
        if line not in self.notes:
            self.notes.append(line)
            self._remark("Note: ", "yellow", line)

    def error(self, error: AruError) -> None:
        """Print an error: one line on stderr, and the JSON object if asked for."""
        message = _one_line(error.worded(self.wording))
        self._remark("Error: ", "bold red", message)
        rows = error.rows
        self.result(
            {
                "error": {
                    "type": type(error).__name__,
                    "message": message,
                    "remedy": _one_line(reword(error.remedy, self.wording)),
                    "columns": error.columns,
                    "rows": [] if rows is None else _named(rows),
                    "total_rows": 0 if rows is None else len(rows),
                }
            }
        )

    @contextlib.contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show a spinner during slow work."""
        if self.quiet or not self.err.is_terminal:
            yield
        else:
            with self.err.status(Text(text)):
                yield

    def _remark(self, label: str, style: str, text: str) -> None:
        self.err.print(Text.assemble((label, style), text), soft_wrap=not self.err.is_terminal)


@contextlib.contextmanager
def screen(
    as_json: bool, quiet: bool = False, debug: bool = False, names: Mapping[str, str | Path] | None = None
) -> Iterator[Screen]:
    """Run a command: aru's errors end it with exit code 2 and one line, aru's warnings become notes.

    `names` gives the file or option for each table and argument of the library.
    """
    result = Screen(as_json, quiet, Wording(names or {}))
    with warnings.catch_warnings():
        warnings.simplefilter("always", AruWarning)
        usual = warnings.showwarning

        def show(message: Any, category: Any, filename: Any, lineno: Any, file: Any = None, line: Any = None) -> None:
            if isinstance(message, AruWarning):
                result.note(message.worded(result.wording))
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        try:
            yield result
        except AruError as error:
            if debug:
                typer.echo(traceback.format_exc(), err=True)
            result.error(error)
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


def show_scorecard(show: Screen, card: Scorecard) -> None:
    """A model's scores beside those of seasonal naive."""
    show_scores(show, card.rows())
    show.say(f"Scores on {card.about}.")


def show_scores(show: Screen, rows: Mapping[str, Mapping[str, float]]) -> None:
    """A table of scores, by row."""
    from aru.data.scores import score_name, score_text

    names = [name for name in next(iter(rows.values())) if name != "values"]
    table = new_table("")
    for name in names:
        table.add_column(score_name(name), justify="right")
    for label, values in rows.items():
        table.add_row(Text(label), *(score_text(name, values[name]) for name in names))
    show.show(table)


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
    zone = "%z" if column.dt.tz is not None else ""
    text: pd.Series[Any] = column.dt.strftime("%Y-%m-%d" if midnight else f"%Y-%m-%d %H:%M:%S{zone}")
    return text


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame for JSON."""
    return by_row({str(name): times(frame[name]).tolist() for name in frame.columns})


def by_row(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Columns as a list of rows."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _named(rows: Offending) -> list[dict[str, Any]]:
    """The rows of an error, with series and times as text, as its message has them."""
    columns = {n: list(map(as_text, v)) if n in rows.keys else v for n, v in rows.columns.items()}
    return by_row(columns)


def decimals(largest: float) -> int:
    """Decimals that show four significant digits of the largest number."""
    return max(0, min(6, 3 - math.floor(math.log10(largest)))) if 0 < largest < math.inf else 0


def _one_line(text: str) -> str:
    return " ".join(text.split())


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
    """A console. Outside a terminal it is wide, so that tables in pipes and files keep all their columns."""
    console = Console(stderr=stderr)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(stderr=stderr, width=200)
