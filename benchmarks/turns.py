"""Two versions of the library in turn, in one run: this checkout and an older one.

    python -m benchmarks.inference --old FOLDER     (and benchmarks.stream, benchmarks.update)

FOLDER is a checkout of an older commit (`git worktree add FOLDER COMMIT`). Each version works in a process of its own
that has its `src` first on the path; other libraries and the code of the benchmarks are the same. The parent asks them
for one round after the other, and each begins every second round: what else the machine does meets both.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from benchmarks.recording import RESULTS, write_table

ROOT = Path(__file__).resolve().parents[1]


class Clock(NamedTuple):
    """Wall and CPU seconds of a piece of work."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> Clock:
        """Do it."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - wall, time.process_time() - cpu)

    def __add__(self, other: Any) -> Clock:
        return Clock(self.wall + other.wall, self.cpu + other.cpu)


Times = dict[str, list[Clock]]  # of each round, by version


class Side(Protocol):
    """One version of the library, with the thing that it is asked to work on."""

    def make(self, kind: str, *arguments: Any) -> None:
        """Build an instance of a class of the benchmark; it takes the place of the one before."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of that instance."""


class Here:
    """The version that this process has imported."""

    def __init__(self, module: str) -> None:
        self._module = importlib.import_module(module)
        self._thing: Any = None

    def make(self, kind: str, *arguments: Any) -> None:
        self._thing = None  # memory of the one before
        self._thing = getattr(self._module, kind)(*arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._thing, method)(*arguments)


class There:
    """A version in a process of its own: one line of JSON for each question and each answer."""

    def __init__(self, module: str, checkout: Path, threads: int) -> None:
        source = checkout.resolve() / "src"
        if not (source / "aru").is_dir():
            raise SystemExit(f"{checkout} is no checkout of aru: there is no {source / 'aru'}")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.turns", module, str(threads)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        imported = self._ask("imported")
        if not Path(imported).is_relative_to(source):
            raise SystemExit(f"asked for the version in {source}, got {imported}")

    def make(self, kind: str, *arguments: Any) -> None:
        self._ask("make", kind, *arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        return self._ask("call", method, *arguments)

    def close(self) -> None:
        self._process.communicate()  # no more questions

    def _ask(self, *question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the process of {question} ended, see above")
        return json.loads(answer)


@contextmanager
def sides(module: str, old: Path | None, threads: int) -> Iterator[dict[str, Side]]:
    """The versions to measure by name: this one alone, or an older one and this one, each in its process."""
    if old is None:
        torch.set_num_threads(threads)
        yield {"new": Here(module)}
        return
    with ExitStack() as stack:
        found: dict[str, Side] = {}
        for name, checkout in (("old", old), ("new", ROOT)):
            side = There(module, checkout, threads)
            stack.callback(side.close)
            found[name] = side
        yield found


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """All names, beginning with another one at every turn."""
    at = turn % len(names)
    return [*names[at:], *names[:at]]


def compare(times: Times, each: int = 1) -> dict[str, float]:
    """Median microseconds of a series in both versions, and new relative to old: the median over pairs of rounds.

    The first round of each warms up. `cpu_ratio` is that of CPU time, which other work on the machine changes less.
    """
    medians = {
        f"{name}_us": round(1e6 * statistics.median(clock.wall for clock in times[name][1:]) / each, 2)
        for name in ("old", "new")
    }
    pairs = list(zip(times["new"][1:], times["old"][1:], strict=True))
    ratios = [statistics.median(new[kind] / old[kind] for new, old in pairs) for kind in (0, 1)]
    return {**medians, "ratio": round(ratios[0], 3), "cpu_ratio": round(ratios[1], 3)}


def write_comparison(benchmark: str, old: Path, threads: int, rows: Sequence[dict[str, Any]], out: Path | None) -> None:
    """Write results/BENCHMARK-turns.csv, or `out`: both versions, their ratio, and which versions they are."""
    command = ["git", "-C", str(old), "rev-parse", "--short", "HEAD"]
    revision = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    known = [{**row, "threads": threads, "old_commit": revision} for row in rows]
    write_table(out or RESULTS / f"{benchmark}-turns.csv", known)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What all benchmarks that run in turn can be told."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--old", type=Path, metavar="FOLDER", help="measure this older checkout as well, in turn")
    parser.add_argument("--quick", action="store_true", help="few series and rounds: does it work?")
    parser.add_argument("--out", type=Path, help="another result file")


def main() -> None:
    """Answer the parent's questions until there are no more."""
    module, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    torch.set_num_threads(int(threads))
    import aru

    side = Here(module)
    for line in sys.stdin:
        question, *arguments = json.loads(line)
        answer = str(aru.__file__) if question == "imported" else getattr(side, question)(*arguments)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
