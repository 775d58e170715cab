"""Pretrained networks beside published figures: the protocol, the scores and the page."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster
from experiments import figures, panels, zeroshot, zeroshot_figure, zeroshot_tables
from experiments.panels import PANELS, Panel, Windows, seasonal_naive, windows_of
from experiments.zeroshot import LEVELS, SIZES, Trial, coverage, draw, judged, weights_of

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = [
    (dataset, metric)
    for dataset, metric in zeroshot_tables.published().index
    if (dataset, metric) != ("car_parts", "mase")  # its scale there is not known
]


def toy(lengths: tuple[int, ...] = (60, 80), seed: int = 0) -> pd.DataFrame:
    rng, frames = np.random.default_rng(seed), []
    for i, length in enumerate(lengths):
        month = np.arange(length)
        y = 50 * (i + 1) + 10 * np.sin(month * np.pi / 6) + rng.normal(size=length)
        frames.append(
            pd.DataFrame({"unique_id": f"s{i}", "ds": pd.date_range("2010-01-01", periods=length, freq="MS"), "y": y})
        )
    return pd.concat(frames, ignore_index=True)


TOY = Panel(toy, 6, "MS", 12, 3, 4, 20)


@pytest.mark.data
@pytest.mark.parametrize(("dataset", "metric"), PUBLISHED)
def test_our_seasonal_naive_is_the_published_one(
    dataset: str, metric: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To four digits: so panels, windows and scores are those of the published figures."""
    monkeypatch.setattr(panels, "DATA", data_dir)
    panel = PANELS[dataset]
    windows = windows_of(panel, rolling=False)
    found = judged(seasonal_naive(windows, panel.h, panel.season), "naive", windows.past, panel.season)
    assert found[metric] == pytest.approx(zeroshot_tables.published()["seasonal-naive"][dataset, metric], abs=1e-4)


@pytest.mark.parametrize(("dataset", "metric"), PUBLISHED)
def test_the_committed_seasonal_naive_is_the_published_one(dataset: str, metric: str) -> None:
    found = zeroshot_tables.value(zeroshot_tables.read(), "last", dataset, "seasonal-naive", metric)
    assert found == pytest.approx(zeroshot_tables.published()["seasonal-naive"][dataset, metric], abs=1e-4)


def test_seasonal_naive_by_hand() -> None:
    y = [1.0, 2, 3, 4, np.nan, 6, 7, 8, 9, 10]
    df = pd.DataFrame({"unique_id": "a", "ds": np.arange(10), "y": y})
    windows = Windows(df, df[:4], 2, 2)
    out = seasonal_naive(windows, 4, 3)
    assert out[out.cutoff == 0].naive.tolist() == [4, 2, 6, 4]  # from rows 3, 1 (row 4 is missing), 5, 3
    assert out[out.cutoff == 1].naive.tolist() == [2, 3, 4, 2]
    assert out[out.cutoff == 1].y.tolist()[1:] == [6, 7, 8]


def test_windows_end_with_the_last_row_and_leave_out_short_series() -> None:
    panel = TOY._replace(read=lambda: toy((60, 33)))
    once, rolling = windows_of(panel, rolling=False), windows_of(panel, rolling=True)
    assert once.past.groupby("unique_id").size().tolist() == [54, 27]
    assert rolling.past.groupby("unique_id").size().to_dict() == {"s0": 60 - 6 - 8}


