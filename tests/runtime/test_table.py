"""States of many series: an update costs what its series cost, and no copy ever sees another one's changes."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from aru.errors import UnknownSeriesError
from aru.nn.tree import leaves, take
from aru.runtime.table import StateTable
from tests.making import make
from tests.shops import BASE, both


class Inner(NamedTuple):
    matrix: Tensor
    flags: Tensor


class State(NamedTuple):
    last: Tensor
    parts: tuple[Inner, ...]
    nothing: tuple[()] = ()


def states(values: Any) -> State:
    """States that say which series and version they are of, in tensors of several shapes and types."""
    last = torch.tensor(np.asarray(values, np.int64).reshape(-1))
    matrix = last[:, None, None].double() + torch.arange(6.0).reshape(2, 3) / 10
    return State(last, (Inner(matrix, last[:, None] % 2 == torch.tensor([0, 1])),))


def pointers(table: StateTable) -> list[int]:
    """Where the states of all series lie in memory."""
    return [value.data_ptr() for _, value in leaves(table.states)]


def assert_holds(table: StateTable, expected: dict[Any, int]) -> None:
    assert table.ids == list(expected)
    assert len(table) == len(expected)
    for (path, value), (_, other) in zip(leaves(table.states), leaves(states(list(expected.values()))), strict=True):
        assert value.dtype == other.dtype
        assert torch.equal(value, other), path


def test_states_are_kept_in_order_of_their_first_observation() -> None:
    table = StateTable(["b", "a"], states([1, 2]))
    table.put(["z", "a", "c"], states([3, 4, 5]))
    assert_holds(table, {"b": 1, "a": 4, "z": 3, "c": 5})
    table.put(pd.Index(["c", "b"]), states([6, 7]))
    assert_holds(table, {"b": 7, "a": 4, "z": 3, "c": 6})
    assert table.places(["c", "nobody", "b"]).tolist() == [3, -1, 0]
    assert table.places(pd.Index(["a"], dtype=object)).tolist() == [1]
    assert table.places([]).tolist() == []
    assert torch.equal(table.take(np.array([3, 0])).last, torch.tensor([6, 7]))


def test_a_table_of_no_series_takes_in_its_first() -> None:
    table = StateTable([], states([]))
    assert (len(table), table.capacity) == (0, 0)
    ids, state = table.find(None)
    assert (len(ids), len(state.last)) == (0, 0)
    table.put([], states([]))
    table.put([7, 3], states([1, 2]))
    assert_holds(table, {7: 1, 3: 2})


def test_the_callers_tensors_are_left_alone() -> None:
    given, new = states([1, 2, 3]), states([9])
    table = StateTable(list("abc"), given)
    before = pointers(table)
    assert not set(before) & {value.data_ptr() for _, value in leaves(given)}
    table.put(["b"], new)
    assert pointers(table) == before  # in place, from the first change on
    table.put(["a"], states([8]))
    assert_holds(StateTable(list("abc"), given), {"a": 1, "b": 2, "c": 3})
    assert_holds(StateTable(["b"], new), {"b": 9})
    whole = states([4, 5, 6])
    table.put(list("abc"), whole)  # every series, in order: these are the states now
    assert table.states is whole
    table.put(["c"], states([0]))
    assert_holds(StateTable(list("abc"), whole), {"a": 4, "b": 5, "c": 6})
    assert_holds(table, {"a": 4, "b": 5, "c": 0})


def test_tensors_that_are_one_are_two_after_a_change() -> None:
    """The origin of a forecast that waits may be the state itself."""
    one = states([1, 2])
    table = StateTable(["a", "b"], one._replace(parts=(one.parts[0], one.parts[0])))
    new = states([9])
    table.put(["b"], new._replace(parts=(new.parts[0], states([5]).parts[0])))
    assert table.states.parts[0].matrix[1, 0, 0] == 9
    assert table.states.parts[1].matrix[1, 0, 0] == 5


def test_copies_share_memory_until_one_of_them_changes() -> None:
    table = StateTable(["a", "b"], states([1, 2]))
    table.put(["c"], states([3]))  # with room of its own
    for changing in (0, 1):
        twins = (table, table.copy())
        assert pointers(twins[0]) == pointers(twins[1])
        before = {"a": 1, "b": 2, "c": 3}
        twins[changing].put(["b"], states([9]))
        assert_holds(twins[changing], {**before, "b": 9})
        assert_holds(twins[1 - changing], before)
        twins[1 - changing].put(["d", "a"], states([4, 5]))
        assert_holds(twins[changing], {**before, "b": 9})
        assert_holds(twins[1 - changing], {"a": 5, "b": 2, "c": 3, "d": 4})
        table = StateTable(list("abc"), states([1, 2, 3]))


def test_an_update_of_few_series_copies_only_those() -> None:
    n = 100_000
    ids = [f"s{i}" for i in range(n)]
    table = StateTable(ids, states(np.arange(n)))
    table.put(ids[:3], states([7, 8, 9]))  # once, since the tensors belonged to somebody else
    places = pointers(table)
    for which in ([5, 99_999, 0], [12], list(range(500, 510))):
        table.put([ids[i] for i in which], states([-i for i in which]))
        assert pointers(table) == places
        assert table.take(np.array(which)).last.tolist() == [-i for i in which]
    assert table.states.last[[1, 13, 511]].tolist() == [8, 13, 511]
    taken = table.take(np.array([3, 4]))
    assert all(value.untyped_storage().nbytes() < 1000 for _, value in leaves(taken))
    assert table.take(np.arange(n)).last.data_ptr() == places[0]  # all of them, in order, are not copied either


def test_room_grows_by_doubling() -> None:
    table = StateTable(["s0"], states([0]))
    moved, capacities = 0, []
    for i in range(1, 300):
        before = pointers(table)
        table.put([f"s{i}"], states([i]))
        moved += pointers(table) != before
        capacities.append(table.capacity)
    assert sorted(set(capacities)) == [2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert moved == 9
    assert_holds(table, {f"s{i}": i for i in range(300)})
    table.put([f"t{i}" for i in range(1000)], states(np.arange(1000)))  # more than double: as much as it takes
    assert table.capacity == 1300
    assert len(table.states.last) == 1300


def test_room_is_not_seen() -> None:
    table = StateTable(["a", "b", "c"], states([1, 2, 3]))
    table.put(["d"], states([4]))
    assert table.capacity == 6
    assert all(len(value) == 4 for _, value in leaves(table.states))
    twin = table.copy()
    twin.put(["e"], states([5]))
    assert_holds(table, {"a": 1, "b": 2, "c": 3, "d": 4})
    assert_holds(twin, {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})


def test_series_are_found_by_name() -> None:
    table = StateTable(["b", "a", "c"], states([1, 2, 3]))
    names, state = table.find(None)
    assert (names.tolist(), state.last.tolist()) == (["b", "a", "c"], [1, 2, 3])
    for wanted in (["c", "b"], iter(["c", "b"]), np.array(["c", "b"]), pd.Series(["c", "b"])):
        names, state = table.find(wanted)
        assert (names.tolist(), state.last.tolist()) == (["c", "b"], [3, 1])
    assert table.find("a")[0].tolist() == ["a"]
    assert table.find([])[1].parts[0].matrix.shape == (0, 2, 3)
    with pytest.raises(UnknownSeriesError, match=r"not known: nobody, 7\. Give their observations to update first\."):
        table.find(["a", "nobody", 7])
    with pytest.raises(UnknownSeriesError, match=r"not known: bc\."):
        table.find("bc")


@pytest.mark.usefixtures("as_users_run_it")
def test_integers_are_names_of_their_own() -> None:
    table = StateTable([4, 9], states([1, 2]))
    for wanted in (9, np.int64(9), [9], np.array([9])):
        names, state = table.find(wanted)
        assert (names.tolist(), state.last.tolist()) == ([9], [2])
        assert names.dtype == np.int64
    with pytest.raises(UnknownSeriesError, match=r"not known: 4, 5\."):
        table.find(["4", 9, 5])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "copy", "swap"]),
            st.lists(st.integers(0, 12), unique=True, max_size=6),
        ),
        max_size=20,
    )
)
def test_two_tables_are_two_dictionaries(steps: list[tuple[str, list[int]]]) -> None:
    """Whatever is done to them: one table changes, is copied, and takes turns with its copy."""
    table, expected = StateTable([0, 1], states([100, 101])), {0: 100, 1: 101}
    other, others = table.copy(), dict(expected)
    for version, (what, names) in enumerate(steps):
        if what == "put":
            values = [1000 * (version + 1) + name for name in names]
            table.put(names, states(values))
            expected.update(zip(names, values, strict=True))
        elif what == "copy":
            other, others = table.copy(), dict(expected)
        else:
            table, expected, other, others = other, others, table, expected
        assert_holds(table, expected)
        assert_holds(other, others)


def test_a_forecaster_changes_in_place_and_its_copies_do_not() -> None:
    forecaster = make(**BASE).fit(both(range(20), "abno"))
    forecaster.update(both([20], "a"))  # its own tensors from now on
    twin = copy.copy(forecaster)
    assert pointers(twin.table) == pointers(forecaster.table)
    before = twin.predict()
    forecaster.update(both([21], "ab"), late="skip")
    pd.testing.assert_frame_equal(twin.predict(), before, check_exact=True)
    places, untouched = pointers(forecaster.table), take(forecaster.table.states, torch.tensor([2, 3]))
    forecaster.update(both([22], "a"))
    assert pointers(forecaster.table) == places
    assert forecaster.update(both([3], "z")).new_series == ["z"]
    assert forecaster.ids == ["a", "b", "n", "o", "z"]
    for (path, value), (_, old) in zip(leaves(forecaster.table.states), leaves(untouched), strict=True):
        assert torch.equal(value[2:4], old), path
    pd.testing.assert_frame_equal(twin.predict(), before, check_exact=True)
