"""Users' own names of the columns of series, time and target: in, out, in messages, and kept with a model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jaxtyping
import pandas as pd
import polars as pl
import pytest

from aru import Forecaster, Stream
from aru.data.naming import Names
from aru.errors import AruError, AruWarning, ColumnError, ConfigError, FutureError, InputError, LateError
from tests.making import make
from tests.shops import BASE, COVARIATES, STATIC, TRAINED, H, both

MINE = Names("shop", "day", "sales")
OWN = {"id_col": "shop", "time_col": "day", "target_col": "sales"}
BACK = {new: old for old, new in MINE._asdict().items()}


def mine(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.rename(columns=MINE._asdict())


def pretrained() -> Forecaster:
    return Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu")


@pytest.fixture(scope="module")
def usual() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)


@pytest.fixture(scope="module")
def trained() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(mine(both(range(TRAINED))), mine(STATIC), **OWN)


def test_all_calls_give_the_same_under_other_names(usual: Forecaster, trained: Forecaster, tmp_path: Path) -> None:
    usual, trained = copy.copy(usual), copy.copy(trained)
    assert trained.names == MINE
    new, whole = both(range(20, 22)), both(range(30))
    futr = both(range(20, 23))[["unique_id", "ds", "promo"]]
    same = pd.testing.assert_frame_equal
    same(trained.predict(mine(futr), [80]), mine(usual.predict(futr, [80])))
    same(trained.predict(futr, [80], id_col="unique_id", time_col="ds"), usual.predict(futr, [80]))
    same(usual.predict(mine(futr), [80], **OWN), mine(usual.predict(futr, [80])))
    young = both(range(3), ids="n")[["unique_id", "ds", "promo"]]
    same(trained.predict_new(mine(young), mine(STATIC)), mine(usual.predict_new(young, STATIC)))
    rolled = usual.cross_validation(whole, 2, static_df=STATIC)
    same(trained.cross_validation(mine(whole), 2, static_df=mine(STATIC)), mine(rolled))
    same(usual.cross_validation(mine(whole), 2, static_df=mine(STATIC), **OWN), mine(rolled))
    summed = usual.predict_total(futr, [80], df=whole, static_df=STATIC)
    same(trained.predict_total(mine(futr), [80], df=mine(whole), static_df=mine(STATIC)), mine(summed))
    assert list(trained.make_future_dataframe().columns) == ["shop", "day"]
    assert list(usual.make_future_dataframe(id_col="shop", time_col="day").columns) == ["shop", "day"]
    assert list(trained.get_missing_future(mine(futr).drop(columns="promo")).columns) == ["shop", "day", "promo"]
    trained.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    assert loaded.names == MINE
    loaded.update(mine(new), mine(STATIC))
    usual.update(new, STATIC)
    later = both(range(22, 25))[["unique_id", "ds", "promo"]]
    same(loaded.predict(mine(later)), mine(usual.predict(later)))
    with Stream(trained) as stream:
        stream.update(mine(new), mine(STATIC))
        same(stream.predict(mine(later)), mine(usual.predict(later)))


def test_services_speak_of_the_usual_columns_to_any_model(trained: Forecaster) -> None:
    """Columns of requests have the usual names, whatever the frames of training had."""
    with Stream(trained) as stream:
        assert stream.apply(both(range(20, 22)), STATIC).result.applied == 4
        futr = both(range(22, 25))[["unique_id", "ds", "promo"]]
        assert list(stream.predict_columns(futr).columns)[:2] == ["unique_id", "ds"]
        with pytest.raises(InputError, match=r"^y of df is infinite") as caught:
            stream.apply(both([22]).assign(y=float("inf")), STATIC)
        assert caught.value.columns == ("y",)


def test_a_frame_may_also_have_columns_of_the_usual_names(usual: Forecaster) -> None:
    whole = both(range(30))
    odd = mine(whole).assign(unique_id="same", ds=0, y="text")
    expected = mine(usual.cross_validation(whole, 2, static_df=STATIC))
    pd.testing.assert_frame_equal(
        usual.cross_validation(odd, 2, static_df=STATIC.assign(shop=STATIC["unique_id"]), **OWN), expected
    )
    swapped = {"unique_id": "ds", "ds": "unique_id"}
    rolled = usual.cross_validation(
        whole.rename(columns=swapped), 2, static_df=STATIC.rename(columns=swapped), id_col="ds", time_col="unique_id"
    )
    pd.testing.assert_frame_equal(rolled, expected.rename(columns={**BACK, "shop": "ds", "day": "unique_id"}))


def test_polars_and_dictionaries() -> None:
    days, f = both(range(30))[["unique_id", "ds", "y"]], pretrained()
    f.update(pl.from_pandas(mine(days)), **OWN)
    assert f.predict().columns[:2] == ["shop", "day"]
    with Stream(pretrained()) as stream:
        stream.update(mine(days).to_dict("list"), **OWN)
        assert list(stream.predict().columns[:2]) == ["shop", "day"]
        late = stream.update(mine(days.tail(1)).assign(sales=1.0), late="skip").late
        assert list(late.columns) == ["shop", "day", "sales", "reason"]


def test_a_pretrained_model_takes_the_names_of_its_first_rows(tmp_path: Path) -> None:
    days, f = both(range(30))[["unique_id", "ds", "y"]], pretrained()
    with pytest.raises(ColumnError, match="id_col"):
        f.update(mine(days))
    assert f.names == Names()
    f.update(mine(days), **OWN)
    f.save(tmp_path / "model")
    f = Forecaster.load(tmp_path / "model")
    f.update(mine(both(range(30, 32))[["unique_id", "ds", "y"]]))
    assert list(f.predict().columns[:2]) == ["shop", "day"]
    usual = both(range(32, 33))[["unique_id", "ds", "y"]]
    f.update(usual, id_col="unique_id", time_col="ds", target_col="y")
    assert f.names == MINE  # others are those of one call


def wrong(frame: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    frame = frame.copy()
    frame[column] = frame[column].astype(object)
    frame.loc[3, column] = value
    return frame


PROBLEMS: dict[str, tuple[Any, type[AruError], str, list[str]]] = {
    "no target": (lambda df: df.drop(columns="sales"), ColumnError, "no column 'sales'.*target_col", ["sales"]),
    "no time": (lambda df: df.drop(columns="day"), ColumnError, "no column 'day'.*time_col", ["day"]),
    "text": (lambda df: wrong(df, "sales", "many"), ColumnError, r"^sales of df has type.*'many' at \(b, ", ["sales"]),
    "infinite": (lambda df: wrong(df, "sales", float("inf")), InputError, "^sales of df is infinite", ["sales"]),
    "no time in a row": (lambda df: wrong(df, "day", None), InputError, "^day of df is missing", ["day"]),
    "no series in a row": (lambda df: wrong(df, "shop", None), InputError, "^shop of df is missing", ["shop"]),
    "unreadable": (lambda df: wrong(df, "day", "tomorrow"), ColumnError, "^day of df cannot be read", ["day"]),
    "numbers": (lambda df: df.assign(day=range(len(df))), InputError, "^day of df holds integers", []),
    "other ids": (lambda df: df.assign(shop=[1, 1, 2, 2]), ColumnError, "^shop of df holds integers", ["shop"]),
    "late": (lambda df: df, LateError, "at or before", []),
}


@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_errors_name_the_users_columns(trained: Forecaster, problem: str) -> None:
    change, error, message, columns = PROBLEMS[problem]
    late = problem == "late"
    df = mine(both(range(5 if late else 20, 22)).assign(y=lambda d: d["y"] + 1))
    for model in (copy.copy(trained), Stream(trained)):
        with pytest.raises(error, match=message) as caught:
            model.update(change(df), mine(STATIC))
        assert list(caught.value.columns) == columns
        assert not set(BACK.values()) & set(str(caught.value).replace("(", " ").split())
        if caught.value.rows is not None:
            assert {"shop", "day"} <= set(caught.value.rows.columns)
            assert not set(BACK.values()) & set(caught.value.rows.columns)


def test_other_messages_name_them(trained: Forecaster) -> None:
    with pytest.raises(FutureError, match=f"need shop, day, promo of the next {H} steps"):
        trained.predict()
    with pytest.raises(FutureError, match="need shop, day, promo of the next 2 steps"):
        trained.predict(h=2)
    with pytest.raises(ColumnError, match=r"futr_df has no column 'day'.*time_col"):
        trained.predict(mine(both(range(20, 23)))[["shop", "promo"]])
    with pytest.raises(ColumnError, match=r"df has no column 'promo', 'temp'; it has shop, day, sales"):
        trained.update(mine(both(range(20, 21)))[["shop", "day", "sales"]])
    with pytest.raises(ColumnError, match=r"static_df has no column 'shop'.*id_col"):
        trained.cross_validation(mine(both(range(30))), static_df=STATIC)
    with pytest.raises(ColumnError, match="Pass static_df with shop and"):
        trained.cross_validation(mine(both(range(30))))
    wild, f = mine(both(range(60)))[list(MINE)], pretrained()
    wild.loc[40, "sales"] = 1e9
    with pytest.warns(AruWarning, match="^sales lies far outside the range of its series at"):
        f.update(wild, **OWN)
    assert list(f.names) == list(MINE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id_col": "day", "time_col": "day"}, "three different columns"),
        ({"id_col": ""}, "id_col must be the name of a column, got ''"),
        ({"time_col": 3}, "time_col must be the name of a column, got 3"),
        ({"target_col": "promo"}, "target_col='promo' is a covariate, too"),
        ({"target_col": "aru-median"}, "target_col='aru-median' is the name of another column of forecasts"),
        ({"id_col": "cutoff"}, "id_col='cutoff' is the name of another column"),
    ],
)
def test_names_that_cannot_be_are_refused(
    usual: Forecaster, given: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ConfigError, match=message):
        usual.predict(**given)
    with pytest.raises(ConfigError, match=message):
        make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC, **given)


def test_a_name_that_a_result_has_already_is_refused() -> None:
    f = pretrained()
    f.update(both(range(30))[["unique_id", "ds", "y"]].rename(columns={"unique_id": "path"}), id_col="path")
    assert f.predict().columns[0] == "path"
    with pytest.raises(ConfigError, match="id_col='path' is also the name of another column of this result"):
        f.predict_paths(2)
