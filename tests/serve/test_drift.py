"""The test of drift: what it finds, what it leaves alone, and that it stays bounded."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from aru.serve.drift import DRIFTED, drift_of, latest_rows

N = 100


def errors(series: int, rho: float = 0.0, seed: int = 0) -> np.ndarray:
    """Absolute errors of forecasts whose neighbours are correlated."""
    rng = np.random.default_rng(seed)
    value, found = rng.standard_normal(series), []
    for _ in range(N):
        value = rho * value + np.sqrt(1 - rho**2) * rng.standard_normal(series)
        found.append(np.abs(value))
    return np.stack(found, 1)


def test_without_ties_and_neighbours_it_is_the_rank_test_of_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aru.serve.drift.HIGHEST", 0.0)
    some = errors(20)
    some[:, -14:] *= np.linspace(0.5, 3, 20)[:, None]
    found = drift_of(some, np.ones(20), 14)
    for one, z in zip(some, found, strict=True):
        tied = np.maximum(one, 0.01)
        p = stats.mannwhitneyu(tied[-14:], tied[:-14], alternative="greater", use_continuity=False, method="asymptotic")
        assert stats.norm.sf(z) == pytest.approx(p.pvalue, rel=1e-6)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_steady_series_seldom_drift_and_changed_ones_mostly(rho: float) -> None:
    steady = errors(2000, rho)
    assert (drift_of(steady, np.ones(2000), 24) > DRIFTED).mean() < 0.015
    worse = steady.copy()
    worse[:, -24:] *= 6
    assert (drift_of(worse, np.ones(2000), 24) > DRIFTED).mean() > (0.7 if rho > 0.5 else 0.95)
    better = steady.copy()
    better[:, -24:] /= 6
    assert (drift_of(better, np.ones(2000), 24) < 0).mean() > 0.95


def test_nearly_perfect_series_do_not_drift() -> None:
    """Where the ratio of errors was 131 and more."""
    tiny = 1e-6 * errors(50)
    tiny[:, -14:] *= 1000
    assert (drift_of(tiny, np.ones(50), 14) == 0).all()
    assert (drift_of(np.zeros((1, N)), np.ones(1), 14) == 0).all()
    once = 1e-6 * errors(50)
    once[:, -1] = 1e9  # one huge error is one error
    assert (drift_of(once, np.ones(50), 14) < DRIFTED).all()
    real = 1e-6 * errors(50)
    real[:, -14:] = 0.5
    found = drift_of(real, np.ones(50), 14)
    assert (found > DRIFTED).all()
    assert (found < 11).all()


def test_the_result_is_bounded() -> None:
    worst = errors(50)
    worst[:, -14:] += 1e300
    assert (drift_of(worst, np.ones(50), 14) <= 6).all()


def test_it_needs_enough_rows() -> None:
    some = errors(4)
    some[0, :-10] = np.nan  # nothing before
    some[1, -14:-3] = np.nan  # hardly anything now
    some[2] = np.nan
    found = drift_of(some, np.ones(4), 14)
    assert np.isnan(found[:3]).all()
    assert np.isfinite(found[3])
    assert [latest_rows(window, 100) for window in (1, 14, 80)] == [12, 14, 50]
