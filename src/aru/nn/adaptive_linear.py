"""`AdaptiveLinear`: a linear layer whose weights adapt to every series in closed form.

The layer of the network is the prior mean. Per series and output, the ARU cell regresses the layer's errors on its
input. With an empty state the output is that of the layer:

    output = W h + b + theta . [h, 1]        theta = (sxx + lambda I)^-1 sum of [h, 1] (y - W h - b)
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from aru.nn.cell import ARUCell, ARUState, raise_failed


class AdaptiveLinear(nn.Linear):
    """A drop-in for `torch.nn.Linear`. With a state, its weights are those of each series.

    States are batched over series: `state = layer.init_state(batch)`, `out = layer(h, state)`, and once y is known
    `state = layer.update(state, h, y)`. Gradients pass through both.

    Args:
        in_features: Size of the input.
        out_features: Number of outputs; each has its own local regression.
        bias: Whether the layer has a bias. The local correction always has one.
        alpha: Aging factor of the statistics, per update.
        ridge: Ridge penalty: it shrinks the local correction to zero.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, alpha: float = 1.0, ridge: float = 1.0
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.cell = ARUCell(in_features, (alpha,), ridge)

    @classmethod
    def of(cls, layer: nn.Linear, alpha: float = 1.0, ridge: float = 1.0) -> AdaptiveLinear:
        """An adaptive layer that shares the parameters of a trained one."""
        made = cls(layer.in_features, layer.out_features, layer.bias is not None, alpha, ridge)
        made.weight, made.bias = layer.weight, layer.bias
        return made

    def init_state(self, batch_size: int) -> ARUState:
        """The state of series without observations. Its second dimension is the output."""
        one = self.cell.init_state(batch_size * self.out_features)
        return ARUState(*(v.squeeze(1).unflatten(0, (batch_size, self.out_features)) for v in one))

    def forward(
        self, input: Float[Tensor, "*batch size"], state: ARUState | None = None
    ) -> Float[Tensor, "*batch out"]:
        """Outputs for (batch, ..., in_features); with a state, of each series' adapted layer."""
        out = super().forward(input)
        if state is None:
            return out
        theta, failed = self.cell.solve(_rows(state))
        raise_failed(failed)
        theta = theta.reshape(state.sxy.shape)
        x = nn.functional.pad(input.double(), (0, 1), value=1.0).reshape(len(input), -1, theta.shape[-1])
        return out + (x @ theta.mT).reshape(out.shape).to(out.dtype)

    def update(
        self,
        state: ARUState,
        input: Float[Tensor, "batch size"],
        y: Float[Tensor, "batch out"],
        mask: Bool[Tensor, "batch out"] | None = None,
    ) -> ARUState:
        """Take in one observation per series. Where `mask` is false y may be NaN, and the statistics only age."""
        missed = (y - super().forward(input)).flatten()
        h = input.repeat_interleave(self.out_features, 0)
        new = self.cell.update(_rows(state), h, missed, None if mask is None else mask.flatten())
        return ARUState(*(v.reshape(o.shape) for v, o in zip(new, state, strict=True)))


def _rows(state: ARUState) -> ARUState:
    """(batch, out, ...) -> the cell's (batch * out, 1, ...)."""
    return ARUState(*(v.flatten(0, 1).unsqueeze(1) for v in state))
