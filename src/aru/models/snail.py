"""SNAIL: the global network with causal convolutions and attention over the context in place of an RNN.

After Mishra, Rohaninejad, Chen and Abbeel, "A simple neural attentive meta-learner" (ICLR 2018), with the layers of the
ARU paper's comparison: two convolutions with dilations 2 and 4, each followed by attention. A window is one sequence of
rows v: its context, then its leads, whose values are not known (value 0, mask 0).

    convolution   c_t = tanh(A_0 v_{t-d} + A_1 v_t + a) * sigmoid(B_0 v_{t-d} + B_1 v_t + b)      v_t <- [v_t, c_t]
    attention     r_t = sum_{j <= t} softmax_j(q_t . k_j / sqrt(d_k)) value_j                     v_t <- [v_t, r_t]
    decoder       h_k = FF([c, r of both layers at lead k, x_{o+k}])        FF as in the baseline

with q, k and value affine in v. Rows before the first value of a context are padding, which attention does not read.
Every row holds its time since the origin, because attention has no order and the convolutions reach back only six rows.

Widths: d_k and the number of filters are a quarter of the RNN units of the same `size`, the width of values is half of
them (4, 4 and 8 at medium size, as in the code of the ARU paper's authors). With rows of width D and u RNN units this
makes 4 D u + 2 u^2 weights, where the baseline's LSTM has 4 D u + 4 u^2.

`encoder`, `encoder_layers` and all options of the cell, from `alphas` to `robust`, are ignored.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from aru.data.schema import Schema
from aru.models.interface import CELL, Stateless
from aru.models.network import Decoder, Inputs
from aru.nn.distributions import Params
from aru.nn.linear import beside
from aru.nn.windows import Block, Grid, leads, scales
from aru.settings import Settings

DILATIONS = (2, 4)


class Convolution(nn.Module):
    """A gated causal convolution of two taps, t - dilation and t. Its filters join the row."""

    def __init__(self, width: int, filters: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.now = nn.Linear(width, 2 * filters)
        self.before = nn.Linear(width, 2 * filters, bias=False)

    def forward(self, rows: Float[Tensor, "batch row width"]) -> Float[Tensor, "batch row wider"]:
        """Rows before the first count as zero."""
        before = nn.functional.pad(self.before(rows), (0, 0, self.dilation, 0))[:, : rows.shape[1]]
        filtered, gate = (self.now(rows) + before).chunk(2, -1)
        return torch.cat([rows, filtered.tanh() * gate.sigmoid()], -1)


class Attention(nn.Module):
    """Attention over the rows that are not barred. Its result is appended to the row."""

    def __init__(self, width: int, keys: int, values: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, keys), nn.Linear(width, keys)
        self.value = nn.Linear(width, values)

    def forward(
        self, rows: Float[Tensor, "batch row width"], barred: Bool[Tensor, "batch reader row"]
    ) -> Float[Tensor, "batch reader wider"]:
        """Outputs of the last rows, as many as `barred` has readers."""
        readers = rows[:, -barred.shape[1] :]
        query = self.query(readers) / math.sqrt(self.query.out_features)
        logits = query @ self.key(rows).transpose(1, 2)
        weights = logits.masked_fill_(barred, -math.inf).softmax(-1)
        return torch.cat([readers, weights @ self.value(rows)], -1)


def barred_rows(padding: Bool[Tensor, "batch row"]) -> Bool[Tensor, "batch reader row"]:
    """Which rows each row must not read: later ones and padding. It always reads itself."""
    row = torch.arange(padding.shape[1], device=padding.device)
    return (row > row.unsqueeze(1)) | padding.unsqueeze(1) & (row != row.unsqueeze(1))


class SnailNetwork(Inputs):
    """Inputs, convolutions and attention over context and leads, the baseline's decoder."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        size = settings.network_size
        filters = keys = max(size.rnn // 4, 1)
        values = max(size.rnn // 2, 1)
        width = self.row_width = self.context_width + 1
        self.convolutions, self.attentions = nn.ModuleList(), nn.ModuleList()
        for dilation in DILATIONS:
            self.convolutions.append(Convolution(width, filters, dilation))
            self.attentions.append(Attention(width + filters, keys, values))
            width += filters + values
        self.decoder = Decoder(
            self.x_width, self.lag_width, width - self.row_width, size.hidden, settings.network.dropout
        )

    def decode(
        self, block: Block, grid: Grid
    ) -> tuple[Float[Tensor, "batch window lead dim"], Float[Tensor, "batch window"]]:
        """h of every lead after every origin, and the scales at the origins."""
        scale, _ = scales(block, grid, self.scaling)
        x = self.inputs(block.rows, block.static)
        lags = [self.future_lags(block, grid, scale, self.h)] if self.lags else []
        context = self.contexts(block, x, grid, scale)
        future = self._future(leads(x, grid, self.input_size, self.h), lags)
        rows = self._timed(torch.cat([context, future], 2))
        read = self.read(rows.flatten(0, 1)).reshape(*scale.shape, self.h, -1)
        projected = leads(self.decoder.project(x[:, self.input_size :]), grid, 0, self.h)
        return self.decoder(read, projected, lags), scale

    def _future(self, x: Tensor, lags: list[Tensor]) -> Tensor:
        """Rows of leads in the layout of contexts, with values and historic covariates missing."""
        hist = self.context_width - 2 - self.x_width - self.lag_width
        nothing, unknown = (x.new_zeros(*x.shape[:-1], width) for width in (2, hist))
        return beside(nothing, x, unknown, *lags)

    def _timed(self, rows: Tensor) -> Tensor:
        """Rows with their time since the origin, in units of the context's length."""
        since = torch.arange(1 - self.input_size, self.h + 1, dtype=rows.dtype, device=rows.device) / self.input_size
        return torch.cat([rows, since.unsqueeze(-1).expand(*rows.shape[:-1], 1)], -1)

    def read(self, rows: Float[Tensor, "window row width"]) -> Float[Tensor, "window lead features"]:
        """The outputs of both convolutions and both attentions at the leads."""
        padding = rows[..., 1].cumsum(1) == 0  # nothing observed yet
        padding[:, -self.h :] = False
        barred = barred_rows(padding)
        for convolution, attention in zip(self.convolutions, self.attentions, strict=True):
            last = attention is self.attentions[-1]  # only the leads of its rows are needed
            rows = attention(convolution(rows), barred[:, -self.h :] if last else barred)
        return rows[..., self.row_width :]


class Snail(Stateless):
    """SNAIL. It does not adapt: new observations only move its context."""

    network_class = SnailNetwork
    ignores = CELL | {"stride", "encoder", "encoder_layers"}
    network: SnailNetwork

    def __init__(self, settings: Settings, schema: Schema) -> None:
        super().__init__(settings, schema)
        self.head = nn.Linear(settings.network_size.hidden[-1], 2)

    def params(self, block: Block, grid: Grid) -> tuple[Params, Tensor]:
        """Parameters of every (batch, window, lead), and the scale at every origin."""
        h, scale = self.network.decode(block, grid)
        mu, raw = self.head(h).unbind(-1)
        return self.family.params(mu, raw), scale
