"""How columns are read if the first call holds few rows: a model that begins with them is as good as another."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from aru.data.covariates import CategoryColumn, NumberColumn
from tests.pretrained.test_effects import H, opened

DAYS = pd.date_range("2024-01-01", periods=150)


def prices() -> pd.DataFrame:
    """Half the price sells four times as much."""
    random = np.random.default_rng(0)
    price, promo = random.normal(10, 1, len(DAYS)).round(2), random.integers(0, 2, len(DAYS))
    y = 100 * (1 + 0.4 * promo) * (price / 10) ** -2 * random.normal(1, 0.03, len(DAYS))
    return pd.DataFrame({"unique_id": "a", "ds": DAYS, "y": y, "price": price, "promo": promo})


@pytest.mark.parametrize("first", [1, 2, 5, 18])
def test_the_first_call_may_hold_few_rows(first: int) -> None:
    df = prices()
    truth = df["y"][-H:].to_numpy()
    errors = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is unlike what the first rows held
        for begin in (first, len(df) - H):
            f = opened(("price", "promo"))
            f.update(df[:begin])
            f.update(df[:-H])
            found = f.predict(df[-H:].drop(columns="y"))["aru-median"].to_numpy()
            errors.append(np.abs(found - truth).sum() / truth.sum())
    assert errors[0] < 1.3 * errors[1] + 0.01


def read(values: list[float]) -> NumberColumn | CategoryColumn:
    """The column of a number that has these values in the first rows."""
    n = len(values)
    f = opened(("x",))
    f.update(pd.DataFrame({"unique_id": "a", "ds": DAYS[:n], "y": np.arange(n) % 5 + 10.0, "x": values}))
    ((*numbers,), (*categories,)) = f.runtime.schema.futr
    (column,) = [*numbers, *categories]
    return column


def test_values_that_come_again_are_levels_and_two_of_them_a_flag() -> None:
    assert isinstance(read([1.0, 2.0, 3.0] * 4), CategoryColumn)
    assert isinstance(read([1.0, 2.0, 3.0] * 3), NumberColumn)
    flags = [read(values) for values in ([0.0, 1.0], [9.5, 11.0], [9.5, 11.0] * 4)]
    assert [isinstance(flag, NumberColumn) and flag.two_values for flag in flags] == [True, False, True]


def test_a_range_that_few_rows_have_shown_is_wider() -> None:
    widths = []
    for n in (5, 25, 100, 140):
        column = read(np.linspace(0, 1, n).tolist())
        assert isinstance(column, NumberColumn)
        widths.append(column.high - column.low)
    assert widths == pytest.approx([1 + 2 * 19 / 8, 1.75, 1, 1])
