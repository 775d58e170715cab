"""Tables of requests: the types of their columns in training, and concatenation of requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru.data.covariates import Group
from aru.data.schema import Schema
from aru.settings import Settings

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"

Columns = dict[str, np.ndarray[Any, np.dtype[Any]]]


class ColumnKinds(NamedTuple):
    """Types of a table's columns in training."""

    integer_ids: bool
    datetime: bool
    numbers: frozenset[str]
    categories: frozenset[str]
    bools: frozenset[str]  # those of the categories that were bools in training
    untold: frozenset[str] = frozenset()  # covariates of a pretrained model whose types the first rows will tell
    others: bool = False  # whether columns that the model does not know are read as well

    @property
    def names(self) -> list[str]:
        """The covariates."""
        return sorted(self.numbers | self.categories | self.untold)

    def with_columns_of(self, other: ColumnKinds) -> ColumnKinds:
        """The types of a table that also has the covariates of another one."""
        return self._replace(
            numbers=self.numbers | other.numbers,
            categories=self.categories | other.categories,
            bools=self.bools | other.bools,
            untold=self.untold | other.untold,
        )


class TableKinds(NamedTuple):
    """The columns of the three tables that requests contain."""

    observations: ColumnKinds
    future: ColumnKinds
    static: ColumnKinds

    @classmethod
    def of(cls, settings: Settings, schema: Schema) -> TableKinds:
        """The tables that a model expects."""

        def kinds(names: Sequence[str], *groups: Group) -> ColumnKinds:
            numbers = frozenset(c.name for group in groups for c in group[0] if c.name in names)
            found = [c for group in groups for c in group[1] if c.name in names]  # neither calendar nor id
            several, levels = ([c for c in found if c.levels is which] for which in (False, True))
            numbers |= frozenset(c.name for c in levels)
            categories, bools = frozenset(c.name for c in several), frozenset(c.name for c in several if c.boolean)
            untold = frozenset(names) - numbers - categories
            return ColumnKinds(schema.integer_ids, schema.datetime, numbers, categories, bools, untold)

        futr, hist = settings.futr_exog_list, settings.hist_exog_list
        return cls(
            kinds([*futr, *hist], schema.futr, schema.hist),
            kinds(futr, schema.futr),
            kinds(settings.stat_exog_list, schema.stat),
        )


def join(parts: Sequence[Columns]) -> Columns:
    """The rows of several requests, all of the same columns."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def only(columns: Columns, ids: Iterable[Any]) -> Columns:
    """The rows of these series."""
    inside = among(columns["unique_id"], set(ids))
    return {name: values[inside] for name, values in columns.items()}


def among(values: Any, wanted: Collection[Any]) -> Any:
    """Which values are among the wanted ones."""
    return np.fromiter((value in wanted for value in values.tolist()), bool, len(values))


def static_of(columns: Columns, kinds: ColumnKinds) -> Columns:
    """Static covariates that came as columns of observations, without duplicate rows.

    There is one row per series, unless rows contradict each other; then the library refuses them.
    """
    static = {name: columns[name] for name in ("unique_id", *kinds.names)}
    first = ~pd.DataFrame(static).duplicated().to_numpy()
    return {name: values[first] for name, values in static.items()}
