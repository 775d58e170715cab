"""Every error that aru raises on purpose.

    AruError
    ├── InputError (ValueError)        the data handed in cannot be used
    │   ├── ColumnError                a column is missing or has the wrong type
    │   ├── DuplicateError             the same series and time twice
    │   ├── ValueRangeError            infinite or impossible values, or no value at all
    │   ├── FrequencyError             timestamps do not lie on the grid of `freq`
    │   ├── FutureError                known-future covariates are missing for the horizon
    │   ├── LateError                  rows at or before the latest time of their series
    │   ├── JumpError                  rows far from all others in time
    │   ├── UnknownSeriesError         a series that was never observed
    │   └── TooLittleDataError         not enough rows to train or to evaluate
    ├── ConfigError (ValueError)       a setting is wrong or does not fit another
    ├── NotFittedError (RuntimeError)  forecast or save before fit
    ├── StorageError (RuntimeError)    a saved model or a data file cannot be read or written
    └── NumericalError (ArithmeticError)  a solve failed; names the series

    AruWarning (UserWarning)           a problem that did not stop the call

An error has a problem, a remedy, and the columns and rows concerned. In problem and remedy, backticks mark the
library's names of tables and arguments: `df`, `late='skip'`. The command line and the service replace them by
their own names; for Python users only the backticks are removed. Text from users (ids, columns, values, files) may
contain backticks: it must be put into a message by `verbatim`, `quoted` or `listing`, or as `Offending` rows.

The columns of series, time and target are marked, too: `unique_id`, `ds`, `y`. Inside of `speaking_of` errors and
warnings call them as the user does.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from types import MappingProxyType
from typing import Any

SHOWN = 5  # rows or names in a message
REPORTED = 100  # rows that an error carries
_NAME = re.compile("`([^`]*)`")
_BACKTICK = "\ufdd0"  # stands for a user's backtick; Unicode keeps this code free of any character
_called: ContextVar[Mapping[str, str]] = ContextVar("called", default=MappingProxyType({}))  # columns, by users


@contextlib.contextmanager
def speaking_of(columns: Mapping[str, str]) -> Iterator[None]:
    """Meanwhile errors and warnings call columns by the names that users have for them: {"unique_id": "store"}."""
    token = _called.set(columns)
    try:
        yield
    finally:
        _called.reset(token)


def called_as(column: str) -> str:
    """The name that users have for a column."""
    return _called.get().get(column, column)


def _as_called(text: str) -> str:
    """A text with marks, in which columns have the user's names."""
    called = _called.get()
    return _NAME.sub(lambda found: verbatim(called[found[1]]) if found[1] in called else found[0], text)


def reword(text: str, name: Callable[[str], str] = str) -> str:
    """The text with every name between backticks replaced by `name` of it. Backticks of users are kept."""
    return _NAME.sub(lambda found: name(found[1]), text).replace(_BACKTICK, "`")


def verbatim(value: object) -> str:
    """A user's value for a message, with its backticks protected from `reword`."""
    return as_text(value).replace("`", _BACKTICK)


def quoted(value: object) -> str:
    """The same as Python writes it, with quotation marks around text."""
    return verbatim(repr(value))


def as_text(value: object) -> str:
    """A value for people to read: a time without its time of day where that is midnight."""
    return str(value).removesuffix(" 00:00:00") if isinstance(value, datetime) else str(value)


class Offending:
    """The rows that an error concerns: the first few of them by column, and their number.

    Ids are strings or integers. Times are datetimes or integers, or the given values if they could not be read. `keys`
    are the columns of both.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]], total: int | None = None) -> None:
        called = _called.get()
        self.columns = {called.get(name, name): list(values) for name, values in columns.items()}
        self.keys = tuple(called.get(name, name) for name in ("unique_id", "ds"))
        given = len(next(iter(self.columns.values()), []))
        self.total = given if total is None else total

    def beside(self, columns: Mapping[str, Sequence[Any]]) -> Offending:
        """The same rows with more columns."""
        more = Offending(columns, self.total)
        more.columns = {**self.columns, **more.columns}
        return more

    def __len__(self) -> int:
        return self.total

    def __format__(self, spec: str) -> str:
        """The rows as part of a message."""
        return verbatim(self)

    def __str__(self) -> str:
        keys = list(zip(*(self.columns[name] for name in self.keys if name in self.columns), strict=True))
        head = [f"({', '.join(map(as_text, key))})" if len(key) > 1 else as_text(key[0]) for key in keys[:SHOWN]]
        if "row" in self.columns:
            head = [f"{key} in row {row}" for key, row in zip(head, self.columns["row"], strict=False)]
        return ", ".join(head) + (f" and {self.total - SHOWN} more" if self.total > SHOWN else "")


class AruError(Exception):
    """Base of all errors that aru raises on purpose.

    Args:
        problem: What is wrong, a sentence without its full stop.
        remedy: What to do about it, whole sentences.
        columns: The columns concerned.
        rows: The rows concerned.

    `problem` and `remedy` have the marks of names and of users' backticks; `reword` makes them readable.
    """

    def __init__(
        self, problem: str, remedy: str = "", *, columns: Sequence[str] = (), rows: Offending | None = None
    ) -> None:
        called, problem, remedy = _called.get(), _as_called(problem), _as_called(remedy)
        super().__init__(problem, remedy)
        self.problem, self.remedy, self.rows = problem, remedy, rows
        self.columns = tuple(called.get(column, column) for column in columns)

    def __str__(self) -> str:
        return self.worded()

    def worded(self, name: Callable[[str], str] = str) -> str:
        """Problem and remedy in one text, with tables and arguments renamed by `name`."""
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
    """Rows lie at or before the latest time of their series; `rows` has the reason for each."""


class JumpError(InputError):
    """Rows lie far ahead of all others in time, or far from the others of a history."""


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
    """A problem that did not stop the call. Backticks in its text mean the same as in errors."""

    def __str__(self) -> str:
        return self.worded()

    def worded(self, name: Callable[[str], str] = str) -> str:
        """The text with tables and arguments renamed by `name`."""
        return reword(str(self.args[0]), name)


def warn(text: str) -> None:
    """Warn at the line that called aru, whatever lies between."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "aru":
        level, frame = level + 1, frame.f_back
    warnings.warn(AruWarning(_as_called(text)), stacklevel=level)  # an instance: filters see it without backticks


def name_series(ids: Any) -> Offending:
    """Series for an error: the first ones of a list or array of ids, and their number."""
    return Offending({"unique_id": [i.item() if hasattr(i, "item") else i for i in ids[:REPORTED]]}, len(ids))


def listing(items: Sequence[object], shown: int = SHOWN) -> str:
    """The first few items for a message, and how many more there are."""
    head = ", ".join(map(verbatim, items[:shown]))
    more = len(items) - shown
    return f"{head} and {more} more" if more > 0 else head
