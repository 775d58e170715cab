"""CUDA graphs: the kernels of a training step are recorded once and from then on launched together.

A training step of a small network has hundreds of kernels, each of which runs shorter than its launch takes. A
recording needs the same shapes and memory at every call; only the values of its inputs may change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[..., tuple[Tensor, ...]]


class Recorded(nn.Module):
    """A function of tensors and a model's weights. Its outputs are valid until the next call."""

    def __init__(self, model: nn.Module, step: Step) -> None:
        super().__init__()
        self.model = model  # so that its weights get gradients
        self.step = step

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Runs once with autograd while it is recorded; later calls replay."""
        return self.step(*inputs)


class Recorder:
    """Recordings by a key for everything that is fixed in them. They share memory, so only one runs at a time."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.recordings: dict[Hashable, Recorded] = {}
        self.pool: Any = torch.cuda.graph_pool_handle()

    def run(self, key: Hashable, step: Step, *inputs: Tensor) -> tuple[Tensor, ...]:
        """step(*inputs), recorded at the first call with this key. The inputs have no gradients."""
        if key not in self.recordings:
            recorded = Recorded(self.model, step)
            with warnings.catch_warnings():
                # Nodes of an earlier step may be alive; gradients are not accumulated while a step is recorded.
                warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream does not match")
                torch.cuda.make_graphed_callables(recorded, inputs, allow_unused_input=True, pool=self.pool)
            self.recordings[key] = recorded
        outputs: tuple[Tensor, ...] = self.recordings[key](*inputs)
        return outputs
