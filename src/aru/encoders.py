"""Encoder RNNs: a context window in, its summary g out. All share one signature."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Encoder(nn.Module):
    """A gated RNN over the context; g is the top layer's output at the origin."""

    def __init__(self, kind: str, input_size: int, units: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        cell = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
        self.rnn: nn.RNNBase = cell(
            input_size, units, num_layers=layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        self.units = units

    def forward(self, context: Float[Tensor, "batch time features"]) -> Float[Tensor, "batch units"]:
        """Summary of each context window."""
        return self.outputs(context)[:, -1]

    def outputs(self, rows: Float[Tensor, "batch time features"]) -> Float[Tensor, "batch time units"]:
        """The top layer's output at every row."""
        if rows.shape[0] == 0:
            return rows.new_zeros(0, rows.shape[1], self.units)
        output: Tensor = self.rnn(rows)[0]
        return output


def embedding_size(values: int) -> int:
    """Width of the embedding of a column with this many values: 4 for days of the week, 10 for days of the month."""
    return min(16, max(1, round(1.4 * math.exp(0.56 * math.log(max(values, 1))))))


class Embeddings(nn.Module):
    """One table per categorical column, side by side. Code 0 is "unknown".

    In training each series' column is unknown with a small probability, so that "unknown" is a trained entry.
    """

    def __init__(self, sizes: tuple[int, ...], hidden_rate: float = 0.02) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n + 1, embedding_size(n)) for n in sizes)
        self.width = sum(embedding_size(n) for n in sizes)
        self.hidden_rate = hidden_rate

    def forward(self, codes: Tensor) -> Tensor:
        """(series, ..., column) codes -> (series, ..., width)."""
        if not len(self.tables):
            return torch.zeros(*codes.shape[:-1], 0, device=codes.device)
        if self.training:
            drawn = torch.rand(codes.shape[0], codes.shape[-1], device=codes.device) < self.hidden_rate
            codes = codes.masked_fill(drawn.reshape(codes.shape[0], *(1,) * (codes.ndim - 2), -1), 0)
        return torch.cat([table(codes[..., i]) for i, table in enumerate(self.tables)], -1)
