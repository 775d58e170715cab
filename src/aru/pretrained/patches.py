"""The network: past values in, quantiles of the next 64 steps out, for any series.

Notable choices:
- Values are centred by their median and scaled by the median of their non-zero deviations, then squashed by asinh: one
  outlier moves neither, and a series that is mostly zero still has a scale. One value that sticks out of everything
  else counts as missing.
- Patches of 32 values, counted back from the origin; beyond the last 256 rows a value is the mean of 4 rows. Tokens of
  padding change nothing and may be dropped, so that a series costs what its own length asks for.
- The network is told the periods that the frequency implies (0: unknown). For each step ahead it sees the values of
  the same phase of the last seasons, and in the context the differences to the season before.
- A light encoder over the tokens of the context; most of the parameters are in a decoder that runs over the two tokens
  of the future alone.
- Each token of the future decides how much of those seasons its steps see.
- A small head per step gives the median and the steps between neighbouring quantiles, which therefore never cross.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

CONTEXT = 1024  # most rows that a network reads
HORIZON = 64  # steps ahead that it forecasts at once
LEVELS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99)
MEDIAN = LEVELS.index(0.5)
LAGS, SEASONS_SHOWN = 8, 3  # seasons looked at, and those that are shown one by one beside their mean
STEP_FEATURES = 2 * (2 * SEASONS_SHOWN + 2)
TICKS = 21  # a period is told by bumps on the logarithm of it
Shift = Callable[[Tensor, Tensor], Tensor]  # (batch, steps, step) and (batch, steps, width) -> (batch, steps, levels)


@dataclass(frozen=True)
class PatchShape:
    """Shape of a network.

    Attributes:
        width: Of a token.
        encoder: Layers over the context.
        decoder: Layers over the future.
        heads: Of the attention.
        step: Width of the head of a step.
        patch: Values of a token.
        fine: Rows before the origin that are read one by one.
        pool: Rows further back that are read as one, their mean.
        hints: Whether periods and lagged seasons are shown.
    """

    width: int
    encoder: int
    decoder: int
    heads: int = 4
    step: int = 32
    patch: int = 32
    fine: int = 256
    pool: int = 4
    hints: bool = True

    @property
    def tokens(self) -> int:
        """Of the longest context."""
        return (self.fine + (CONTEXT - self.fine) // self.pool) // self.patch

    def rows(self, length: int) -> int:
        """Rows that a context of some length is padded to."""
        inside = min(length, self.fine)
        beyond = min(length, CONTEXT) - inside
        return -(-inside // self.patch) * self.patch + -(-beyond // (self.patch * self.pool)) * self.patch * self.pool


SHAPES = {
    "nano": PatchShape(64, 2, 2, step=12),
    "mini": PatchShape(128, 3, 3, step=32),
    "base": PatchShape(256, 5, 3, step=64),
}


class PatchBlock(nn.Module):
    """Attention and a feed-forward layer, both added to what came in. With a memory, x attends to both.

    Attention is written out: over so few tokens the fused kernels of a GPU are slower, and it exports as it stands.
    """

    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.widen, self.narrow = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, absent: Tensor, memory: Tensor | None = None) -> Tensor:
        """X (batch, tokens, width); `absent` (batch, 1, 1, tokens attended to) is 0, or far below where nothing is."""
        normed = self.before(x)
        seen = normed if memory is None else torch.cat([memory, normed], 1)
        key, value = self.key_value(seen).chunk(2, -1)
        query, key, value = (self.split(part) for part in (self.query(normed), key, value))
        scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5) + absent
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        out: Tensor = x + self.narrow(F.relu(self.widen(self.between(x))).square())
        return out

    def split(self, x: Tensor) -> Tensor:
        """Heads apart: (batch, heads, tokens, width of a head)."""
        return x.reshape(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class Embedding(nn.Module):
    """A two-layer network beside a linear one."""

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.direct = nn.Linear(inputs, width)
        self.widen, self.narrow = nn.Linear(inputs, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """On the last dimension."""
        out: Tensor = self.direct(x) + self.narrow(F.relu(self.widen(x)).square())
        return out


class PatchNetwork(nn.Module):
    """From scaled values (0 where missing), their mask and two periods to quantiles of the scaled future."""

    def __init__(self, size: PatchShape):
        super().__init__()
        self.size, width, patch = size, size.width, size.patch
        self.embed, self.future = Embedding(3 * patch, width), nn.Linear(STEP_FEATURES * patch, width)
        self.hint = nn.Linear(2 * TICKS, width)
        self.position = nn.Parameter(torch.randn(size.tokens, width) * 0.02)
        self.place = nn.Parameter(torch.randn(HORIZON // patch, width) * 0.02)
        self.encoder = nn.ModuleList(PatchBlock(width, size.heads, 2 * width) for _ in range(size.encoder))
        self.decoder = nn.ModuleList(PatchBlock(width, size.heads, 3 * width) for _ in range(size.decoder))
        self.memory, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_steps, self.gates = nn.Linear(width, patch * size.step), nn.Linear(width, STEP_FEATURES)
        self.lagged = nn.Linear(STEP_FEATURES, size.step, bias=False)
        self.straight = nn.Linear(STEP_FEATURES, 1, bias=False)
        self.quantiles = nn.Linear(size.step, len(LEVELS))
        self.sums: Tensor
        self.register_buffer("sums", quantile_sums(), persistent=False)
        for layer in (*self.encoder, *self.decoder):
            nn.init.zeros_(layer.out.weight)
            nn.init.zeros_(layer.narrow.weight)

    def forward(self, z: Tensor, mask: Tensor, periods: Tensor, shift: Shift | None = None) -> Tensor:
        """Z and mask (batch, rows as `PatchShape.rows` counts them), periods (batch or 1, 2) to (batch, 64, 15).

        `shift` moves the outputs of the steps ahead (`aru.pretrained.covariate_head`).
        """
        tokens, future, steps, known = self.inputs(z, mask, periods)
        return self.outputs(self.mix(tokens, future, known), steps, shift)

    def inputs(self, z: Tensor, mask: Tensor, periods: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens of the context and of the future, features of the steps ahead, and which tokens hold anything."""
        patch = self.size.patch
        if not self.size.hints:
            periods = torch.zeros_like(periods)
        rows = torch.stack([z, seasonal_difference(z, mask, periods), mask], 1)
        pooled = [rows[..., i : -self.size.fine : self.size.pool] for i in range(self.size.pool)]
        old = functools.reduce(torch.add, pooled)
        old = torch.cat([old[:, :2] / old[:, 2:].clamp(min=1), old[:, 2:] / self.size.pool], 1)
        rows = torch.cat([old, rows[..., -self.size.fine :]], -1).reshape(z.shape[0], 3, -1, patch)
        known = rows[:, 2].amax(-1) > 0
        tokens = self.embed(rows.transpose(1, 2).flatten(2))
        steps = seasons_before(z, mask, periods)
        future = self.future(steps.reshape(steps.shape[0], HORIZON // patch, -1))
        hint = self.hint(told(periods)).unsqueeze(1)
        tokens = tokens + hint + self.position[self.position.shape[0] - tokens.shape[1] :]
        return tokens, future + hint + self.place, steps, known

    def mix(self, tokens: Tensor, future: Tensor, known: Tensor) -> Tensor:
        """The tokens of the future after all blocks."""
        absent = 1e4 * (known[:, None, None].float() - 1)
        for block in self.encoder:
            tokens = block(tokens, absent)
        memory, absent = self.memory(tokens), F.pad(absent, (0, future.shape[1]))
        for block in self.decoder:
            future = block(future, absent, memory)
        mixed: Tensor = self.last(future)
        return mixed

    def outputs(self, future: Tensor, steps: Tensor, shift: Shift | None = None) -> Tensor:
        """Quantiles of each step: the median, and from it outward by positive amounts."""
        by_token = steps.reshape(steps.shape[0], HORIZON // self.size.patch, self.size.patch, STEP_FEATURES)
        steps = (by_token * self.gates(future).sigmoid().unsqueeze(2)).reshape(steps.shape)
        hidden = self.to_steps(future).reshape(steps.shape[0], HORIZON, self.size.step) + self.lagged(steps)
        raw = self.quantiles(F.relu(hidden))
        if shift is not None:
            raw = raw + shift(hidden, future.repeat_interleave(self.size.patch, 1))
        median = raw[..., :1] + self.straight(steps)
        gaps = (raw[..., 1:] + (raw[..., 1:].square() + 1).sqrt()) / 2  # positive, cheaper than softplus
        return torch.cat([median, gaps], -1) @ self.sums

    def save(self, path: Path, **metadata: str) -> None:
        """Write the weights in half precision, with the shape of the network beside them."""
        weights = {name: tensor.detach().to("cpu", torch.float16) for name, tensor in self.state_dict().items()}
        save_file(weights, path, {"size": json.dumps(asdict(self.size)), **metadata})

    @classmethod
    def load(cls, path: Path) -> PatchNetwork:
        """Read weights written by `save`."""
        with safe_open(path, "pt") as file:
            network = cls(PatchShape(**json.loads(file.metadata()["size"])))
            network.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})  # noqa: SIM118
        return network


def quantile_sums() -> Tensor:
    """Matrix that turns the median and the gaps between quantiles, from low to high, into the quantiles."""
    sums = torch.zeros(len(LEVELS), len(LEVELS))
    sums[0] = 1
    for i in range(len(LEVELS) - 1):  # the gap between quantile i and i + 1
        if i < MEDIAN:
            sums[i + 1, : i + 1] = -1
        else:
            sums[i + 1, i + 1 :] = 1
    return sums


def told(periods: Tensor) -> Tensor:
    """Both periods as bumps on their logarithm; 0, unknown, is nothing. (batch, 2 * TICKS)."""
    ticks = torch.arange(TICKS, device=periods.device) / 2
    place = torch.log2(periods.clamp(min=1).float()).unsqueeze(-1)
    return (torch.exp(-4 * (place - ticks) ** 2) * (periods > 0).float().unsqueeze(-1)).flatten(1)


def taken(x: Tensor, index: Tensor) -> Tensor:
    """Columns of x (batch, rows) by index (batch, n), or by one index (1, n) for all rows, which is cheaper."""
    return x[:, index[0]] if index.shape[0] == 1 else x.gather(1, index)


def seasonal_difference(z: Tensor, mask: Tensor, periods: Tensor) -> Tensor:
    """Difference to the value one main period before; 0 where either is missing or the period unknown."""
    period = periods[:, :1]
    before = torch.arange(z.shape[1], device=z.device) - period
    index = before.clamp(min=0)
    valid = mask * taken(mask, index) * ((before >= 0) & (period > 0)).float()
    return (z - taken(z, index)) * valid


def seasons_before(z: Tensor, mask: Tensor, periods: Tensor) -> Tensor:
    """For each step ahead and each period the values of the same phase in the last seasons, with masks, and their mean.

    (batch, steps, STEP_FEATURES)
    """
    step = torch.arange(HORIZON, device=z.device).view(1, -1, 1, 1)
    season = torch.arange(1, LAGS + 1, device=z.device)
    period = periods.view(-1, 1, 2, 1)
    whole = period.clamp(min=1)
    place = z.shape[1] + step - whole * (step // whole + season)
    index, shape = place.clamp(min=0).flatten(1), (z.shape[0], HORIZON, 2, LAGS)
    there = ((place >= 0) & (period > 0)).float() * taken(mask, index).reshape(shape)
    value = taken(z, index).reshape(shape) * there
    count = there.sum(-1, keepdim=True)
    mean = value.sum(-1, keepdim=True) / count.clamp(min=1)
    return torch.cat([value[..., :SEASONS_SHOWN], there[..., :SEASONS_SHOWN], mean, count / LAGS], -1).flatten(2)
