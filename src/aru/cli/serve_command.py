"""`aru serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from aru.cli import shared_options
from aru.cli.saved_model import Beforehand, choose_models, models_in
from aru.cli.screen import screen
from aru.cli.wording import flags
from aru.errors import ConfigError, StorageError, quoted, verbatim

if TYPE_CHECKING:
    from aru.serve.options import TokenScope

TOKEN = "ARU_TOKEN"
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def serve(
    state: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="STORE",
            help="SQLite file of the states, created on first use, or a folder of such files for a folder of models; "
            "or a PostgreSQL database, postgresql://user@host/name.",
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            show_default=False,
            help="Folder of a model, or a folder of such folders: each is served under its name.",
        ),
    ] = None,
    default: Annotated[
        str | None,
        typer.Option(
            "--default",
            metavar="NAME",
            show_default="the first one",
            help="Of several models: the one that answers where requests name none.",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="TIME",
            show_default="as in --state, off in a new one",
            help="Keep the rows that are taken in for this long (400d, 48h; 0: not at all), so that new versions of a "
            "model can be trained and brought in.",
        ),
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
            help="File with the token that clients must send, or with several: one a line, after its scope (read, "
            f"write or admin) and a blank. The variable {TOKEN} can hold a token instead.",
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
    names = flags("host", "port", "max_rows", "max_bytes", "max_connections", "workers", "correctable_steps", "keep")
    names |= flags("accelerator")
    with screen(as_json, debug=debug, names=names) as show:
        try:
            from aru.serve.options import Options
            from aru.serve.server import Work
            from aru.serve.server import serve as run
            from aru.serve.workers import serve_together
            from aru.store.address import name_of
        except ImportError as error:
            raise ConfigError(
                f"aru serve needs more packages ({verbatim(error)})", "Install them: pip install 'aru-forecast[serve]'."
            ) from error
        told = Beforehand(h, freq, season_length, futr_exog, hist_exog, stat_exog, country)
        models = choose_models(model, pretrained, accelerator, told)
        chosen = Options(
            host,
            port,
            read_tokens(token_file),
            max_rows,
            max_bytes,
            monitor,
            max_connections,
            json_log=as_json,
            workers=workers,
            keep=None if keep is None else _seconds(keep),
            accelerator=accelerator,
        )
        work = Work(models, state, chosen, correctable_steps, default, by_name=bool(models_in(model)))

        def started(address: str) -> None:
            name = model or pretrained
            show.result({"address": address, "model": name, "models": list(models), "state": name_of(state)})
            many = "" if len(models) == 1 else f" ({', '.join(models)})"
            show.say(f"Serving {name}{many} at {address}, states in {name_of(state)}. Ctrl-C ends it.")

        (serve_together if workers > 1 else run)(work, started)


def _seconds(text: str) -> float:
    """A time such as 400d. Without a unit only 0 is one: days might be meant, and rows would soon be gone."""
    try:
        return float(text[:-1]) * UNITS[text[-1]] if text.strip() != "0" else 0.0
    except (KeyError, IndexError, ValueError):
        raise ConfigError(f"--keep {quoted(text)} is no time", "Give days or hours: 400d, 48h.") from None


def read_tokens(path: Path | None) -> dict[str, TokenScope]:
    """Tokens and their scopes. A token alone allows everything."""
    if path is None:
        alone = os.environ.get(TOKEN)
        return {alone: "admin"} if alone else {}
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if any(len(line) > 2 for line in lines):
            raise ConfigError(f"{verbatim(path)} has a line of more than a scope and a token", "Correct it.")
        if not lines:
            raise ConfigError(f"{verbatim(path)} has no token", "Write one into it.")
        wrong = [line[0] for line in lines if len(line) == 2 and line[0] not in ("read", "write", "admin")]
        if wrong:
            raise ConfigError(f"{quoted(wrong[0])} is no scope of a token", "Choose read, write or admin.")
        if len({line[-1] for line in lines}) < len(lines):
            raise ConfigError(f"{verbatim(path)} has a token twice", "Give each scope a token of its own.")
        return {line[-1]: cast("TokenScope", line[0] if len(line) == 2 else "admin") for line in lines}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise StorageError(f"{verbatim(path)} cannot be read: {verbatim(reason)}") from error
