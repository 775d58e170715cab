"""The exception tree is the one that its module draws, and messages list the first few items."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from aru import errors
from aru.errors import SHOWN, AruError, AruWarning, Offending, listing, reword

DEFINED = {n: c for n, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__}
CLASSES = {n: c for n, c in DEFINED.items() if issubclass(c, BaseException)}


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


# What an error says, and of what


def spelled(name: str) -> str:
    """The names that a command line would use."""
    return {"new_df": "--new", "late='skip'": "--late skip"}.get(name, name.upper())


def test_an_error_is_its_problem_and_its_remedy() -> None:
    error = errors.LateError("`new_df` has 2 late rows", "Drop them, or pass `late='skip'`.", columns=["ds"])
    assert str(error) == "new_df has 2 late rows. Drop them, or pass late='skip'."
    assert error.worded(spelled) == "--new has 2 late rows. Drop them, or pass --late skip."
    assert (error.problem, error.remedy) == ("`new_df` has 2 late rows", "Drop them, or pass `late='skip'`.")
    assert (error.columns, error.rows) == (("ds",), None)
    assert str(errors.ConfigError("`h` is missing")) == "h is missing."
    assert AruError("", "Look.").columns == ()


@pytest.mark.parametrize("kind", [c for c in CLASSES.values() if issubclass(c, AruError)], ids=lambda c: c.__name__)
def test_errors_survive_another_process(kind: type[AruError]) -> None:
    rows = Offending({"unique_id": ["a"], "ds": ["1"]}, 7)
    for twin in (
        copy.copy(e := kind("`df` is odd", "Mend it.", columns=["y"], rows=rows)),
        pickle.loads(pickle.dumps(e)),
    ):
        assert type(twin) is kind
        assert str(twin) == str(e) == "df is odd. Mend it."
        assert (twin.problem, twin.remedy, twin.columns) == (e.problem, e.remedy, ("y",))
        assert twin.rows is not None
        assert (twin.rows.columns, len(twin.rows)) == (rows.columns, 7)


def test_a_warning_is_worded_likewise() -> None:
    warning = AruWarning("Rows of `new_df` are odd. Use `late='skip'`.")
    assert str(warning) == "Rows of new_df are odd. Use late='skip'."
    assert warning.worded(spelled) == "Rows of --new are odd. Use --late skip."
    assert reword("`a`, b and `c d`", str.upper) == "A, b and C D"
    assert reword("`a`, b and `c d`") == "a, b and c d"


def test_rows_are_counted_and_the_first_are_shown() -> None:
    ids, times = list("abcdefg"), [f"2024-01-0{i}" for i in range(1, 8)]
    rows = Offending({"unique_id": ids, "ds": times}, 40)
    assert len(rows) == rows.total == 40
    assert str(rows) == (
        "(a, 2024-01-01), (b, 2024-01-02), (c, 2024-01-03), (d, 2024-01-04), (e, 2024-01-05) and 35 more"
    )
    assert str(Offending({"unique_id": ids[:2], "ds": times[:2]})) == "(a, 2024-01-01), (b, 2024-01-02)"
    assert str(Offending({"unique_id": ["a"]})) == "a"
    assert str(Offending({"unique_id": ["a"], "ds": ["1"], "row": [9]})) == "(a, 1) in row 9"
    assert len(Offending({})) == 0
    given = {"unique_id": ("a",)}
    assert Offending(given).columns == {"unique_id": ["a"]}
