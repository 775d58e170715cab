"""What forecasters and streams are asked about the future: its rows, fewer steps, series that ended, pictures."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jaxtyping
import numpy as np
import pandas as pd
import polars as pl
import pytest

from aru import Forecaster, Stream
from aru.errors import AruWarning, ColumnError, ConfigError, FutureError, UnknownSeriesError
from aru.runtime.outlook import Outlook
from tests.making import make
from tests.shops import BASE, COVARIATES, START, STATIC, H, both, rows

PLAIN = ["unique_id", "ds", "y"]


def fitted() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(both(range(20)), STATIC)


def pretrained() -> Forecaster:
    f = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu", futr_exog_list=["promo"])
    f.update(both(range(40))[[*PLAIN, "promo"]])
    return f


MAKERS: dict[str, Callable[[], Forecaster]] = {"fitted": fitted, "pretrained": pretrained}


@pytest.fixture(scope="module", params=["fitted", "pretrained", "fitted stream", "pretrained stream"])
def model(request: pytest.FixtureRequest) -> Iterator[Outlook]:
    made = MAKERS[request.param.split()[0]]()
    if not request.param.endswith("stream"):
        yield made
        return
    with Stream(made) as stream:
        yield stream


def filled(frame: pd.DataFrame) -> pd.DataFrame:
    """Covariates of future rows."""
    parts = [rows(uid, (part["ds"] - START).dt.days) for uid, part in frame.groupby("unique_id", sort=False)]
    return pd.concat(parts)[["unique_id", "ds", "promo"]]


def test_future_rows_are_what_predict_needs(model: Outlook) -> None:
    made = model.make_future_dataframe()
    assert list(made.columns) == ["unique_id", "ds"]
    futr = filled(made)
    out = model.predict(futr)
    pd.testing.assert_frame_equal(out[["unique_id", "ds"]], made)
    assert len(model.get_missing_future(futr)) == 0
    assert list(model.get_missing_future(futr).columns) == ["unique_id", "ds"]
    short = model.make_future_dataframe(h=2, ids=["b"])
    pd.testing.assert_frame_equal(short, made[made["unique_id"] == "b"].head(2).reset_index(drop=True))
    pd.testing.assert_frame_equal(
        model.predict(filled(short), ids=["b"], h=2),
        out[out["unique_id"] == "b"].head(2).reset_index(drop=True),
        rtol=1e-5,
    )


def test_what_is_missing_can_be_filled(model: Outlook) -> None:
    futr = filled(model.make_future_dataframe()).reset_index(drop=True)
    gone = [0, 4]
    some = futr.drop(index=gone)
    missing = model.get_missing_future(some)
    pd.testing.assert_frame_equal(missing, futr.loc[gone, ["unique_id", "ds"]].reset_index(drop=True))
    with pytest.raises(FutureError, match="no row for 2 of 6"):
        model.predict(some)
    whole = pd.concat([some, filled(missing)])
    pd.testing.assert_frame_equal(model.predict(whole), model.predict(futr))
    assert len(model.get_missing_future(some, h=1, ids=["b"])) == 0
    without = model.get_missing_future(futr[["unique_id", "ds"]])
    assert list(without.columns) == ["unique_id", "ds", "promo"]
    assert len(without) == 2 * H
    assert without["promo"].isna().all()
    assert len(model.get_missing_future(futr.head(0))) == 2 * H
    assert len(model.get_missing_future(None)) == 2 * H
    assert isinstance(model.get_missing_future(pl.from_pandas(some)), pl.DataFrame)
    with pytest.raises(ColumnError, match="unique_id"):
        model.get_missing_future(futr.drop(columns="unique_id"))
    with pytest.raises(UnknownSeriesError, match="z"):
        model.get_missing_future(futr, ids=["z"])


def test_the_number_of_steps_is_checked(model: Outlook) -> None:
    futr = filled(model.make_future_dataframe())
    for h, message in ((H + 1, f"h={H + 1} is longer than the horizon of this model, which is {H}"), (0, "h must")):
        for call in (model.predict, model.predict_total, lambda futr, h: model.make_future_dataframe(h)):
            with pytest.raises(ConfigError, match=message):
                call(futr, h=h)


def test_without_a_frequency_future_times_are_not_known() -> None:
    f = make(**{**BASE, "freq": None}).fit(both(range(20))[PLAIN])
    with pytest.raises(ConfigError, match=r"times of future steps are not known. Give futr_df"):
        f.make_future_dataframe()
    ahead = both([21, 25, 31])[["unique_id", "ds"]]
    whole = f.predict(ahead, [80])
    early = ahead["ds"] < START + pd.Timedelta(days=30)
    pd.testing.assert_frame_equal(
        f.predict(ahead[early], [80], h=2), whole[early.to_numpy()].reset_index(drop=True), check_exact=True
    )


def three(hindsight: bool = True) -> Forecaster:
    """Series a goes on; b ended 6 steps before its latest row, n 5 steps, which is not enough."""
    f = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu", hindsight=hindsight)
    f.update(pd.concat([rows("a", range(46)), rows("b", range(40)), rows("n", range(30, 41))])[PLAIN])
    return f


def ids(frame: pd.DataFrame) -> list[str]:
    return list(frame["unique_id"].unique())


@pytest.mark.parametrize("open_it", [copy.copy, Stream])
def test_ended_series_are_named_once_or_left_out(
    open_it: Callable[[Forecaster], Outlook], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_it(three())
    said = r"^1 of 3 series ended more than 5 steps before .* 2024-02-15: \(b, 2024-02-09\).*ended='skip' leaves"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids(model.predict(ids=["b", "a"])) == ["b", "a"]  # asked for by name
        for answer in (
            model.predict(ended="skip"),
            model.predict(ended="skip", h=1),
            model.predict_total(ended="skip"),
            model.predict_paths(2, ended="skip"),
            model.make_future_dataframe(ended="skip"),
        ):
            assert ids(answer) == ["a", "n"]
        assert ids(model.predict(ids=["b", "a"], ended="skip")) == ["a"]
        nobody = model.predict(ids=["b"], ended="skip")
        assert (len(nobody), list(nobody.columns)) == (0, list(model.predict(ids=["a"]).columns))
        assert len(model.predict_total(ids=["b"], ended="skip")) == 0
        assert len(model.predict_paths(ids=["b"], ended="skip")) == 0
    with pytest.warns(AruWarning, match=said):
        assert ids(model.predict()) == ["a", "b", "n"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids(model.predict()) == ["a", "b", "n"]
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ConfigError, match=r"ended='drop' is not known. Choose 'keep' or 'skip'"):
        model.predict(ended="drop")  # type: ignore[arg-type]


def test_leaving_out_ended_series_changes_no_other_forecast() -> None:
    f = three()
    whole = f.predict(level=[80], ids=["a", "n"])
    pd.testing.assert_frame_equal(f.predict(level=[80], ended="skip"), whole, rtol=1e-5)


def texts(picture: Any) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(str(picture)).iter() if e.tag.endswith("text")]


def count(picture: Any, tag: str) -> int:
    return sum(e.tag.endswith(tag) for e in ElementTree.fromstring(str(picture)).iter())


def test_a_picture_of_series_and_forecasts(model: Outlook, tmp_path: Path) -> None:
    futr = filled(model.make_future_dataframe())
    picture = model.plot(futr_df=futr, path=tmp_path / "fan.svg")
    assert (tmp_path / "fan.svg").read_text() == str(picture)
    said = texts(picture)
    assert {"unique_id a", "unique_id b", "y", "aru, median", "50 %", "80 %", "95 %"} <= set(said)
    assert "without adaptation" in said  # both models adapt
    assert count(picture, "polygon") == 6
    one = model.plot(["b"], futr, level=[90], h=2, df=both(range(60)), n_history=8)
    assert "unique_id a" not in texts(one)
    assert count(one, "polygon") == 1
    assert count(one, "circle") == 2  # the values that came
    lines = [e for e in ElementTree.fromstring(str(one)).iter() if e.tag.endswith("polyline")]
    assert [len(e.get("points", "").split()) for e in lines] == [8, 2, 2]


def test_pictures_without_intervals_of_large_values_and_of_other_formats(tmp_path: Path) -> None:
    f = three()
    f.update(rows("q", range(46))[PLAIN].assign(y=lambda df: 1e6 + 1e4 * df.y))
    picture = f.plot("q", level=[])
    assert count(picture, "polygon") == 0
    assert any(text.endswith("00,000") for text in texts(picture))
    assert not any("e+" in text for text in texts(picture))
    for name in ("fan.png", "fan.PDF"):
        with pytest.raises(ConfigError, match="Pictures are SVG"):
            f.plot("q", path=tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    f.plot("q", path=tmp_path / "fan.SVG")


def test_a_picture_of_a_model_that_does_not_adapt_and_of_gaps() -> None:
    f, df = three(hindsight=False), rows("q", range(46))[PLAIN]
    df.loc[[40, 42], "y"] = np.nan
    f.update(df)
    picture = f.plot("q", n_history=10)
    assert "without adaptation" not in texts(picture)
    lines = [e for e in ElementTree.fromstring(str(picture)).iter() if e.tag.endswith("polyline")]
    assert [len(e.get("points", "").split()) for e in lines] == [4, 3, H]  # and a dot between the gaps
    assert count(picture, "circle") == 1
    assert "unique_id b" not in texts(f.plot())  # it ended
    f.update(pd.concat([rows(f"m{i}", range(40, 46)) for i in range(25)])[PLAIN])
    with pytest.raises(ConfigError, match=r"room for 24 series, not 25"):
        f.plot([f"m{i}" for i in range(25)])
    assert sum(text.startswith("unique_id") for text in texts(f.plot())) == 8
