"""Curves and their figures."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from experiments import curves, figures
from experiments.curves import FIELDS, Curve, broken, held_out, synthetic_variant
from experiments.data import Dataset
from experiments.runner import key_of

pytestmark = pytest.mark.usefixtures("in_torch")

SVG = "{http://www.w3.org/2000/svg}"


def panel(n: int = 10, rows: int = 160) -> Dataset:
    ds = pd.date_range("2024-01-01", periods=rows)
    y = np.concatenate([10.0 * (i + 1) * (1 + 0.3 * (ds.day_of_week == 6)) for i in range(n)])
    df = pd.DataFrame({"unique_id": np.repeat([f"s{i}" for i in range(n)], rows), "ds": np.tile(ds, n), "y": y})
    static = pd.DataFrame({"unique_id": [f"s{i}" for i in range(n)], "kind": ["a", "b"] * (n // 2)})
    settings = {"h": 4, "freq": "D", "input_size": 7, "stat_exog_list": ["kind"], "size": "small", "accelerator": "cpu"}
    return Dataset(df, static, 4, settings)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(curves.DATASETS, "rossmann", panel)
    monkeypatch.setattr(curves, "chosen", lambda dataset, method: {})
    monkeypatch.setattr(curves, "OBSERVED", (0, 3, 50))


def test_a_break_changes_nothing_before_it() -> None:
    df = panel().df
    after = df.ds >= "2024-03-01"
    for kind, frame in broken(df, after).items():
        assert frame.loc[~after].equals(df.loc[~after]), kind
    ratio = broken(df, after)["pattern"].y[after] / df.y[after]
    assert ratio.groupby(df.ds[after].dt.day_of_week).nunique().eq(1).all()
    assert (broken(df, after)["level"].y[after] == 1.5 * df.y[after]).all()


def test_whole_stores_are_held_out() -> None:
    ids = pd.Series([f"{store}_{dept}" for store in range(1, 11) for dept in (1, 2)])
    unseen = held_out(ids, "walmart")
    stores = ids.str.split("_").str[0]
    assert unseen.groupby(stores).nunique().eq(1).all()
    assert unseen.sum() == 4  # two of ten stores


@pytest.mark.usefixtures("small")
def test_cold_starts_are_scored_on_the_same_rows_for_every_number_of_values() -> None:
    rows = Curve("cold-start", "rossmann", "aru", "", 0, steps=2).compute()
    assert [row["x"] for row in rows] == list(curves.OBSERVED)
    assert {row["values"] for row in rows} == {2 * 3 * 4}  # unseen series, blocks, horizon
    assert rows[-1]["nd"] < rows[0]["nd"]
    assert set(rows[0]) <= set(FIELDS)


@pytest.mark.usefixtures("small")
def test_a_stream_is_scored_as_it_was_and_broken_adapting_and_frozen() -> None:
    rows = pd.DataFrame(Curve("stream", "rossmann", "aru", "", 0, steps=2).compute())
    cases = {f"{kind}{frozen}" for kind in ("none", "level", "pattern") for frozen in ("", ", adapt=off")}
    assert set(rows.case) == cases | {"calibration", "calibration, adapt=off"}
    windows, step = curves.STREAM["rossmann"]
    assert rows[rows.case == "level"].x.tolist() == [step * i for i in range(windows)]
    before, after = (rows[rows.case == case].set_index("x").nd for case in ("none", "level"))
    assert after[0] > before[0]  # the first forecast cannot know


def row(curve: Curve, **values: Any) -> dict[str, Any]:
    return {**dict(zip(curve.KEY, key_of(curve), strict=True)), **values}


def test_curves_of_superseded_configurations_are_left_out() -> None:
    curve = Curve("stream", "rossmann", "aru", "", 0)
    rows = pd.DataFrame([row(curve), row(curve, settings='{"size": "huge"}'), row(curve, variant="alphas=7")])
    assert figures.current(rows).tolist() == [True, False, False]


def test_the_committed_curves_are_those_of_the_chosen_configurations() -> None:
    rows = pd.read_csv(figures.RESULTS / "curves.csv", dtype=str, keep_default_na=False)
    assert figures.current(rows).all()


def test_figures_show_every_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    monkeypatch.setattr(figures, "FOLDER", tmp_path / "figures")
    rows = []
    methods = ("aru", "deepstate", "aru-generated")
    for method, gamma, id_, noise, x in itertools.product(methods, (20, 1), (True, False), (1.0, 0.05), (50, 3000)):
        curve = Curve("synthetic", "synthetic", method, synthetic_variant(gamma, id_, noise, x), 0)
        rows.append(row(curve, x=x, rmse=noise + gamma / x))
    for method, x in itertools.product(("aru", "baseline"), (0, 1, 50)):
        rows.append(row(Curve("cold-start", "walmart", method, "", 0), x=x, nd=1 / (x + 1)))
    cases = [f"{k}{s}" for k in ("none", "level", "pattern", "calibration") for s in ("", ", adapt=off")]
    for method, case, x in itertools.product(("aru", "baseline"), cases, (20, 80)):
        rows.append(row(Curve("stream", "gefcom2012", method, "", 0), case=case, x=x, nd=0.1, coverage90=0.8))
    pd.DataFrame(rows).to_csv(tmp_path / "curves.csv", index=False)
    shop = {"dataset": "rossmann", "seed": 0, "unique_id": 7, "ds": pd.date_range("2024-01-01", periods=3), "y": 3.0}
    ahead = {"mean": [None, 2, 2], "median": [None, 2, 2], "low": [None, 1, 1], "high": [None, 4, 4]}
    shops = pd.concat([pd.DataFrame({**shop, **ahead, "method": m}) for m in ("aru", "baseline")])
    shops.to_csv(tmp_path / "forecasts.csv", index=False)
    assert figures.draw_all() == ["synthetic", "cold-start", "break", "calibration", "anecdotes"]
    lines = {
        path.stem: len(ElementTree.parse(path).findall(f".//{SVG}polyline"))
        for path in (tmp_path / "figures").glob("*.svg")
    }
    assert lines == {
        "synthetic": 4 * (3 + 1),
        "synthetic-code-noise": 4 * (3 + 1),
        "cold-start": 2,
        "break": 2 * 2 * 3,
        "calibration": 2 * (3 + 1),
        "anecdotes": 3,
    }
