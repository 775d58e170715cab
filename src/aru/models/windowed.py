"""Base of models that adapt to each series: which features h belong to which row.

Every row is learned from once, with the h of the latest origin before it (docs/method.md, "Windows"). This module finds
origins and rows; subclasses define what is learned from a row.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from aru.data.rows import Rows, Static
from aru.models.interface import TrainedModel
from aru.models.network import Network, Targets
from aru.nn.tree import put, take, tree_map
from aru.nn.windows import Context, Values, all_values, begun, sums_after


class WindowState(NamedTuple):
    """What was learned about a series, and the encoder's summary and scale at its latest origin."""

    local: Any
    g: Float[Tensor, "batch units"]
    scale: Float[Tensor, " batch"]  # 0 during warm-up: rows after this origin are not learned from


class Origin(NamedTuple):
    """The encoder's summary and scale at an origin. A scale of 0 means warm-up, as in `WindowState`."""

    g: Float[Tensor, "batch units"]
    scale: Float[Tensor, " batch"]


class WindowedModel(TrainedModel):
    """A global network with a local part per series that each observation changes."""

    adapts = True
    network: Network

    @abc.abstractmethod
    def init_local(self, n: int) -> Any:
        """The local part of `n` series without observations: a NamedTuple of tensors."""

    @abc.abstractmethod
    def begin_window(self, local: Any) -> Any:
        """At a new origin: fix the local fit that predicts the rows up to the next origin."""

    @abc.abstractmethod
    def learn(self, local: Any, lesson: Any, steps: Int[Tensor, " batch"]) -> Any:
        """Learn from the first `steps` rows of a window, as returned by `decode`."""

    @abc.abstractmethod
    def lesson(self, h: Float[Tensor, "row 1 dim"], x: Tensor, targets: Targets, scale: Float[Tensor, "row 1"]) -> Any:
        """What is learned from single rows: a flat NamedTuple of (row, 1, ...) tensors."""

    def init_state(self, n: int) -> WindowState:
        """Nothing learned, no origin yet."""
        device = next(self.parameters()).device
        return WindowState(
            local=self.init_local(n),
            g=torch.zeros(n, self.network.encoder.units, device=device),
            scale=torch.zeros(n, dtype=torch.float64, device=device),
        )

    def encode(self, context: Context) -> Origin:
        """Encode an origin, the end of the context."""
        origins = self.network.origin_now(context)
        return Origin(origins.g, torch.where(origins.informed, origins.scale, 0.0))

    def decode(self, row: Rows, lag: Values | tuple[()], static: Static, origin: Origin) -> Any:
        """What is learned from single (row, 1) rows of any series, each with its own origin and past values."""
        net = self.network
        informed = (origin.scale > 0).unsqueeze(1)
        scale = torch.where(informed, origin.scale.unsqueeze(1), 1.0)
        h, x = net.row_features(row, lag, static, origin.g, scale)
        z, observed = net.scaled_targets(row.y, row.observed, scale)
        # Warm-up: forecasts from an origin with few observations say little about later ones.
        return self.lesson(h, x, Targets(z, observed & informed), scale)

    def samples(self, context: Context, future: Rows) -> dict[str, tuple[Any, ...]]:
        """Example arguments of `encode` and `decode`."""
        n, device = len(context.total), context.total.device
        origin = Origin(torch.ones(n, self.network.encoder.units, device=device), torch.ones_like(context.total))
        row = Rows(*(v[:, :1] for v in future))
        since = torch.zeros(n, 1, dtype=torch.int64, device=device)
        lag = self._lags(context, row, since, since[:, 0], 1) if self.network.reads_back else ()
        return {"encode": (context,), "decode": (row, lag, context.static, origin)}

    def update(
        self,
        state: WindowState,
        context: Context,
        rows: Rows,
        position: Int[Tensor, " batch"],
        steps: Int[Tensor, " batch"],
        after: Context,
    ) -> WindowState:
        """Learn from the rest of the current window, whose origin the state holds, then from window after window.

        Networks run for all rows at once; only learning runs in order of the windows.
        """
        device, taken = steps.device, steps.cpu().numpy()  # the host assigns rows to origins
        # A new series reaches its first origin with its first value.
        left = self.network.stride - position.cpu().numpy()
        first = np.minimum(left, taken)
        n = int(first.max())
        lag = self._lags(context, rows, -position[:, None], position, n) if self.network.reads_back else ()
        some = rows if n == rows.y.shape[1] else Rows(*(v[:, :n] for v in rows))
        lesson = self._lessons(some, lag, context.static, Origin(state.g, state.scale))
        local = self.learn(state.local, lesson, torch.from_numpy(first).to(device))
        reached = np.flatnonzero(taken >= left)
        if len(reached) == 0:
            return state._replace(local=local)
        if (taken == left).all():  # the next window has no rows yet
            return WindowState(self.begin_window(local), *self.call("encode", after))
        inputs = (local, context, rows, torch.from_numpy(left).to(device), steps)
        if len(reached) == len(left):
            return self._walk(*inputs)
        index = torch.from_numpy(reached).to(device)
        return put(state._replace(local=local), index, self._walk(*take(inputs, index)))

    def _walk(self, local: Any, context: Context, rows: Rows, left: Tensor, steps: Tensor) -> WindowState:
        """Learn from all windows from the next origin on, which lies `left` rows after the context."""
        S, n = self.network.stride, len(left)
        last = (steps - left) // S  # the window that stays open
        windows = int(last.max()) + 1
        begin = left[:, None] + S * torch.arange(windows, device=left.device)  # rows before each origin
        n_rows = S if windows > 1 else max(1, int((steps - left).max()))
        contexts, ahead = window_contexts(context, rows, begin, n_rows)
        origins: Origin = self.call("encode", contexts)
        none = torch.zeros_like(begin).flatten()
        lag = self._lags(context, rows, begin, none, n_rows) if self.network.reads_back else ()
        lessons = self._lessons(ahead, lag, contexts.static, origins)
        lessons = tree_map(lambda v: v.unflatten(0, (n, windows)), lessons)
        for window in range(windows):
            live = (last >= window).nonzero().squeeze(-1)
            here = local if len(live) == n else take(local, live)
            lesson = tree_map(lambda v, live=live, window=window: v[live, window], lessons)
            new = self.learn(self.begin_window(here), lesson, (steps - begin[:, window])[live].clamp(0, S))
            local = new if len(live) == n else put(local, live, new)
        place = torch.arange(n, device=last.device)
        g, scale = (v.unflatten(0, (n, windows))[place, last] for v in origins)
        return WindowState(local, g, scale)

    def _lags(self, context: Context, rows: Rows, since: Tensor, passed: Tensor, n: int) -> Values:
        """The past values that the next `n` rows of each origin read: (series * window, row, value).

        The (series, window) origins lie `since` rows after the context, and `passed` rows before the first of the rows.
        """
        values, end = all_values(context, rows), rows.y.shape[1]
        back = self.network.back(passed[:, None] + torch.arange(1, n + 1, device=since.device))
        last = values.y.shape[1] - 1
        at = (last - end + since.reshape(-1, 1, 1) + back).clamp(0, last)  # rows that do not exist are ignored
        series = torch.arange(len(since), device=since.device).repeat_interleave(since.shape[1])
        return Values(*(v[series[:, None, None], at] for v in values))

    def _lessons(self, rows: Rows, lag: Values | tuple[()], static: Static, origin: Origin) -> Any:
        """What is learned from (window, row) rows: (window, row, ...)."""
        n = rows.y.shape[1]
        if n == 1:
            return self.call("decode", rows, lag, static, origin)
        singles = (tree_map(lambda v: v.flatten(0, 1).unsqueeze(1), tree) for tree in (rows, lag))
        repeated = (tree_map(lambda v: v.repeat_interleave(n, 0), tree) for tree in (static, origin))
        return tree_map(lambda v: v.squeeze(1).unflatten(0, (-1, n)), self.call("decode", *singles, *repeated))


