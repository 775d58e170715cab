"""`aru fit`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aru.cli import files, options
from aru.cli.screen import Screen, facts, screen
from aru.errors import AruError, ConfigError
from aru.settings import PAPER, Settings

if TYPE_CHECKING:
    from aru.forecaster import Forecaster

DATA, MODEL, TRAINING = "Covariates", "Model", "Training"
COLUMNS = "separated by commas or by repeating the option"


def _option(flags: str, metavar: str | None, panel: str, text: str, default: object = None) -> Any:
    """An option that leaves its setting to the library, or to the preset, unless it is given."""
    return typer.Option(
        flags,
        metavar=metavar,
        rich_help_panel=panel,
        help=text if default is None else f"{text} Default: {default}.",
        show_default=False,
    )


def fit(
    data: options.DataFile,
    folder: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="Folder to write: new, empty, or an older model to replace."),
    ],
    h: Annotated[int, typer.Option("--h", metavar="STEPS", help="Forecast horizon in steps.")],
    freq: Annotated[
        str,
        typer.Option(
            "--freq",
            metavar="FREQ",
            help="Step of the series: a pandas offset such as D, h, W-FRI or MS; an integer for integer "
            "times; none if rows follow each other whatever their times.",
        ),
    ],
    futr: Annotated[
        list[str] | None, _option("--futr", "COLUMNS", DATA, f"Covariates known in advance, {COLUMNS}.")
    ] = None,
    hist: Annotated[
        list[str] | None,
        _option("--hist", "COLUMNS", DATA, f"Covariates known up to the present, {COLUMNS}."),
    ] = None,
    stat: Annotated[
        list[str] | None, _option("--stat", "COLUMNS", DATA, f"Covariates in the file --static, {COLUMNS}.")
    ] = None,
    static: options.StaticFile = None,
    id_col: options.IdColumn = "unique_id",
    time_col: options.TimeColumn = "ds",
    target_col: options.TargetColumn = "y",
    date_format: options.DateFormat = None,
    model: Annotated[
        str | None,
        _option("--model", "NAME", MODEL, "Forecasting method; `aru models` lists them.", Settings.model),
    ] = None,
    input_size: Annotated[
        int | None,
        _option(
            "--input-size",
            "ROWS",
            MODEL,
            "Rows of context that a forecast reads.",
            "the horizon, or one season where that is longer",
        ),
    ] = None,
    lags: Annotated[
        str | None,
        _option(
            "--lags",
            "LAGS",
            MODEL,
            "Past values as inputs, none shorter than the horizon: numbers separated by commas, auto (whole seasons "
            "by frequency) or none.",
            Settings.lags,
        ),
    ] = None,
    size: Annotated[
        str | None,
        _option(
            "--size",
            "SIZE",
            MODEL,
            "small, medium, large, xlarge, or four widths separated by commas (RNN, two layers, local fit).",
            Settings.size,
        ),
    ] = None,
    alphas: Annotated[
        str | None,
        _option(
            "--alphas",
            "NUMBERS",
            MODEL,
            "Aging factors of the local statistics, separated by commas; 1 forgets nothing.",
            ",".join(map(str, Settings.alphas)),
        ),
    ] = None,
    ridge: Annotated[
        float | None,
        _option("--ridge", "NUMBER", MODEL, "Ridge of the local fit, or its start.", Settings.ridge),
    ] = None,
    integration: Annotated[
        str | None,
        _option(
            "--integration",
            "NAME",
            MODEL,
            "How local predictions join the network: residual, skip, paper or direct.",
            Settings.integration,
        ),
    ] = None,
    scaler: Annotated[
        str | None,
        _option(
            "--scaler",
            "NAME",
            MODEL,
            "Scale of a series: mean of all its values so far, level of the latest ones, or auto, in between.",
            Settings.scaler,
        ),
    ] = None,
    transform: Annotated[
        str | None,
        _option("--transform", "NAME", MODEL, "Of the scaled target: none, log1p or asinh.", Settings.transform),
    ] = None,
    robust: Annotated[
        bool | None,
        _option(
            "--robust/--no-robust",
            None,
            MODEL,
            "Let implausible observations weigh less in the local fit.",
            "on" if Settings.robust else "off",
        ),
    ] = None,
    distribution: Annotated[
        str | None,
        _option(
            "--distribution",
            "NAME",
            MODEL,
            "auto, student-t, gaussian or negative-binomial.",
            Settings.distribution,
        ),
    ] = None,
    support: Annotated[
        str | None,
        _option(
            "--support",
            "NAME",
            MODEL,
            "Values that y can have: real, nonnegative, count, or auto: as in training.",
            Settings.support,
        ),
    ] = None,
    gate: Annotated[
        bool | None,
        _option(
            "--gate/--no-gate",
            None,
            MODEL,
            "Mix adapted and unadapted forecasts of a series by how they fared, so that adaptation never costs much.",
            "on" if Settings.gate else "off",
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        _option(
            "--calibration",
            "NAME",
            MODEL,
            "none, or online: intervals of each series move so that their coverage stays nominal.",
            "none",
        ),
    ] = None,
    alias: Annotated[
        str | None,
        _option("--alias", "NAME", MODEL, "Name of the forecast columns.", "the name of the method"),
    ] = None,
    max_steps: Annotated[
        int | None,
        _option(
            "--max-steps",
            "STEPS",
            TRAINING,
            "Training steps; each is a batch of series with all their windows.",
            Settings.max_steps,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        _option("--learning-rate", "NUMBER", TRAINING, "Learning rate of Adam.", Settings.learning_rate),
    ] = None,
    batch_size: Annotated[
        int | None,
        _option("--batch-size", "SERIES", TRAINING, "Series per training step.", Settings.batch_size),
    ] = None,
    ensemble: Annotated[
        int | None,
        _option(
            "--ensemble",
            "N",
            TRAINING,
            "Train this many models from different seeds and average their forecasts.",
            Settings.ensemble,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        _option("--seed", "N", TRAINING, "Seed; on a CPU a training repeats bit for bit.", Settings.random_seed),
    ] = None,
    val_size: Annotated[
        int | None,
        _option(
            "--val-size",
            "ROWS",
            TRAINING,
            "Last rows of each series to keep out of training and watch as validation.",
            "0, or the horizon with --paper",
        ),
    ] = None,
    accelerator: Annotated[
        str | None,
        _option("--accelerator", "NAME", TRAINING, options.ACCELERATORS, Settings.accelerator),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        _option(
            "--checkpoints",
            "FOLDER",
            TRAINING,
            "Save the progress of training there, and resume from what is there.",
        ),
    ] = None,
    paper: Annotated[
        bool,
        _option(
            "--paper",
            None,
            TRAINING,
            "Train as in the paper: its integration, distribution, optimiser, search and averaging. Options "
            "that are given still count.",
        ),
    ] = False,
    assignments: Annotated[
        list[str] | None,
        _option(
            "--set",
            "NAME=VALUE",
            TRAINING,
            "Any other setting of Forecaster, its value as JSON: for instance --set dropout=0.1. Repeatable.",
        ),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Train a model on a table of observations and save it.

    The table has one row per series and time. The saved model has consumed all of its rows and forecasts what
    comes next.
    """
    with screen(as_json, quiet, debug) as show:
        given = {
            "input_size": input_size,
            "model": model,
            "futr_exog_list": options.split(futr),
            "hist_exog_list": options.split(hist),
            "stat_exog_list": options.split(stat),
            "lags": lags if lags in (None, "auto") else () if lags == "none" else options.numbers("--lags", lags, int),
            "size": options.numbers("--size", size, int) if size and "," in size else size,
            "alphas": options.numbers("--alphas", alphas, float),
            "ridge": ridge,
            "integration": integration,
            "scaler": scaler,
            "transform": None if transform == "none" else transform,
            "robust": robust,
            "distribution": distribution,
            "support": support,
            "gate": gate,
            "calibration": None if calibration == "none" else calibration,
            "alias": alias,
            "max_steps": max_steps,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "ensemble": ensemble,
            "random_seed": seed,
            "accelerator": accelerator,
        }
        chosen = {
            "h": h,
            "freq": options.parse_freq(freq),
            **{k: v for k, v in given.items() if v is not None},
        }
        settings = combine(chosen, options.parse_set(assignments), paper, show.quiet)
        rows = val_size if val_size is not None else h if paper else 0
        layout = files.Layout(id_col, time_col, target_col, date_format)
        _train(show, data, static, folder, layout, settings, rows, checkpoints)


