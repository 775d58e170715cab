"""Online calibration: coverage stays nominal while the data drift, whatever the intervals were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Adapter
from aru.runtime import calibration


def run(scale: np.ndarray, width: float, leads: int, batch: int = 40, level: float = 90.0) -> tuple[float, np.ndarray]:
    """Errors whose spread changes with time, intervals of one width, truth that is k steps late; coverage by third."""
    rng = np.random.default_rng(0)
    T = len(scale)
    errors = torch.from_numpy(rng.normal(size=(T, batch, 1, leads)) * scale[:, None, None, None])
    state = calibration.new_calibration(batch, leads)
    share = torch.tensor((100 - level) / 200).double()
    given = torch.tensor([[-width], [width]]).double().expand(batch, 2, leads)
    none = torch.full((batch, leads), torch.nan).double()
    issued: list[torch.Tensor] = []
    for t in range(T):
        issued.append(calibration.move(state, share, given))
        then = [
            (issued[t - k][..., k], errors[t - k, :, 0, k]) if t >= k else (none[:, :1], none[:, 0])
            for k in range(leads)
        ]
        matured = torch.stack([ends.expand(batch, 2) for ends, _ in then], -1)
        y = torch.stack([value for _, value in then], -1).unsqueeze(1)
        state = calibration.update(state, share, given, matured, y)
    ends = torch.stack(issued)
    inside = ((ends[:, :, 0] <= errors[:, :, 0]) & (errors[:, :, 0] <= ends[:, :, 1])).double().numpy()
    return float(inside.mean()), np.array([part.mean() for part in np.array_split(inside, 3)])


@pytest.mark.parametrize(("drift", "width"), [("none", 0.2), ("grows", 5.0), ("jumps", 0.2), ("waves", 5.0)])
def test_coverage_over_a_drifting_stream_is_nominal(drift: str, width: float) -> None:
    T = 1500
    time = np.arange(T)
    scale = {
        "none": np.ones(T),
        "grows": np.exp(time / T * np.log(5)),
        "jumps": np.where(time % 500 < 250, 1.0, 3.0),
        "waves": 1 + 0.8 * np.sin(2 * np.pi * time / 300),
    }[drift]
    coverage, thirds = run(scale, width, leads=4)
    assert coverage == pytest.approx(0.9, abs=0.01)
    assert np.abs(thirds - 0.9).max() < 0.03


def test_ends_do_not_cross() -> None:
    state = calibration.new_calibration(1, 3)
    state = state._replace(mean=torch.full_like(state.mean, -2.0), count=state.count + 1e9)
    ends = torch.tensor([[0.0], [1.0]]).double().expand(1, 2, 3)
    moved = calibration.move(state, torch.tensor(0.05).double(), ends)
    assert torch.allclose(moved, torch.full((1, 2, 3), 0.5).double())


def test_missing_feedback_changes_nothing() -> None:
    state = calibration.new_calibration(2, 3)
    none = torch.full((2, 2, 3), torch.nan).double()
    share = torch.tensor(0.05).double()
    after = calibration.update(state, share, none, none, none[:, :1])
    assert all(torch.equal(a, b) for a, b in zip(after, state, strict=True))
    ends = torch.randn(2, 2, 3).double().sort(1).values
    assert torch.equal(calibration.move(state, share, ends), ends)


def test_an_adapter_calibrates_the_intervals_of_its_model() -> None:
    """Intervals of a model that believes in a tenth of the noise there is, which doubles half way."""
    rng = np.random.default_rng(0)
    rows, h, series = 600, 2, 5
    days = pd.date_range("2020-01-01", periods=rows + h)
    spread = np.where(np.arange(rows + h) < rows // 2, 1.0, 2.0)
    cutoff = np.repeat(np.arange(10, rows), h)
    ahead = cutoff + np.tile(np.arange(1, h + 1), rows - 10)
    keys = {"ds": days[ahead], "cutoff": days[cutoff], "m": 0.0, "m-lo-80": -0.13, "m-hi-80": 0.13}
    names = [f"s{i}" for i in range(series)]
    frame = pd.concat([pd.DataFrame({"unique_id": name, **keys}) for name in names], ignore_index=True)
    actuals = pd.concat([pd.DataFrame({"unique_id": name, "ds": days, "y": rng.normal(0, spread)}) for name in names])
    adapted = Adapter(h, calibration="online").cross_validation(frame, actuals).merge(actuals, on=["unique_id", "ds"])
    inside = (adapted["m-lo-80"] <= adapted.y) & (adapted.y <= adapted["m-hi-80"])
    assert inside[adapted.cutoff > days[30]].mean() == pytest.approx(0.8, abs=0.01)
    assert ((frame["m-lo-80"] <= adapted.y) & (adapted.y <= frame["m-hi-80"])).mean() < 0.2


@pytest.mark.data
def test_coverage_on_real_data(data_dir: Path) -> None:
    """A seasonal naive model of exchange rates: its own intervals, from the first rows, lose their coverage."""
    df = pd.read_parquet(data_dir / "exchange_rate" / "data.parquet")[["unique_id", "ds", "y"]]
    df = df.groupby("unique_id").tail(900).reset_index(drop=True)
    h, first = 3, 100
    parts = []
    for name, one in df.groupby("unique_id"):
        y = np.log(one.y.to_numpy(np.float64))
        half = 1.645 * np.diff(y[:first]).std()
        for k in range(1, h + 1):
            at = np.arange(first, len(y) - h)
            point = y[at]
            parts.append(
                pd.DataFrame({
                    "unique_id": name, "ds": one.ds.to_numpy()[at + k], "cutoff": one.ds.to_numpy()[at],
                    "naive": point, "naive-lo-90": point - half * k**0.5, "naive-hi-90": point + half * k**0.5,
                })
            )  # fmt: skip
    forecasts, actuals = pd.concat(parts, ignore_index=True), df.assign(y=np.log(df.y.astype(np.float64)))
    adapted = Adapter(h, gate=True, calibration="online").cross_validation(forecasts, actuals)
    both = adapted.merge(actuals, on=["unique_id", "ds"])
    inside = (both["naive-lo-90"] <= both.y) & (both.y <= both["naive-hi-90"])
    assert inside.mean() == pytest.approx(0.9, abs=0.01)
