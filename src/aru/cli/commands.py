"""`aru predict`, `update`, `backtest`, `demo`, `models` and `datasets`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from aru.cli import files, options
from aru.cli.screen import PREVIEW, Screen, decimals, facts, new_table, preview, records, screen
from aru.errors import ConfigError, StorageError

if TYPE_CHECKING:
    import pandas as pd

    from aru.forecaster import Forecaster


def predict(
    model: options.ModelFolder,
    futr: Annotated[
        Path | None,
        typer.Option(
            "--futr",
            metavar="FILE",
            help=f"Known-future covariates of the next steps of every series: {options.TABLES}.",
        ),
    ] = None,
    level: options.Levels = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--ids", metavar="IDS", help="Only these series, separated by commas or by repeating the option."),
    ] = None,
    accelerator: options.Accelerator = "auto",
    id_col: options.IdColumn = "unique_id",
    time_col: options.TimeColumn = "ds",
    date_format: options.DateFormat = None,
    output: options.OutputFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Forecast the next steps of every series that a model knows.

    Columns of the result: unique_id, ds, then mean, median and intervals under the model's name.
    """
    with screen(as_json, debug=debug) as show:
        files.check_output(output)
        layout = files.Layout(id_col, time_col, date_format=date_format)
        show.trained = True
        show.files = {"futr_df": futr} if futr else {}
        with show.working(f"Forecasting with {model}"):
            forecaster = _load(model, accelerator)
            futr_df = None if futr is None else files.read_future(futr, _fitting(layout, forecaster))
            chosen = options.choose_ids(ids, forecaster.ids)
            frame = _pandas(forecaster.predict(futr_df, level, chosen))
        summary = {
            "model": model,
            "h": forecaster.settings.h,
            "series": frame["unique_id"].nunique(),
            "rows": len(frame),
        }
        if output is None:
            show.result({**summary, "forecasts": records(frame)})
            show.show(preview(frame, forecaster.settings.name))
            if len(frame) > PREVIEW:
                show.say(f"First {PREVIEW} of {len(frame):,} rows. Write all of them with --output forecasts.csv")
        else:
            files.write(frame, output)
            show.result({**summary, "output": output})
            show.say(f"Wrote {len(frame):,} rows ({summary['series']:,} series, {summary['h']} steps) to {output}")


