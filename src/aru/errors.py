"""Every error that aru raises on purpose.

    AruError
    ├── InputError (ValueError)        the data handed in cannot be used
    │   ├── ColumnError                a column is missing or has the wrong type
    │   ├── DuplicateError             the same series and time twice
    │   ├── ValueRangeError            infinite or impossible values, or no value at all
    │   ├── FrequencyError             timestamps do not lie on the grid of `freq`
    │   ├── FutureError                known-future covariates are missing for the horizon
    │   ├── LateError                  rows at or before what a series has already seen
    │   ├── UnknownSeriesError         a series that was never observed
    │   └── TooLittleDataError         not enough rows to train or to evaluate
    ├── ConfigError (ValueError)       a setting is wrong or does not fit another
    ├── NotFittedError (RuntimeError)  forecast or save before fit
    ├── StorageError (RuntimeError)    a saved model or a data file cannot be read or written
    └── NumericalError (ArithmeticError)  a solve failed; names the series

    AruWarning (UserWarning)           something was contained and is reported

An error has a problem, a remedy, and the columns and rows that it is about. In problem and remedy, backticks mark the
library's own names of tables and arguments: `new_df`, `late='skip'`. The command line and the service put their own
names in their place; a Python user reads them without the backticks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SHOWN = 5  # rows or names in a message
_NAME = re.compile("`([^`]*)`")


def reword(text: str, name: Callable[[str], str] = str) -> str:
    """The text with every name between backticks replaced by what `name` makes of it."""
    return _NAME.sub(lambda found: name(found[1]), text)


class Offending:
    """The rows that an error is about: the first few of them by column, and how many there are."""

    def __init__(self, columns: Mapping[str, Sequence[Any]], total: int | None = None) -> None:
        self.columns = {name: list(values) for name, values in columns.items()}
        given = len(next(iter(self.columns.values()), []))
        self.total = given if total is None else total

    def __len__(self) -> int:
        return self.total

    def __str__(self) -> str:
        keys = list(zip(*(self.columns[name] for name in ("unique_id", "ds") if name in self.columns), strict=True))
        head = [f"({', '.join(map(str, key))})" if len(key) > 1 else str(key[0]) for key in keys[:SHOWN]]
        if "row" in self.columns:
            head = [f"{key} in row {row}" for key, row in zip(head, self.columns["row"], strict=False)]
        return ", ".join(head) + (f" and {self.total - SHOWN} more" if self.total > SHOWN else "")


class AruError(Exception):
    """Base of all errors that aru raises on purpose.

    Args:
        problem: What is wrong, a sentence without its full stop.
        remedy: What to do about it, whole sentences.
        columns: The columns that it is about.
        rows: The rows that it is about.
    """

    def __init__(
        self, problem: str, remedy: str = "", *, columns: Sequence[str] = (), rows: Offending | None = None
    ) -> None:
        super().__init__(problem, remedy)
        self.problem, self.remedy, self.columns, self.rows = problem, remedy, tuple(columns), rows

    def __str__(self) -> str:
        return self.worded()

    def worded(self, name: Callable[[str], str] = str) -> str:
        """Problem and remedy in one text, with another name for every table and argument."""
        return reword(f"{self.problem}. {self.remedy}".strip(), name)


class InputError(AruError, ValueError):
    """The data handed in cannot be used."""


class ColumnError(InputError):
    """A column is missing or has the wrong type."""


class DuplicateError(InputError):
    """The same series and time occur more than once."""


class ValueRangeError(InputError):
    """Infinite or impossible values, or a series without any value."""


class FrequencyError(InputError):
    """Timestamps do not lie on the grid of `freq`."""


class FutureError(InputError):
    """Known-future covariates are missing for the horizon."""


class LateError(InputError):
    """Rows lie at or before what a series has already seen; `rows` has the reason of each."""


class UnknownSeriesError(InputError):
    """A series that was never observed."""


class TooLittleDataError(InputError):
    """There are not enough rows to train or to evaluate."""


class ConfigError(AruError, ValueError):
    """A setting is wrong or does not fit another one."""


class NotFittedError(AruError, RuntimeError):
    """A forecast, an update or a save was asked for before `fit`."""


class StorageError(AruError, RuntimeError):
    """A saved model or a store cannot be read or written."""


class NumericalError(AruError, ArithmeticError):
    """A closed-form solve failed; the message names the series."""


class AruWarning(UserWarning):
    """Something went wrong, was contained, and is reported here. Its text is marked up as those of errors are."""

    def __str__(self) -> str:
        return self.worded()

    def worded(self, name: Callable[[str], str] = str) -> str:
        """The text with another name for every table and argument."""
        return reword(str(self.args[0]), name)


def listing(items: Sequence[object], shown: int = SHOWN) -> str:
    """The first few items, and how many more there are."""
    head = ", ".join(str(item) for item in items[:shown])
    more = len(items) - shown
    return f"{head} and {more} more" if more > 0 else head
