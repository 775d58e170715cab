"""The shipped weights: as their cards say, within their limits, and sensible on a series that anyone can forecast."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from aru.pretrained.patches import LEVELS, MEDIAN, SHAPES, PatchNetwork
from aru.pretrained.weights import FOLDER, VERSIONS, shape_name
from docs import generate_cards
from pretraining.evaluate import seasonal_naive
from pretraining.forecast import quantiles_of

LIMITS = {"nano": 0.5e6, "mini": 2.5e6, "base": 12e6}


@pytest.fixture(params=list(VERSIONS))
def path(request: pytest.FixtureRequest) -> Path:
    return FOLDER / f"{request.param}.safetensors"


def test_the_card_belongs_to_the_weights(path: Path) -> None:
    card = json.loads(path.with_suffix(".json").read_text())
    body = path.read_bytes()
    assert card["sha256"] == hashlib.sha256(body).hexdigest()
    assert card["bytes"] == len(body)
    network = PatchNetwork.load(path)
    assert card["parameters"] == sum(p.numel() for p in network.parameters())
    assert network.size == SHAPES[shape_name(path.stem)]
    assert len(body) <= LIMITS[shape_name(path.stem)]


def test_the_page_of_cards_is_that_of_the_files() -> None:
    assert generate_cards.page() == generate_cards.PAGE.read_text(), "run python docs/generate_cards.py"


@pytest.mark.parametrize(("season", "periods"), [(12, (12, 0)), (24, (24, 168)), (7, (7, 365))])
def test_a_season_with_a_trend_is_continued(path: Path, season: int, periods: tuple[int, int]) -> None:
    """Better than the season before, over the steps that training weighs fully at all of these frequencies."""
    rng = np.random.default_rng(0)
    time = np.arange(20 * season + 24)
    values = 100 + 0.05 * time + 10 * np.sin(2 * np.pi * time / season) + rng.normal(size=(8, len(time)))
    past, future = values[:, :-24], values[:, -24:]
    quantiles = quantiles_of(PatchNetwork.load(path), list(past), 24, periods)
    naive = seasonal_naive(list(past), 24, season)
    assert np.abs(quantiles[..., MEDIAN] - future).mean() < 0.85 * np.abs(naive - future).mean()
    inside = (quantiles[..., LEVELS.index(0.1)] < future) & (future < quantiles[..., LEVELS.index(0.9)])
    assert 0.65 < inside.mean() < 0.95


def test_a_constant_and_an_empty_series_stay_finite(path: Path) -> None:
    network = PatchNetwork.load(path)
    for context in ([5.0] * 40, [np.nan] * 40, [0.0], [1e12, 1e-12] * 20):
        assert np.isfinite(quantiles_of(network, [np.asarray(context)], 64, (12, 0))).all()


def test_far_forecasts_do_not_blow_up(path: Path) -> None:
    """A season stays where it was, growth goes on about as it did, a random walk spreads and stays in reach."""
    rng = np.random.default_rng(1)
    time = np.arange(400)
    season, walk = 10 * np.sin(time * np.pi / 12) + rng.normal(size=400), rng.normal(size=400).cumsum()
    growth = np.exp(0.01 * time) + 0.01 * rng.normal(size=400)
    far = quantiles_of(PatchNetwork.load(path), [season, growth, walk], 400, (24, 168))
    assert np.isfinite(far).all()
    assert np.abs(far[0]).max() < 60
    assert np.abs(np.log(far[1, :, MEDIAN]) - 0.01 * (400 + time)).max() < 1.2
    assert np.abs(far[2] - walk[-1]).max() < 100
    width = far[2, :, -1] - far[2, :, 0]
    assert width[-1] >= 1.5 * width[63]
