"""Models that learn about each series as it goes: which h belongs to which row, and when.

Every row is learned from once, with the h of the latest grid origin before it (docs/method.md, "Windows"). This module
walks the grid; what is learned from a row is the model's own.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from aru.data.rows import Rows, Static
from aru.models.interface import Model
from aru.models.network import Network, Targets
from aru.nn.tree import put, take, tree_map
from aru.nn.windows import Context, Values, all_values, sums_after


class WindowState(NamedTuple):
    """What was learned about a series, and what its latest grid origin knew."""

    local: Any
    g: Float[Tensor, "batch units"]
    scale: Float[Tensor, " batch"]  # 0: it knew too little for what follows it to be learned from


class Origin(NamedTuple):
    """What the network knows at the end of a context. A scale of 0: too little to learn from what follows."""

    g: Float[Tensor, "batch units"]
    scale: Float[Tensor, " batch"]


class WindowedModel(Model):
    """A global network beside something local that each observation changes."""

    adapts = True
    network: Network

    @abc.abstractmethod
    def init_local(self, n: int) -> Any:
        """What is known about `n` series that have seen nothing: a NamedTuple of tensors."""

    @abc.abstractmethod
    def begin_window(self, local: Any) -> Any:
        """A grid origin is reached: fix what the rows after it are compared with."""

    @abc.abstractmethod
    def learn(self, local: Any, lesson: Any, steps: Int[Tensor, " batch"]) -> Any:
        """Take in the first `steps` rows of a window, as `decode` gives them."""

    @abc.abstractmethod
    def lesson(self, h: Float[Tensor, "row 1 dim"], x: Tensor, targets: Targets, scale: Float[Tensor, "row 1"]) -> Any:
        """What there is to learn from single rows: a flat NamedTuple of (row, 1, ...) tensors."""

    def init_state(self, n: int) -> WindowState:
        """Nothing learned, no origin yet."""
        device = next(self.parameters()).device
        return WindowState(
            local=self.init_local(n),
            g=torch.zeros(n, self.network.encoder.units, device=device),
            scale=torch.zeros(n, dtype=torch.float64, device=device),
        )

    def encode(self, context: Context) -> Origin:
        """The network at a grid origin, where the context ends."""
        origins = self.network.origin_now(context)
        return Origin(origins.g, torch.where(origins.informed, origins.scale, 0.0))

    def decode(self, row: Rows, lag: Values | tuple[()], static: Static, origin: Origin) -> Any:
        """What there is to learn from single (row, 1) rows, of any series, each with its own origin and past values."""
        net = self.network
        informed = (origin.scale > 0).unsqueeze(1)
        scale = torch.where(informed, origin.scale.unsqueeze(1), 1.0)
        h, x = net.row_features(row, lag, static, origin.g, scale)
        z, observed = net.scaled_targets(row.y, row.observed, scale)
        # Rows after an origin that knew too little are not learned from: its forecasts are no guide to later ones.
        return self.lesson(h, x, Targets(z, observed & informed), scale)

    def samples(self, context: Context, future: Rows) -> dict[str, tuple[Any, ...]]:
        """At any origin, and any row after it."""
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
        """First the rest of the current window, whose origin the state remembers, then window after window.

        Networks run for all rows at once; only what is learned depends on the windows before.
        """
        device, taken = steps.device, steps.cpu().numpy()  # which rows belong to which origin is the host's business
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
        """From the first grid origin on, `left` rows after the context: all windows up to the last row."""
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
        """The past values that `n` rows after each origin read: (series * window, row, value).

        The (series, window) origins lie `since` rows after the context, and `passed` rows before the first of the rows.
        """
        values, end = all_values(context, rows), rows.y.shape[1]
        back = self.network.back(passed[:, None] + torch.arange(1, n + 1, device=since.device))
        last = values.y.shape[1] - 1
        at = (last - end + since.reshape(-1, 1, 1) + back).clamp(0, last)  # of rows that do not exist anything will do
        series = torch.arange(len(since), device=since.device).repeat_interleave(since.shape[1])
        return Values(*(v[series[:, None, None], at] for v in values))

    def _lessons(self, rows: Rows, lag: Values | tuple[()], static: Static, origin: Origin) -> Any:
        """What there is to learn from (window, row) rows: (window, row, ...)."""
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
    kept, older = context.rows.y.shape[1], context.older.y.shape[1]
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
    contexts = Context(
        rows=Rows(*(gather(v, 0, kept) for v in both)),
        older=Values(*(gather(v, 0, older) for v in all_values(context, rows))),
        static=tree_map(lambda v: v.repeat_interleave(windows, 0), context.static),
        total=total.flatten(),
        count=count.flatten(),
    )
    return contexts, Rows(*(gather(v, kept, n) for v in both))
