"""Sums of rows, sixteen numbers at a time, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from aru.kernels.lanes import CHAINS, DOUBLES, LANES, add_product, add_row, as_float


@njit
def product(start: Any, x: Any, n: int, w: Any, row: int, limit: Any, out: Any) -> None:
    add_product(start, x, n, w, row, limit, out)


@njit
def rows(start: Any, factor: Any, w: Any, row: int, out: Any) -> None:
    add_row(start, factor, w, row, out)


@njit
def number(bits: Any) -> Any:
    return as_float(bits)


def draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("width", [LANES, 3 * LANES])
@pytest.mark.parametrize("n", [0, LANES, 2 * LANES])
@pytest.mark.parametrize("limit", [-np.inf, 0.0])
def test_products(width: int, n: int, limit: float) -> None:
    start, x, w = draw(width), draw(2 * LANES), draw(3 * LANES, width)
    out, low = np.full(width, np.nan, np.float32), np.float32(limit)
    product(start, x, n, w, 5, low, out)
    expected = np.maximum(start + x[:n] @ w[5 : 5 + n], low)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    product(start, x, n, w, 5, low, start)  # into the place that it starts from
    np.testing.assert_array_equal(start, out)


@pytest.mark.parametrize("n", [CHAINS, LANES])
def test_products_in_double_precision(n: int) -> None:
    start, x, w = draw(2 * DOUBLES).astype(float), draw(n), draw(n, 2 * DOUBLES).astype(float)
    out = np.empty(2 * DOUBLES)
    product(start, x, n, w, 0, np.float32(-np.inf), out)
    np.testing.assert_allclose(out, start + x.astype(float) @ w, rtol=1e-14, atol=1e-14)


def test_rows() -> None:
    start, w, out = draw(2 * LANES), draw(4, 2 * LANES), np.full(2 * LANES, np.nan, np.float32)
    rows(start, np.float32(0.5), w, 3, out)
    np.testing.assert_allclose(out, start + 0.5 * w[3], rtol=1e-6)


def test_what_is_not_a_number_stays_so() -> None:
    x, w, out = draw(LANES), draw(LANES, LANES), np.zeros(LANES, np.float32)
    x[3] = np.nan
    product(out, x, LANES, w, 0, np.float32(0.0), out)
    assert np.isnan(out).all()


def test_bits() -> None:
    values = np.array([1.0, -2.5, 1e-30], np.float32)
    assert [number(bits) for bits in values.view(np.int32)] == values.tolist()
