"""Frozen dataclasses whose values are checked against the types of their fields.

Every settings class inherits from `CheckedFields`. `documentation` reads the description of each argument from a
docstring.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_type_hints

from aru.errors import ConfigError, quoted, verbatim


def check_alphas(alphas: Sequence[float]) -> None:
    """Refuse aging factors outside of (0, 1]."""
    if not alphas or not all(0 < a <= 1 for a in alphas):
        raise ConfigError(f"`alphas` must be one or more numbers in (0, 1], got {verbatim(alphas)}")


def check_freq(freq: str | int | None) -> None:
    """Refuse an integer step below 1. Offset aliases are checked where they are parsed."""
    if isinstance(freq, int) and freq < 1:
        raise ConfigError(f"An integer `freq` must be at least 1, got {freq}")


def check_whole(name: str, value: object, least: int) -> int:
    """`value` as an int; refuse anything but a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ConfigError(f"`{name}` must be a whole number of at least {least}, got {quoted(value)}")
    return int(value)


def check_least(name: str, value: int | None, least: int) -> None:
    """Refuse a number below `least`; None is allowed."""
    if value is not None and value < least:
        raise ConfigError(f"`{name}` must be a whole number of at least {least}, got {quoted(value)}")


def check_inside(name: str, value: float, low: float, high: float, open_end: bool = False) -> None:
    """Refuse a number outside of a range."""
    if not (low <= value < high if open_end else low <= value <= high):
        raise ConfigError(f"`{name}` must lie in [{low:g}, {high:g}{')' if open_end else ']'}, got {value}")


def _checked(name: str, kind: Any, value: Any) -> Any:
    """The value converted to the type of its field; an error if it does not fit."""
    one = _is_literal(kind) or _is_sequence(kind) or not get_args(kind)
    options = (kind,) if one else get_args(kind)
    if value is None and type(None) in options:
        return None
    if value is None and any(map(_is_sequence, options)):  # None stands for an empty list of columns
        return ()
    given = len(options)
    options = tuple(option for option in options if option is not type(None))
    for option in options:
        with contextlib.suppress(ConfigError):
            return _converted(name, option, value)
    if len(options) == 1:
        return _converted(name, options[0], value, optional=len(options) < given)  # raises the specific error
    raise ConfigError(f"`{name}` must be {' or '.join(map(_described, options))}, got {quoted(value)}")


def _described(kind: Any) -> str:
    if _is_literal(kind):
        return " or ".join(map(repr, get_args(kind)))
    if _is_sequence(kind):
        return "a list of whole numbers"
    return {str: "text", int: "a whole number"}[kind]


def _is_literal(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is Literal


def _is_sequence(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is Sequence


def _is_mapping(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is Mapping


def _converted(name: str, kind: Any, value: Any, optional: bool = False) -> Any:
    if _is_literal(kind):
        allowed = (*([None] if optional else []), *get_args(kind))
        if not isinstance(value, str) or value not in allowed:
            raise ConfigError(
                f"`{name}={quoted(value)}` is not known", f"Choose one of {', '.join(map(repr, allowed))}."
            )
        return value
    if _is_sequence(kind):
        return _sequence(name, get_args(kind)[0], value)
    if _is_mapping(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(f"`{name}` must be a mapping of names to values, got {quoted(value)}")
        return _Fixed(value)
    if kind is bool and not isinstance(value, bool):
        raise ConfigError(f"`{name}` must be True or False, got {quoted(value)}")
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ConfigError(f"`{name}` must be a finite number, got {quoted(value)}")
        return float(value)
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise ConfigError(f"`{name}` must be a whole number, got {quoted(value)}")
        return int(value)
    if kind is str and not isinstance(value, str):
        raise ConfigError(f"`{name}` must be text, got {quoted(value)}")
    if dataclasses.is_dataclass(kind) and not isinstance(value, kind):  # type: ignore[arg-type]
        raise ConfigError(f"`{name}` must be {kind.__name__}(...), got {quoted(value)}")  # type: ignore[union-attr]
    return value


class _Fixed(dict[str, Any]):
    """A read-only dictionary. Unlike a mapping proxy it can be copied and pickled."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Settings cannot be changed")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return _Fixed, (dict(self),)


def _sequence(name: str, kind: Any, value: Any) -> tuple[Any, ...]:
    if kind is str:
        if isinstance(value, str):
            raise ConfigError(f"`{name}` must be a list of column names, got the string {quoted(value)}")
        return tuple(value)
    try:
        converted = tuple(kind(item) for item in value)
        if any(a != b for a, b in zip(converted, value, strict=True)):
            raise ValueError
    except (TypeError, ValueError) as error:
        what = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"`{name}` must be a list of {what}, got {quoted(value)}") from error
    return tuple(sorted(set(converted))) if name == "lags" else converted


@dataclasses.dataclass(frozen=True)
class CheckedFields:
    """A dataclass whose values must have the types of their fields."""

    def __post_init__(self) -> None:
        """Check and convert every field."""
        for name, kind in get_type_hints(type(self)).items():
            object.__setattr__(self, name, _checked(name, kind, getattr(self, name)))


def documentation(kind: type[Any]) -> dict[str, str]:
    """The description of each argument in the docstring of a class."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("Args:\n")[2]
    entries = re.split(r"^ {4}(\w+): ", text, flags=re.MULTILINE)[1:]
    return {name: " ".join(words.split()) for name, words in zip(entries[::2], entries[1::2], strict=True)}
