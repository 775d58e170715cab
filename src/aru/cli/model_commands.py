"""Commands for a saved model: `aru update` and `aru backtest`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from aru.cli import shared_options, table_files
from aru.cli.saved_model import Beforehand, as_in_training, choose_model, load_model, request_of, to_pandas
from aru.cli.screen import PREVIEW, facts, preview, records, screen, show_scores
from aru.cli.wording import ALLOW_JUMP, COLUMN_FLAGS, flags
from aru.errors import ConfigError, quoted


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

    Nothing is retrained. All rows are taken in or none; rows that were taken in before are ignored, so the same file
    may be given again.
    """
    tables: dict[str, str | Path] = {"df": data, "static_df": static or "--static FILE"}
    with screen(
        as_json, debug=debug, names={**tables, **flags("late", "accelerator"), **ALLOW_JUMP, **COLUMN_FLAGS}
    ) as show:
        from aru.store.folder import only_writer

        if late not in ("raise", "skip"):
            raise ConfigError(f"`late={quoted(late)}` is not known", "Choose raise or skip.")
        with show.working(f"Updating {model}"), only_writer(model):
            forecaster = load_model(model, accelerator)
            form = as_in_training(forecaster, id_col, time_col, target_col, date_format)
            static_df = None if static is None else table_files.read_static(static, form)
            df = table_files.read_data(data, form)
            skip: Literal["raise", "skip"] = "skip" if late == "skip" else "raise"
            request = request_of(data, form, late)
            done = forecaster.apply(df, static_df, skip, allow_jump, request, form.names)
            if done.applied:
                forecaster.save(model)
        late_rows, held = (to_pandas(frame) for frame in (done.late, done.held_back))
        show.result(
            {
                "model": model,
                "applied": done.applied,
                "duplicates": done.duplicates,
                "gaps_filled": done.gaps_filled,
                "new_series": done.new_series,
                "late": records(late_rows),
                "held_back": records(held),
                "series": len(forecaster.ids),
            }
        )
        counts = {
            "applied": done.applied,
            "new series": len(done.new_series),
            "gaps filled": done.gaps_filled,
        }
        counts |= {"already known": done.duplicates, "late": len(late_rows), "held back": len(held)}
        show.show(facts({name: f"{count:,}" for name, count in counts.items()}))
        for what, rows in (("Late rows, left out", late_rows), ("Outliers, taken as missing", held)):
            if len(rows):
                show.say(what + (f" (first {PREVIEW}):" if len(rows) > PREVIEW else ":"))
                show.show(preview(rows))
        what = f"Saved {model}" if done.applied else f"Nothing new: {model} is unchanged"
        show.say(f"{what}, {len(forecaster.ids):,} series.")


def backtest(
    model: shared_options.ModelOrData,
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", show_default=False, help=f"Observations: {shared_options.TABLE_HELP}."),
    ] = None,
    pretrained: shared_options.Pretrained = None,
    h: shared_options.Horizon = None,
    freq: shared_options.Freq = None,
    season_length: shared_options.SeasonLength = None,
    futr_exog: shared_options.FutrExog = None,
    hist_exog: shared_options.HistExog = None,
    stat_exog: shared_options.StatExog = None,
    country: shared_options.Country = None,
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
    size of the target, MASE that in units of each series' seasonal differences, RMSE the error of the mean. Coverage
    and relative width are those of an interval. Beside them are the scores of seasonal naive.
    """
    source = data or model
    tables: dict[str, str | Path] = {"df": source, "static_df": static or "--static FILE"}
    named = flags("level", "accelerator", "season_length")
    options = {"n_windows": "--n-windows", "step_size": "--step-size", **named, **ALLOW_JUMP, **COLUMN_FLAGS}
    with screen(as_json, debug=debug, names=tables | options) as show:
        table_files.check_output(output)
        if (data is None) != (pretrained is not None):
            needs = "a model and a file" if pretrained is None else "no model but a file"
            raise ConfigError(f"aru backtest needs {needs}", "Give aru backtest MODEL DATA, or DATA --pretrained mini.")
        if compare and not adapt:
            raise ConfigError("--compare compares adapting with frozen statistics", "Leave out --no-adapt.")
        levels = level or [90.0]
        with show.working(f"Replaying {source}"):
            folder = None if pretrained else model
            told = Beforehand(h, freq, season_length, futr_exog, hist_exog, stat_exog, country)
            forecaster = choose_model(folder, pretrained, accelerator, told)()
            form = as_in_training(forecaster, id_col, time_col, target_col, date_format)
            df = table_files.read_data(source, form)
            static_df = None if static is None else table_files.read_static(static, form)
            columns = form.names
            made, card = forecaster.backtest(df, windows, step, levels, adapt, static_df, allow_jump, *columns)
            frame = to_pandas(made)
            own = str(forecaster.settings.size) if pretrained else "adapting" if adapt else "frozen"
            cards = {own: card}
            if compare:
                frozen = forecaster.backtest(df, windows, step, levels, False, static_df, allow_jump, *columns)
                cards["frozen"] = frozen.scorecard
        rows = {label: other.model for label, other in cards.items() if other is not None}
        if output is not None:
            table_files.write(frame, output)
        steps, series = forecaster.settings.h, frame[form.unique_id].nunique()
        show.result(
            {
                "model": model if pretrained is None else forecaster.settings.size,
                "h": steps,
                "windows": windows,
                "series": series,
                "scores": rows,
                "scorecard": None if card is None else card.to_json(),
                **({} if output is None else {"output": output}),
            }
        )
        if card is None:
            show.say("No row after a cutoff has a value, so there is nothing to score.")
        else:
            show_scores(show, {**rows, card.naive_name: card.naive})
            show.say(f"Scores on {card.about}.")
        show.say(f"series: {series:,}, forecasts: {len(frame) // steps:,}, steps of each: {steps}")
        if output is not None:
            show.say(f"Wrote {len(frame):,} rows to {output}")
