"""Commands about what comes next: `aru predict` and `aru future`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aru.cli import shared_options, table_files
from aru.cli.saved_model import Beforehand, open_source, to_pandas
from aru.cli.screen import PREVIEW, Screen, preview, records, screen
from aru.cli.wording import ALLOW_JUMP, COLUMN_FLAGS, flags
from aru.errors import ConfigError, InputError, quoted, verbatim

if TYPE_CHECKING:
    import pandas as pd

    from aru.forecaster import Forecaster
    from aru.runtime.ended import Ended

FutureFile = Annotated[
    Path | None,
    typer.Option(
        "--futr",
        metavar="FILE",
        help=f"Known-future covariates of the next steps of every series: {shared_options.TABLE_HELP}.",
    ),
]
ChosenIds = Annotated[
    list[str] | None,
    typer.Option("--ids", metavar="IDS", help="Only these series, separated by commas or by repeating the option."),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--h",
        metavar="STEPS",
        show_default="the horizon of the model",
        help="Number of steps. A trained model can be asked for fewer than its horizon; with --pretrained this is the "
        "horizon.",
    ),
]
EndedRule = Annotated[
    str,
    typer.Option(
        "--ended",
        metavar="RULE",
        help="Series that ended, so that all of their forecast would lie before the newest time of all series: keep "
        "forecasts them and names them, skip leaves them out.",
    ),
]


def predict(
    model: shared_options.ModelOrData,
    futr: FutureFile = None,
    level: shared_options.Levels = None,
    ids: ChosenIds = None,
    h: Steps = None,
    ended: EndedRule = "keep",
    total: Annotated[
        bool, typer.Option("--total", help="Forecast the sum over the steps instead: demand over a lead time.")
    ] = False,
    paths: Annotated[
        int | None,
        typer.Option("--paths", metavar="N", help="Give so many sample paths instead of mean, median and intervals."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of --paths.")] = 0,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help=f"Rows of the series so far, for --total, --paths and --plot: {shared_options.TABLE_HELP}. Pretrained "
            "models remember enough of them.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Also draw the first series, or those of --ids: an .svg file."),
    ] = None,
    pretrained: shared_options.Pretrained = None,
    freq: shared_options.Freq = None,
    season_length: shared_options.SeasonLength = None,
    futr_exog: shared_options.FutrExog = None,
    hist_exog: shared_options.HistExog = None,
    stat_exog: shared_options.StatExog = None,
    country: shared_options.Country = None,
    allow_jump: shared_options.AllowJump = False,
    accelerator: shared_options.Accelerator = "auto",
    static: shared_options.StaticFile = None,
    id_col: shared_options.KnownIdColumn = None,
    time_col: shared_options.KnownTimeColumn = None,
    target_col: shared_options.KnownTargetColumn = None,
    date_format: shared_options.DateFormat = None,
    output: shared_options.OutputFile = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Forecast the next steps of every series that a model knows, or, with --pretrained, of every series in a file.

    Columns of the result: series and time as the files of training call them, then mean, median and intervals under the
    model's name. With --total each series has one row, at the time of the last step; how the errors of the steps hang
    together is learned from past forecasts. With --paths each path has a number.
    """
    names = _names(static, futr) | {"df": history or (model if pretrained else "--history FILE")}
    names |= flags("ids") | {"n_paths": "--paths", "random_seed": "--seed"}
    with screen(as_json, debug=debug, names=names) as show:
        table_files.check_output(output)
        _check_picture(plot)
        rule = _rule(ended)
        if total and paths is not None:
            raise ConfigError("--total and --paths are two results", "Choose one.")
        with show.working(f"Forecasting with {pretrained or model}"):
            told = Beforehand(h, freq, season_length, futr_exog, hist_exog, stat_exog, country)
            columns = id_col, time_col, target_col
            opened = open_source(model, pretrained, accelerator, told, columns, date_format, static, allow_jump)
            forecaster, form = opened
            futr_df = None if futr is None else table_files.read_future(futr, form)
            df = None if history is None else table_files.read_data(history, form)
            static_df = None if static is None or df is None else table_files.read_static(static, form)
            chosen, steps = shared_options.choose_ids(ids, forecaster.ids), None if pretrained else h
            if total:
                made = forecaster.predict_total(futr_df, level, chosen, steps, df, static_df, rule, *form.names)
            elif paths is not None:
                made = forecaster.predict_paths(paths, futr_df, chosen, steps, df, static_df, seed, rule, *form.names)
            else:
                made = forecaster.predict(futr_df, level, chosen, steps, rule, *form.names)
            if plot is not None:
                shown = level or [50, 80, 95]
                forecaster.plot(chosen, futr_df, shown, steps, df, None, plot, *form.names)
        summary = _summary(model, forecaster, pretrained) | {"h": steps or forecaster.settings.h}
        _give(show, summary, to_pandas(made), form.unique_id, forecaster, output, "forecasts")
        if plot is not None:
            show.say(f"Drew {plot}")


