"""ARU and the baseline without torch: their weights as the compiled kernels take them.

For the usual networks on a CPU, `compile_model` gives the same updates and forecasts as the model itself, in one pass
over each series (`aru.kernels.network`); every other model computes with torch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from aru.cell import ARUState
from aru.distributions import MIN_SIGMA, SMALL_COUNT, STUDENT_DF, NegativeBinomial
from aru.encoders import Embeddings, Gated
from aru.kernels import contexts
from aru.kernels import network as kernel
from aru.kernels.lanes import CHAINS, LANES
from aru.models.adapting import AdaptingState
from aru.models.aru import ARU, Fitted
from aru.models.base import Model, Output
from aru.models.baseline import Baseline
from aru.models.joint import SPREAD_PRIOR
from aru.models.network import Network
from aru.schema import Rows
from aru.state import SeriesState

Array = Any
FLOATS = kernel.Weights._fields[: kernel.Weights._fields.index("alphas")]
INTEGRATIONS = {"paper": kernel.PAPER, "skip": kernel.SKIP, "residual": kernel.RESIDUAL, "direct": kernel.DIRECT}


class CompiledModel(NamedTuple):
    """A model's weights, frozen, and what turns the kernels' numbers into its forecasts."""

    model: Model
    network: kernel.Network

    def learn(self, state: SeriesState, member: Any, new: kernel.New) -> Any:
        """The model's part of the state after new rows of each series: `Model.update` and `Model.age` in one."""
        if not self.model.adapts:
            return member
        assert isinstance(member, AdaptingState)
        after = kernel.learn(self.network, context(state), new, _learned(member), state.steps.numpy())
        *stats, theta, now, g, scale = map(torch.from_numpy, after)
        return AdaptingState(Fitted(ARUState(*stats), theta, now), g, scale, member.carry)

    def forecast(self, state: SeriesState, member: Any, new: kernel.New, h: int) -> Output:
        """What `Model.forecast` gives."""
        learned = _learned(member) if self.model.adapts else NOTHING
        mu, raw, scale, failed = kernel.forecast(self.network, context(state), new, learned, h)
        params = self.model.family.params(torch.from_numpy(mu).unsqueeze(1), torch.from_numpy(raw).unsqueeze(1))
        return Output(self.model.predictive(params, torch.from_numpy(scale).unsqueeze(1)), torch.from_numpy(failed))


def context(state: SeriesState) -> kernel.Context:
    """The state's arrays."""
    s = state
    futr, futr_cat, hist, hist_cat = (v.flatten(0, 1) for v in (s.futr, s.futr_cat, s.hist, s.hist_cat))
    parts = s.y, s.observed, futr, futr_cat, hist, hist_cat, s.static, s.static_cat, s.total, s.count
    return kernel.Context._make(v.numpy() for v in parts)


def new_rows(rows: Rows, starts: Tensor, lengths: Tensor, skipped: Tensor) -> kernel.New:
    """Encoded rows, and whose they are."""
    parts = rows.y, rows.observed, rows.futr, rows.futr_cat, rows.hist, rows.hist_cat, starts, lengths, skipped
    return kernel.New._make(v.numpy() for v in parts)


def move_on(state: SeriesState, data: Rows, new: kernel.New, members: tuple[Any, ...]) -> SeriesState:
    """The states after new rows: contexts and clocks move on, and these are their members."""
    s = state
    old = contexts.Rows._make(v.numpy() for v in (s.ds, s.y, s.observed, s.futr, s.futr_cat, s.hist, s.hist_cat))
    clock = contexts.Clock._make(v.numpy() for v in (s.last, s.steps, s.total, s.count))
    rows = contexts.Rows._make(v.numpy() for v in data)
    moved, after = contexts.move_on(old, clock, rows, new.starts, new.lengths, new.skipped)
    last, steps, total, count = map(torch.from_numpy, after)
    ds, y, observed, futr, futr_cat, hist, hist_cat = map(torch.from_numpy, moved)
    return SeriesState(
        last, steps, total, count, y, observed, ds, futr, futr_cat, hist, hist_cat, s.static, s.static_cat, members
    )


def _learned(member: AdaptingState) -> kernel.Learned:
    local: Fitted = member.local
    return kernel.Learned._make(v.numpy() for v in (*local.stats, local.theta, local.now, member.g, member.scale))


