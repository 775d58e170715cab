"""The command line: `aru fit | predict | future | update | backtest | serve | rollout | spark | models | state | ...`.

Bad input ends a command with exit code 2 and one line on stderr; with --json stdout has the same as a JSON object.
torch and pandas are imported only when a command needs them, so that help appears at once.
"""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from aru.cli.catalogue_commands import datasets, models
from aru.cli.demo_command import demo
from aru.cli.fit_command import fit
from aru.cli.future_commands import future, predict
from aru.cli.model_commands import backtest, update
from aru.cli.rollout_commands import app as rollout
from aru.cli.serve_command import serve
from aru.cli.shared_options import help_of
from aru.cli.spark_command import spark
from aru.cli.state_commands import app as state

app = typer.Typer(
    name="aru",
    help="Forecast many related series with one global model that adapts to every new observation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command, example in (
    (fit, "aru fit sales.csv model --h 14 --freq D --futr-exog promo"),
    (predict, "aru predict model --futr next-weeks.csv --level 90 --output forecasts.csv"),
    (future, "aru future model --output next-weeks.csv"),
    (update, "aru update model today.csv"),
    (backtest, "aru backtest model sales.csv --n-windows 8 --compare"),
    (serve, "aru serve model --state state.db"),
    (spark, "aru spark --input sales --output forecasts --checkpoint checkpoint --model model"),
    (demo, "aru demo --output aru-demo"),
    (models, "aru models --json"),
    (datasets, "aru datasets --data-dir data"),
):
    app.command(help=help_of(command), epilog=f"Example: {example}")(command)
app.add_typer(state)
app.add_typer(rollout)


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
