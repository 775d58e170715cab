"""Networks in ONNX Runtime: functions of a model, exported by torch as graphs and run without it.

An exported function depends only on weights and arguments. Its inputs are the tensors of its arguments, named by their
paths ("context.rows.y"), with the series as leading dimension; unused inputs are left out. Series are computed in parts
of a fixed size, each on one thread, so that a result does not depend on the other series.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, cast

import jaxtyping
import numpy as np
import torch
from torch import Tensor, nn

from aru.nn.threads import in_parallel
from aru.nn.tree import leaves, rebuild

OPSET = 17
PART = 512  # series in one run: its data then fit into the processor's cache
# ONNX Runtime computes softplus and logarithms of this many numbers at once. For a remainder it uses another formula,
# which differs in the last bit. With multiples of LANES no result depends on the number of series.
LANES = 4


class Sessions:
    """Exported functions of one model by name. Every process and every copy creates its own sessions."""

    def __init__(self, graphs: Mapping[str, bytes], part: int = PART) -> None:
        """`part`: series in one run."""
        self.graphs, self._part = dict(graphs), part
        self._process = os.getpid()
        self._open: dict[str, _Session] = {}

    def run(self, name: str, arguments: Mapping[str, Any]) -> list[Tensor]:
        """The outputs of a function. `arguments` are trees of tensors by name."""
        if self._process != os.getpid():  # a forked process cannot use its parent's sessions
            self._process, self._open = os.getpid(), {}
        if name not in self._open:
            self._open[name] = _Session(self.graphs[name], self._part)
        return self._open[name].run(arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sessions, (self.graphs, self._part)


class _Session:
    """One graph, ready to run on several threads at once."""

    def __init__(self, graph: bytes, part: int) -> None:
        import onnxruntime  # takes a moment to load

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._part = part
        self._inputs: list[tuple[str, str, Any]] = []  # name, its argument, and its getter
        for value in self._session.get_inputs():
            argument, _, path = value.name.partition(".")
            self._inputs.append((value.name, argument, attrgetter(path) if path else lambda tensor: tensor))

    def run(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        feed = {name: find(arguments[argument]).numpy() for name, argument, find in self._inputs}
        n = len(feed[self._inputs[0][0]])
        whole = n + -n % LANES
        if n == 0:  # a graph needs some series: run zeros
            feed, whole = {name: np.zeros((LANES, *v.shape[1:]), v.dtype) for name, v in feed.items()}, LANES
        elif whole > n:  # pad with copies of the last series
            index = np.minimum(np.arange(whole), n - 1)
            feed = {name: v.take(index, 0) for name, v in feed.items()}
        if whole <= self._part:
            return [torch.from_numpy(v[:n]) for v in self._session.run(None, feed)]
        feed = {name: np.ascontiguousarray(value) for name, value in feed.items()}
        parts = in_parallel(
            lambda lo, hi: self._session.run(None, {k: v[lo:hi] for k, v in feed.items()}), whole, self._part
        )
        return [torch.from_numpy(np.concatenate(values)[:n]) for values in zip(*parts, strict=True)]


class _Function(nn.Module):
    """A function of a model with flat arguments, as the exporter needs it."""

    def __init__(self, model: nn.Module, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model  # registers its weights
        self._function, self._like = function, arguments
        self.inputs = dict(pair for name, tree in arguments.items() for pair in leaves(tree, name))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The function's result as a flat tuple of tensors."""
        flat = dict(zip(self.inputs, tensors, strict=True))
        return tuple(self._function(*(rebuild(tree, flat, name) for name, tree in self._like.items())))


def export(model: nn.Module, function: Callable[..., Any], arguments: Sequence[Any], long: Iterable[str] = ()) -> bytes:
    """The graph of a function of trees of tensors, for any number of series, and of rows in the inputs `long`."""
    wrapped = _Function(model, function, dict(zip(parameters(function), arguments, strict=True)))
    wrapped.eval()  # the exporter restores the mode that it finds
    values = tuple(wrapped.inputs.values())
    sink = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings(), _unchecked():
        warnings.simplefilter("ignore")  # the tracer warns about shapes; tests compare the graphs with torch
        outputs = [f"output.{i}" for i in range(len(wrapped(*values)))]
        torch.onnx.export(
            wrapped,
            values,
            cast(Any, sink),  # the exporter also accepts a file in memory
            input_names=list(wrapped.inputs),
            output_names=outputs,
            dynamic_axes={name: {0: "series"} for name in (*wrapped.inputs, *outputs)}
            | {name: {0: "series", 1: "rows"} for name in long},
            opset_version=OPSET,
            dynamo=False,
        )
    return sink.getvalue()


@contextlib.contextmanager
def _unchecked() -> Iterator[None]:
    """Disable checks of annotations: while a function is traced, shapes are tensors."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of a function's arguments."""
    return list(inspect.signature(function).parameters)
