"""Attacks on the whole of aru. `make torture` runs the large ones; the suite runs the small ones (`test_small.py`).

Every module here has a list `ATTACKS` of `Attack`: a name, a function, a small and a large size. The function takes a
size and returns an `Outcome`: attempts, failures and a note. To raise is to fail. Attacks that need what a machine may
not have raise `unittest.SkipTest` with the reason. Slow ones are kept out of `make test` at their small size, too.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple


class Outcome(NamedTuple):
    """What came of an attack."""

    attempts: int
    failures: int
    note: str


class Attack(NamedTuple):
    """Something to survive, and how hard to try."""

    name: str
    run: Callable[[int], tuple[int, int, str]]
    small: int
    large: int
    slow: bool = False


def modules() -> list[ModuleType]:
    """The modules of this folder that have attacks."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    loaded = [
        importlib.import_module(f"{__name__}.{n}") for n in names if n != "__main__" and not n.startswith("test_")
    ]
    return [module for module in loaded if hasattr(module, "ATTACKS")]


def attacks(module: ModuleType) -> list[Attack]:
    """The attacks of a module."""
    return [Attack(*attack) for attack in module.ATTACKS]
