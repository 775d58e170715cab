"""The state of series: what a forecast needs and nothing more, for many series at once.

All tensors have the series as leading dimension. Sizes depend on the configuration, never on the length of history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

Tree = TypeVar("Tree")


class SeriesState(NamedTuple):
    """Context, running scale and clock of each series, and what each model of an ensemble keeps about it."""

    last: Tensor  # (series,) int64: timestamp of the latest row
    steps: Tensor  # (series,) int64: time steps since the first value; -1 before it
    total: Tensor  # (series,) float64: sum of |y|
    count: Tensor  # type: ignore[assignment]  # (series,) float64: number of observations; hides tuple.count
    y: Tensor  # (series, history) float64, 0 where missing
    observed: Tensor  # (series, history) bool
    ds: Tensor  # (series, context) int64
    futr: Tensor  # (series, context, .) float32
    futr_cat: Tensor
    hist: Tensor
    hist_cat: Tensor
    static: Tensor  # (series, .) float32
    static_cat: Tensor
    members: tuple[Any, ...]  # one NamedTuple of tensors per model
    track: Any = ()  # what became of earlier forecasts, with a gate or with calibration (aru.tracking)


def tree_map(function: Callable[..., Tensor], first: Tree, *rest: Tree) -> Tree:
    """Apply a function to the tensors of nested tuples."""
    if isinstance(first, Tensor):
        return function(first, *rest)  # type: ignore[return-value]
    assert isinstance(first, tuple)
    parts = [tree_map(function, *group) for group in zip(first, *rest, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)  # type: ignore[return-value]


def take(state: Tree, index: Tensor) -> Tree:
    """The states of some series."""
    return tree_map(lambda v: v[index], state)


def put(state: Tree, index: Tensor, new: Tree) -> Tree:
    """`state` with the series at `index` replaced; `state` itself is left alone."""
    return tree_map(lambda old, value: old.index_copy(0, index, value.to(old.dtype)), state, new)


def concat(states: list[Tree]) -> Tree:
    """States of several groups of series, one after the other."""
    return tree_map(lambda *v: torch.cat(v), *states)


def to_dict(state: Any) -> dict[str, Tensor]:
    """Flat dictionary of contiguous CPU tensors, keyed by path."""
    return {key: value.detach().cpu().contiguous() for key, value in leaves(state)}


def from_dict(like: Tree, flat: Mapping[str, Tensor]) -> Tree:
    """The inverse of `to_dict`; `like` gives the structure and the device."""
    # Copied, because tensors in a file lie anywhere: results are equal to the bit only for aligned memory.
    return replace_leaves(like, {key: value.clone() for key, value in flat.items()})


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of nested tuples, each with its path."""
    if isinstance(tree, Tensor):
        yield prefix, tree
        return
    for name, part in _children(prefix, tree):
        yield from leaves(part, name)


def replace_leaves(like: Tree, flat: Mapping[str, Tensor]) -> Tree:
    """The same tree with other tensors, by path, on the same devices."""
    restored: Tree = _restore("", like, flat)
    return restored


def _children(prefix: str, value: Any) -> list[tuple[str, Any]]:
    names = value._fields if hasattr(value, "_fields") else map(str, range(len(value)))
    return [(f"{prefix}.{name}" if prefix else name, part) for name, part in zip(names, value, strict=True)]


def _restore(prefix: str, like: Any, flat: Mapping[str, Tensor]) -> Any:
    if isinstance(like, Tensor):
        return flat[prefix].to(like.device)
    parts = [_restore(name, part, flat) for name, part in _children(prefix, like)]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
