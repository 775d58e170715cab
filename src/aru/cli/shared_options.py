"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from aru.cli.setting_options import OPTIONS, split
from aru.errors import InputError, UnknownSeriesError, listing, name_series, verbatim

TABLE_HELP = "a CSV or Parquet file (.csv, .csv.gz, .parquet)"
FILES, OUTPUT = "Files and columns", "Output"

DataFile = Annotated[Path, typer.Argument(metavar="DATA", show_default=False, help=f"Observations: {TABLE_HELP}.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", show_default=False, help="Folder of a trained model.")]
ModelOrData = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        help=f"Folder of a trained model; with --pretrained the observations instead: {TABLE_HELP}.",
    ),
]
PRETRAINED_PANEL = "Without training"
Pretrained = Annotated[
    str | None,
    typer.Option(
        "--pretrained",
        metavar="NAME",
        rich_help_panel=PRETRAINED_PANEL,
        help="Forecast with a network that was trained beforehand: nano, mini or base. Needs --h and --freq.",
    ),
]
Horizon = Annotated[
    int | None,
    typer.Option("--h", metavar="STEPS", rich_help_panel=PRETRAINED_PANEL, help=OPTIONS["h"].plain_about),
]
Freq = Annotated[
    str | None,
    typer.Option("--freq", metavar="FREQ", rich_help_panel=PRETRAINED_PANEL, help=OPTIONS["freq"].plain_about),
]
SeasonLength = Annotated[
    int | None,
    typer.Option(
        "--season-length",
        metavar="ROWS",
        rich_help_panel=PRETRAINED_PANEL,
        show_default="those of the frequency",
        help="Rows of a season.",
    ),
]
FutrExog = Annotated[
    list[str] | None,
    typer.Option(
        "--futr-exog",
        metavar="COLUMNS",
        rich_help_panel=PRETRAINED_PANEL,
        help="Known-future covariates, separated by commas or by repeating the option. Their future values are those "
        "of --futr.",
    ),
]
HistExog = Annotated[
    list[str] | None,
    typer.Option(
        "--hist-exog",
        metavar="COLUMNS",
        rich_help_panel=PRETRAINED_PANEL,
        help="Covariates known only up to the latest row, written alike. They act h rows later.",
    ),
]
StatExog = Annotated[
    list[str] | None,
    typer.Option(
        "--stat-exog",
        metavar="COLUMNS",
        rich_help_panel=PRETRAINED_PANEL,
        help="Static covariates, written alike. Their values are those of --static.",
    ),
]
Country = Annotated[
    str | None,
    typer.Option(
        "--country",
        metavar="CODE",
        rich_help_panel=PRETRAINED_PANEL,
        help="Learn effects of its holidays: DE, or DE-BY for a part of a country.",
    ),
]
StaticFile = Annotated[
    Path | None,
    typer.Option(
        "--static",
        metavar="FILE",
        rich_help_panel=FILES,
        help=f"Static covariates, one row per series: {TABLE_HELP}.",
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
AS_TRAINED: dict[str, Any] = {"metavar": "COLUMN", "rich_help_panel": FILES, "show_default": "as in training"}
KnownIdColumn = Annotated[
    str | None, typer.Option("--id-col", help="Column that names the series, also in the output.", **AS_TRAINED)
]
KnownTimeColumn = Annotated[
    str | None, typer.Option("--time-col", help="Column of the time, also in the output.", **AS_TRAINED)
]
KnownTargetColumn = Annotated[str | None, typer.Option("--target-col", help="Column to forecast.", **AS_TRAINED)]
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
    typer.Option(
        "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help=f"Write the forecasts to {TABLE_HELP}."
    ),
]
AllowJump = Annotated[
    bool,
    typer.Option("--allow-jump", help="Take in rows far from all others in time, too; they are refused as mistakes."),
]
Accelerator = Annotated[str, typer.Option("--accelerator", metavar="NAME", help=OPTIONS["accelerator"].plain_about)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="Show no progress.")]
Json = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=OUTPUT, help="Print one JSON object instead of text and tables."),
]
Debug = Annotated[bool, typer.Option("--debug", rich_help_panel=OUTPUT, help="Show where an error comes from.")]


def help_of(command: Callable[..., None]) -> str:
    """The docstring of a command with one line per paragraph, so that the terminal can wrap it."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def choose_ids(wanted: Sequence[str] | None, known: Sequence[Any], owner: object = "The model") -> list[Any] | None:
    """The requested series, with ids of the type that the model or store has. An id may itself contain a comma."""
    if not wanted:
        return None
    names = {str(name): name for name in known}
    parts = [part for item in wanted for part in ([item] if item in names else split([item]))]
    if not parts:
        raise InputError("--ids names no series", "Give their names, separated by commas.")
    unknown = [part for part in parts if part not in names]
    if unknown:
        rows = name_series(unknown)
        raise UnknownSeriesError(
            f"{verbatim(owner)} has no series {rows}", f"It has {listing(list(names))}.", rows=rows
        )
    return [names[part] for part in dict.fromkeys(parts)]
