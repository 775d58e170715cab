"""Rows as networks read them. Every field of a row is declared here and nowhere else.

States, blocks of windows, the bytes of a record and the inputs of an exported network all hold `Rows`: a new field
reaches them by its name.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor


class Rows(NamedTuple):
    """Encoded rows: (row, ...) of all series one after the other, or (series, row, ...).

    A missing y is 0 with `observed` false. Each numeric covariate has two columns: the rescaled value, and whether it
    is missing. Code 0 of a category is "unknown".
    """

    ds: Tensor  # int64
    y: Tensor  # float64
    observed: Tensor  # bool
    futr: Tensor  # (..., 2 * numbers) float32
    futr_cat: Tensor  # (..., columns) int32; the calendar's columns come last
    hist: Tensor  # (..., 2 * numbers) float32
    hist_cat: Tensor  # (..., columns) int32

    @classmethod
    def known_ahead(cls, ds: Tensor, futr: Tensor, futr_cat: Tensor, hist_numbers: int, hist_categories: int) -> Rows:
        """Rows as a forecast sees them beforehand: y and historic covariates are missing."""
        y, observed, hist, hist_cat = _unknown(tuple(ds.shape), hist_numbers, hist_categories, ds.device)
        return cls(ds, y, observed, futr, futr_cat, hist, hist_cat)

    def ahead(self) -> Rows:
        """The same rows as a forecast sees them beforehand."""
        return Rows.known_ahead(self.ds, self.futr, self.futr_cat, self.hist.shape[-1] // 2, self.hist_cat.shape[-1])


@functools.lru_cache(maxsize=4)  # whoever forecasts does it again, for as many series
def _unknown(shape: tuple[int, ...], numbers: int, categories: int, device: torch.device) -> tuple[Tensor, ...]:
    """y, observed, hist and hist_cat of rows of which these are not known."""
    hist = torch.zeros(*shape, numbers, 2, device=device)
    hist[..., 1] = 1.0
    return (
        torch.zeros(shape, dtype=torch.float64, device=device),
        torch.zeros(shape, dtype=torch.bool, device=device),
        hist.flatten(-2),
        torch.zeros(*shape, categories, dtype=torch.int32, device=device),
    )


class Static(NamedTuple):
    """Encoded static covariates of each series."""

    numbers: Tensor  # (series, 2 * numbers) float32
    categories: Tensor  # (series, columns) int32


class Ragged(NamedTuple):
    """Encoded rows and whose they are: series i owns rows starts[i] : starts[i] + lengths[i]."""

    rows: Rows
    starts: Tensor
    lengths: Tensor
    skipped: Tensor  # (row,) int64: unobserved steps left out just before a row
    each: int = 0  # rows that every series has, one series after the other and without gaps; 0: not known to be so
