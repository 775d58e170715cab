"""Nested tuples of tensors: what states, rows and blocks are made of.

A tree is a tensor, or a (named) tuple of trees. All tensors of a tree have the series as leading dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

Tree = TypeVar("Tree")


def tree_map(function: Callable[..., Tensor], first: Tree, *rest: Tree) -> Tree:
    """Apply a function to the tensors of one or several trees of the same structure."""
    if isinstance(first, Tensor):
        return function(first, *rest)  # type: ignore[return-value]
    assert isinstance(first, tuple)
    mapped: Tree = _like(first, [tree_map(function, *group) for group in zip(first, *rest, strict=True)])
    return mapped


def take(tree: Tree, index: Tensor) -> Tree:
    """The tree of the series at `index`."""
    return tree_map(lambda v: v[index], tree)


def put(tree: Tree, index: Tensor, new: Tree) -> Tree:
    """`tree` with the series at `index` replaced; `tree` itself is left alone."""
    return tree_map(lambda old, value: old.index_copy(0, index, value.to(old.dtype)), tree, new)


def concat(trees: list[Tree]) -> Tree:
    """The series of several trees, one after the other."""
    return tree_map(lambda *v: torch.cat(v), *trees) if len(trees) > 1 else trees[0]


def flatten(tree: Any) -> list[Tensor]:
    """The tensors of a tree, in the order of `leaves`."""
    if isinstance(tree, Tensor):
        return [tree]
    return [tensor for part in tree for tensor in flatten(part)]


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a tree, each with its path: "context.y"."""
    if isinstance(tree, Tensor):
        yield prefix, tree
        return
    names = tree._fields if hasattr(tree, "_fields") else map(str, range(len(tree)))
    for name, part in zip(names, tree, strict=True):
        yield from leaves(part, f"{prefix}.{name}" if prefix else name)


def rebuild(like: Tree, flat: Mapping[str, Tensor], prefix: str = "") -> Tree:
    """A tree with the structure and devices of `like` and the tensors of `flat`, by path."""
    if isinstance(like, Tensor):
        value = flat[prefix]
        return value if value.device == like.device else value.to(like.device)  # type: ignore[return-value]
    assert isinstance(like, tuple)
    names = like._fields if hasattr(like, "_fields") else map(str, range(len(like)))
    paths = [f"{prefix}.{name}" if prefix else name for name in names]
    rebuilt: Tree = _like(like, [rebuild(part, flat, path) for part, path in zip(like, paths, strict=True)])
    return rebuilt


def _like(tree: Any, parts: list[Any]) -> Any:
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
