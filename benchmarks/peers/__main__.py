"""List peers, set up their environments, run them and write one row per run."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aru.errors import AruError
from benchmarks.peers import environments
from benchmarks.peers.environments import OWN, PeerError
from benchmarks.peers.exchange import run_peer
from benchmarks.peers.registry import PEERS
from benchmarks.peers.results import Key, append, make_row, read_keys
from benchmarks.peers.task import Task, make_task, sample
from experiments.data import DATASETS, Dataset
from experiments.provenance import commit

SEASONS = {"rossmann": 6}  # open days of a week: consecutive rows have no season of their own


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status says whether everything succeeded."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(arguments)
    options.line = shlex.join(["python", "-m", "benchmarks.peers", *arguments])
    try:
        return int(options.action(options))
    except AruError as error:
        print(error, file=sys.stderr)
        return 2


def list_peers(options: argparse.Namespace) -> bool:
    """Print the peers, their environments, and whether these are ready."""
    for peer in PEERS.values():
        state = "ready" if environments.is_ready(peer.group) else "not set up"
        print(f"{peer.name:<16} {peer.group:<8} {state:<11} {peer.about}")
    print(f"environments under {environments.cache()}")
    return False


def setup(options: argparse.Namespace) -> bool:
    """Create the environments of the named peers, or of all."""
    unknown = sorted(set(options.peers) - set(PEERS))
    if unknown:
        raise PeerError(f"There is no peer {', '.join(unknown)}", f"Choose from {', '.join(PEERS)}.")
    for group in sorted({PEERS[name].group for name in options.peers or PEERS} - {OWN}):
        started = time.perf_counter()
        print(f"{group}: {environments.cache() / group}", flush=True)
        environments.setup(group, options.torch)
        print(f"{group}: ready after {time.perf_counter() - started:.0f} s", flush=True)
    return False


def run(options: argparse.Namespace) -> bool:
    """Run what is not in the result file yet; true if a run failed."""
    data = DATASETS[options.dataset]()
    tasks: dict[int | None, Task] = {}
    done = read_keys(options.out)
    failed = False
    for peer in (PEERS[name] for name in options.peers):
        limit = min((n for n in (options.series, peer.max_series) if n), default=None)
        if limit not in tasks:
            tasks[limit] = _task(options, data, limit)
        task = tasks[limit]
        steps = (options.steps or peer.steps) if peer.steps else 0
        windows, step_size = len(task.cutoffs.columns), options.step_size or task.h
        for seed in options.seeds:
            key = Key(options.dataset, peer.name, seed, steps, windows, step_size, len(task.ids))
            if key in done:
                print(f"{peer.name}, seed {seed}: already in {options.out}", flush=True)
                continue
            revision = commit()  # of the code that the worker is about to read
            try:
                outcome = run_peer(peer, task, seed=seed, steps=steps, accelerator=options.accelerator)
            except PeerError as error:
                failed = True
                print(f"FAILED: {error}", file=sys.stderr, flush=True)
                continue
            row = make_row(key, outcome, revision, options.line)
            append(options.out, row)
            if options.frames:
                options.frames.mkdir(parents=True, exist_ok=True)
                outcome.frame.to_parquet(options.frames / key.file_name)
            seconds = row["train_seconds"] + row["predict_seconds"]
            scored = f"ND {row['nd']}, RMSE {row['rmse']}, coverage {row['coverage90'] or 'none'}"
            print(f"{peer.name}, seed {seed}: {scored}, {seconds:.0f} s", flush=True)
    return failed


def _task(options: argparse.Namespace, data: Dataset, limit: int | None) -> Task:
    """The windows asked for, by default those that fill the test rows."""
    step_size = options.step_size or data.settings["h"]
    windows = options.windows or 1 + (data.test_size - data.settings["h"]) // step_size
    df = sample(data.df, limit)
    return make_task(df, data.static, data.settings, windows, step_size, SEASONS.get(options.dataset))


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("list", help="peers, their environments, and whether these are set up")
    command.set_defaults(action=list_peers)
    command = commands.add_parser("setup", help="create the environments of some peers, or of all")
    command.add_argument("peers", nargs="*", metavar="peer", help=", ".join(PEERS))
    command.add_argument("--torch", default=environments.TORCH, help="version of torch, where one is needed")
    command.set_defaults(action=setup)
    command = commands.add_parser("run", help="forecast, score, and append one row per run")
    command.add_argument("--dataset", required=True, choices=list(DATASETS))
    command.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    command.add_argument("--windows", type=_positive, help="rolling windows; by default those of the test rows")
    command.add_argument("--step-size", type=_positive, help="rows between cutoffs; by default the horizon")
    command.add_argument("--series", type=_positive, help="a fixed sample of at most this many series")
    command.add_argument("--seeds", type=int, nargs="+", default=[0])
    command.add_argument("--steps", type=_positive, help="training steps (or trees) instead of each peer's own number")
    command.add_argument("--accelerator", default="auto", choices=["auto", "cpu", "gpu"])
    command.add_argument("--out", type=Path, required=True, help="CSV file; runs that it has are skipped")
    command.add_argument("--frames", type=Path, help="folder for the forecasts, one Parquet file per run")
    command.set_defaults(action=run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