def window_contexts(context: Context, rows: Rows, begin: Tensor, n: int) -> tuple[Context, Rows]:
    """Contexts that end after `begin` (series, window) rows, and the `n` rows that follow each; flat (series * window).

    Rows beyond the last are unobserved and zero.
    """
    kept, width = context.rows.y.shape[1], context.older.away.shape[1]
    both = Rows(*(torch.cat([old, new], 1) for old, new in zip(context.rows, rows, strict=True)))

    def gather(values: Tensor, first: int, length: int) -> Tensor:
        """Rows `first` + begin up to `first` + begin + `length`."""
        index = begin[..., None] + torch.arange(first, first + length, device=begin.device)
        inside = index < values.shape[1]
        series = torch.arange(len(begin), device=begin.device)[:, None, None]
        picked = values[series, index.clamp(max=values.shape[1] - 1)]
        mask = inside.reshape(*inside.shape, *(1,) * (picked.ndim - 3))
        return torch.where(mask, picked, torch.zeros((), dtype=picked.dtype, device=picked.device)).flatten(0, 1)

    total, count = (v.gather(1, begin.clamp(max=rows.y.shape[1])) for v in sums_after(context, rows))
    windows = begin.shape[1]
    older = tree_map(lambda v: v.repeat_interleave(windows, 0), begun(context, rows))
    contexts = Context(
        rows=Rows(*(gather(v, 0, kept) for v in both)),
        older=older.replaced(Values(*(gather(v, 0, width) for v in all_values(context, rows)))),
        static=tree_map(lambda v: v.repeat_interleave(windows, 0), context.static),
        total=total.flatten(),
        count=count.flatten(),
    )
    return contexts, Rows(*(gather(v, kept, n) for v in both))
