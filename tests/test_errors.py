"""The exception tree is the one that its module draws, and messages list the first few items."""

from __future__ import annotations

import inspect
import re

import pytest

from aru import errors
from aru.errors import SHOWN, AruError, AruWarning, listing

CLASSES = {n: c for n, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__}


def drawn_tree() -> dict[str, tuple[str | None, str | None]]:
    """Class -> (parent in the drawing, builtin in brackets), from the module's docstring."""
    assert errors.__doc__ is not None
    tree: dict[str, tuple[str | None, str | None]] = {}
    path: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"^(?P<indent>[ │├└─]*)(?P<name>[A-Z]\w+(?:Error|Warning))(?: \((?P<builtin>\w+)\))?", line)
        if match is None:
            continue
        depth = len(match["indent"])
        path = [(d, n) for d, n in path if d < depth]
        tree[match["name"]] = (path[-1][1] if path else None, match["builtin"])
        path.append((depth, match["name"]))
    return tree


def test_the_drawing_is_the_tree() -> None:
    tree = drawn_tree()
    assert set(tree) == set(CLASSES)
    assert len(tree) == 15
    for name, (parent, builtin) in tree.items():
        bases = [b.__name__ for b in CLASSES[name].__bases__]
        expected = [b for b in (parent, builtin) if b is not None] or ["Exception"]
        assert bases == expected, name


def test_everything_raised_on_purpose_can_be_caught_as_one() -> None:
    for name, kind in CLASSES.items():
        assert issubclass(kind, AruError) != (name == "AruWarning")
        assert kind.__doc__
    assert issubclass(AruWarning, UserWarning)
    with pytest.raises(ValueError, match="rows"):  # what users of other libraries catch
        raise errors.DuplicateError("rows")


@pytest.mark.parametrize(
    ("items", "shown", "text"),
    [
        ([], SHOWN, ""),
        ([3], SHOWN, "3"),
        (["a", "b"], SHOWN, "a, b"),
        (range(5), SHOWN, "0, 1, 2, 3, 4"),
        (range(6), SHOWN, "0, 1, 2, 3, 4 and 1 more"),
        (range(100), SHOWN, "0, 1, 2, 3, 4 and 95 more"),
        (("a", "b", "c"), 1, "a and 2 more"),
        (range(6), 20, "0, 1, 2, 3, 4, 5"),
    ],
)
def test_listing(items: list[object], shown: int, text: str) -> None:
    assert listing(items, shown) == text


def test_listing_shows_five_unless_told() -> None:
    assert listing(list("abcdefg")) == "a, b, c, d, e and 2 more"
