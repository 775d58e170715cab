"""The support of y: to which values forecasts are restricted, and which observations are refused.

Unless `support` is given, the training data decide whether forecasts are cut off at zero and rounded; later values
outside of that range are accepted with a warning. Some settings refuse such values: `transform="log1p"`, the negative
binomial, and a `support` that is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aru.data.clock import Clock
from aru.data.columns import Bools, Floats, name_rows
from aru.data.panel import Observations, Panel
from aru.errors import ValueRangeError, warn
from aru.settings import Settings


class Support(NamedTuple):
    """The values that y can take: whether only nonnegative ones, whether only whole numbers."""

    nonnegative: bool
    integer: bool

    @classmethod
    def of(cls, y: Floats) -> Support:
        """The narrowest support of these values; none may be missing."""
        return cls(bool((y >= 0).all()), bool((y == np.round(y)).all()))

    def __and__(self, other: Support) -> Support:
        """The narrowest support that covers both."""
        return Support(self.nonnegative and other.nonnegative, self.integer and other.integer)

    def outside(self, y: Floats) -> Bools:
        """Which values lie outside; never missing ones."""
        out = np.zeros(y.shape, bool)
        if self.nonnegative:
            out |= y < 0
        if self.integer:
            out |= (y != np.round(y)) & ~np.isnan(y)
        return out


NEGATIVE, NO_COUNT = "negative", "not a count"
ASKED = {
    "real": Support(False, False),
    "nonnegative": Support(True, False),
    "count": Support(True, True),
}


class Rule(NamedTuple):
    """A restriction of y: the support needed, why, what other values are called, and the setting that allows them."""

    needs: Support
    why: str
    others: str
    instead: str


def rules_of(settings: Settings, distribution: str) -> list[Rule]:
    """The restrictions of y by the settings."""
    found = []
    if settings.transform == "log1p":
        found.append(Rule(ASKED["nonnegative"], "`transform='log1p'` needs `y` >= 0", NEGATIVE, "`transform='asinh'`"))
    if settings.support == "nonnegative":
        found.append(Rule(ASKED["nonnegative"], "`support='nonnegative'` needs `y` >= 0", NEGATIVE, "`support='real'`"))
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
        f"{rule.why}, but `y` is {rule.others} at {rows}", f"Use {rule.instead}.", columns=["y"], rows=rows
    )


def check_values(panel: Panel, rules: Sequence[Rule]) -> None:
    """Refuse rows whose value a model cannot take."""
    _, rule = broken(rules, panel.y)
    if rule is not None:
        raise refusal(rule, panel)


def warn_new(learned: Support, y: Floats, said: set[str]) -> None:
    """Warn once about values outside the support of the training data; `said` holds the warnings given before."""
    outside = learned.outside(y)
    if not outside.any():
        return
    if (y[outside] < 0).any():
        what = "New values are negative, unlike all in training: forecasts of this model are cut off at 0."
    else:
        what = "New values are not whole numbers, unlike all in training: quantiles of this model are rounded."
    if what not in said:
        said.add(what)
        warn(f"{what} Fit with `support='real'` to forecast them as they are.")


def warn_held(outliers: Mapping[str, Any], clock: Clock | None) -> None:
    """Warn about rows (unique_id, ds, y) that are held back."""
    if len(outliers["ds"]):
        rows = name_rows(outliers["unique_id"], outliers["ds"], clock)
        warn(
            f"`y` lies far outside the range of its series at {rows}. It is held back: it counts as missing. Where the "
            "range has really changed, the next such value is accepted.",
        )