def update(
    model: options.ModelFolder,
    data: options.DataFile,
    late: Annotated[
        str,
        typer.Option(
            "--late",
            metavar="RULE",
            help="Rows not after the latest time of a series: raise rejects the file, skip takes the rest.",
        ),
    ] = "raise",
    accelerator: options.Accelerator = "auto",
    static: options.StaticFile = None,
    id_col: options.IdColumn = "unique_id",
    time_col: options.TimeColumn = "ds",
    target_col: options.TargetColumn = "y",
    date_format: options.DateFormat = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Take in new observations of known and of new series, and save the model in place.

    Nothing is retrained. Either all rows are taken in or none; rows that repeat the latest ones are ignored.
    """
    with screen(as_json, debug=debug) as show:
        if late not in ("raise", "skip"):
            raise ConfigError(f"late={late!r} is not known: choose raise or skip.")
        layout = files.Layout(id_col, time_col, target_col, date_format)
        show.trained = True
        show.files = {"new_df": data, "df": data} | ({"static_df": static} if static else {})
        with show.working(f"Updating {model}"):
            forecaster = _load(model, accelerator)
            fitting = _fitting(layout, forecaster)
            static_df = None if static is None else files.read_static(static, fitting)
            df = files.read_data(data, fitting)
            done = forecaster.update(df, static_df, "skip" if late == "skip" else "raise")
            if done.applied:
                forecaster.save(model)
        late_rows = _pandas(done.late)
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
    model: options.ModelFolder,
    data: options.DataFile,
    windows: Annotated[
        int, typer.Option("--windows", metavar="N", help="Forecasts per series, from cutoffs before its end.")
    ] = 4,
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="STEPS", show_default="the horizon", help="Steps between two cutoffs."),
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
        typer.Option("--adapt/--no-adapt", help="Adapt between cutoffs, or freeze the statistics at the first one."),
    ] = True,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Score the frozen statistics, too, to see what adaptation gains."),
    ] = False,
    accelerator: options.Accelerator = "auto",
    static: options.StaticFile = None,
    id_col: options.IdColumn = "unique_id",
    time_col: options.TimeColumn = "ds",
    target_col: options.TargetColumn = "y",
    date_format: options.DateFormat = None,
    output: options.OutputFile = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Replay a table, forecast from cutoffs near the end of every series, and score the forecasts.

    Nothing is retrained and the model is not changed. ND is the absolute error of the median relative to the
    size of the target, RMSE is that of the mean; coverage and width (again relative) are those of an interval.
    """
    with screen(as_json, debug=debug) as show:
        files.check_output(output)
        if compare and not adapt:
            raise ConfigError("--compare sets adapting against frozen statistics: leave out --no-adapt.")
        layout = files.Layout(id_col, time_col, target_col, date_format)
        levels = level or [90.0]
        show.trained = True
        show.files = {"df": data} | ({"static_df": static} if static else {})
        with show.working(f"Replaying {data}"):
            forecaster = _load(model, accelerator)
            fitting = _fitting(layout, forecaster)
            df = files.read_data(data, fitting)
            static_df = None if static is None else files.read_static(static, fitting)
            frame = forecaster.cross_validation(df, windows, step, levels, adapt, static_df)
            rows = {"adapting" if adapt else "frozen": _score(frame, forecaster, levels)}
            if compare:
                frozen = forecaster.cross_validation(df, windows, step, levels, False, static_df)
                rows["frozen"] = _score(frozen, forecaster, levels)
        if output is not None:
            files.write(frame, output)
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


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the report.")] = Path(
        "aru-demo"
    ),
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the trainings.")] = 0,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Forecast daily flights from New York, with and without adaptation, and write a report.

    Trains on most routes, then streams the rest of the year day by day, with routes that training never saw.
    """
    with screen(as_json, debug=debug) as show:
        from aru import demo as flights

        report = flights.run(output, seed=seed, console=show.err if as_json else show.out)
        show.result({"report": report})


def models(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """List the forecasting methods."""
    with screen(as_json, debug=debug) as show:
        from aru.models import MODELS

        listed = [
            {"name": name, "adapts": m.adapts, "about": m.about, "cost": m.cost, "reference": m.reference}
            for name, m in MODELS.items()
        ]
        show.result({"models": listed})
        table = new_table("model", "adapts", "about", "cost", "reference")
        for name, m in MODELS.items():
            table.add_row(Text(name), "yes" if m.adapts else "no", Text(m.about), Text(m.cost), Text(m.reference))
        show.show(table)
        show.say("Choose one with: aru fit DATA MODEL --model NAME. The baseline adapts with --set finetune_steps=N.")
        show.say("Other libraries (ETS, ARIMA, LightGBM, NHITS, ...) run on the same windows: docs/peers.md.")


def datasets(
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="FOLDER", show_default="ARU_DATA", help="Folder of the data files."),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the datasets of the experiments, what they hold, and whether their files are there.

    Beside the true statistics stand those of the paper's Table 1: series N, values T of a series.
    """
    with screen(as_json, debug=debug) as show:
        from aru.datasets import DESCRIPTIONS, default_dir

        folder = data_dir or default_dir()
        listed = [
            {
                "name": about.name,
                "title": about.title,
                "series": about.series,
                "shortest": about.lengths[0],
                "longest": about.lengths[1],
                "h": about.h,
                "input_size": about.input_size,
                "freq": about.freq,
                "covariates": len(about.futr_exog_list) + len(about.hist_exog_list) + len(about.stat_exog_list),
                "paper": None if about.paper is None else about.paper._asdict(),
                "note": about.note,
                "files": list(about.files),
                "source": about.source,
                "present": about.present(folder),
            }
            for about in DESCRIPTIONS.values()
        ]
        show.result({"data_dir": folder, "datasets": listed})
        table = new_table("dataset", "files")
        for head in ("series", "length", "h", "context", "covariates", "paper's N", "paper's T"):
            table.add_column(head, justify="right")
        for row, about in zip(listed, DESCRIPTIONS.values(), strict=True):
            shortest, longest = about.lengths
            length = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
            paper = [f"{n:,}" if n else "" for n in (about.paper or (None, None))[:2]]
            table.add_row(
                Text(about.name), Text(str(row["present"]) or "missing"), f"{about.series:,}", length, str(about.h),
                str(about.input_size), str(row["covariates"]), *paper,
            )  # fmt: skip
        show.show(table)
        show.say(f"Files are looked for in {folder}/<dataset>. What is missing, and what the paper's table has wrong:")
        for row, about in zip(listed, DESCRIPTIONS.values(), strict=True):
            if not row["present"]:
                show.say(f"{about.name}: get {', '.join(about.files) or about.package} from {about.source}")
            if about.paper and about.note:
                show.say(f"{about.name}: {about.note}")


def _load(folder: Path, accelerator: str) -> Forecaster:
    from aru.forecaster import Forecaster

    if not folder.exists():
        raise StorageError(f"{folder} does not exist: give the folder that aru fit wrote.")
    options.check_accelerator(accelerator)
    return Forecaster.load(folder, accelerator)


def _fitting(layout: files.Layout, forecaster: Forecaster) -> files.Layout:
    """Read files the way training did: ids of the same type, the same columns as categories."""
    schema = forecaster._require_fit().schema
    groups = (schema.futr, schema.hist, schema.stat)
    id_type = int if schema.integer_ids else str
    return layout.like(id_type, [column.name for _, categories in groups for column in categories])


def _pandas(frame: Any) -> pd.DataFrame:
    """Forecasts come as the kind of frame that training had; files are written from pandas."""
    import narwhals as nw

    converted: pd.DataFrame = nw.from_native(frame, eager_only=True).to_pandas()
    return converted


def _score(frame: pd.DataFrame, forecaster: Forecaster, levels: list[float]) -> dict[str, float]:
    """ND, RMSE, then coverage and width of every interval."""
    from aru.backtest import scores

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
