"""CUDA graphs: a step whose kernels are recorded once and launched together from then on.

A training step of a small network is hundreds of kernels that each take less time than their launch. A recording needs
the same shapes and the same memory at every call; what differs between calls are the values of its inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[..., tuple[Tensor, ...]]


class Recorded(nn.Module):
    """A function of tensors that uses the weights of a model. Its outputs hold until the next call."""

    def __init__(self, model: nn.Module, step: Step) -> None:
        super().__init__()
        self.model = model  # so that its weights get their gradients
        self.step = step

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Runs once with autograd while it is recorded; later calls replay."""
        return self.step(*inputs)


class Recorder:
    """Recordings by a key that stands for all that is fixed in them. They share memory: one runs after the other."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.recordings: dict[Hashable, Recorded] = {}
        self.pool: Any = torch.cuda.graph_pool_handle()

    def run(self, key: Hashable, step: Step, *inputs: Tensor) -> tuple[Tensor, ...]:
        """step(*inputs), recorded when its key comes for the first time. The inputs have no gradients."""
        if key not in self.recordings:
            recorded = Recorded(self.model, step)
            with warnings.catch_warnings():
                # Nodes of an earlier step may be alive; gradients are not accumulated while a step is recorded.
                warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream does not match")
                torch.cuda.make_graphed_callables(recorded, inputs, allow_unused_input=True, pool=self.pool)
            self.recordings[key] = recorded
        outputs: tuple[Tensor, ...] = self.recordings[key](*inputs)
        return outputs
