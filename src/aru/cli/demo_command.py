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
    """Forecast daily flights from New York beside seasonal naive, LightGBM and a baseline, and write a report.

    Zero-shot first, then fitted; then the autumn day by day, with routes never seen and a level shift.
    """
    with screen(as_json, debug=debug) as show:
        from aru import demo as flights

        report = flights.run(output, seed=seed, console=show.err if as_json else show.out)
        show.result({"report": report})
