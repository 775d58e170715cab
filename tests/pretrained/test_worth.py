"""`effects`: what a promotion is worth, read from data whose effects are known."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from aru import Forecaster, Stream
from aru.errors import NotFittedError, StorageError, UnknownSeriesError
from aru.runtime.forest_plot import NAMED
from tests.making import make
from tests.pretrained.test_effects import PANEL, PAST, opened


def row(frame: pd.DataFrame, covariate: str, **more: Any) -> pd.Series:
    for name, value in {"covariate": covariate, **more}.items():
        frame = frame[frame[name] == value]
    (found,) = [one for _, one in frame.iterrows()]
    return found


def test_a_promotion_that_multiplies_is_a_percentage() -> None:
    f = opened(("promo", "noise", "kind"))
    f.update(PAST)
    panel = f.effects()
    promo = row(panel, "promo")
    assert (promo["value"], promo["against"], promo["unit"], promo["epoch"]) == ("1", "0", "%", 1)
    assert promo["effect"] == pytest.approx(59, abs=3)  # 40 % to 78 % in the series
    assert promo["low"] < 50 < 68 < promo["high"] < 90
    assert promo["share"] > 50
    assert promo["typical"] == pytest.approx(100 * np.expm1(np.log(1.59) / 2), rel=0.15)
    assert len(panel[panel["covariate"] == "kind"]) == 2
    useless = panel[panel["covariate"] != "promo"]
    assert (useless["effect"].abs() < 1).all()
    assert (useless["share"] < 1).all()
    own = f.effects(f.ids)
    assert list(own["unique_id"].unique()) == f.ids
    for i in (0, 10, 19):
        found = row(own, "promo", unique_id=f"shop-{i}")
        assert found["effect"] == pytest.approx(40 + 2 * i, abs=4)
        assert found["low"] < found["effect"] < found["high"] < found["low"] + 8


@pytest.mark.parametrize("size", [0.003, 0.3, 1e5])
def test_a_percentage_is_one_of_y_whatever_its_units(size: float) -> None:
    """Logarithms are those of 1 + y."""
    f = opened(("promo",))
    f.update(PAST.assign(y=size * PAST["y"]))
    promo, own = row(f.effects(), "promo"), row(f.effects("shop-10"), "promo")
    assert promo["unit"] == "%"
    for found in (promo, own):
        assert found["effect"] == pytest.approx(60, abs=4 if size > 1 else 11)  # where 1 + y is not y, not one effect
        assert found["low"] < found["effect"] < found["high"]


@pytest.mark.filterwarnings("ignore:y lies far outside the range")
def test_effects_that_add_are_in_units_of_y() -> None:
    df = PAST.assign(y=30 * PAST["promo"] - 20 + np.random.default_rng(0).normal(0, 1, len(PAST)))
    f = opened(("promo",))
    f.update(df)
    promo = row(f.effects(), "promo")
    assert promo["unit"] == "y"
    assert promo["effect"] == pytest.approx(30, rel=0.05)
    assert row(f.effects("shop-3"), "promo")["effect"] == pytest.approx(30, rel=0.05)


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_true_is_compared_with_false_and_a_number_with_its_median(share: float) -> None:
    random = np.random.default_rng(1)
    flag, heat = random.random(len(PAST)) < share, random.normal(15, 5, len(PAST))
    y = 100 * np.exp(0.2 * flag + 0.02 * (heat - 15) + random.normal(0, 0.02, len(PAST)))
    f = opened(("flag", "heat"))
    f.update(PAST.assign(flag=flag, heat=heat, y=y))
    flag_row, heat_row = row(f.effects(), "flag"), row(f.effects(), "heat")
    assert (flag_row["value"], flag_row["against"]) == ("True", "False")
    assert flag_row["effect"] == pytest.approx(100 * np.expm1(0.2), abs=1.5)
    assert float(heat_row["against"]) == pytest.approx(15, abs=0.5)
    assert heat_row["effect"] == pytest.approx(100 * np.expm1(0.02 * 5), abs=1.5)


def test_streams_and_polars_give_the_same(tmp_path: Path) -> None:
    f = opened()
    f.update(PAST)
    with Stream(opened(), tmp_path / "state.db") as stream:
        stream.update(PAST)
        pd.testing.assert_frame_equal(stream.effects(), f.effects(), rtol=1e-9)
        pd.testing.assert_frame_equal(stream.effects("shop-2"), f.effects("shop-2"), rtol=1e-9)
    polars = opened()
    polars.update(pl.from_pandas(PAST))
    found = polars.effects(["shop-2"])
    assert isinstance(found, pl.DataFrame)
    pd.testing.assert_frame_equal(found.to_pandas(), f.effects("shop-2"), rtol=1e-9)


def test_the_picture_shows_every_effect(tmp_path: Path) -> None:
    f = opened(("promo", "kind"))
    f.update(PAST)
    for ids in (None, ["shop-0", "shop-1"], f.ids):
        picture = f.plot_effects(ids, tmp_path / "effects.svg")
        words = [text.text or "" for text in ET.fromstring((tmp_path / "effects.svg").read_text()).iter() if text.text]
        assert {"promo", "1 against 0", "kind"} <= set(words)
        assert f"{row(f.effects(), 'promo')['effect']:+.1f} %" in words
        assert picture._repr_svg_() == str(picture)
        named = ids is not None and len(ids) <= NAMED
        assert ("shop-0" in words) == named
    with pytest.raises(StorageError, match="cannot be written"):
        f.plot_effects(path=tmp_path / "no" / "folder.svg")


def test_errors_name_the_fix() -> None:
    plain = opened(())
    plain.update(PAST)
    trained = make(h=7, freq="D", max_steps=1).fit(PANEL[["unique_id", "ds", "y"]], val_size=0)
    for f in (plain, trained):
        with pytest.raises(NotFittedError, match="futr_exog_list") as found:
            f.effects()
        assert "no covariates" in str(found.value)
    with pytest.raises(NotFittedError, match="Call update"):
        opened().effects()
    with pytest.raises(NotFittedError, match="Call fit"):
        Forecaster(7, "D").effects()
    known = opened()
    known.update(PAST)
    with pytest.raises(UnknownSeriesError):
        known.effects(["nobody"])
