"""The network: no leak, robust scale, droppable padding, weights that survive half precision, an ONNX export."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from aru.pretrained.ahead import keep_width, pool
from aru.pretrained.patches import CONTEXT, LEVELS, SHAPES, PatchNetwork, PatchShape
from aru.pretrained.robust import credible, robust_scale
from pretraining.forecast import quantiles_of

LIMITS = {"nano": 0.5e6, "mini": 2.5e6, "base": 12e6}


@pytest.fixture
def network() -> PatchNetwork:
    """A tiny network whose layers all do something."""
    network = PatchNetwork(PatchShape(32, 2, 1, 2, 8))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return network.eval()


def history(n: int, seed: int = 0) -> np.ndarray:
    """A season of 12, a trend and noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    return 50 + 0.1 * t + 10 * np.sin(t * np.pi / 6) + rng.normal(size=n)


@pytest.mark.parametrize("name", list(SHAPES))
def test_weights_fit_into_the_wheel(name: str, tmp_path: Path) -> None:
    PatchNetwork(SHAPES[name]).save(tmp_path / "weights.safetensors")
    assert (tmp_path / "weights.safetensors").stat().st_size <= LIMITS[name]


@pytest.mark.parametrize("length", [1, 5, 32, 33, 250, 300, 700, 1024, 3000])
def test_forecasts_are_finite_and_never_cross(network: PatchNetwork, length: int) -> None:
    quantiles = quantiles_of(network, [history(length)], 64, (12, 0))
    assert quantiles.shape == (1, 64, len(LEVELS))
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles, axis=-1) >= 0).all()


def test_beyond_the_horizon_quantiles_stay_in_order_and_go_on_from_the_same(network: PatchNetwork) -> None:
    contexts = [history(100), history(1000, 1)]
    far = quantiles_of(network, contexts, 150, (12, 0))
    assert far.shape == (2, 150, len(LEVELS))
    assert np.isfinite(far).all()
    assert (np.diff(far, axis=-1) >= 0).all()
    np.testing.assert_allclose(far[1, :64], quantiles_of(network, contexts[1:], 64, (12, 0))[0], rtol=1e-4, atol=1e-4)


def test_pooling_equal_forecasts_changes_little_and_different_ones_widens() -> None:
    normal = torch.distributions.Normal(0, 1).icdf(torch.tensor(LEVELS)).double()
    same = pool(normal.tile(1, 5, 2, 1))[0, 0]
    torch.testing.assert_close(same, normal, atol=0.15, rtol=0)
    apart = pool(torch.stack([normal - 3, normal + 3])[None, :, None])[0, 0]
    assert apart[0] < normal[0] - 1.5
    assert apart[-1] > normal[-1] + 1.5
    assert abs(apart[LEVELS.index(0.5)]) < 0.5


@pytest.mark.parametrize("period", [0, 1, 5, 24, 52])
def test_only_random_walks_go_on_spreading(period: int) -> None:
    """Intervals that widened by the square root of time go on so; those that settled stay as wide as they were."""
    normal = torch.distributions.Normal(0, 1).icdf(torch.tensor(LEVELS)).double()
    time = torch.arange(1, 257).double()
    walk, settled = time.clamp(max=64).sqrt(), 1 - 0.9**time
    far = keep_width(torch.stack([walk, settled])[..., None] * normal, period)
    assert far[0, -1, -1].item() == pytest.approx(16 * normal[-1].item(), rel=0.05)
    torch.testing.assert_close(far[1, -1], normal, rtol=0.01, atol=0)
    assert (far.diff(dim=-1) >= 0).all()


def test_tokens_of_padding_may_be_dropped(network: PatchNetwork) -> None:
    """A series gives the same alone as beside longer ones, with which it is padded."""
    lengths = [3, 40, 256, 257, 600, 1024]
    contexts = [history(n, n) for n in lengths]
    together = quantiles_of(network, contexts, 64, (12, 0))
    for row, context in zip(together, contexts, strict=True):
        alone = quantiles_of(network, [context], 64, (12, 0))[0]
        np.testing.assert_allclose(row, alone, rtol=1e-4, atol=1e-4)


def test_the_length_of_a_series_alone_decides_its_rows() -> None:
    size = SHAPES["mini"]
    assert [size.rows(n) for n in (1, 32, 33, 256, 257, 384, 385, 1024, 5000)] == [
        32, 32, 64, 256, 384, 384, 512, CONTEXT, CONTEXT,
    ]  # fmt: skip


def test_values_before_the_longest_context_change_nothing(network: PatchNetwork) -> None:
    values = history(CONTEXT + 100)
    changed = values.copy()
    changed[:100] = 1e6
    one, two = (quantiles_of(network, [v], 64, (12, 0)) for v in (values, changed))
    assert (one == two).all()


def test_missing_values_count_as_missing() -> None:
    """What lies under the mask has no effect."""
    values = torch.from_numpy(history(100)).unsqueeze(0)
    mask = (torch.arange(100) % 7 != 3).unsqueeze(0)
    values = torch.where(mask, values, 0.0)
    scale = robust_scale(values, mask)
    other = torch.where(mask, values, 1e9)
    assert robust_scale(other, mask) == scale


def test_one_outlier_ruins_neither_location_nor_scale() -> None:
    values = torch.from_numpy(history(512)).unsqueeze(0)
    mask = torch.ones_like(values, dtype=torch.bool)
    clean = robust_scale(values, mask)
    values[0, 100] = 1e9
    spoiled = robust_scale(values, mask)
    assert spoiled.location.item() == pytest.approx(clean.location.item(), rel=0.01)
    assert spoiled.scale.item() == pytest.approx(clean.scale.item(), rel=0.02)


