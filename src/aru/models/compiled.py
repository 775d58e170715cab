"""ARU and the baseline without torch: their weights as the compiled kernels take them.

For the usual networks on a CPU, `compile_model` gives the same updates and forecasts as the model itself, in one pass
over each series (`aru.kernels.network`); every other model computes with torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from aru.cell import ARUState
from aru.distributions import MIN_SIGMA, SMALL_COUNT, STUDENT_DF, NegativeBinomial
from aru.encoders import Embeddings, Gated
from aru.kernels import network as kernel
from aru.models.adapting import AdaptingState
from aru.models.aru import ARU, Fitted
from aru.models.base import Model, Output
from aru.models.baseline import Baseline
from aru.models.joint import SPREAD_PRIOR
from aru.models.network import Network
from aru.schema import Rows
from aru.state import SeriesState

Array = Any
INTEGRATIONS = {"paper": kernel.PAPER, "skip": kernel.SKIP, "residual": kernel.RESIDUAL, "direct": kernel.DIRECT}


class CompiledModel(NamedTuple):
    """A model's weights, frozen, and what turns the kernels' numbers into its forecasts."""

    model: Model
    shape: kernel.Shape
    weights: kernel.Weights

    def learn(self, state: SeriesState, member: Any, new: kernel.New) -> Any:
        """The model's part of the state after new rows of each series: `Model.update` and `Model.age` in one."""
        if not self.model.adapts:
            return member
        assert isinstance(member, AdaptingState)
        after = kernel.learn(self.shape, self.weights, context(state), new, _learned(member), state.steps.numpy())
        *stats, theta, now, g, scale = map(torch.from_numpy, after)
        return AdaptingState(Fitted(ARUState(*stats), theta, now), g, scale, member.carry)

    def forecast(self, state: SeriesState, member: Any, new: kernel.New, h: int) -> Output:
        """What `Model.forecast` gives."""
        learned = _learned(member) if self.model.adapts else NOTHING
        mu, raw, scale, failed = kernel.forecast(self.shape, self.weights, context(state), new, learned, h)
        params = self.model.family.params(torch.from_numpy(mu).unsqueeze(1), torch.from_numpy(raw).unsqueeze(1))
        return Output(self.model.predictive(params, torch.from_numpy(scale).unsqueeze(1)), torch.from_numpy(failed))


def context(state: SeriesState) -> kernel.Context:
    """The state's arrays."""
    s = state
    parts = s.y, s.observed, s.futr, s.futr_cat, s.hist, s.hist_cat, s.static, s.static_cat, s.total, s.count
    return kernel.Context._make(v.numpy() for v in parts)


def new_rows(rows: Rows, starts: Tensor, lengths: Tensor, skipped: Tensor) -> kernel.New:
    """Encoded rows, and whose they are."""
    parts = rows.y, rows.observed, rows.futr, rows.futr_cat, rows.hist, rows.hist_cat, starts, lengths, skipped
    return kernel.New._make(v.numpy() for v in parts)


def move_on(state: SeriesState, data: Rows, new: kernel.New, members: tuple[Any, ...]) -> SeriesState:
    """The states after new rows: contexts and clocks move on, and these are their members."""
    s = state
    old = kernel.Rows._make(v.numpy() for v in (s.ds, s.y, s.observed, s.futr, s.futr_cat, s.hist, s.hist_cat))
    clock = kernel.Clock._make(v.numpy() for v in (s.last, s.steps, s.total, s.count))
    rows = kernel.Rows._make(v.numpy() for v in data)
    moved, after = kernel.move_on(old, clock, rows, new.starts, new.lengths, new.skipped)
    last, steps, total, count = map(torch.from_numpy, after)
    ds, y, observed, futr, futr_cat, hist, hist_cat = map(torch.from_numpy, moved)
    return SeriesState(
        last, steps, total, count, y, observed, ds, futr, futr_cat, hist, hist_cat, s.static, s.static_cat, members
    )


def _learned(member: AdaptingState) -> kernel.Learned:
    local: Fitted = member.local
    return kernel.Learned._make(v.numpy() for v in (*local.stats, local.theta, local.now, member.g, member.scale))


NOTHING = kernel.Learned(
    *(np.zeros(shape) for shape in ((0, 0, 0, 0), (0, 0, 0), (0, 0), (0, 0), (0, 0, 0), (0, 0, 0))),
    np.zeros((0, 0), np.float32),
    np.zeros(0),
)


