"""Periods found in the values: seasons of any length, under trends and gaps, and none where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aru.pretrained.patches import PatchNetwork, PatchShape
from aru.pretrained.seasons import change_by_lag, found
from pretraining.forecast import quantiles_of


def periods_of(values: np.ndarray) -> tuple[int, int]:
    mask = torch.from_numpy(np.isfinite(values)).float().unsqueeze(0)
    return tuple(found(torch.from_numpy(np.nan_to_num(values)).unsqueeze(0), mask)[0].tolist())


def seasonal(period: int, rows: int, noise: float = 0.3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.resize(rng.normal(size=period), rows) + noise * rng.normal(size=rows)


@pytest.mark.parametrize(("period", "rows"), [(4, 60), (7, 100), (12, 80), (24, 300), (50, 400), (168, 800)])
def test_a_season_is_found(period: int, rows: int) -> None:
    assert periods_of(seasonal(period, rows)) == (period, 0)


def test_a_season_is_found_under_trend_level_and_gaps() -> None:
    rng = np.random.default_rng(1)
    values = seasonal(12, 240) + 0.05 * np.arange(240) + 0.1 * rng.normal(size=240).cumsum()
    values[rng.random(240) < 0.2] = np.nan
    assert periods_of(values)[0] == 12


def test_days_within_weeks_are_both_found() -> None:
    time = np.arange(1000)
    hours = np.sin(2 * np.pi * time / 24) * np.where(time // 24 % 7 < 5, 1.0, 0.2)
    assert periods_of(hours + 0.05 * np.random.default_rng(2).normal(size=1000)) == (24, 168)


@pytest.mark.parametrize("rows", [1, 5, 30, 300, 1000])
def test_noise_walks_and_trends_have_no_season(rows: int) -> None:
    rng = np.random.default_rng(3)
    for values in (rng.normal(size=rows), rng.normal(size=rows).cumsum(), np.arange(rows) * 1.0, np.zeros(rows)):
        assert periods_of(values) == (0, 0)


def test_change_by_lag_counts_pairs_of_known_values() -> None:
    values, mask = torch.tensor([[1.0, 5.0, 0.0, 2.0]]), torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    change, pairs = change_by_lag(values, mask)
    assert pairs[0].tolist() == [3, 1, 1, 1]
    assert change[0].tolist() == pytest.approx([0, 16, 9, 1], abs=1e-6)


def test_a_network_is_told_what_was_found() -> None:
    network = PatchNetwork(PatchShape(32, 1, 1, 2, 8)).eval()
    contexts = [seasonal(12, 100), seasonal(7, 100)]
    together = quantiles_of(network, contexts, 8, None)
    for row, context, period in zip(together, contexts, (12, 7), strict=True):
        np.testing.assert_allclose(row, quantiles_of(network, [context], 8, (period, 0))[0], rtol=1e-4, atol=1e-4)
