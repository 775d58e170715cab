"""Something to ask questions about: it runs in the process of a version, as the benchmarks' own classes do."""

from __future__ import annotations

import os
import sys


class Counter:
    """Counts from a number on."""

    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, step: int) -> list[int]:
        sys.stdout.write("what a library prints is no answer\n")
        self.value += step
        return [self.value, os.getpid()]