def combine(chosen: dict[str, Any], assigned: dict[str, Any], paper: bool, quiet: bool) -> dict[str, Any]:
    """Arguments of `Forecaster`: the preset, then what was given."""
    twice = sorted(set(chosen) & set(assigned))
    if twice:
        raise ConfigError(f"{twice[0]} is given by its option and by --set: choose one.")
    settings = {**(PAPER if paper else {}), **chosen, **assigned}
    if paper and "search" not in assigned:
        # What was given is not searched for.
        left = {k: v for k, v in PAPER["search"].items() if k not in chosen and k not in assigned}
        settings["search"] = left or None
    if quiet:
        settings["trainer_options"] = {
            "enable_progress_bar": False,
            **(settings.get("trainer_options") or {}),
        }
    return settings


def _build(settings: dict[str, Any]) -> Forecaster:
    from aru.forecaster import Forecaster

    options.check_accelerator(settings.get("accelerator", "auto"))
    try:
        return Forecaster(**settings)
    except AruError:
        raise
    except (TypeError, ValueError) as error:  # a list of words where numbers belong, and the like
        raise ConfigError(f"A setting has a value of the wrong kind: {error}.") from error


def _train(
    show: Screen,
    data: Path,
    static: Path | None,
    folder: Path,
    layout: files.Layout,
    settings: dict[str, Any],
    val_size: int,
    checkpoints: Path | None,
) -> None:
    files.check_model(folder)
    replaced = folder.is_dir() and any(folder.iterdir())
    show.files = {"df": data} | ({"static_df": static} if static else {})
    with show.working(f"Reading {data}"):
        forecaster = _build(settings)
        df = files.read_data(data, layout)
        id_type = int if df["unique_id"].dtype.kind in "iu" else str
        static_df = None if static is None else files.read_static(static, layout.like(id_type))
    begin = time.perf_counter()
    forecaster.fit(df, static_df, val_size, checkpoints)
    seconds = time.perf_counter() - begin
    forecaster.save(folder)
    used = forecaster.settings
    searched = list(settings.get("search") or ())
    show.result(
        {
            "model": folder,
            "method": used.model,
            "series": len(forecaster.ids),
            "rows": len(df),
            "steps": used.max_steps,
            "members": used.ensemble,
            "seconds": round(seconds, 3),
            "chosen": {name: getattr(used, name) for name in searched},
        }
    )
    steps = f"{used.max_steps:,}" if used.ensemble == 1 else f"{used.ensemble} x {used.max_steps:,}"
    table = {
        "series": f"{len(forecaster.ids):,}",
        "rows": f"{len(df):,}",
        "steps": steps,
        "seconds": f"{seconds:.1f}",
    }
    show.show(facts({**table, **{name: str(getattr(used, name)) for name in searched}}))
    done = "Replaced the model in" if replaced else "Saved the model to"
    show.say(f"{done} {folder}. Forecast with: aru predict {folder}")
