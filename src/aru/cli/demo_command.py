"""`aru demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aru.cli import shared_options
from aru.cli.screen import screen


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the report.")] = Path(
        "aru-demo"
    ),
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the trainings.")] = 0,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Forecast daily flights from New York, with and without adaptation, and write a report.

    Trains on most routes, then streams the rest of the year day by day, with routes that training never saw.
    """
    with screen(as_json, debug=debug) as show:
        from aru import demo as flights

        report = flights.run(output, seed=seed, console=show.err if as_json else show.out)
        show.result({"report": report})
