"""Holidays of a country, by the package `holidays`."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from aru.data.columns import Ints
from aru.data.frequency import DAY, Frequency
from aru.errors import ConfigError, quoted, verbatim

EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
YEARS_KNOWN = (1900, 2200)  # beyond them there are no holidays


def check_country(country: str, freq: str | int | None) -> None:
    """Refuse a country that is not known, and rows whose days are not known."""
    step = Frequency(freq).step if isinstance(freq, str) else None
    business = isinstance(freq, str) and Frequency(freq).seasons() == (5,)
    if freq is not None and not business and (step is None or step > DAY):
        raise ConfigError(
            f"`country={quoted(country)}` needs rows of a day or less, but `freq={quoted(freq)}`",
            "Leave it out, or give holidays as a covariate.",
        )
    names_of_year(country, 2000)


@functools.lru_cache(maxsize=2**10)
def names_of_year(country: str, year: int) -> Mapping[int, str]:
    """The holidays of a year by their day since 1970. `country` is a code such as "DE", or "DE-BY" for a part of it."""
    try:
        import holidays
    except ImportError as error:
        raise ConfigError(
            f"`country={quoted(country)}` needs the package holidays",
            "Install it: pip install 'aru-forecast[holidays]'.",
        ) from error
    code, _, part = str(country).partition("-")
    try:
        found = holidays.country_holidays(code, subdiv=part or None, years=year, language="en_US")
    except (NotImplementedError, KeyError, TypeError) as error:
        raise ConfigError(
            f"There are no holidays of `country={quoted(country)}` ({verbatim(error)})",
            "Give a code of two letters such as 'DE' or 'US', with a part of the country such as 'DE-BY'.",
        ) from error
    return {date.toordinal() - EPOCH_DAY: name for date, name in found.items()}


def holiday_codes(country: str, names: Sequence[str], days: Ints) -> Ints:
    """0 on other days, 1 + the place of the holiday among `names`, or one more than all of these."""
    if days.size == 0:
        return np.zeros(days.shape, np.int64)
    first, last = (
        datetime.date.fromordinal(int(np.clip(f(), -25567, 84000)) + EPOCH_DAY) for f in (days.min, days.max)
    )
    table = _table(country, tuple(names), max(first.year, YEARS_KNOWN[0]), min(last.year, YEARS_KNOWN[1]))
    begin, codes = table
    at = days - begin
    inside = (at >= 0) & (at < len(codes))
    found: Ints = np.where(inside, codes[np.where(inside, at, 0)], 0)
    return found


@functools.lru_cache(maxsize=2**6)
def _table(country: str, names: tuple[str, ...], first: int, last: int) -> tuple[int, Ints]:
    """The first day of the years, and the code of each day from then on."""
    begin = datetime.date(first, 1, 1).toordinal() - EPOCH_DAY
    codes = np.zeros(datetime.date(last, 12, 31).toordinal() - EPOCH_DAY - begin + 1, np.int64)
    places = {name: at for at, name in enumerate(names, 1)}
    for year in range(first, last + 1):
        for day, name in names_of_year(country, year).items():
            codes[day - begin] = places.get(name, len(names) + 1)
    return begin, codes