def masked_rows(values: np.ndarray, missing: tuple[int, ...] = (), season: int | None = None) -> list[int]:
    """Rows that are known but not credible."""
    periods = None if season is None else torch.tensor([[season, 0]])
    rows = torch.from_numpy(values).unsqueeze(0)
    mask = torch.ones_like(rows, dtype=torch.bool)
    mask[0, list(missing)] = False
    return (mask & ~credible(rows, mask, robust_scale(rows, mask), periods))[0].nonzero().flatten().tolist()


@pytest.mark.parametrize("row", [0, 1, 57, 98])
def test_one_wild_value_counts_as_missing(row: int) -> None:
    values = history(100)
    values[row] += 500
    assert masked_rows(values) == [row]
    values[row] -= 1000
    assert masked_rows(values) == [row]


def test_what_may_be_news_or_recurs_is_read() -> None:
    values = history(100)
    assert masked_rows(values) == []
    newest, shifted, recurring, held = (values.copy() for _ in range(4))
    newest[-1] += 500
    shifted[60:] += 500
    recurring[[20, 70]] += 500
    held[40:42] += 500
    for changed in (newest, shifted, recurring, held):
        assert masked_rows(changed) == []
    assert masked_rows(newest, missing=(99,)) == []
    assert masked_rows(np.array([0.0, 0, 3, 0, 0, 0, 0, 1, 0, 0])) == []
    assert masked_rows(np.full(10, 7.0)) == []


@pytest.mark.parametrize(
    ("row", "season", "read"),
    [
        (60, 7, False),  # would have been seen before
        (60, 45, False),
        (60, 65, True),  # comes again 25 rows after the last one
        (38, 61, True),  # two rows early
        (34, 38, False),  # did not come again
        (10, 155, True),
        (10, 160, False),  # beyond what is forecast
        (38, None, True),  # some season may be so
        (90, None, False),  # none may
        (38, 0, True),
        (90, 0, False),
    ],
)
def test_a_spike_is_read_where_its_next_one_may_lie_ahead(row: int, season: int | None, read: bool) -> None:
    values = np.tile([0.0, 1, -1, 2], 25)  # the largest but one sticks out by 3
    values[row] = 10
    assert masked_rows(values, season=season) == ([] if read else [row])


def test_a_wild_value_changes_the_forecast_as_little_as_a_missing_one(network: PatchNetwork) -> None:
    wild, missing = history(200), history(200)
    wild[50], missing[50] = 1e6, np.nan
    one, two = (quantiles_of(network, [values], 24, (12, 0)) for values in (wild, missing))
    np.testing.assert_allclose(one, two, rtol=0.01)


def test_series_of_zeros_and_constants_have_a_scale() -> None:
    rows = torch.tensor([[0.0, 0, 0, 0, 0, 0, 2, 0], [5.0] * 8, [0.0] * 8, [3.0, 0, 0, 0, 0, 0, 0, 0]])
    mask = torch.ones_like(rows, dtype=torch.bool)
    mask[3, 1:] = False
    location, scale = robust_scale(rows, mask)
    assert location.flatten().tolist() == [0, 5, 0, 3]
    assert scale.flatten().tolist() == pytest.approx([2 * 1.4826, 5, 1, 3])


@pytest.mark.parametrize("factor", [1e-3, 7.0, 1e5])
def test_forecasts_follow_shift_and_scale(network: PatchNetwork, factor: float) -> None:
    values = history(200)
    one = quantiles_of(network, [values], 64, (12, 0))
    two = quantiles_of(network, [factor * values + 3 * factor], 64, (12, 0))
    np.testing.assert_allclose(two, factor * one + 3 * factor, rtol=1e-3, atol=1e-3 * factor)


def test_periods_for_all_series_equal_periods_of_each(network: PatchNetwork) -> None:
    z, mask = torch.randn(3, 384), (torch.rand(3, 384) > 0.1).float()
    z = z * mask
    shared = torch.tensor([[24, 168]])
    with torch.no_grad():
        torch.testing.assert_close(network(z, mask, shared), network(z, mask, shared.expand(3, 2)))


def test_weights_survive_half_precision(network: PatchNetwork, tmp_path: Path) -> None:
    network.save(tmp_path / "weights.safetensors")
    again = PatchNetwork.load(tmp_path / "weights.safetensors").eval()
    again.save(tmp_path / "again.safetensors")
    assert again.size == network.size
    assert (tmp_path / "weights.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    before, after = (quantiles_of(n, [history(300)], 64, (12, 0)) for n in (network, again))
    np.testing.assert_allclose(before, after, rtol=0.05, atol=0.5)


def test_the_export_gives_the_same(network: PatchNetwork, tmp_path: Path) -> None:
    """One export serves all lengths and batches."""
    runtime = pytest.importorskip("onnxruntime")
    path = str(tmp_path / "network.onnx")
    example = (torch.randn(2, 384), torch.ones(2, 384), torch.tensor([[24, 168]]))
    axes = {"z": {0: "batch", 1: "rows"}, "mask": {0: "batch", 1: "rows"}, "quantiles": {0: "batch"}}
    names = {"input_names": ["z", "mask", "periods"], "output_names": ["quantiles"], "dynamic_axes": axes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, example, path, dynamo=False, opset_version=17, **names)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch, rows, periods in ((1, 32, (1, 0)), (3, 256, (7, 365)), (2, 1024, (24, 168)), (2, 640, (0, 0))):
        z, mask = torch.randn(batch, rows), (torch.rand(batch, rows) > 0.1).float()
        inputs = (z * mask, mask, torch.tensor([periods]))
        with torch.no_grad():
            expected = network(*inputs).numpy()
        feed = dict(zip(names["input_names"], (part.numpy() for part in inputs), strict=True))
        np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-4, atol=1e-4)
