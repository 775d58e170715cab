"""`aru serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aru.cli import shared_options
from aru.cli.saved_model import Beforehand, choose_model
from aru.cli.screen import screen
from aru.cli.wording import flags
from aru.errors import ConfigError, StorageError, verbatim

if TYPE_CHECKING:
    pass

TOKEN = "ARU_TOKEN"


def serve(
    state: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="STORE",
            help="SQLite file of the states, created on first use; or a PostgreSQL database, postgresql://user@host/name.",
        ),
    ],
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", show_default=False, help="Folder of a trained model.")
    ] = None,
    pretrained: shared_options.Pretrained = None,
    h: shared_options.Horizon = None,
    freq: shared_options.Freq = None,
    season_length: shared_options.SeasonLength = None,
    futr_exog: shared_options.FutrExog = None,
    hist_exog: shared_options.HistExog = None,
    stat_exog: shared_options.StatExog = None,
    country: shared_options.Country = None,
    host: Annotated[
        str,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on. Without a token only a local one."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="PORT", help="Port to listen on; 0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help=f"File with the token that clients must send. The variable {TOKEN} can hold the token instead.",
        ),
    ] = None,
    monitor: Annotated[
        bool,
        typer.Option(
            "--monitor/--no-monitor", help="Keep recent history and accuracy of every series, in a file beside --state."
        ),
    ] = True,
    max_rows: Annotated[
        int, typer.Option("--max-rows", metavar="ROWS", help="Most rows that a request may have.")
    ] = 100_000,
    max_bytes: Annotated[
        int, typer.Option("--max-bytes", metavar="BYTES", help="Most bytes that a request may have.")
    ] = 32 * 2**20,
    max_connections: Annotated[
        int, typer.Option("--max-connections", metavar="N", help="Most connections at a time.")
    ] = 512,
    workers: Annotated[
        int,
        typer.Option(
            "--workers", metavar="N", help="Processes that share the port; several need --state postgresql://."
        ),
    ] = 1,
    correctable_steps: Annotated[
        int | None,
        typer.Option(
            "--correctable-steps",
            metavar="STEPS",
            show_default="as in --state, 7 in a new one",
            help="How many of the latest steps of a series late rows can correct. Fixed when --state is created.",
        ),
    ] = None,
    accelerator: shared_options.Accelerator = "auto",
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Serve observations and forecasts over HTTP, with a dashboard at / and the endpoints at /docs.

    Ctrl-C or a termination signal ends the service after the current requests are answered. Failures and requests are
    logged to standard error, with --json as JSON.
    """
    names = flags("host", "port", "max_rows", "max_bytes", "max_connections", "workers", "correctable_steps")
    names |= flags("accelerator")
    with screen(as_json, debug=debug, names=names) as show:
        try:
            from aru.serve.options import Options
            from aru.serve.server import serve as run
            from aru.serve.workers import Work, serve_together
            from aru.store.address import name_of
        except ImportError as error:
            raise ConfigError(
                f"aru serve needs more packages ({verbatim(error)})", "Install them: pip install 'aru-forecast[serve]'."
            ) from error
        told = Beforehand(h, freq, season_length, futr_exog, hist_exog, stat_exog, country)
        load = choose_model(model, pretrained, accelerator, told)
        token = _token(token_file)
        chosen = Options(
            host, port, token, max_rows, max_bytes, monitor, max_connections, json_log=as_json, workers=workers
        )

        def started(address: str) -> None:
            name = model or pretrained
            show.result({"address": address, "model": name, "state": name_of(state)})
            show.say(f"Serving {name} at {address}, states in {name_of(state)}. Ctrl-C ends it.")

        if workers > 1:
            serve_together(Work(load, state, chosen, correctable_steps), started)
        else:
            run(load, state, chosen, started, correctable_steps)


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN) or None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise StorageError(f"{verbatim(path)} cannot be read: {verbatim(reason)}") from error
