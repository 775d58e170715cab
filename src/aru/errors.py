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

A message says what is wrong, shows the first offending rows and ends with what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SHOWN = 5


class AruError(Exception):
    """Base of all errors that aru raises on purpose."""


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
    """Rows lie at or before what a series has already consumed; `rows` are their columns, with the reason."""

    def __init__(self, message: str, rows: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.rows = rows or {}


class UnknownSeriesError(InputError):
    """A series that was never observed."""


class TooLittleDataError(InputError):
    """There are not enough rows to train or to evaluate."""


class ConfigError(AruError, ValueError):
    """A setting is wrong or does not fit another one."""


class NotFittedError(AruError, RuntimeError):
    """A forecast, an update or a save was asked for before `fit`."""


class StorageError(AruError, RuntimeError):
    """A saved model cannot be read or written."""


class NumericalError(AruError, ArithmeticError):
    """A closed-form solve failed; the message names the series."""


class AruWarning(UserWarning):
    """Something went wrong, was contained, and is reported here."""


def listing(items: Sequence[object], shown: int = SHOWN) -> str:
    """The first few items, and how many more there are."""
    head = ", ".join(str(item) for item in items[:shown])
    more = len(items) - shown
    return f"{head} and {more} more" if more > 0 else head
