"""Commands for a saved model: `aru predict`, `aru update` and `aru backtest`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aru.cli import shared_options, table_files
from aru.cli.saved_model import as_in_training, load_model, to_pandas
from aru.cli.screen import PREVIEW, Screen, decimals, facts, new_table, preview, records, screen
from aru.cli.wording import ALLOW_JUMP, flags
from aru.errors import ConfigError, quoted

if TYPE_CHECKING:
    import pandas as pd

    from aru.forecaster import Forecaster


def predict(
    model: shared_options.ModelFolder,
    futr: Annotated[
        Path | None,
        typer.Option(
            "--futr",
            metavar="FILE",
            help=f"Known-future covariates of the next steps of every series: {shared_options.TABLE_HELP}.",
        ),
    ] = None,
    level: shared_options.Levels = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--ids", metavar="IDS", help="Only these series, separated by commas or by repeating the option."),
    ] = None,
    accelerator: shared_options.Accelerator = "auto",
    id_col: shared_options.KnownIdColumn = None,
    time_col: shared_options.KnownTimeColumn = None,
    date_format: shared_options.DateFormat = None,
    output: shared_options.OutputFile = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Forecast the next steps of every series that a model knows.

    Columns of the result: series and time as the files of training call them, then mean, median and intervals under the
    model's name.
    """
    names = {"futr_df": futr or "--futr FILE", **flags("level", "accelerator")}
    with screen(as_json, debug=debug, names=names) as show:
        table_files.check_output(output)
        with show.working(f"Forecasting with {model}"):
            forecaster = load_model(model, accelerator)
            form = as_in_training(forecaster, id_col, time_col, date_format=date_format)
            futr_df = None if futr is None else table_files.read_future(futr, form)
            chosen = shared_options.choose_ids(ids, forecaster.ids)
            frame = form.named(to_pandas(forecaster.predict(futr_df, level, chosen)))
        summary = {
            "model": model,
            "h": forecaster.settings.h,
            "series": frame[form.unique_id].nunique(),
            "rows": len(frame),
        }
        if output is None:
            show.result({**summary, "forecasts": records(frame)})
            show.show(preview(frame, forecaster.settings.name))
            if len(frame) > PREVIEW:
                show.say(f"First {PREVIEW} of {len(frame):,} rows. Write all of them with --output forecasts.csv")
        else:
            table_files.write(frame, output)
            show.result({**summary, "output": output})
            show.say(f"Wrote {len(frame):,} rows ({summary['series']:,} series, {summary['h']} steps) to {output}")