def compile_model(model: Model) -> CompiledModel | None:
    """The model's weights for the kernels; None where they do not know its network."""
    if type(model) not in (ARU, Baseline) or not isinstance(model.network, Network):
        return None
    net = model.network
    layers = list(net.encoder.layers)
    if net.decoder.rnn is not None or not all(isinstance(v, Gated) and isinstance(v.rnn, nn.LSTM) for v in layers):
        return None
    if isinstance(model, ARU) and model.cell_input != "h":
        return None
    with torch.no_grad():
        own = _joint(model) if isinstance(model, ARU) else _baseline(model)
        return CompiledModel(model, _shape(model), kernel.Weights(**_network(net), **own))


def _shape(model: Model) -> kernel.Shape:
    net = model.network
    scaling = net.scaling
    aru = model if isinstance(model, ARU) else None
    return kernel.Shape(
        input_size=net.input_size,
        stride=net.stride,
        season=net.season or 0 if isinstance(net, Network) else 0,
        level=scaling.kind == "level",
        transform=kernel.TRANSFORMS.index(net.transform),
        integration=kernel.HEAD if aru is None else INTEGRATIONS[aru.joint.integration],
        robust=aru is not None and aru.robust,
        counts=isinstance(model.family, NegativeBinomial),
        use_variance=aru is not None and aru.joint.use_variance,
        unit=float(scaling.unit),
        typical=float(scaling.typical),
        min_sigma=MIN_SIGMA,
        small_count=SMALL_COUNT,
        spread_prior=SPREAD_PRIOR,
        student_df=STUDENT_DF,
    )


def _network(net: Network) -> dict[str, Array]:
    first, *upper = (layer.rnn for layer in net.encoder.layers)  # type: ignore[union-attr]
    gates = _Rows(_gates(first.weight_ih_l0))
    decoder = net.decoder
    layers, lags = (_Rows(_beside(*v.split(decoder.widths, -1))) for v in (decoder.from_x, decoder.from_lag))
    futr, static, hist = net.futr_embeddings, net.static_embeddings, net.hist_embeddings
    numbers = net.numbers
    parts: dict[str, Array] = {"gates_past": gates.take(2)}
    for name, rows in (("gates", gates), ("layers", layers)):
        parts |= rows.covariates(f"{name}_futr", numbers.futr, futr)
        parts |= rows.covariates(f"{name}_static", numbers.static, static)
    parts |= gates.covariates("gates_hist", numbers.hist, hist)
    units = first.hidden_size
    return parts | {
        "gates_lag": gates.rest(),
        "layers_lag": lags.rest(),
        "futr_offsets": _offsets(futr),
        "static_offsets": _offsets(static),
        "hist_offsets": _offsets(hist),
        "lags": np.array(net.lags, np.int64),
        "gates_b": _gates((first.bias_ih_l0 + first.bias_hh_l0).unsqueeze(1))[0],
        "recurrent": _gates(first.weight_hh_l0),
        "upper_x": _stack([_gates(v.weight_ih_l0) for v in upper], (units, 4 * units)),
        "upper_h": _stack([_gates(v.weight_hh_l0) for v in upper], (units, 4 * units)),
        "upper_b": _stack([_gates((v.bias_ih_l0 + v.bias_hh_l0).unsqueeze(1))[0] for v in upper], (4 * units,)),
        "from_g": _wide(decoder.from_g.weight.T),
        "from_g_b": _wide(decoder.from_g.bias),
        "layer2": _deep(decoder.layer2.weight.T),
        "layer2_b": _wide(decoder.layer2.bias),
        "layer3": _deep(decoder.layer3.weight.T),
        "layer3_b": _wide(decoder.layer3.bias),
    }


class _Rows:
    """The rows of a weight matrix, taken from the top."""

    def __init__(self, weight: Array) -> None:
        self._weight, self._at = weight, 0

    def take(self, n: int) -> Array:
        self._at += n
        return np.ascontiguousarray(self._weight[self._at - n : self._at])

    def rest(self) -> Array:
        return self.take(len(self._weight) - self._at)

    def covariates(self, name: str, numbers: int, embeddings: Embeddings) -> dict[str, Array]:
        """The rows of numbers, and of every category the product of its embedding with its rows."""
        mine = self.take(numbers)
        tables = [table.weight.numpy() @ self.take(table.embedding_dim) for table in embeddings.tables]
        return {name: mine, f"{name}_tables": _stack_rows(tables, self._weight.shape[1])}


