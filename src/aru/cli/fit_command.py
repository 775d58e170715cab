"""`aru fit`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from aru.cli import shared_options, table_files
from aru.cli.screen import Screen, facts, screen, show_scorecard
from aru.cli.setting_options import OPTIONS, TRAINING, read_settings, setting, with_setting_options
from aru.cli.wording import ALLOW_JUMP
from aru.errors import AruError, StorageError, verbatim
from aru.settings import PAPER, nested


@with_setting_options
def fit(
    data: shared_options.DataFile,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", show_default=False, help="Folder to write: new, empty, or an older model to replace."
        ),
    ],
    *,
    static: shared_options.StaticFile = None,
    id_col: shared_options.IdColumn = "unique_id",
    time_col: shared_options.TimeColumn = "ds",
    target_col: shared_options.TargetColumn = "y",
    date_format: shared_options.DateFormat = None,
    given: Mapping[str, Any],
    val_size: Annotated[
        int | None,
        typer.Option(
            "--val-size",
            metavar="ROWS",
            rich_help_panel=TRAINING,
            show_default="the scorecard's rows",
            help="Last rows of each series that are used for validation and for the scorecard, not for training. "
            "Default: the horizon with --paper, --search or --snapshots; else the scorecard is of the last rows of "
            "long series, on which only the last tenth of the steps trains. 0: train on all rows; no scorecard.",
        ),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            "--checkpoints",
            metavar="FOLDER",
            rich_help_panel=TRAINING,
            help="Save the progress of training there, and resume from it.",
        ),
    ] = None,
    allow_jump: shared_options.AllowJump = False,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            rich_help_panel=TRAINING,
            help="Train as in the paper: its integration, distribution, optimiser, search and averaging. Other options "
            "override it.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a model that has taken in observations since its training.")
    ] = False,
    quiet: shared_options.Quiet = False,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Train a model on a table of observations and save it.

    The table has one row per series and time. The saved model has consumed all of its rows and forecasts what
    comes next. The scorecard shows ND, MASE and the coverage of the 90 % interval beside those of seasonal naive, on
    rows that the scored weights had not seen.
    """
    names = {
        **{name: option.flag for name, option in OPTIONS.items()},
        "df": data,
        "static_df": static or "--static FILE",
        "val_size": "--val-size",
        "checkpoint_dir": "--checkpoints",
        **ALLOW_JUMP,
    }
    with screen(as_json, quiet, debug, names) as show:
        arguments = arguments_of(read_settings(given), paper, show.quiet)
        form = table_files.TableFormat(id_col, time_col, target_col, date_format)
        _train(show, data, static, folder, form, arguments, val_size, checkpoints, force, allow_jump)


def arguments_of(chosen: Mapping[str, Any], paper: bool, quiet: bool) -> dict[str, Any]:
    """Arguments of `Forecaster`: the preset, overridden by the given settings."""
    flat = {**(PAPER if paper else {}), **chosen}
    if paper and "search" not in chosen:
        # Given settings are not searched.
        flat["search"] = {k: v for k, v in PAPER["training"].search.items() if k not in chosen} or None
    if quiet:
        flat["trainer"] = {"enable_progress_bar": False, **(flat.get("trainer") or {})}
    return nested(flat)


def _train(
    show: Screen,
    data: Path,
    static: Path | None,
    folder: Path,
    form: table_files.TableFormat,
    arguments: dict[str, Any],
    val_size: int | None,
    checkpoints: Path | None,
    force: bool,
    allow_jump: bool,
) -> None:
    from aru.forecaster import Forecaster
    from aru.nn.device import choose_device
    from aru.store.folder import check_folder
    from aru.training.batches import LONG

    with show.working(f"Reading {data}"):
        check_folder(folder)
        replaced = folder.is_dir() and any(folder.iterdir())
        if replaced and not force:
            _check_unchanged(folder)
        forecaster = Forecaster(**arguments)
        choose_device(forecaster.settings.accelerator)  # a missing device is an error now, not after training
        df = table_files.read_data(data, form)
        id_type = int if df["unique_id"].dtype.kind in "iu" else str
        static_df = None if static is None else table_files.read_static(static, form.like(id_type))
    searched = list(forecaster.settings.training.search or ())
    begin = time.perf_counter()
    forecaster.fit(df, static_df, val_size, checkpoints, allow_jump)
    seconds = time.perf_counter() - begin
    names = (form.unique_id, form.ds, form.y)
    forecaster.runtime.style = dataclasses.replace(forecaster.runtime.style, names=names)
    forecaster.save(folder)
    used = forecaster.settings
    chosen = {name: setting(used, name) for name in searched}
    show.result(
        {
            "model": folder,
            "method": used.model,
            "series": len(forecaster.ids),
            "rows": len(df),
            "steps": used.max_steps,
            "members": used.ensemble,
            "seconds": round(seconds, 3),
            "chosen": chosen,
            "scorecard": None if forecaster.scorecard is None else forecaster.scorecard.to_json(),
        }
    )
    steps = f"{used.max_steps:,}" if used.ensemble == 1 else f"{used.ensemble} x {used.max_steps:,}"
    table = {
        "series": f"{len(forecaster.ids):,}",
        "rows": f"{len(df):,}",
        "steps": steps,
        "seconds": f"{seconds:.1f}",
    }
    show.show(facts({**table, **{name: str(value) for name, value in chosen.items()}}))
    if forecaster.scorecard is not None:
        show_scorecard(show, forecaster.scorecard)
    elif val_size != 0:
        needed = f"{LONG} horizons ({LONG * used.h:,} rows)" if val_size is None else "a horizon and a value before it"
        more = " Keep rows of shorter ones for validation with --val-size." if val_size is None else ""
        show.say(f"No scorecard: no series has {needed}, with values in its last rows.{more}")
    done = "Replaced the model in" if replaced else "Saved the model to"
    show.say(f"{done} {folder}. Forecast with: aru predict {folder}")


def _check_unchanged(folder: Path) -> None:
    """Refuse to replace a model whose states hold rows that training may not have."""
    from aru.forecaster import Forecaster

    try:
        rows = Forecaster.load(folder, "cpu").rows_since_fit
    except AruError:  # damaged, or of another version: nothing to lose
        return
    if rows:
        raise StorageError(
            f"{verbatim(folder)} is a model that has taken in {rows:,} observations since its training: a new one "
            "would know only those in the table",
            "Choose another folder, or give --force to replace it.",
        )