_cube, _square = np.zeros((0, 0, 0)), np.zeros((0, 0))
NOTHING = kernel.Learned(_cube, _cube, _square, _square, _cube, _cube, _square.astype(np.float32), np.zeros(0))


def compile_model(model: Model) -> CompiledModel | None:
    """The model's weights for the kernels; None where they do not know its network."""
    if not isinstance(model, (ARU, Baseline)):
        return None
    net = model.network
    plain = [rnn for rnn in _rnns(net) if isinstance(rnn, nn.LSTM)]
    if len(plain) < len(net.encoder.layers) or net.decoder.rnn is not None:
        return None
    if isinstance(model, ARU) and model.cell_input != "h":
        return None
    with torch.no_grad():
        network = kernel.Network(_shape(model, net), _weights({**_network(net), **_own(model), **_plan(model, net)}))
        return CompiledModel(model, network)


def _weights(parts: dict[str, Array]) -> kernel.Weights:
    """Floats have 32 bits, but for the cell's own; parts that a network lacks are empty."""
    width = LANES
    empty = {name: np.zeros(0) if name.endswith("_b") or name == "mix" else np.zeros((0, width)) for name in FLOATS}
    single = {name: np.ascontiguousarray(parts.get(name, empty[name]), np.float32) for name in FLOATS}
    return kernel.Weights(**{**parts, **single})


def _plan(model: ARU | Baseline, net: Network) -> dict[str, Array]:
    """What is no float32."""
    cell = model.cell if isinstance(model, ARU) else None
    return {
        "alphas": np.zeros(0) if cell is None else cell.alphas.numpy().copy(),
        "ridge": np.zeros(0) if cell is None else cell.ridge.numpy().copy(),
        "futr_tables": _offsets(net.futr_embeddings),
        "static_tables": _offsets(net.static_embeddings),
        "hist_tables": _offsets(net.hist_embeddings),
        "lags": np.array(net.lags, np.int64),
    }


def _shape(model: Model, net: Network) -> kernel.Shape:
    aru = model if isinstance(model, ARU) else None
    return kernel.Shape(
        input_size=net.input_size,
        stride=net.stride,
        enough=net.scaling.enough,
        season=net.season or 0,
        prior=math.inf if net.scaling.prior is None else net.scaling.prior,
        transform=kernel.TRANSFORMS.index(net.transform),
        integration=kernel.HEAD if aru is None else INTEGRATIONS[aru.joint.integration],
        robust=aru is not None and aru.robust,
        counts=isinstance(model.family, NegativeBinomial),
        use_variance=aru is not None and aru.joint.use_variance,
        unit=float(net.scaling.unit),
        typical=float(net.scaling.typical),
        min_sigma=MIN_SIGMA,
        small_count=SMALL_COUNT,
        spread_prior=SPREAD_PRIOR,
        student_df=STUDENT_DF,
    )


def _network(net: Network) -> dict[str, Array]:
    first, *upper = _rnns(net)
    decoder, numbers, units = net.decoder, net.numbers, net.encoder.units
    gates = _Rows(_gates(first.weight_ih_l0))
    layers = _Rows(_beside(*decoder.from_x.split(decoder.widths, -1)))
    parts: dict[str, Array] = {"gates_past": gates.take(2)}
    for name, rows in (("gates", gates), ("layers", layers)):
        parts |= rows.covariates(f"{name}_futr", numbers.futr, net.futr_embeddings)
        parts |= rows.covariates(f"{name}_static", numbers.static, net.static_embeddings)
    parts |= gates.covariates("gates_hist", numbers.hist, net.hist_embeddings)
    return parts | {
        "gates_lag": gates.rest(),
        "layers_lag": _beside(*decoder.from_lag.split(decoder.widths, -1)),
        "gates_b": _gate_bias(first)[0],
        "recurrent": _pad_rows(_gates(first.weight_hh_l0)),
        "upper_x": _stack([_pad_rows(_gates(v.weight_ih_l0)) for v in upper], first),
        "upper_h": _stack([_pad_rows(_gates(v.weight_hh_l0)) for v in upper], first),
        "upper_b": _stack([_gate_bias(v) for v in upper], first),
        "layers_b": _beside(decoder.from_g.bias, decoder.layer2.bias),
        "from_g": _pad_rows(_beside(decoder.from_g.weight.T, torch.zeros(units, decoder.widths[1]))),
        "layer2": _deep(decoder.layer2.weight.T),
        "layer3": _deep(decoder.layer3.weight.T),
        "layer3_b": _wide(decoder.layer3.bias),
    }