def _baseline(model: Baseline) -> dict[str, Array]:
    dim = model.head.in_features
    none = torch.zeros
    return {
        **_head(model.head),
        **{name: np.zeros(0) for name in ("alphas", "ridge")},
        **{name: _wide(none(0)) for name in ("mix", "out_mu_b", "out_sigma_b", "out_sigma")},
        **{name: _wide(none(0)) for name in ("ff1_b", "mu2_b", "sigma2_b")},
        **{name: _deep(none(dim, 0)) for name in ("ff1", "ff1_m", "ff1_a", "mu2", "sigma2", "out_mu")},
    }


def _joint(model: ARU) -> dict[str, Array]:
    joint, cell, dim = model.joint, model.cell, model.cell.input_size
    J = len(cell.alphas)
    parts = {
        **_head(joint.global_head),
        "alphas": cell.alphas.numpy().copy(),
        "ridge": cell.ridge.numpy().copy(),
        "mix": (joint.mix if joint.integration != "paper" else torch.zeros(J)).numpy().copy(),
        "out_sigma_b": joint.out_sigma.bias.numpy().copy(),
    }
    if joint.integration == "direct":
        empty = {name: _wide(torch.zeros(0)) for name in ("ff1_b", "mu2_b", "sigma2_b", "out_mu_b")}
        nothing = {n: _deep(torch.zeros(dim, 0)) for n in ("ff1", "ff1_m", "ff1_a", "mu2", "sigma2", "out_mu")}
        return parts | empty | nothing | {"out_sigma": joint.out_sigma.weight[0].numpy().copy()}
    (mu1, mu2), (sigma1, sigma2) = ((ff[0], ff[2]) for ff in (joint.ff_mu, joint.ff_sigma))
    return parts | {
        "ff1": _pad_rows(_beside(mu1.weight.T[:dim], sigma1.weight.T[:dim])),
        "ff1_b": np.concatenate([_wide(mu1.bias), _wide(sigma1.bias)]),
        "ff1_m": _wide(mu1.weight.T[dim:]),
        "ff1_a": _wide(sigma1.weight.T[dim:]),
        "mu2": _deep(mu2.weight.T),
        "mu2_b": _wide(mu2.bias),
        "sigma2": _deep(sigma2.weight.T),
        "sigma2_b": _wide(sigma2.bias),
        "out_mu": _wide(joint.out_mu.weight),
        "out_mu_b": joint.out_mu.bias.numpy().copy(),
        "out_sigma": _wide(joint.out_sigma.weight[0]),
    }


def _head(head: nn.Linear | None) -> dict[str, Array]:
    if head is None:
        return {"head": np.zeros((0, kernel.LANES), np.float32), "head_b": np.zeros(0, np.float32)}
    return {"head": _wide(head.weight), "head_b": head.bias.numpy().copy()}


def _gates(weight: Tensor) -> Array:
    """torch's (gates, inputs), in the order input, forget, cell, output -> (inputs, gates) as `kernel.Weights` says."""
    i, f, g, o = weight.chunk(4)
    return np.ascontiguousarray(torch.cat([-i, -f, -o, -2 * g]).T.numpy())


def _offsets(embeddings: Embeddings) -> Array:
    sizes = [len(table.weight) for table in embeddings.tables]
    return np.cumsum([0, *sizes], dtype=np.int64)[: len(sizes)]


def _wide(value: Tensor) -> Array:
    """Columns padded with zeros."""
    missing = -value.shape[-1] % kernel.LANES
    return np.ascontiguousarray(nn.functional.pad(value, (0, missing)).numpy())


def _deep(value: Tensor) -> Array:
    """Rows and columns padded with zeros."""
    return _pad_rows(_wide(value))


def _pad_rows(value: Array) -> Array:
    return np.pad(value, ((0, -len(value) % kernel.LANES), (0, 0)))


def _beside(*parts: Tensor) -> Array:
    return np.concatenate([_wide(part) for part in parts], -1)


def _stack(parts: Sequence[Array], shape: tuple[int, ...]) -> Array:
    return np.stack(parts) if parts else np.zeros((0, *shape), np.float32)


def _stack_rows(parts: Sequence[Array], width: int) -> Array:
    return np.concatenate(parts) if parts else np.zeros((0, width), np.float32)
