"""The paper's tables and more: choose configurations on validation windows, then run the grid.

    python -m experiments select --out experiments/results/selection.csv --jobs 16 --budget-seconds 540
    python -m experiments choose --selection experiments/results/selection.csv
    python -m experiments run --out experiments/results/runs.csv --jobs 16 --budget-seconds 540
    python -m experiments peers --out experiments/results/runs.csv
    python -m experiments curves --out experiments/results/curves.csv --jobs 16 --budget-seconds 540
    python -m experiments forecasts --out experiments/results/forecasts.csv --jobs 2
    python -m experiments timing --out experiments/results/timing.csv
    python -m experiments zeroshot
    python -m experiments learning --jobs 16
    python -m experiments defaults --jobs 16

All but `choose` compute what their file lacks, and can be stopped and repeated at any time. After another choice
`python -m experiments prune --runs experiments/results/runs.csv` removes the rows of the former one.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.candidates import CHOICES, selection_jobs, write_choices
from experiments.curves import curves
from experiments.defaults import defaults
from experiments.forecasts import forecasts
from experiments.grid import grid
from experiments.learning import lessons
from experiments.peers import peers
from experiments.runner import key_of, missing, run_all
from experiments.tables import prune
from experiments.timing import timings
from experiments.zeroshot import forget_other_weights, zero_shots

GRID = ("dataset", "protocol", "method", "variant")
CURVES = ("experiment", "dataset", "method", "variant")
LEARNING = ("part", "dataset", "protocol", "method")
RESULTS = Path(__file__).parent / "results"
DEFAULTS = {name: RESULTS / f"{name}.csv" for name in ("zeroshot", "learning", "defaults")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    for name, about, seeds, filters in (
        ("select", "candidates on validation windows", 2, GRID),
        ("run", "rows of the grid", 3, GRID),
        ("curves", "cold starts, breaks, calibration, synthetic series", 3, CURVES),
        ("forecasts", "forecasts of single shops, for a picture", 1, ("dataset", "method")),
        ("peers", "rows of the grid for other libraries, in environments of their own (docs/peers.md)", 3, GRID),
        ("timing", "seconds of an update and of a forecast; keep --jobs 1", 1, ("dataset", "method")),
        ("zeroshot", "pretrained networks; rows of former weights are removed", 3, CURVES[:3]),
        ("learning", "what pretrained models learn in closed form; rows of former weights are removed", 3, LEARNING),
        ("defaults", "every panel with the defaults", 3, GRID[:3]),
    ):
        command = commands.add_parser(name, help=about)
        own = {"default": DEFAULTS[name]} if name in DEFAULTS else {"required": True}
        command.add_argument("--out", type=Path, **own, help="CSV file; rows that it has are not repeated")
        command.add_argument("--jobs", type=int, default=1, help="processes side by side")
        command.add_argument("--budget-seconds", type=float, default=86400.0, help="stop then, whatever still runs")
        for option in filters:
            command.add_argument(f"--{option}", nargs="+", help="only these")
        command.add_argument("--seeds", type=int, default=seeds, help="how many, from 0")
        command.add_argument("--steps", type=int, help="other numbers of training steps, for a quick look")
        command.add_argument("--series", type=int, help="the first few series only, for a quick look")
        command.add_argument("--list", action="store_true", help="show what is missing, and stop")
    command = commands.add_parser("choose", help=f"write {CHOICES.name} from the rows of select")
    command.add_argument("--selection", type=Path, required=True)
    command = commands.add_parser("prune", help="remove rows of former choices from the file of run")
    command.add_argument("--runs", type=Path, required=True)
    options = parser.parse_args(arguments)
    if options.command == "choose":
        write_choices(options.selection)
        return
    if options.command == "prune":
        print(f"{prune(options.runs)} rows removed")
        return
    make = {
        "select": selection_jobs,
        "run": grid,
        "curves": curves,
        "forecasts": forecasts,
        "peers": peers,
        "timing": timings,
        "zeroshot": zero_shots,
        "learning": lessons,
        "defaults": defaults,
    }
    if options.command in ("zeroshot", "learning"):
        forget_other_weights(options.out)
    quick = {k: v for k, v in (("steps", options.steps), ("series", options.series)) if v}
    jobs = [
        dataclasses.replace(job, **quick)
        for job in make[options.command](range(options.seeds))
        if _wanted(job, options)
    ]
    if options.list:
        left = missing(jobs, options.out)
        for job in left:
            print(*key_of(job), f"{job.expected_seconds:.0f} s", sep=" | ")
        print(f"{len(left)} of {len(jobs)}, about {sum(j.expected_seconds for j in left) / 60:.0f} minutes in all")
        return
    run_all(jobs, options.out, options.jobs, options.budget_seconds)


def _wanted(job: Any, options: argparse.Namespace) -> bool:
    given = {name: getattr(options, name, None) for name in {*GRID, *CURVES, *LEARNING}}
    return all(getattr(job, name) in values for name, values in given.items() if values)


if __name__ == "__main__":
    main()
