"""`aru fit`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from aru.cli import shared_options, table_files
from aru.cli.saved_model import is_store
from aru.cli.screen import Screen, facts, new_table, screen, show_scorecard
from aru.cli.setting_options import OPTIONS, TRAINING, read_settings, setting, with_setting_options
from aru.cli.wording import ALLOW_JUMP, COLUMN_FLAGS
from aru.errors import AruError, ConfigError, StorageError, verbatim
from aru.settings import PAPER, PRETRAINED, nested


@with_setting_options
def fit(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help=f"Observations: {shared_options.TABLE_HELP}; or the --state of a service that keeps rows.",
        ),
    ],
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
            "Default: of aru some rows are held back, decide how it is tuned, and are then learned from; of others the "
            "horizon with --paper, --search or --snapshots, else the last rows of long series, on which only the last "
            "tenth of the steps trains. 0: no scorecard; aru is not tuned, others train on all rows.",
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
    warm_start: Annotated[
        bool,
        typer.Option(
            "--warm-start",
            rich_help_panel=TRAINING,
            help="Go on from the weights in MODEL, with its settings. States are built anew from DATA.",
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
        "df": _shown(data),
        "static_df": static or "--static FILE",
        "val_size": "--val-size",
        "checkpoint_dir": "--checkpoints",
        **ALLOW_JUMP,
        **COLUMN_FLAGS,
    }
    with screen(as_json, quiet, debug, names) as show:
        if warm_start and (given or paper):
            flags = " and ".join([*(OPTIONS[name].flag for name in given), *(["--paper"] if paper else [])])
            raise ConfigError(f"--warm-start goes on with the settings of {verbatim(folder)}", f"Leave out {flags}.")
        arguments = None if warm_start else arguments_of(read_settings(given), paper, show.quiet)
        from aru.data.naming import Names

        form = table_files.TableFormat(Names().given(id_col, time_col, target_col), date_format)
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
    data: str,
    static: Path | None,
    folder: Path,
    form: table_files.TableFormat,
    arguments: dict[str, Any] | None,
    val_size: int | None,
    checkpoints: Path | None,
    force: bool,
    allow_jump: bool,
) -> None:
    from aru.fit_pretrained import FEWEST
    from aru.forecaster import Forecaster
    from aru.nn.device import choose_device
    from aru.store.folder import check_folder
    from aru.training.batches import LONG

    with show.working(f"Reading {_shown(data)}"):
        check_folder(folder)
        replaced = folder.is_dir() and any(folder.iterdir())
        if replaced and not force:
            _check_unchanged(folder)
        forecaster = Forecaster.load(folder) if arguments is None else Forecaster(**arguments)
        choose_device(forecaster.settings.accelerator)  # a missing device is an error now, not after training
        df, static_df = _rows(data, form)
        if static is not None:
            id_type = int if df[form.unique_id].dtype.kind in "iu" else str
            static_df = table_files.read_static(static, form.like(id_type))
    searched = list(forecaster.settings.training.search or ())
    begin = time.perf_counter()
    forecaster.fit(df, static_df, val_size, checkpoints, allow_jump, *form.names, warm_start=arguments is None)
    seconds = time.perf_counter() - begin
    forecaster.save(folder)
    used = forecaster.settings
    chosen = {name: setting(used, name) for name in searched}
    show.result(
        {
            "model": folder,
            "method": used.model,
            "series": len(forecaster.ids),
            "rows": len(df),
            "steps": used.steps,
            "members": used.ensemble,
            "seconds": round(seconds, 3),
            "chosen": chosen,
            "summary": forecaster.summary().to_dict("records"),
            "scorecard": None if forecaster.scorecard is None else forecaster.scorecard.to_json(),
        }
    )
    steps = f"{used.steps:,}" if used.ensemble == 1 else f"{used.ensemble} x {used.steps:,}"
    table = {
        "series": f"{len(forecaster.ids):,}",
        "rows": f"{len(df):,}",
        "steps": steps,
        "seconds": f"{seconds:.1f}",
    }
    show.show(facts({**table, **{name: str(value) for name, value in chosen.items()}}))
    choices = new_table("", "chosen", "why")
    for row in forecaster.summary().itertuples():
        choices.add_row(*(Text(str(cell)) for cell in row[1:]))
    show.show(choices)
    if forecaster.scorecard is not None:
        show_scorecard(show, forecaster.scorecard)
    elif val_size != 0:
        needed = f"{LONG} horizons ({LONG * used.h:,} rows)"
        if val_size is not None:
            needed = "a horizon and a value before it"
        elif used.model == PRETRAINED:
            needed = f"{2 * used.h + FEWEST:,} rows"
        more = " Keep rows of shorter ones for validation with --val-size." if val_size is None else ""
        show.say(f"No scorecard: no series has {needed}, with values in its last rows.{more}")
    done = "Replaced the model in" if replaced else "Saved the model to"
    show.say(f"{done} {folder}. Forecast with: aru predict {folder}")


def _shown(data: str) -> str:
    """Where rows come from, in messages: without a password."""
    from aru.store.address import name_of

    return name_of(data)


def _rows(data: str, form: table_files.TableFormat) -> tuple[Any, Any]:
    """The rows of a file, or those that a service keeps, with the static covariates that came with them."""
    if not is_store(data):
        return table_files.read_data(Path(data), form), None
    from aru.runtime.kept import kept_frames
    from aru.serve.versions import open_champion

    with contextlib.closing(open_champion(data)) as store:
        df, static_df = kept_frames(store)  # which have the usual names
    called = form.names._asdict()
    return df.rename(columns=called), None if static_df is None else static_df.rename(columns=called)


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
