"""The exception tree is the one that its module draws, and messages list the first few items."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import aru
from aru import Forecaster, Stream, errors
from aru.data.clock import Clock
from aru.data.columns import name_rows
from aru.errors import SHOWN, AruError, AruWarning, Offending, listing, name_series, quoted, reword, verbatim
from aru.nn.cell import raise_failed
from tests.making import make
from tests.shops import BASE, COVARIATES, STATIC, TRAINED, H, both, rows

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
    assert len(tree) == 16
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
    return {"df": "--new", "late='skip'": "--late skip"}.get(name, name.upper())


def test_an_error_is_its_problem_and_its_remedy() -> None:
    error = errors.LateError("`df` has 2 late rows", "Drop them, or pass `late='skip'`.", columns=["ds"])
    assert str(error) == "df has 2 late rows. Drop them, or pass late='skip'."
    assert error.worded(spelled) == "--new has 2 late rows. Drop them, or pass --late skip."
    assert (error.problem, error.remedy) == ("`df` has 2 late rows", "Drop them, or pass `late='skip'`.")
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
    warning = AruWarning("Rows of `df` are odd. Use `late='skip'`.")
    assert str(warning) == "Rows of df are odd. Use late='skip'."
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


def test_rows_keep_the_values_of_users() -> None:
    ds = np.array(["2024-01-31", "2024-01-31T18:30"], "datetime64[us]").view(np.int64)
    times = [datetime(2024, 1, 31), datetime(2024, 1, 31, 18, 30)]
    named = name_rows(pd.Index([3, 10]), ds, Clock())
    assert named.columns == {"unique_id": [3, 10], "ds": times}
    assert {type(value) for values in named.columns.values() for value in values} == {int, datetime}
    assert str(named) == "(3, 2024-01-31), (10, 2024-01-31 18:30:00)"
    assert name_rows(["007"], np.array([5]), None).columns == {"unique_id": ["007"], "ds": [5]}
    far = np.array(["10262-01-01"], "datetime64[us]").view(np.int64)
    assert str(name_rows(["a"], far, Clock())).startswith("(a, 10262-01-01")
    for ids in (np.arange(150), pd.Index(range(150)), list(np.arange(150)), range(150)):
        series = name_series(ids)
        assert (series.columns["unique_id"], len(series)) == (list(range(100)), 150)
        assert {type(i) for i in series.columns["unique_id"]} == {int}


# What users name stays as they wrote it

ODD = ("a`b`c", "`df`", "`late='skip'`", "`", "``")


@pytest.mark.parametrize("odd", ODD)
def test_backticks_of_users_mark_nothing(odd: str) -> None:
    named = Offending({"unique_id": [odd], "ds": [odd]})
    problem = f"`df` has {listing([odd])}, {quoted(odd)}, {verbatim(odd)} and {named} beside `freq={quoted(odd)}`"
    expected = f"{{}} has {odd}, {odd!r}, {odd} and ({odd}, {odd}) beside {{}}{odd!r}"
    error, warning = AruError(problem, f"Rename {verbatim(odd)}, or pass `h`."), AruWarning(problem)
    assert str(error) == f"{expected.format('df', 'freq=')}. Rename {odd}, or pass h."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(warning) == expected.format("df", "freq=")
    assert error.worded(lambda name: f"--{name}").startswith(expected.format("--df", "--freq="))
    assert str(named) == f"({odd}, {odd})"


def test_backticks_in_ids_columns_and_values_survive() -> None:
    odd = "a`df`b"
    frame = both(range(TRAINED)).replace({"unique_id": {"a": odd}})
    twice = pd.concat([frame, frame.head(1)])
    with pytest.raises(errors.DuplicateError, match=re.escape(f"({odd}, 2024-01-01)")):
        make(**BASE).fit(twice)
    settings = {**BASE, "futr_exog_list": [odd]}
    with pytest.raises(errors.ColumnError, match=re.escape(f"df has no column {odd!r}")):
        make(**settings).fit(frame)
    with pytest.raises(errors.ValueRangeError, match=re.escape(f"Column {odd!r} of df is infinite at ({odd}, ")):
        make(**settings).fit(frame.assign(**{odd: np.inf}))
    model = make(**settings).fit(frame.assign(**{odd: 1.5}))
    with pytest.raises(errors.ColumnError, match=re.escape(f"holds text or bools now: {odd!r} at ({odd}, ")):
        model.predict(both(range(TRAINED, TRAINED + H)).replace({"unique_id": {"a": odd}}).assign(**{odd: odd}))


def errors_in_source() -> Iterator[tuple[str, ast.Call]]:
    """Where the library makes its errors and warnings."""
    for path in sorted(Path(aru.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and (name in CLASSES or name == "warn"):
                yield f"{path}:{node.lineno}", node


def test_no_message_takes_what_users_name_as_it_is() -> None:
    """By `quoted` in place of !r, and files and errors of others by `verbatim`."""
    found, wrong = 0, []
    for where, call in errors_in_source():
        values = [v for v in ast.walk(call) if isinstance(v, ast.FormattedValue)]
        found += len(values)
        given = {ast.unparse(v.value) for v in values} & {"path", "folder", "file", "target", "error", "self.path"}
        if given or any(v.conversion != -1 for v in values):
            wrong.append(where)
    assert found > 100
    assert wrong == []


# Errors about series and rows carry them

Failing = Callable[[Forecaster], Any]


@pytest.fixture(scope="module")
def rich() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)


def later(ids: str, days: int = H) -> pd.DataFrame:
    return both(range(TRAINED, TRAINED + days), ids)[["unique_id", "ds", "promo"]]


def no_value(rich: Forecaster) -> None:
    Stream(rich).update(rows("n", [20]).assign(y=np.nan), static_df=STATIC)


def short_future(rich: Forecaster) -> None:
    make(**{**BASE, "freq": None, "futr_exog_list": ["promo"]}).fit(both(range(TRAINED))).predict(later("ab", 2))


@pytest.mark.parametrize(
    ("failing", "columns"),
    [
        (lambda rich: Stream(rich).predict(later("xz"), ids=["x", "z"]), {"unique_id": ["x", "z"]}),
        (short_future, {"unique_id": ["a", "b"]}),
        (no_value, {"unique_id": ["n"]}),
        (lambda rich: rich.predict_new(later("an"), STATIC), {"unique_id": ["a"]}),
        (lambda rich: rich.predict_new(later("nz"), STATIC), {"unique_id": ["z"]}),
        (lambda rich: rich.predict_new(later("n"), pd.concat([STATIC, STATIC.head(1)])), {"unique_id": ["a"]}),
        (lambda _: raise_failed(torch.tensor([False, True, True])), {"row": [1, 2]}),
    ],
    ids=["unknown", "short future", "no value", "not new", "no static row", "static twice", "solve"],
)
def test_errors_about_series_carry_them(rich: Forecaster, failing: Failing, columns: dict[str, list[Any]]) -> None:
    with pytest.raises(AruError) as caught:
        failing(rich)
    assert caught.value.rows is not None
    assert caught.value.rows.columns == columns
    assert len(caught.value.rows) == len(next(iter(columns.values())))
