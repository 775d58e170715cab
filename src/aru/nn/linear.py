"""Linear layers over many rows of few features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WORTHWHILE = 2**13  # for fewer numbers the overhead of calls dominates


class Linear(nn.Linear):
    """torch's linear layer, several times faster on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """x W^T + b."""
        return affine(x, self.weight, self.bias)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b for (..., features). On the CPU the features of a large result are the outermost dimension in memory.

    Libraries are slow at tall, narrow matrices and fast at a small matrix times a few long rows. Elementwise operations
    keep this memory order, so that the next layer profits, too.
    """
    if torch.onnx.is_in_onnx_export():  # as a matrix: ONNX Runtime then has one operation, bias included
        if x.ndim == 2:
            return functional.linear(x, weight, bias)
        inner = [int(n) for n in x.shape[1:-1]]  # only the number of series is dynamic
        outputs, inputs = (int(n) for n in weight.shape)
        return functional.linear(x.reshape(-1, inputs), weight, bias).reshape(-1, *inner, outputs)
    if x.device.type != "cpu" or x.numel() < WORTHWHILE:
        return functional.linear(x, weight, bias)
    rows = x.flatten(0, -2).T
    out = weight @ rows if bias is None else torch.addmm(bias.unsqueeze(1), weight, rows)
    result: Tensor = out.T.unflatten(0, x.shape[:-1])
    return result


def beside(*parts: Tensor) -> Tensor:
    """Concatenate features, leaving out those of width 0: an exported network cannot have empty inputs."""
    some = [part for part in parts if part.shape[-1]] or [parts[0]]
    return torch.cat(some, -1) if len(some) > 1 else some[0]