def update(
    model: shared_options.ModelFolder,
    data: shared_options.DataFile,
    late: Annotated[
        str,
        typer.Option(
            "--late",
            metavar="RULE",
            help="Rows at or before the latest time of their series: raise rejects the file, skip leaves them out.",
        ),
    ] = "raise",
    allow_jump: shared_options.AllowJump = False,
    accelerator: shared_options.Accelerator = "auto",
    static: shared_options.StaticFile = None,
    id_col: shared_options.KnownIdColumn = None,
    time_col: shared_options.KnownTimeColumn = None,
    target_col: shared_options.KnownTargetColumn = None,
    date_format: shared_options.DateFormat = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Take in new observations of known and new series, and save the model in place.

    Nothing is retrained. All rows are taken in or none; rows that were taken in before are ignored.
    """
    tables: dict[str, str | Path] = {"df": data, "static_df": static or "--static FILE"}
    with screen(as_json, debug=debug, names={**tables, **flags("late", "accelerator"), **ALLOW_JUMP}) as show:
        if late not in ("raise", "skip"):
            raise ConfigError(f"`late={quoted(late)}` is not known", "Choose raise or skip.")
        with show.working(f"Updating {model}"):
            forecaster = load_model(model, accelerator)
            form = as_in_training(forecaster, id_col, time_col, target_col, date_format)
            static_df = None if static is None else table_files.read_static(static, form)
            df = table_files.read_data(data, form)
            done = forecaster.update(df, static_df, "skip" if late == "skip" else "raise", allow_jump)
            if done.applied:
                forecaster.save(model)
        late_rows = form.named(to_pandas(done.late))
        show.result(
            {
                "model": model,
                "applied": done.applied,
                "duplicates": done.duplicates,
                "gaps_filled": done.gaps_filled,
                "new_series": done.new_series,
                "late": records(late_rows),
                "series": len(forecaster.ids),
            }
        )
        counts = {
            "applied": done.applied,
            "new series": len(done.new_series),
            "gaps filled": done.gaps_filled,
        }
        counts |= {"already known": done.duplicates, "late": len(late_rows)}
        show.show(facts({name: f"{count:,}" for name, count in counts.items()}))
        if len(late_rows):
            show.say("Late rows, left out" + (f" (first {PREVIEW}):" if len(late_rows) > PREVIEW else ":"))
            show.show(preview(late_rows))
        what = f"Saved {model}" if done.applied else f"Nothing new: {model} is unchanged"
        show.say(f"{what}, {len(forecaster.ids):,} series.")


def backtest(
    model: shared_options.ModelFolder,
    data: shared_options.DataFile,
    windows: Annotated[
        int, typer.Option("--n-windows", metavar="N", help="Forecasts per series, from cutoffs before its end.")
    ] = 4,
    step: Annotated[
        int | None,
        typer.Option("--step-size", metavar="STEPS", show_default="the horizon", help="Steps between two cutoffs."),
    ] = None,
    level: Annotated[
        list[float] | None,
        typer.Option(
            "--level",
            metavar="PERCENT",
            show_default="90",
            help="Score this central interval. Repeatable.",
        ),
    ] = None,
    adapt: Annotated[
        bool,
        typer.Option("--adapt/--no-adapt", help="Adapt between cutoffs, or freeze the statistics at the first cutoff."),
    ] = True,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Also score with frozen statistics, to see what adaptation gains."),
    ] = False,
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
    """Replay a table, forecast from cutoffs near the end of every series, and score the forecasts.

    Nothing is retrained and the model is not changed. ND is the absolute error of the median relative to the
    size of the target, RMSE the error of the mean. Coverage and relative width are those of an interval.
    """
    tables: dict[str, str | Path] = {"df": data, "static_df": static or "--static FILE"}
    options = {"n_windows": "--n-windows", "step_size": "--step-size", **flags("level", "accelerator"), **ALLOW_JUMP}
    with screen(as_json, debug=debug, names=tables | options) as show:
        table_files.check_output(output)
        if compare and not adapt:
            raise ConfigError("--compare compares adapting with frozen statistics", "Leave out --no-adapt.")
        levels = level or [90.0]
        with show.working(f"Replaying {data}"):
            forecaster = load_model(model, accelerator)
            form = as_in_training(forecaster, id_col, time_col, target_col, date_format)
            df = table_files.read_data(data, form)
            static_df = None if static is None else table_files.read_static(static, form)
            frame = forecaster.cross_validation(df, windows, step, levels, adapt, static_df, allow_jump)
            rows = {"adapting" if adapt else "frozen": _score(frame, forecaster, levels)}
            if compare:
                frozen = forecaster.cross_validation(df, windows, step, levels, False, static_df, allow_jump)
                rows["frozen"] = _score(frozen, forecaster, levels)
        if output is not None:
            table_files.write(form.named(to_pandas(frame)), output)
        h, series = forecaster.settings.h, frame["unique_id"].nunique()
        show.result(
            {
                "model": model,
                "h": h,
                "windows": windows,
                "series": series,
                "scores": rows,
                **({} if output is None else {"output": output}),
            }
        )
        _show_scores(show, rows)
        show.say(f"series: {series:,}, forecasts: {len(frame) // h:,}, steps of each: {h}")
        if output is not None:
            show.say(f"Wrote {len(frame):,} rows to {output}")


def _score(frame: pd.DataFrame, forecaster: Forecaster, levels: list[float]) -> dict[str, float]:
    """ND, RMSE, then coverage and width of every interval."""
    from aru.data.scores import scores

    out: dict[str, float] = {}
    for level in levels:
        values = dict(scores(frame, forecaster.settings.name, level))
        coverage, width = values.pop("coverage"), values.pop("width")
        out |= {**values, f"coverage-{level:g}": coverage, f"width-{level:g}": width}
    return out


def _show_scores(show: Screen, rows: dict[str, dict[str, float]]) -> None:
    names = [name for name in next(iter(rows.values())) if name != "values"]
    table = new_table("statistics")
    for name in names:
        kind, _, level = name.partition("-")
        table.add_column(f"{kind} {level}" if level else {"nd": "ND", "rmse": "RMSE"}[kind], justify="right")
    for label, values in rows.items():
        table.add_row(label, *(_score_text(name, values[name]) for name in names))
    show.show(table)


def _score_text(name: str, value: float) -> str:
    if name.startswith("coverage"):
        return f"{100 * value:.1f} %"
    return f"{value:,.{decimals(value)}f}"
