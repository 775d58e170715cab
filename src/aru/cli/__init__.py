"""The command line: `aru fit | predict | update | backtest | serve | spark | demo | models | datasets | state`.

Bad input ends a command with exit code 2 and one line on stderr. Nothing imports torch or pandas before a
command needs them, so that help appears at once.
"""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from aru.cli import commands, fitting, serving, spark, state

app = typer.Typer(
    name="aru",
    help="Forecast many related series with one global model that adapts to every new observation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command, example in (
    (fitting.fit, "aru fit sales.csv model --h 14 --freq D --futr promo"),
    (commands.predict, "aru predict model --futr next-weeks.csv --level 90 --output forecasts.csv"),
    (commands.update, "aru update model today.csv"),
    (commands.backtest, "aru backtest model sales.csv --windows 8 --compare"),
    (serving.serve, "aru serve model --state state.db"),
    (spark.spark, "aru spark --input sales --output forecasts --checkpoint checkpoint --model model"),
    (commands.demo, "aru demo --output aru-demo"),
    (commands.models, "aru models --json"),
    (commands.datasets, "aru datasets --data-dir data"),
):
    app.command(epilog=f"Example: {example}")(command)
app.add_typer(state.app)


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=lambda given: _version(given), help="Show the version."),
    ] = False,
) -> None:
    """Forecast many related series with one global model that adapts to every new observation."""


def main() -> None:
    """Run the command line."""
    app(prog_name="aru")


def _version(given: bool) -> bool:
    if given:
        # The running code's version: the package may be used without being installed.
        typer.echo(f"aru {importlib.import_module('aru').__version__}")
        raise typer.Exit
    return given
