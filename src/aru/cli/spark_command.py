"""`aru spark`."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from aru.cli import shared_options
from aru.cli.screen import screen
from aru.cli.wording import flags
from aru.errors import ConfigError, verbatim

PLACE = "any place that Spark reads"


def spark(
    input_: Annotated[
        str, typer.Option("--input", metavar="FOLDER", help=f"Parquet files of observations, old and to come: {PLACE}.")
    ],
    output: Annotated[
        str, typer.Option("--output", metavar="FOLDER", help="Parquet files of forecasts and of rows left out.")
    ],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="FOLDER", help="A restart resumes from it; created on first use.")
    ],
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="Folder of a trained model, on the driver.")],
    level: shared_options.Levels = None,
    shards: Annotated[
        int, typer.Option("--shards", metavar="N", help="Groups of series; fixed for the life of a checkpoint.")
    ] = 256,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="N",
            show_default="Spark's setting",
            help="Tasks of a batch, which share the states.",
        ),
    ] = None,
    futr: Annotated[
        str | None, typer.Option("--futr", metavar="FOLDER", help="Parquet files of known-future covariates.")
    ] = None,
    states: Annotated[
        str | None,
        typer.Option(
            "--states", metavar="FILE", show_default="those of the model", help="Export of states to begin with."
        ),
    ] = None,
    correctable_steps: Annotated[
        int,
        typer.Option(
            "--correctable-steps",
            metavar="STEPS",
            help="How many of the latest steps of a series can be corrected by late rows.",
        ),
    ] = 0,
    allow_jump: shared_options.AllowJump = False,
    once: Annotated[bool, typer.Option("--once", help="Take in the files that are there, then end.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", help="Time from the start of one batch to the start of the next."
        ),
    ] = 0.0,
    files: Annotated[
        int | None,
        typer.Option("--files", metavar="N", show_default="all there are", help="Most files that one batch takes in."),
    ] = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Take in a stream of observations on Spark and write forecasts, with states in Spark's state store.

    Master and other settings come from spark-submit or spark-defaults.conf; by default Spark runs on this machine.
    """
    tables = {
        "df": input_,
        "observations": input_,
        "futr_df": futr or "--futr FOLDER",
        "states_df": states or "--states FILE",
    }
    with screen(as_json, debug=debug, names=tables | flags("level", "shards", "correctable_steps")) as show:
        try:
            from aru.spark.job import Job, run
        except ImportError as error:
            raise ConfigError(
                f"aru spark needs more packages ({verbatim(error)})", "Install them: pip install 'aru-forecast[spark]'."
            ) from error
        job = Job(
            input=input_,
            output=output,
            checkpoint=checkpoint,
            model=model,
            level=level,
            shards=shards,
            partitions=partitions,
            futr=futr,
            states=states,
            correctable_steps=correctable_steps,
            allow_jump=allow_jump,
            once=once,
            interval=interval,
            files=files,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            done = run(job, lambda master: show.note(f"Spark runs at {master}; Ctrl-C ends the job."))
        show.result({"output": output, "checkpoint": checkpoint, "batches": done.batches, "rows": done.rows})
        show.say(f"Took in {done.rows:,} rows in {done.batches:,} batches; forecasts are in {output}/kind=forecast.")
