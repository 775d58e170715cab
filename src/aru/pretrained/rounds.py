"""When a round of hindsight is due, and which values a forecast would have read then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aru.data.rows import Rows
from aru.nn.windows import Context, all_values, begun

ROUNDS_AT_ONCE = 2**11  # of all series together, which bounds memory


class Rounds(NamedTuple):
    """Rounds that are due while series take in rows. A later round of a series has a higher turn."""

    series: Int[Tensor, " round"]  # positions in the batch
    turn: Int[Tensor, " round"]  # from 0 on, in rising order
    y: Float[Tensor, "round rows"]  # the context at that time, and what of it is known
    observed: Bool[Tensor, "round rows"]
    last: Int[Tensor, " round"]  # time of the latest row


def rounds_due(context: Context, rows: Rows, passed: Tensor, steps: Tensor, stride: int) -> Iterator[Rounds]:
    """Rounds that are due while the first `steps` of the (series, row) rows are taken in, the earliest first.

    `passed` rows were taken in since the latest one. However rows are delivered, a round reads the same values: those
    that had left the latest rows by then are rounded as they are kept.
    """
    number = (passed + steps) // stride
    turns = torch.arange(int(number.max()), device=passed.device)
    turn, series = (number > turns[:, None]).nonzero().unbind(1)
    values = all_values(context, rows)
    older, kept, length = context.older.away.shape[1], context.rows.y.shape[1], values.y.shape[1] - rows.y.shape[1]
    rounded = values.y.clone()
    rounded[:, older:] = begun(context, rows).replaced(values).values.y[:, older:]
    column = torch.arange(length, device=passed.device)
    for some in torch.arange(len(turn), device=passed.device).split(ROUNDS_AT_ONCE):
        which, count = series[some], stride * (turn[some] + 1) - passed[series[some]]  # rows taken in by then
        at = count[:, None] + column
        exact, as_kept, observed = (v[which[:, None], at] for v in (values.y, rounded, values.observed))
        y = torch.where(column >= length - kept, exact, as_kept)
        yield Rounds(which, turn[some], y, observed, rows.ds[which, count - 1])
