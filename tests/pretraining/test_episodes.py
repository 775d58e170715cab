"""Panels with covariates: nothing leaks, the solve is that of the package, and the gradient goes through it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aru.pretrained.effects import PLAIN_VALUES, EffectSums, coefficients, learn_effects
from aru.pretrained.patches import SHAPES, PatchNetwork
from pretraining import episodes
from pretraining.dice import Dice
from pretraining.episodes import COLUMNS, SERIES, Rules, Sums, draw_episode, inverse, solved, sums_of, taken_out
from pretraining.train import forecast_panels, pinball


def test_nothing_after_the_origin_enters_the_solve() -> None:
    episode = draw_episode(Dice(0), 4, 256)
    changed = episode._replace(batch=episode.batch._replace(future=episode.batch.future * 3 + 1))
    for one, two in zip(taken_out(Rules(), episode), taken_out(Rules(), changed), strict=True):
        assert torch.equal(one, two)


def test_inverse() -> None:
    half = torch.randn(5, 6, 6, dtype=torch.float64)
    matrix = half @ half.mT + torch.eye(6)
    torch.testing.assert_close(inverse(matrix), torch.linalg.inv(matrix))


def test_the_solve_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, "ROUNDS", 15)
    rng, k, rows = np.random.default_rng(0), 3, 200
    theta = np.array([1.0, -0.5, 0.0]) + rng.normal(0, [0.3, 0.1, 0.0], (SERIES, k))
    x = rng.normal(size=(SERIES, rows, k))
    z = np.einsum("nrk,nk->nr", x, theta) + rng.normal(0, 0.5, (SERIES, rows))
    xx, xz = np.einsum("nrk,nrl->nkl", x, x), np.einsum("nrk,nr->nk", x, z)
    sums = Sums(*(torch.from_numpy(v)[None] for v in (xx, xz, (z * z).sum(1), np.full(SERIES, float(rows)))))
    row, column = np.tril_indices(k)
    package = EffectSums.empty(SERIES, k)._replace(
        xx=torch.from_numpy(xx[:, row, column]).float(),
        xz=torch.from_numpy(np.stack([xz, xz], 1)).float(),
        zz=torch.from_numpy(np.stack([(z * z).sum(1)] * 2, 1)).float(),
        weight=torch.full((SERIES,), float(rows)),
        negative=torch.full((SERIES,), rows / 2),
    )
    alike = np.ones((SERIES, 1))  # no static covariates
    common = learn_effects(package, alike)
    assert common.way == PLAIN_VALUES
    own = coefficients(package, alike, common).own
    torch.testing.assert_close(solved(Rules(), sums).detach(), own, atol=0.02, rtol=0.02)


def test_effects_are_found_and_useless_columns_are_not() -> None:
    dice, n, rows = Dice(3), 2 * SERIES, 400
    x = torch.randn(n, rows, COLUMNS, generator=torch.Generator().manual_seed(0))
    y = 2 * x[..., 0] + 0.3 * dice.normal(n, rows)
    theta = solved(Rules(), sums_of(Rules(), x, y, torch.ones(n, rows, dtype=torch.bool)))
    assert (theta[:, 0] - 2).abs().max() < 0.1
    assert theta[:, 1:].abs().max() < 0.05


def test_regression_helps_and_learns() -> None:
    torch.manual_seed(0)
    network, rules, episode = PatchNetwork(SHAPES["nano"]), Rules(), draw_episode(Dice(5), 8, 256)
    quantiles, future, weight = forecast_panels(network, episode, taken_out(rules, episode), 0.5)
    assert torch.isfinite(quantiles).all()
    ((pinball(quantiles, future) * weight).sum() / weight.sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite() for p in rules.parameters())
    assert any(float(p.grad.abs()) > 0 for p in rules.parameters())
    past, _ = taken_out(rules, episode)
    batch = episode.batch
    left = torch.where(batch.mask, batch.values - past, 0.0)
    spread = [(v - v.mean()).std() for v in (batch.values[batch.mask], left[batch.mask])]
    assert spread[1] < spread[0]
