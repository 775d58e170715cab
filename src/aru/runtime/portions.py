"""Portions of ragged rows: what is taken in together."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from aru.data.rows import Ragged, Rows


def gather_rows(rows: Rows, starts: Tensor, lengths: Tensor) -> Rows:
    """(series, row) rows, left-aligned; rows past a series' end are zero and unobserved."""
    n = int(lengths.max())
    at = torch.arange(n, device=starts.device)
    inside = at < lengths[:, None]
    index = torch.where(inside, starts[:, None] + at, 0)
    return Rows(*(v[index].masked_fill_(~inside.reshape(*inside.shape, *(1,) * (v.ndim - 1)), 0) for v in rows))


def groups(lengths: Tensor, at_most: int) -> list[Tensor]:
    """Indices of series with rows, grouped by the power of two of their number of rows."""
    count = lengths.cpu().numpy()
    order = np.log2(np.maximum(count, 1)).astype(int)
    groups = []
    for power in np.unique(order[count > 0]):
        index = np.flatnonzero((order == power) & (count > 0))
        groups += [torch.from_numpy(index[i : i + at_most]).to(lengths.device) for i in range(0, len(index), at_most)]
    return groups


def skipped_first(data: Ragged) -> Tensor:
    """Steps skipped before the first row of each series."""
    if len(data.skipped) == 0:
        return torch.zeros_like(data.lengths)
    return data.skipped[data.starts.clamp(max=len(data.skipped) - 1)]


def segments(data: Ragged) -> list[Ragged]:
    """Cut the rows of each series where steps were skipped: segment i of every series, for i = 0, 1, ..."""
    if not data.skipped.any():
        return [data]
    cuts = data.skipped.nonzero().squeeze(-1).cpu().numpy()
    starts, ends = data.starts.cpu().numpy(), (data.starts + data.lengths).cpu().numpy()
    live = np.flatnonzero(ends > starts)
    if len(live) == 0:
        return [data]
    live = live[np.argsort(starts[live])]  # series come in any order
    owner = live[np.searchsorted(starts[live], cuts, side="right") - 1]
    # Skips before the first row of a series are handled by `_jump`. Cuts outside belong to rows not taken in now.
    inside = (starts[owner] < cuts) & (cuts < ends[owner])
    owner, cuts = owner[inside], cuts[inside]
    order = np.argsort(owner, kind="stable")
    owner, cuts = owner[order], cuts[order]
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    bounds = np.repeat(ends[None], int(rank.max(initial=-1)) + 3, 0)
    bounds[0], bounds[rank + 1, owner] = starts, cuts
    edges = torch.from_numpy(bounds).to(data.starts.device)
    return [Ragged(data.rows, lo, hi - lo, data.skipped) for lo, hi in itertools.pairwise(edges)]