def future(
    model: shared_options.ModelOrData,
    futr: FutureFile = None,
    ids: ChosenIds = None,
    h: Steps = None,
    ended: EndedRule = "keep",
    pretrained: shared_options.Pretrained = None,
    freq: shared_options.Freq = None,
    season_length: shared_options.SeasonLength = None,
    futr_exog: shared_options.FutrExog = None,
    hist_exog: shared_options.HistExog = None,
    stat_exog: shared_options.StatExog = None,
    country: shared_options.Country = None,
    allow_jump: shared_options.AllowJump = False,
    accelerator: shared_options.Accelerator = "auto",
    static: shared_options.StaticFile = None,
    id_col: shared_options.KnownIdColumn = None,
    time_col: shared_options.KnownTimeColumn = None,
    target_col: shared_options.KnownTargetColumn = None,
    date_format: shared_options.DateFormat = None,
    output: shared_options.OutputFile = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """List the series and times that `aru predict` forecasts next, to be filled with known-future covariates.

    With --futr, list what it would miss in that file instead: the series and times without a row, and columns that are
    not there.
    """
    with screen(as_json, debug=debug, names=_names(static, futr) | {"df": model}) as show:
        table_files.check_output(output)
        rule = _rule(ended)
        with show.working(f"Looking ahead with {pretrained or model}"):
            told = Beforehand(h, freq, season_length, futr_exog, hist_exog, stat_exog, country)
            columns = id_col, time_col, target_col
            opened = open_source(model, pretrained, accelerator, told, columns, date_format, static, allow_jump)
            forecaster, form = opened
            chosen, steps = shared_options.choose_ids(ids, forecaster.ids), None if pretrained else h
            if futr is None:
                made = forecaster.make_future_dataframe(steps, chosen, rule, form.unique_id, form.ds)
            else:
                futr_df = table_files.read_future(futr, form)
                made = forecaster.get_missing_future(futr_df, steps, chosen, rule, form.unique_id, form.ds)
        summary = _summary(model, forecaster, pretrained) | {"h": steps or forecaster.settings.h}
        frame = to_pandas(made)
        if futr is not None and len(frame) == 0:
            show.result({**summary, "series": 0, "rows": 0, "missing": []})
            show.say(f"Nothing is missing in {futr}.")
        else:
            what = "future" if futr is None else "missing"
            _give(show, summary, frame, form.unique_id, forecaster, output, what)


def _rule(ended: str) -> Ended:
    if ended not in ("keep", "skip"):
        raise ConfigError(f"`ended={quoted(ended)}` is not known", "Choose keep or skip.")
    return "skip" if ended == "skip" else "keep"


def _names(static: Path | None, futr: Path | None) -> dict[str, str | Path]:
    """Files and options for the tables and arguments of the library."""
    tables: dict[str, str | Path] = {"futr_df": futr or "--futr FILE", "static_df": static or "--static FILE"}
    options = flags("level", "accelerator", "h", "freq", "season_length", "country", "ended")
    return {**tables, **options, **ALLOW_JUMP, **COLUMN_FLAGS}


def _summary(model: Path, forecaster: Forecaster, pretrained: str | None) -> dict[str, Any]:
    return {"model": model if pretrained is None else forecaster.settings.size}


def _give(
    show: Screen,
    summary: dict[str, Any],
    frame: pd.DataFrame,
    series: str,
    forecaster: Forecaster,
    output: Path | None,
    what: str,
) -> None:
    """A table on the terminal, or in a file."""
    summary = {**summary, "series": frame[series].nunique(), "rows": len(frame)}
    if output is None:
        show.result({**summary, what: records(frame)})
        show.show(preview(frame, forecaster.settings.name))
        if len(frame) > PREVIEW:
            show.say(f"First {PREVIEW} of {len(frame):,} rows. Write all of them with --output {what}.csv")
    else:
        table_files.write(frame, output)
        show.result({**summary, "output": output})
        show.say(f"Wrote {len(frame):,} rows ({summary['series']:,} series, {summary['h']} steps) to {output}")


def _check_picture(path: Path | None) -> None:
    """Refuse, before any work, a picture that could not be written."""
    if path is not None and (path.suffix != ".svg" or not path.absolute().parent.is_dir()):
        reason = "it must end in .svg" if path.suffix != ".svg" else f"there is no folder {path.parent}"
        raise InputError(f"{verbatim(path)} cannot be written: {verbatim(reason)}")
