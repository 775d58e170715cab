"""The paper's tables and more: choose configurations on validation windows, then run the grid.

    python -m experiments select --out experiments/results/selection.csv --jobs 16 --budget-seconds 540
    python -m experiments choose --selection experiments/results/selection.csv
    python -m experiments run --out experiments/results/runs.csv --jobs 16 --budget-seconds 540

`select` and `run` compute what their file lacks, and can be stopped and repeated at any time.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from experiments.candidates import CHOICES, selection_jobs, write_choices
from experiments.evaluate import Job
from experiments.grid import grid
from experiments.runner import read_keys, run_all


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    for name, about in (("run", "rows of the grid"), ("select", "candidates on validation windows")):
        command = commands.add_parser(name, help=about)
        command.add_argument("--out", type=Path, required=True, help="CSV file; rows that it has are not repeated")
        command.add_argument("--jobs", type=int, default=1, help="processes side by side")
        command.add_argument("--budget-seconds", type=float, default=math.inf, help="stop then, whatever still runs")
        for option in ("--dataset", "--protocol", "--method", "--variant"):
            command.add_argument(option, nargs="+", help="only these")
        command.add_argument("--seeds", type=int, default=3 if name == "run" else 2, help="how many, from 0")
        command.add_argument("--steps", type=int, help="other numbers of training steps, for a quick look")
        command.add_argument("--series", type=int, help="the first few series only, for a quick look")
        command.add_argument("--list", action="store_true", help="show what is missing, and stop")
    command = commands.add_parser("choose", help=f"write {CHOICES.name} from the rows of select")
    command.add_argument("--selection", type=Path, required=True)
    options = parser.parse_args(arguments)
    if options.command == "choose":
        write_choices(options.selection)
        return
    jobs = grid(range(options.seeds)) if options.command == "run" else selection_jobs(options.seeds)
    jobs = [_quick(job, options) for job in jobs if _wanted(job, options)]
    if options.list:
        done = read_keys(options.out)
        missing = [job for job in jobs if job.key not in done]
        for job in missing:
            print(*job.key, job.settings, f"{job.expected_seconds:.0f} s", sep=" | ")
        print(f"{len(missing)} of {len(jobs)}, about {sum(j.expected_seconds for j in missing) / 60:.0f} minutes in all")
        return
    run_all(jobs, options.out, options.jobs, options.budget_seconds)


def _wanted(job: Job, options: argparse.Namespace) -> bool:
    names = ("dataset", "protocol", "method", "variant")
    return all(not getattr(options, name) or getattr(job, name) in getattr(options, name) for name in names)


def _quick(job: Job, options: argparse.Namespace) -> Job:
    settings = {**job.settings, "max_steps": options.steps} if options.steps else job.settings
    return dataclasses.replace(job, settings=settings, series=options.series)


if __name__ == "__main__":
    main()
