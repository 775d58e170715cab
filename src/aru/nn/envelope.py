"""Holds single outliers back, before anything else sees them, and lets lasting changes through.

The envelope of a series spans the values that were accepted: it widens at once, and narrows towards later values. With
the range R, the larger of its width and a quarter of the size of its values, and n accepted values other than 0, a
value is held back if it lies outside by more than

    LIMIT (1 + FEW / n) R

(a value of another sign than all of them: (1 + FEW / n)^2 R), unless a value as far outside, by a factor of 3, was
held back not long before: in the last two rows, or so that rows times distance are at most CONFIRMED_WITHIN R. Then
both are the beginning of a new level, or spikes that recur. So a lasting change costs a row, and a value must be
confirmed the sooner, the further out it is.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aru.data.rows import Ragged


class Envelope(NamedTuple):
    """What the screen knows of each series."""

    low: Float[Tensor, " series"]
    high: Float[Tensor, " series"]  # below `low` before the first value
    last: Float[Tensor, " series"]  # latest accepted value
    values: Float[Tensor, " series"]  # number of accepted values other than 0
    doubt: Float[Tensor, " series"]  # latest value that was held back
    waited: Float[Tensor, " series"]  # rows since; -1 if there is none

    @classmethod
    def empty(cls, n: int, device: torch.device | None = None) -> Envelope:
        """Of series without values."""
        start = (torch.inf, -torch.inf, 0.0, 0.0, 0.0, -1.0)
        return cls(*(torch.full((n,), value, dtype=torch.float64, device=device) for value in start))


def hold_back(envelope: Envelope, data: Ragged) -> tuple[Envelope, Ragged]:
    """Envelopes after the rows of each series, and the rows with those that are held back marked.

    Rows that were marked before are judged again, so that marking twice changes nothing.
    """
    from aru.nn import kernels  # Numba takes a moment to load

    rows, device = data.rows, envelope.low.device
    came = rows.came
    new, held = kernels.screen([v.cpu() for v in envelope], rows.y, came, data.starts, data.lengths, data.skipped)
    rows = rows._replace(observed=came & ~held, held=held)
    return Envelope(*(v.to(device) for v in new)), data._replace(rows=rows)
