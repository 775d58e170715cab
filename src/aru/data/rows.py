"""Encoded rows as networks read them. The fields of a row are declared here alone.

States, blocks of windows, the bytes of a record and the inputs of an exported network all hold `Rows`, so that a new
field need only be added here.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from aru.data.panel import Panel


class Rows(NamedTuple):
    """Encoded rows: (row, ...) of all series one after the other, or (series, row, ...).

    A missing y is 0 with `observed` false. A value that is held back as an outlier counts as missing: `observed` is
    false and `held` true, and only the record remembers y. Each numeric covariate has two columns: the rescaled value,
    and whether it is missing. Code 0 of a category is "unknown".
    """

    ds: Tensor  # int64
    y: Tensor  # float64
    observed: Tensor  # bool
    held: Tensor  # bool
    futr: Tensor  # (..., 2 * numbers) float32
    futr_cat: Tensor  # (..., columns) int32; the calendar's columns come last
    hist: Tensor  # (..., 2 * numbers) float32
    hist_cat: Tensor  # (..., columns) int32

    @classmethod
    def known_ahead(cls, ds: Tensor, futr: Tensor, futr_cat: Tensor, hist_numbers: int, hist_categories: int) -> Rows:
        """Future rows as known at the origin: y and historic covariates are missing."""
        unknown = _unknown(hist_numbers, hist_categories, ds.device)
        y, observed, hist, hist_cat = (v.expand(*ds.shape, *v.shape) for v in unknown)
        return cls(ds, y, observed, observed, futr, futr_cat, hist, hist_cat)

    @property
    def came(self) -> Tensor:
        """Which rows came with a value, held back or not."""
        return self.observed | self.held

    def ahead(self) -> Rows:
        """The same rows as known at an earlier origin: without y and historic covariates."""
        return Rows.known_ahead(self.ds, self.futr, self.futr_cat, self.hist.shape[-1] // 2, self.hist_cat.shape[-1])


@functools.cache
def _unknown(numbers: int, categories: int, device: torch.device) -> tuple[Tensor, ...]:
    """y, observed, hist and hist_cat of a future row, where all are missing."""
    return (
        torch.zeros((), dtype=torch.float64, device=device),
        torch.zeros((), dtype=torch.bool, device=device),
        torch.tensor([0.0, 1.0], device=device).repeat(numbers),
        torch.zeros(categories, dtype=torch.int32, device=device),
    )


class Static(NamedTuple):
    """Encoded static covariates of each series."""

    numbers: Tensor  # (series, 2 * numbers) float32
    categories: Tensor  # (series, columns) int32


class Ragged(NamedTuple):
    """Encoded rows of several series: series i owns rows starts[i] : starts[i] + lengths[i]."""

    rows: Rows
    starts: Tensor
    lengths: Tensor
    skipped: Tensor  # (row,) int64: unobserved steps left out just before a row
    each: int = 0  # if not 0: every series has this many rows, in order of series and without skipped steps


class Whole(NamedTuple):
    """All rows of some series, as they were read and encoded, and their static covariates."""

    panel: Panel
    rows: Ragged
    static: Static