def frame_of(quantile: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    """Forecasts whose quantiles at .005, .01 and so on are the same for every value."""
    ends = {f"m-lo-{p}": quantile[99 - p] for p in LEVELS} | {f"m-hi-{p}": quantile[99 + p] for p in LEVELS}
    return pd.DataFrame({"y": y, "m-median": quantile[99], **ends})


def test_coverage_of_continuous_values_is_the_share_between_the_ends() -> None:
    quantile = np.arange(1, 200) / 200
    y = np.array([0.05, 0.0999, 0.1001, 0.5, 0.8999, 0.9001, 2.0])
    assert coverage(frame_of(quantile, y), "m", 80) == pytest.approx(3 / 7)
    assert coverage(frame_of(quantile, y), "m", 95) == pytest.approx(6 / 7)


def test_coverage_of_counts_is_nominal_where_the_forecast_is_right() -> None:
    """Of Poisson counts a closed 80 % interval holds far more than 80 %; the randomised share is 80 %."""
    rng = np.random.default_rng(0)
    quantile = np.quantile(rng.poisson(0.7, 1_000_000), np.arange(1, 200) / 200, method="inverted_cdf")
    y = rng.poisson(0.7, 20_000).astype(float)
    frame = frame_of(quantile, y)
    assert ((frame["m-lo-80"] <= y) & (y <= frame["m-hi-80"])).mean() > 0.95
    for level in (80, 95):
        assert coverage(frame, "m", level) == pytest.approx(level / 100, abs=0.01)


def test_rows_are_forecasts_of_the_public_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PANELS, "toy", TOY)
    df = toy()
    past = df[df.groupby("unique_id").cumcount(ascending=False) >= 6]
    model = Forecaster.from_pretrained("nano", h=6, freq="MS", hindsight=False)
    model.update(past)
    frame = model.predict(level=LEVELS).merge(df, on=["unique_id", "ds"])
    (once,) = Trial("last", "toy", "nano", 0).compute()
    assert once["mase"] == pytest.approx(judged(frame, "aru", past, 12)["mase"], abs=1e-5)
    assert (once["windows"], once["series"], once["forecasts"], once["weights"]) == (1, 2, 2, weights_of("nano"))
    (rolling,) = Trial("rolling", "toy", "nano", 0).compute()
    assert (rolling["windows"], rolling["forecasts"]) == (3, 6)
    monkeypatch.setitem(PANELS, "toy", TOY._replace(windows=1))
    (same,) = Trial("rolling", "toy", "nano", 0).compute()
    assert all(same[k] == once[k] for k in ("mase", "wql", "coverage80", "coverage95"))


def test_single_series_are_forecast_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        PANELS, "toy", TOY._replace(read=lambda: toy((60, 100, 150)).assign(y=lambda d: d.y.mask(d.index == 70)))
    )
    monkeypatch.setitem(zeroshot.SINGLE, "toy", (("toy",), 60, 12))
    drawn = draw("toy", 0)
    assert drawn.equals(draw("toy", 0))
    assert not drawn.equals(draw("toy", 1))
    assert set(drawn.groupby("unique_id").size()) == {72}
    assert drawn.y.notna().all()
    (naive,), (ours,) = (Trial("single", "toy", method, 0).compute() for method in ("seasonal-naive", "nano"))
    assert ours["forecasts"] == 50
    assert 0.3 < ours["mase"] < naive["mase"]


def test_rows_of_former_weights_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "zeroshot.csv"
    rows = pd.DataFrame(columns=list(zeroshot.FIELDS))
    rows["weights"] = ["", weights_of("mini"), "mini-0 12345678"]
    rows.to_csv(path, index=False)
    zeroshot.forget_other_weights(path)
    assert pd.read_csv(path, keep_default_na=False).weights.tolist() == ["", weights_of("mini")]


def test_the_committed_rows_are_those_of_the_shipped_weights() -> None:
    """`python -m experiments zeroshot` after every change of the weights."""
    rows = pd.read_csv(zeroshot_tables.RESULTS / "zeroshot.csv", keep_default_na=False)
    found = set(zip(rows.experiment, rows.dataset, rows.method, rows.weights, rows.seed, strict=True))
    assert found == {tuple(getattr(job, k) for k in zeroshot.KEY) for job in zeroshot.zero_shots(range(3))}


def test_the_page_is_that_of_the_result_files() -> None:
    """`python -m experiments.report` after every change of a result file."""
    assert zeroshot_tables.results(zeroshot_tables.read()) in (ROOT / "docs" / "pretrained.md").read_text()


def test_the_figure_names_every_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    speeds = [{"weights": f"{size}-1", "forecasts_per_second": 10.0 ** (4 - i)} for i, size in enumerate(SIZES)]
    zeroshot_figure.draw(zeroshot_tables.read(), {"machine": {"cores": 2}, "sizes": speeds})
    words = " ".join(ElementTree.fromstring((tmp_path / "pretrained.svg").read_text()).itertext())
    assert all(zeroshot_tables.NAMES[m] in words for m in zeroshot_tables.PARAMETERS)
    assert all(words.count(size) >= 4 for size in SIZES)
