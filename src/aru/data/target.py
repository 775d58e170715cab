"""Which values y can take: as in the training data or as asked for, and those that a model cannot take at all.

Whether forecasts are cut off at zero and rounded follows from the training data, unless `support` says it. Later values
that training had no example of are taken in with a warning. But some settings leave no room: log1p is not defined
below zero, the negative binomial counts, and a `support` that was asked for is a promise.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aru.data.columns import Bools, Floats
from aru.data.panel import Observations, Panel
from aru.errors import AruWarning, ValueRangeError
from aru.settings import Settings


class Support(NamedTuple):
    """Values of y: no number below zero, whole numbers only."""

    nonnegative: bool
    integer: bool

    @classmethod
    def of(cls, y: Floats) -> Support:
        """Of some values, none of them missing."""
        return cls(bool((y >= 0).all()), bool((y == np.round(y)).all()))

    def __and__(self, other: Support) -> Support:
        """Of both."""
        return Support(self.nonnegative and other.nonnegative, self.integer and other.integer)

    def outside(self, y: Floats) -> Bools:
        """Values that are known and that it does not have."""
        out = np.zeros(y.shape, bool)
        if self.nonnegative:
            out |= y < 0
        if self.integer:
            out |= (y != np.round(y)) & ~np.isnan(y)
        return out


FAR, FEW = 1000, 10  # times the mean of at least so many values: a code for something else, or a slip
NEGATIVE, NO_COUNT = "negative", "no count"
ASKED = {
    "real": Support(False, False),
    "nonnegative": Support(True, False),
    "count": Support(True, True),
}


class Rule(NamedTuple):
    """Values that a model cannot do without, what others are, and what to choose if y has them."""

    needs: Support
    why: str
    others: str
    instead: str


def rules_of(settings: Settings, distribution: str) -> list[Rule]:
    """What the settings ask of y."""
    found = []
    if settings.transform == "log1p":
        found.append(Rule(ASKED["nonnegative"], "`transform='log1p'` needs y >= 0", NEGATIVE, "`transform='asinh'`"))
    if settings.support == "nonnegative":
        found.append(Rule(ASKED["nonnegative"], "`support='nonnegative'` needs y >= 0", NEGATIVE, "`support='real'`"))
    if settings.support == "count":
        found.append(
            Rule(ASKED["count"], "`support='count'` needs counts (0, 1, 2, ...)", NO_COUNT, "`support='real'`")
        )
    if distribution == "negative-binomial":
        found.append(
            Rule(
                ASKED["count"],
                "The negative binomial needs counts (0, 1, 2, ...)",
                NO_COUNT,
                "`distribution='student-t'`",
            )
        )
    return found


def broken(rules: Sequence[Rule], y: Floats) -> tuple[Bools, Rule | None]:
    """Rows whose value a model cannot take, and the first rule that they break."""
    bad, first = np.zeros(y.shape, bool), None
    for rule in rules:
        outside = rule.needs.outside(y)
        first = rule if first is None and outside.any() else first
        bad |= outside
    return bad, first


def refusal(rule: Rule, panel: Panel | Observations) -> ValueRangeError:
    """The error about the rows that break a rule."""
    rows = panel.name_rows(np.flatnonzero(rule.needs.outside(panel.y)))
    return ValueRangeError(
        f"{rule.why}, but y is {rule.others} at {rows}", f"Use {rule.instead}.", columns=["y"], rows=rows
    )


def check_values(panel: Panel, rules: Sequence[Rule]) -> None:
    """Refuse rows whose value a model cannot take."""
    _, rule = broken(rules, panel.y)
    if rule is not None:
        raise refusal(rule, panel)


def warn_new(learned: Support, y: Floats, said: set[str]) -> None:
    """Say so where values come that training had no example of, unless that was `said` before."""
    outside = learned.outside(y)
    if not outside.any():
        return
    if (y[outside] < 0).any():
        what = "New values are negative, which none was in training: forecasts of this model are cut off at 0."
    else:
        what = "New values are no whole numbers, as all were in training: quantiles of this model are rounded."
    if what not in said:
        said.add(what)
        warnings.warn(f"{what} Fit with `support='real'` to forecast them as they are.", AruWarning, stacklevel=2)


def warn_far(panel: Panel, total: Floats, count: Floats) -> None:
    """Name values that are hardly of their series, which has so far `count` values with a `total` size, row by row."""
    far = (count >= FEW) & (total > 0) & (np.abs(panel.y) / FAR > total / np.maximum(count, 1))
    if far.any():
        rows = panel.name_rows(np.flatnonzero(far))
        warnings.warn(
            f"y is more than {FAR:,} times the mean size of its series at {rows}. It is taken in and weighs on the "
            "scale of its series for long; if it stands for a missing value, leave it empty.",
            AruWarning,
            stacklevel=2,
        )
