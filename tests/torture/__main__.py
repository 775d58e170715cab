"""`make torture`: every attack at its large size, one table on the terminal and in docs/torture.md.

python -m tests.torture                  all of them
python -m tests.torture kills bodies     only these modules; nothing is written
python -m tests.torture --small          the sizes of the suite; nothing is written
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time
import traceback
import unittest
import warnings
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from aru.errors import AruWarning
from tests.torture import Attack, Outcome, attacks, modules

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "torture.md"
INTRODUCTION = """# Attacks

What `make torture` tried, and what came of it. Each attack is a function in `tests/torture/`; the suite runs the same
functions at a small size. A failure is anything but the promised behaviour: a lost or doubled row, a forecast that is
not finite, an answer that is not documented, a script that ran.
"""


class Result(NamedTuple):
    """A row of the table."""

    name: str
    outcome: Outcome | None  # None if it could not run
    note: str
    seconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        """As text."""
        counts = (
            ("not run", "") if self.outcome is None else (f"{self.outcome.attempts:,}", f"{self.outcome.failures:,}")
        )
        return (self.name, *counts, f"{self.seconds:.0f}", self.note)


HEADINGS = ("attack", "attempts", "failures", "seconds", "note")


def carry_out(attack: Attack, size: int) -> Result:
    """Run one attack. Whatever it raises is a failure."""
    began = time.perf_counter()
    try:
        outcome = Outcome(*attack.run(size))
        note = outcome.note
    except unittest.SkipTest as reason:
        outcome, note = None, str(reason)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        traceback.print_exc()
        outcome, note = Outcome(1, 1, ""), " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return Result(attack.name, outcome, note.replace("|", "/"), time.perf_counter() - began)


def machine() -> str:
    """In words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GB of memory, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


def commit() -> str:
    """The commit that was attacked, and whether anything had been changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain", "-uno") else "")


def page(results: list[Result]) -> str:
    """The committed table."""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    minutes = sum(result.seconds for result in results) / 60
    rows = [HEADINGS, ("---", "---:", "---:", "---:", "---"), *(result.cells for result in results)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    return f"{INTRODUCTION}\n{today}, commit {commit()}; {machine()}; {minutes:.0f} minutes.\n\n{table}\n"


def main() -> int:
    """Run the attacks; the exit code is 1 if one of them succeeded."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Attack aru.")
    parser.add_argument("modules", nargs="*", help="only the attacks of these modules")
    parser.add_argument("--small", action="store_true", help="the sizes of the suite")
    asked = parser.parse_args()
    found = {module.__name__.rpartition(".")[2]: module for module in modules()}
    unknown = sorted(set(asked.modules) - set(found))
    if unknown:
        parser.error(f"there is no module {', '.join(unknown)}; choose from {', '.join(found)}")
    console, results = Console(soft_wrap=True, highlight=False), []
    warnings.simplefilter("ignore", AruWarning)  # attacks train for a few steps, and send what is warned about
    for name in asked.modules or found:
        for attack in attacks(found[name]):
            result = carry_out(attack, attack.small if asked.small else attack.large)
            console.print(" | ".join(result.cells), markup=False)
            results.append(result)
    text = page(results)
    if not asked.modules and not asked.small:
        PAGE.write_text(text, encoding="utf-8")
        console.print(f"Wrote {PAGE.relative_to(ROOT)}")
    console.print(text[len(INTRODUCTION) :], markup=False)
    return int(any(result.outcome is not None and result.outcome.failures for result in results))


if __name__ == "__main__":
    sys.exit(main())
