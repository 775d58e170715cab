"""Options that several commands share, and how their text becomes a value."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from aru.errors import ConfigError, InputError, listing
from aru.settings import Settings

T = TypeVar("T")

TABLES = "a CSV or Parquet file (.csv, .csv.gz, .parquet)"
FILES, OUTPUT = "Files and columns", "Output"
ACCELERATORS = "auto (a GPU if there is one), cpu or gpu."

DataFile = Annotated[Path, typer.Argument(metavar="DATA", show_default=False, help=f"Observations: {TABLES}.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", show_default=False, help="Folder of a trained model.")]
StaticFile = Annotated[
    Path | None,
    typer.Option(
        "--static",
        metavar="FILE",
        rich_help_panel=FILES,
        help=f"Static covariates, one row per series: {TABLES}.",
    ),
]
IdColumn = Annotated[
    str,
    typer.Option("--id-col", metavar="COLUMN", rich_help_panel=FILES, help="Column that names the series."),
]
TimeColumn = Annotated[
    str,
    typer.Option("--time-col", metavar="COLUMN", rich_help_panel=FILES, help="Column of the time: dates or integers."),
]
TargetColumn = Annotated[
    str, typer.Option("--target-col", metavar="COLUMN", rich_help_panel=FILES, help="Column to forecast.")
]
DateFormat = Annotated[
    str | None,
    typer.Option(
        "--date-format",
        metavar="FORMAT",
        rich_help_panel=FILES,
        help="How the files write dates, for instance %d/%m/%Y; dates such as 2024-01-31 need no format.",
    ),
]
Levels = Annotated[
    list[float] | None,
    typer.Option("--level", metavar="PERCENT", help="Also give this central interval, for instance 90. Repeatable."),
]
OutputFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help=f"Write the forecasts to {TABLES}."),
]
Accelerator = Annotated[str, typer.Option("--accelerator", metavar="NAME", help=ACCELERATORS)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="Show no progress.")]
Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=OUTPUT, help="Print one JSON object instead of text and tables."),
]
Debug = Annotated[bool, typer.Option("--debug", rich_help_panel=OUTPUT, help="Show where an error comes from.")]


def parse_freq(text: str) -> str | int | None:
    """A pandas offset alias, an integer, or none."""
    if text.lower() == "none":
        return None
    return int(text) if text.lstrip("+-").isdigit() else text


def split(items: Sequence[str] | None) -> list[str] | None:
    """A list that was given as a,b or by repeating the option."""
    return None if items is None else [part.strip() for item in items for part in item.split(",") if part.strip()]


def numbers(option: str, text: str | None, kind: Callable[[str], T]) -> list[T] | None:
    """Numbers separated by commas."""
    if text is None:
        return None
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option} takes numbers separated by commas, got {text!r}.") from None


def parse_set(items: Sequence[str] | None) -> dict[str, Any]:
    """Settings given as name=value. The value is JSON; what is not JSON is text."""
    values: dict[str, Any] = {}
    defaults = {field.name: field.default for field in dataclasses.fields(Settings)}
    for item in items or ():
        name, equals, text = item.partition("=")
        if not equals:
            raise ConfigError(f"--set takes name=value, for instance --set encoder_layers=2, got {item!r}.")
        if name not in defaults:
            raise ConfigError(
                f"--set knows no setting {name!r}: choose one of {listing(sorted(defaults), len(defaults))}."
            )
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        kind = type(defaults[name])
        if kind in (bool, int, float) and (
            isinstance(value, bool) != (kind is bool) or not isinstance(value, (kind, int))
        ):
            expected = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
            raise ConfigError(f"--set {name} takes {expected}, got {text!r}.")
        if name in ("search", "trainer_options") and not isinstance(value, dict):
            raise ConfigError(f"--set {name} takes a JSON object, got {text!r}.")
        values[name] = value
    return values


def check_accelerator(name: str) -> None:
    """Refuse a device that is not there, before any data is read."""
    import torch

    if name not in ("auto", "cpu", "gpu", "cuda"):
        raise ConfigError(f"accelerator={name!r} is not known: choose auto, cpu or gpu.")
    if name in ("gpu", "cuda") and not torch.cuda.is_available():
        raise ConfigError("This machine has no GPU that torch can use: leave out --accelerator, or choose cpu.")


def choose_ids(wanted: Sequence[str] | None, known: Sequence[Any]) -> list[Any] | None:
    """The series that were asked for, as the model knows them; a known id may itself hold a comma."""
    if not wanted:
        return None
    names = {str(name): name for name in known}
    parts = [part for item in wanted for part in ([item] if item in names else split([item]) or [])]
    if not parts:
        raise InputError("--ids names no series: leave it out to forecast all of them.")
    unknown = [part for part in parts if part not in names]
    if unknown:
        raise InputError(f"The model has no series {listing(unknown)}; it has {listing(list(names))}.")
    return [names[part] for part in dict.fromkeys(parts)]
