"""Traits of series: what their static covariates say about the coefficients that they begin with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from aru.data.columns import Categories, Column
from aru.data.columns import Floats as Array
from aru.data.covariates import CategoryColumn, Group, NumberColumn
from aru.data.rows import Static
from aru.data.schema import Schema

FEWEST_SERIES = 3  # with a category, for it to be a trait
MOST_TRAITS = 24  # categories of a column that are traits


class Traits:
    """1, the static numbers, and for each category but the commonest whether a series has it, less its share."""

    def __init__(self, schema: Schema) -> None:
        self._numbers, self._categories = schema.stat

    def __len__(self) -> int:
        return 1 + len(self._numbers) + sum(len(column.shares) for column in self._categories)

    def of(self, static: Static) -> Array:
        """(series, trait)."""
        numbers, codes = static.numbers.cpu().double().numpy()[:, ::2], static.categories.cpu().numpy()
        parts = [np.ones((len(codes), 1)), numbers]
        for i, column in enumerate(self._categories):
            places = np.arange(2, 2 + len(column.shares))
            parts.append((codes[:, i : i + 1] == places) - np.array(column.shares))
        return np.concatenate(parts, 1)


def read_traits(columns: Mapping[str, Column]) -> Group:
    """How static covariates are read: numbers around their mean, in units of their spread; categories by share."""
    numbers, categories = [], []
    for name, values in columns.items():
        if isinstance(values, Categories):
            count = np.bincount(values.codes[values.codes >= 0], minlength=len(values.values))
            order = np.argsort(-count, kind="stable")
            order = order[count[order] > 0]
            kept = order[1 : 1 + MOST_TRAITS]
            shares = tuple((count[kept[count[kept] >= FEWEST_SERIES]] / len(values.codes)).tolist())
            categories.append(CategoryColumn(name, tuple(values.values[i] for i in order), shares=shares))
        else:
            known = values[~np.isnan(values)]
            low, high, middle = (float(f(known)) for f in (np.min, np.max, np.mean)) if len(known) else (0.0, 1.0, 0.0)
            unit = float(known.std()) if len(known) else 0.0
            numbers.append(NumberColumn(name, low, high, middle, unit or max(abs(middle), 1.0)))
    return tuple(numbers), tuple(categories)


def with_traits(schema: Schema, columns: Mapping[str, Column]) -> Schema:
    """The schema with these static covariates."""
    return dataclasses.replace(schema, stat=read_traits(columns))
