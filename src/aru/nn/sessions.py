"""Networks in ONNX Runtime: functions of a model as graphs, exported by torch and run without it.

An exported function depends on weights and arguments alone. Its inputs are the tensors of its arguments, named by their
paths ("context.rows.y"), with the series as leading dimension; inputs that it does not use are left out. Series are
computed in parts of a fixed size on one thread each, so that an answer does not depend on the series beside it.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, cast

import jaxtyping
import numpy as np
import torch
from torch import Tensor, nn

from aru.nn.threads import in_parallel
from aru.nn.tree import leaves, rebuild

OPSET = 17
PART = 512  # series in one run: what a run works on stays in the processor's cache
# ONNX Runtime computes softplus and logarithms of this many numbers at once; those of a remainder by another formula
# that differs in the last bit. With a multiple of it no answer depends on how many series there are.
LANES = 4


class Sessions:
    """Exported functions of one model by name. Sessions are made anew in every process and for every copy."""

    def __init__(self, graphs: Mapping[str, bytes]) -> None:
        self.graphs = dict(graphs)
        self._process = os.getpid()
        self._open: dict[str, _Session] = {}

    def run(self, name: str, arguments: Mapping[str, Any]) -> list[Tensor]:
        """The outputs of a function of these arguments, trees of tensors by name."""
        if self._process != os.getpid():  # a forked process has no use for its parent's
            self._process, self._open = os.getpid(), {}
        if name not in self._open:
            self._open[name] = _Session(self.graphs[name])
        return self._open[name].run(arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sessions, (self.graphs,)


class _Session:
    """One graph, ready to run on several threads at once."""

    def __init__(self, graph: bytes) -> None:
        import onnxruntime  # takes a moment to load

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._inputs: list[tuple[str, str, Any]] = []  # name, the argument that it is of, and how to find it there
        for value in self._session.get_inputs():
            argument, _, path = value.name.partition(".")
            self._inputs.append((value.name, argument, attrgetter(path) if path else lambda tensor: tensor))

    def run(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        feed = {name: find(arguments[argument]).numpy() for name, argument, find in self._inputs}
        n = len(feed[self._inputs[0][0]])
        whole = n + -n % LANES
        if n == 0:  # any series stands in
            feed, whole = {name: np.zeros((LANES, *v.shape[1:]), v.dtype) for name, v in feed.items()}, LANES
        elif whole > n:  # the last series stands in for those that are missing
            index = np.minimum(np.arange(whole), n - 1)
            feed = {name: v.take(index, 0) for name, v in feed.items()}
        if whole <= PART:
            return [torch.from_numpy(v[:n]) for v in self._session.run(None, feed)]
        feed = {name: np.ascontiguousarray(value) for name, value in feed.items()}
        parts = in_parallel(lambda lo, hi: self._session.run(None, {k: v[lo:hi] for k, v in feed.items()}), whole, PART)
        return [torch.from_numpy(np.concatenate(values)[:n]) for values in zip(*parts, strict=True)]


class _Function(nn.Module):
    """A function of a model with its arguments spread out, as the exporter wants it."""

    def __init__(self, model: nn.Module, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model  # so that its weights are found
        self._function, self._like = function, arguments
        self.inputs = dict(pair for name, tree in arguments.items() for pair in leaves(tree, name))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """What the function returns, a flat tuple of tensors."""
        flat = dict(zip(self.inputs, tensors, strict=True))
        return tuple(self._function(*(rebuild(tree, flat, name) for name, tree in self._like.items())))


def export(model: nn.Module, function: Callable[..., Any], arguments: Sequence[Any]) -> bytes:
    """The graph of a function of trees of tensors, for any number of series."""
    wrapped = _Function(model, function, dict(zip(parameters(function), arguments, strict=True)))
    wrapped.eval()  # the exporter puts it, and the model in it, back into the mode that it finds
    values = tuple(wrapped.inputs.values())
    sink = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings(), _unchecked():
        warnings.simplefilter("ignore")  # remarks of the tracer on shapes, which tests compare with torch
        outputs = [f"output.{i}" for i in range(len(wrapped(*values)))]
        torch.onnx.export(
            wrapped,
            values,
            cast(Any, sink),  # a file in memory is taken, too
            input_names=list(wrapped.inputs),
            output_names=outputs,
            dynamic_axes={name: {0: "series"} for name in (*wrapped.inputs, *outputs)},
            opset_version=OPSET,
            dynamo=False,
        )
    return sink.getvalue()


@contextlib.contextmanager
def _unchecked() -> Iterator[None]:
    """Shapes are tensors while a function is traced, which no check of annotations expects."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of a function's arguments."""
    return list(inspect.signature(function).parameters)
