"""Covariates as regressors: rescaled numbers, signs of two-valued categories, indicators of the others."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from aru.data.rows import Rows, numbers_of_codes
from aru.data.schema import CategoryColumn, NumberColumn, Schema

MOST_LEVELS = 24  # categories with regressors of their own; later ones in order share a coefficient of zero


class Regressor(NamedTuple):
    """A column of the regression."""

    column: str
    level: str  # of a category; empty for numbers
    place: int  # among the known-future numbers or categories
    code: int  # of the level; 0 for numbers


class Regressors:
    """The regressors of a schema: those of its known-future covariates."""

    def __init__(self, schema: Schema) -> None:
        numbers, categories = schema.futr
        self.numbers, self.categories = numbers, categories
        self.names = [Regressor(c.name, "", i, 0) for i, c in enumerate(numbers)]
        for i, column in enumerate(categories):
            self.names += [Regressor(column.name, column.values[j - 1], i, j) for j in _own(column)]
        self.coded = len(numbers) + len(schema.hist[0])  # place of the first category among codes
        self.coded_columns = self.coded + len(categories) + len(schema.calendar) + len(schema.hist[1])

    def __len__(self) -> int:
        return len(self.names)

    def of(self, rows: Rows) -> Float[Tensor, "*rows k"]:
        """Regressors of rows, NaN where a covariate is missing or unknown."""
        parts = []
        if self.numbers:
            values, missing = rows.futr[..., ::2].double(), rows.futr[..., 1::2] > 0
            parts.append(torch.where(missing, torch.nan, values))
        for i, column in enumerate(self.categories):
            parts.append(_table(column)[rows.futr_cat[..., i].long()])
        return torch.cat(parts, -1)

    def effects(
        self, codes: UInt8[Tensor, "series row column"], theta: Float[Tensor, "series k"]
    ) -> Float[Tensor, "series row"]:
        """Sum of coefficients times regressors, for rows whose covariates are kept in bytes; 0 where one is missing."""
        out, at = theta.new_zeros(codes.shape[:2]), 0
        for i, column in enumerate([*self.numbers, *self.categories]):
            number = isinstance(column, NumberColumn)
            table = _number_table() if number else _table(column)
            by_code = theta[:, at : at + table.shape[1]] @ table.nan_to_num(nan=0.0).T
            place = i if number else self.coded + i - len(self.numbers)
            out = out + by_code.gather(1, codes[..., place].long())
            at += table.shape[1]
        return out


def _own(column: CategoryColumn) -> list[int]:
    """Codes that have a regressor: of two values the second."""
    return [2] if len(column.values) == 2 else list(range(1, 1 + min(len(column.values), MOST_LEVELS)))


@functools.cache
def _table(column: CategoryColumn) -> Tensor:
    """(code, regressor): -1 and 1 for two values, indicators of size 2 for more. NaN where the value is unknown."""
    own = _own(column)
    codes = torch.arange(256)
    if len(column.values) == 2:
        table = torch.where(codes == 2, 1.0, -1.0).unsqueeze(1)
    else:
        table = 2.0 * (codes.unsqueeze(1) == torch.tensor(own))
    table = table.double()
    table[0] = torch.nan
    return table


@functools.cache
def _number_table() -> Tensor:
    return numbers_of_codes().unsqueeze(1)