def _rnns(net: Network) -> list[Any]:
    """torch's RNN of each layer, where there is one."""
    return [layer.rnn for layer in net.encoder.layers if isinstance(layer, Gated)]


class _Rows:
    """The rows of a weight matrix, taken from the top."""

    def __init__(self, weight: Array) -> None:
        self._weight, self._at = weight, 0

    def take(self, n: int) -> Array:
        self._at += n
        return self._weight[self._at - n : self._at]

    def rest(self) -> Array:
        return self.take(len(self._weight) - self._at)

    def covariates(self, name: str, numbers: int, embeddings: Embeddings) -> dict[str, Array]:
        """The rows of numbers, and of every category the product of its embedding with its rows."""
        mine = self.take(numbers)
        tables = [weight @ self.take(weight.shape[1]) for weight in _tables(embeddings)]
        return {name: mine, f"{name}_tables": np.concatenate([mine[:0], *tables])}


def _own(model: ARU | Baseline) -> dict[str, Array]:
    """The weights behind h."""
    if isinstance(model, Baseline):
        return _columns("head", model.head)
    joint, dim = model.joint, model.cell.input_size
    parts: dict[str, Array] = _columns("out_sigma", joint.out_sigma)
    if joint.global_head is not None:
        parts |= _columns("head", joint.global_head)
    # Without a mix, local means enter by the layers alone.
    parts["mix"] = np.zeros(len(model.cell.alphas)) if joint.integration == "paper" else joint.mix.numpy()
    if joint.integration == "direct":
        return parts | {"sigma1_a": np.zeros((_padded(len(model.cell.alphas)), LANES))}
    layers: list[Any] = [*joint.ff_mu, *joint.ff_sigma]
    mu1, _, mu2, _, sigma1, _, sigma2, _ = layers
    return parts | {
        "mu1": _deep(mu1.weight.T),
        "mu1_b": _wide(mu1.bias),
        "sigma1": _deep(sigma1.weight.T[:dim]),
        "sigma1_a": _deep(sigma1.weight.T[dim:]),
        "sigma1_b": _wide(sigma1.bias),
        "mu2": _deep(mu2.weight.T),
        "mu2_b": _wide(mu2.bias),
        "sigma2": _deep(sigma2.weight.T),
        "sigma2_b": _wide(sigma2.bias),
        **_columns("out_mu", joint.out_mu),
    }


def _columns(name: str, layer: nn.Linear) -> dict[str, Array]:
    return {name: _deep(layer.weight.T), f"{name}_b": _wide(layer.bias)}


def _gates(weight: Tensor) -> Array:
    """torch's (gates, inputs), in the order input, forget, cell, output -> (inputs, gates) as `kernel.Weights` says."""
    i, f, g, o = weight.T.chunk(4, -1)
    return _beside(-i, -f, -o, -2 * g)


def _gate_bias(rnn: Any) -> Array:
    return _gates((rnn.bias_ih_l0 + rnn.bias_hh_l0).unsqueeze(1))


def _stack(parts: list[Array], like: Any) -> Array:
    return np.concatenate(parts) if parts else np.zeros((0, 4 * _padded(like.hidden_size)))


def _tables(embeddings: Embeddings) -> list[Array]:
    tables: list[Any] = list(embeddings.tables)
    return [table.weight.numpy() for table in tables]


def _offsets(embeddings: Embeddings) -> Array:
    sizes = [len(weight) for weight in _tables(embeddings)]
    return np.cumsum([0, *sizes], dtype=np.int64)[: len(sizes)]


def _wide(value: Tensor) -> Array:
    """Columns padded with zeros."""
    return nn.functional.pad(value, (0, _padded(value.shape[-1]) - value.shape[-1])).numpy()


def _deep(value: Tensor) -> Array:
    """Rows and columns padded with zeros."""
    return _pad_rows(_wide(value), CHAINS)


def _pad_rows(value: Array, multiple: int = LANES) -> Array:
    return np.pad(value, ((0, -len(value) % multiple), (0, 0)))


def _padded(width: int) -> int:
    return width + -width % LANES


def _beside(*parts: Tensor) -> Array:
    return np.concatenate([_wide(part) for part in parts], -1)
