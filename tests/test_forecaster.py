"""The user's class: frames in and out, every input problem named, saving and loading, backtests."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import polars
import pytest
import torch
from safetensors.torch import load_file, save
from utilsforecast.evaluation import evaluate
from utilsforecast.losses import coverage, mae, mqloss, quantile_loss, rmse

import aru
from aru import Forecaster
from aru.data.scores import scores
from aru.errors import (
    AruError,
    AruWarning,
    ColumnError,
    ConfigError,
    DuplicateError,
    FrequencyError,
    FutureError,
    InputError,
    NotFittedError,
    StorageError,
    TooLittleDataError,
    ValueRangeError,
)
from aru.models import MODELS
from aru.runtime import ForecastRuntime
from aru.runtime.engine import Forecast, NetworkEngine
from aru.runtime.forecasting import warn_failed
from aru.runtime.table import StateTable
from aru.store import folder as saving
from tests.making import flat, make

H = 3
BASE: dict[str, Any] = {
    "h": H,
    "freq": "D",
    "input_size": 4,
    "size": (4, 5, 4, 3),
    "max_steps": 5,
    "accelerator": "cpu",
    "trainer": {"enable_progress_bar": False},
}
COVARIATES: dict[str, Any] = {"futr_exog_list": ["price"], "hist_exog_list": ["temp"], "stat_exog_list": ["kind"]}
N = 30


def frame(ids: tuple[Any, ...] = ("a", "b"), n: int = N, start: str = "2024-01-01") -> pd.DataFrame:
    random = np.random.default_rng(1)
    parts = []
    for i, uid in enumerate(ids):
        t = np.arange(n)
        parts.append(
            pd.DataFrame(
                {
                    "unique_id": uid,
                    "ds": pd.date_range(start, periods=n, freq="D"),
                    "y": 20.5 + 10 * i + 5 * np.sin(2 * np.pi * t / 7) + random.normal(size=n),
                    "price": random.uniform(1, 2, n),
                    "temp": random.normal(size=n),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


DF = frame()
TRAIN, NEW = DF[DF["ds"] < "2024-01-22"], DF[DF["ds"] >= "2024-01-22"]
STATIC = pd.DataFrame({"unique_id": ["a", "b"], "kind": ["x", "y"]})


@pytest.fixture(scope="module")
def trained() -> Forecaster:
    return make(**BASE).fit(TRAIN)


@pytest.fixture(scope="module")
def trained_with_covariates() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(TRAIN, STATIC)


@pytest.fixture
def plain(trained: Forecaster) -> Forecaster:
    return copy.copy(trained)


@pytest.fixture
def rich(trained_with_covariates: Forecaster) -> Forecaster:
    return copy.copy(trained_with_covariates)


def change(at: int, **values: Any) -> Callable[[], pd.DataFrame]:
    """The frame with other values in one row."""

    def changed() -> pd.DataFrame:
        df = DF.copy()
        for column, value in values.items():
            df[column] = df[column].astype(object) if isinstance(value, str) else df[column]
            df.loc[at, column] = value
        return df

    return changed


PROBLEMS: dict[str, tuple[Callable[[], Any], type[InputError], str]] = {
    "no y": (lambda: DF.drop(columns="y"), ColumnError, r"df has no column 'y'.*Add the columns, or .* target_col\."),
    "no ds": (lambda: DF.drop(columns="ds"), ColumnError, r"df has no column 'ds'.*Add the columns, or .* time_col\."),
    "no id": (lambda: DF.rename(columns={"unique_id": "id"}), ColumnError, r"'unique_id'; it has id, ds.*id_col"),
    "no future": (lambda: DF.drop(columns="price"), ColumnError, r"'price'.*Rename or add"),
    "no history": (lambda: DF.drop(columns="temp"), ColumnError, r"'temp'.*Rename or add"),
    "no frame": (lambda: [1], InputError, r"pandas or polars data frame, got list"),
    "no table": (lambda: {"unique_id": ["a"], "ds": [1], "y": [1, 2]}, InputError, r"is no table: .*equally long"),
    "no rows": (lambda: DF.head(0), InputError, r"df has no rows"),
    "twice": (lambda: pd.concat([DF, DF.iloc[[4]]]), DuplicateError, r"\(a, 2024-01-05\).*Keep one"),
    "infinite": (change(40, y=np.inf), ValueRangeError, r"y of df is infinite.*b, 2024-01-11.*NaN for missing"),
    "minus infinity": (change(2, y=-np.inf), ValueRangeError, r"infinite.*a, 2024-01-03"),
    "infinite covariate": (change(3, price=np.inf), ValueRangeError, r"'price'.*infinite.*a, 2024-01-04.*NaN"),
    "no value at all": (
        lambda: DF.assign(y=np.nan),
        ValueRangeError,
        r"2 series of df have no value.*: a, b\. Drop",
    ),
    "text": (lambda: DF.assign(y=DF["y"].astype(str)), ColumnError, r"y of df has type .*numeric"),
    "off the grid": (
        change(7, ds=pd.Timestamp("2024-01-08 05:00")),
        FrequencyError,
        r"1 rows of df do not lie on the grid of freq='D': \(a, 2024-01-08 05:00:00\).*orrect",
    ),
    "integer time": (lambda: DF.assign(ds=range(len(DF))), FrequencyError, r"integers but freq='D'"),
    "huge": (change(40, y=-1e31), ValueRangeError, r"y of df is larger than 1e\+30.*b, 2024-01-11.*NaN for missing"),
    "huge covariate": (change(3, price=1e300), ValueRangeError, r"'price'.*larger than 1e\+30.*a, 2024-01-04.*NaN"),
    "no time": (change(6, ds=pd.NaT), InputError, r"ds of df is missing.*Fill or drop"),
    "words for time": (lambda: DF.assign(ds="soon"), ColumnError, r"ds of df cannot be read as timestamps"),
    "fractions for ids": (lambda: DF.assign(unique_id=0.5), ColumnError, r"unique_id of df has type.*strings or int"),
}


@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_what_is_wrong_with_a_frame_is_named(problem: str, rich: Forecaster) -> None:
    faulty, error, says = PROBLEMS[problem]
    with pytest.raises(error, match=f"(?s){says}"):
        make(**BASE, **COVARIATES).fit(faulty(), STATIC)
    with pytest.raises(error, match=f"(?s){says}"):
        rich.cross_validation(faulty(), static_df=STATIC)


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p not in ("no value at all", "off the grid")])
def test_what_is_wrong_with_new_rows_is_named(problem: str, rich: Forecaster) -> None:
    faulty, error, says = PROBLEMS[problem]
    before = flat(rich.table.states)
    with pytest.raises(error, match=f"(?s){says}"):
        rich.update(faulty(), STATIC)
    assert all(torch.equal(v, before[k]) for k, v in flat(rich.table.states).items())


def test_new_rows_off_the_grid_are_named(plain: Forecaster) -> None:
    shifted = NEW.assign(ds=NEW["ds"] + pd.Timedelta(hours=3))
    with pytest.raises(FrequencyError, match=r"18 rows of df.*freq='D': \(a, 2024-01-22 03:00:00\)"):
        plain.update(shifted)


def test_time_of_the_wrong_kind_for_an_integer_frequency() -> None:
    with pytest.raises(FrequencyError, match=r"timestamps but freq=1.*'D'"):
        make(**{**BASE, "freq": 1}).fit(DF)
    with pytest.raises(FrequencyError, match=r"\(a, 1\).*distance between rows is 2|\(a, 2\)"):
        make(**{**BASE, "freq": 4}).fit(DF.assign(ds=2 * DF.groupby("unique_id").cumcount()))


def test_too_little_data() -> None:
    with pytest.raises(TooLittleDataError, match=r"longest series has 3 rows.*h=3 needs at least 4.*shorter horizon"):
        make(**BASE).fit(DF.groupby("unique_id").head(3))
    with pytest.raises(TooLittleDataError, match=r"has 2 rows to train on besides val_size=28"):
        make(**BASE).fit(DF, val_size=28)
    assert make(**BASE).fit(DF.groupby("unique_id").head(4)).ids == ["a", "b"]


def test_a_horizon_too_long() -> None:
    with pytest.raises(TooLittleDataError, match=r"30 rows.*h=30 needs at least 31.*shorter horizon or more history"):
        make(**{**BASE, "h": 30}).fit(DF)


def test_too_many_windows(plain: Forecaster) -> None:
    with pytest.raises(TooLittleDataError, match=r"4 windows of h=3 every 9 steps.*30 rows.*Use fewer"):
        plain.cross_validation(DF, n_windows=4, step_size=9, level=[90])


def test_an_unknown_model_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigError, match=r"model='oracle' is not known\. Choose one of .*aru.*baseline"):
        Forecaster(h=3, freq="D", model="oracle")


@pytest.mark.parametrize(
    "use",
    [
        lambda f, _: f.predict(),
        lambda f, _: f.update(DF),
        lambda f, _: f.cross_validation(DF),
        lambda f, path: f.save(path),
        lambda f, _: f.ids,
    ],
)
def test_nothing_works_before_fit(use: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="Call fit first"):
        use(make(**BASE), tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("static", "error", "says"),
    [
        (None, ColumnError, r"stat_exog_list names kind\. Pass static_df"),
        (STATIC.drop(columns="kind"), ColumnError, r"static_df has no column 'kind'"),
        (STATIC.head(1), ColumnError, r"no row for the series b\. Add"),
        (pd.concat([STATIC, STATIC]), DuplicateError, r"several rows for the series a, b"),
    ],
)
def test_static_covariates_must_be_there(static: Any, error: type[InputError], says: str, rich: Forecaster) -> None:
    with pytest.raises(error, match=says):
        make(**BASE, **COVARIATES).fit(TRAIN, static)
    with pytest.raises(error, match=says.replace("a, b", "a")):
        rich.cross_validation(DF, static_df=static)
    if static is not STATIC:
        new = frame(("new",))
        with pytest.raises((ColumnError, DuplicateError), match=r"static_df|stat_exog_list"):
            rich.update(new, None if static is None else static)


def futr(f: Forecaster, ids: tuple[str, ...] = ("a", "b")) -> pd.DataFrame:
    last = NEW["ds"].max() if f.table.states.last.max() >= NEW["ds"].max().value // 1000 else TRAIN["ds"].max()
    return frame(ids, H, str(last + pd.Timedelta(days=1)))[["unique_id", "ds", "price"]]


def test_future_covariates_must_be_there(rich: Forecaster) -> None:
    with pytest.raises(
        FutureError, match=r"need unique_id, ds, price of the next 3 steps of each series\. Give futr_df"
    ):
        rich.predict()
    with pytest.raises(FutureError, match=r"no row for 3 of 6 future steps: \(b, 2024-01-22\).*next 3 steps"):
        rich.predict(futr(rich, ("a",)))
    with pytest.raises(FutureError, match=r"no row for 1 of 6 future steps: \(a, 2024-01-23\)"):
        rich.predict(futr(rich).drop(index=1))
    with pytest.raises(ColumnError, match=r"futr_df has no column 'price'"):
        rich.predict(futr(rich).drop(columns="price"))
    with pytest.raises(DuplicateError, match=r"futr_df.*\(a, 2024-01-22\)"):
        rich.predict(pd.concat([futr(rich), futr(rich).head(1)]))
    with pytest.raises(ValueRangeError, match=r"'price' of futr_df is infinite"):
        rich.predict(futr(rich).assign(price=np.inf))
    assert len(rich.predict(futr(rich, ("a",)), ids=["a"])) == H
    assert np.isfinite(rich.predict(futr(rich).assign(price=np.nan))["aru"]).all()


def test_forecasts_of_series_without_a_value_need_their_rows(rich: Forecaster) -> None:
    new = frame(("n", "o"), H, "2024-05-01")
    static = pd.DataFrame({"unique_id": ["n", "o"], "kind": ["x", "y"]})
    assert len(rich.predict_new(new, static)) == 2 * H
    with pytest.raises(FutureError, match=r"have values already: a\..*predict"):
        rich.predict_new(frame(("a", "n"), H), static)
    with pytest.raises(FutureError, match=r"fewer than h=3 rows.*o \(2\)"):
        rich.predict_new(new.head(2 * H - 1), static)
    with pytest.raises(FutureError, match=r"not consecutive steps of freq='D' at \(n, 2024-05-04\)"):
        rich.predict_new(new.assign(ds=new["ds"].where(new["ds"].dt.day != 3, pd.Timestamp("2024-05-04"))), static)
    with pytest.raises(ColumnError, match="no row for the series o"):
        rich.predict_new(new, static.head(1))
    with pytest.raises(NotFittedError):
        make(**BASE).predict_new(new)


def test_columns_keep_their_kind(rich: Forecaster) -> None:
    with pytest.raises(ColumnError, match="'price' was numeric in training"):
        rich.update(NEW.assign(price="cheap"))
    with pytest.raises(ColumnError, match="'kind' was categorical in training"):
        rich.cross_validation(DF, static_df=STATIC.assign(kind=[1.0, 2.0]))


def test_duplicates_and_static_covariates_of_known_series_change_nothing(rich: Forecaster) -> None:
    twin = copy.copy(rich)
    rich.update(NEW)
    twin.update(NEW, STATIC.assign(kind=["y", "x"]))
    again = NEW.groupby("unique_id").tail(4).assign(price=0.0, temp=0.0)
    assert twin.update(again).duplicates == len(again)  # y alone decides
    states = flat(rich.table.states), flat(twin.table.states)
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_ids_keep_their_kind(rich: Forecaster) -> None:
    """Numbers where training had strings would pass for new series."""
    ids = {"unique_id": [1, 2]}
    static = STATIC.assign(**ids)
    numbers = DF.assign(unique_id=DF["unique_id"].map({"a": 1, "b": 2}))
    with pytest.raises(ColumnError, match=r"unique_id of df holds integers.*strings\. Convert"):
        rich.update(numbers, static)
    with pytest.raises(ColumnError, match=r"unique_id of df holds integers.*strings\. Convert"):
        rich.cross_validation(numbers, static_df=static)
    with pytest.raises(ColumnError, match=r"unique_id of futr_df holds integers.*strings\. Convert"):
        rich.predict(numbers)


def test_time_keeps_its_kind() -> None:
    """Without a frequency both kinds could be read."""
    f = make(**{**BASE, "freq": None}).fit(TRAIN)
    numbers = DF.assign(ds=DF.groupby("unique_id").cumcount())
    for use in (f.update, f.cross_validation, f.predict):
        with pytest.raises(ColumnError, match=r"ds of \w+ holds integers, but training had timestamps\. Convert"):
            use(numbers)


def test_unknown_series_are_named(plain: Forecaster) -> None:
    with pytest.raises(InputError, match=r"not known: nobody, 7\..*update"):
        plain.predict(ids=["a", "nobody", 7])
    assert list(plain.predict(ids=["b"])["unique_id"].unique()) == ["b"]
    assert len(plain.predict(ids=[])) == 0
    numbers = make(**BASE).fit(frame((4, 9)))
    with pytest.raises(InputError, match=r"not known: 5, 4\."):
        numbers.predict(ids=[9, 5, "4"])
    for ids in ([9], 9, np.array([9]), iter([9])):
        assert numbers.predict(ids=ids)["unique_id"].tolist() == [9] * H


@pytest.mark.usefixtures("as_users_run_it")
def test_arguments_are_checked(plain: Forecaster) -> None:
    for value in (-1, 2.0, True, "3"):
        with pytest.raises(ConfigError, match=f"val_size must be a whole number of at least 0, got {value!r}"):
            make(**BASE).fit(DF, val_size=value)  # type: ignore[arg-type]
    for name in ("n_windows", "step_size"):
        for value in (0, 1.5, True):
            with pytest.raises(ConfigError, match=f"{name} must be a whole number of at least 1, got {value!r}"):
                plain.cross_validation(DF, **{name: value})
    for level in ([0], [100], [-5], ["90"], [True], [float("nan")]):
        with pytest.raises(ConfigError, match="level must hold percentages between 0 and 100"):
            plain.predict(level=level)
    for level in ([99.99999, 99.999999], [99.9999999], [80.00000001, 80]):
        with pytest.raises(ConfigError, match=r"level .* would be named (100|80), as another one is"):
            plain.predict(level=level)
    assert list(plain.predict(level=[99.999, 80, 80.0]))[-4:] == [
        "aru-lo-99.999",
        "aru-hi-99.999",
        "aru-lo-80",
        "aru-hi-80",
    ]
    with pytest.raises(ConfigError, match=r"late='drop' is not known\. Choose 'raise', 'skip' or 'correct'\."):
        plain.update(NEW, late="drop")  # type: ignore[arg-type]


def test_fit_returns_itself_and_the_states_have_seen_everything() -> None:
    f = make(**BASE)
    assert f.fit(DF, val_size=4) is f
    assert f.ids == ["a", "b"]
    out = f.predict()
    assert list(out.columns) == ["unique_id", "ds", "aru", "aru-median"]
    assert out["ds"].min() == DF["ds"].max() + pd.Timedelta(days=1)
    assert f.table.states.context.count.tolist() == [N, N]
    assert np.isfinite(f.val_loss)


def test_a_training_that_fails_leaves_the_old_one(plain: Forecaster) -> None:
    before = plain.predict()
    with pytest.raises(ValueRangeError):
        plain.fit(polars.from_pandas(DF.assign(y=np.inf)))
    pd.testing.assert_frame_equal(plain.predict(), before)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_columns_have_the_models_name_or_the_alias(model: str) -> None:
    f = make(**{**BASE, "model": model, "max_steps": 2})
    assert list(f.fit(TRAIN).predict(level=[80, 97.5]).columns) == [
        "unique_id",
        "ds",
        model,
        f"{model}-median",
        f"{model}-lo-80",
        f"{model}-hi-80",
        f"{model}-lo-97.5",
        f"{model}-hi-97.5",
    ]
    named = make(**{**BASE, "model": model, "max_steps": 2, "alias": "mine"}).fit(TRAIN)
    assert list(named.predict(level=[90]).columns)[2:] == ["mine", "mine-median", "mine-lo-90", "mine-hi-90"]
    rolled = named.cross_validation(DF, n_windows=2)
    assert list(rolled.columns) == ["unique_id", "ds", "cutoff", "y", "mine", "mine-median"]


def test_levels_are_central_intervals(plain: Forecaster) -> None:
    out = plain.predict(level=[90, 50, 80])
    ordered = ["aru-lo-90", "aru-lo-80", "aru-lo-50", "aru-median", "aru-hi-50", "aru-hi-80", "aru-hi-90"]
    assert (np.diff(out[ordered].to_numpy(), axis=1) >= 0).all()
    assert (np.diff(out[ordered[3:]].to_numpy(), axis=1) > 0).all()  # the lower ends may all be 0


@pytest.mark.usefixtures("as_users_run_it")
def test_levels_may_be_an_array_or_one_number(plain: Forecaster) -> None:
    expected = plain.predict(level=[90])
    for level in (np.array([90]), (90.0,), 90, [np.int64(90)]):
        pd.testing.assert_frame_equal(plain.predict(level=level), expected)  # type: ignore[arg-type]


def test_an_ensemble_averages_its_members() -> None:
    f = make(**{**BASE, "ensemble": 3, "freq": 1}).fit(TRAIN.assign(ds=TRAIN.groupby("unique_id").cumcount()))
    whole = f.predict(level=[80])
    parts = []
    for i, model in enumerate(f.runtime.engine.models):
        one = copy.copy(f)
        engine = NetworkEngine(f.settings, f.runtime.engine.schema, [copy.deepcopy(model)], torch.device("cpu"))
        table = StateTable(f.ids, f.table.states._replace(members=(f.table.states.members[i],)))
        assert f.trained is not None
        one.trained = f.trained._replace(runtime=ForecastRuntime(engine, f.runtime.freq, f.runtime.style), table=table)
        parts.append(one.predict(level=[80]))
    for column in whole.columns[2:]:
        expected = np.mean([p[column] for p in parts], axis=0)
        np.testing.assert_allclose(whole[column], expected, rtol=1e-12)
        assert not np.allclose(parts[0][column], parts[1][column])


def test_update_says_what_it_did(plain: Forecaster) -> None:
    last = TRAIN[TRAIN["ds"] == TRAIN["ds"].max()]
    skipping = NEW[NEW["ds"].dt.day != 25]
    result = plain.update(pd.concat([last, skipping, frame(("new",), 2)]))
    assert (result.applied, result.duplicates, result.gaps_filled) == (len(skipping) + 2, 2, 2)
    assert result.new_series == ["new"]
    assert len(result.late) == 0
    assert plain.ids == ["a", "b", "new"]


def test_a_series_without_a_finite_forecast_is_named(plain: Forecaster) -> None:
    names, states = plain.table.find(["a"])
    plain.table.put(names, states._replace(context=states.context._replace(total=torch.full((1,), torch.nan))))
    with pytest.warns(AruWarning, match=r"Series a have no finite forecast\. Check their values\."):
        out = plain.predict()
    assert np.isfinite(out.loc[out["unique_id"] == "b", "aru"]).all()


def test_a_quantile_that_is_no_number_is_no_finite_forecast() -> None:
    quantiles = torch.ones(2, 3, 4)
    quantiles[1, 2, 3] = torch.nan
    with pytest.warns(AruWarning, match=r"^Series c have no finite forecast\.") as caught:
        warn_failed(Forecast(torch.ones(3, 4), quantiles, torch.zeros(3, dtype=torch.bool)), pd.Index(["a", "b", "c"]))
    assert len(caught) == 1


def test_cross_validation_warns_inside_the_training_data(plain: Forecaster) -> None:
    """The first forecast that training did not see starts right after it."""
    before = flat(plain.table.states)
    with pytest.warns(AruWarning, match=r"2 series have cutoffs inside the training data: \(a, 2024-01-20\)"):
        plain.cross_validation(DF[DF["ds"] <= "2024-01-23"], n_windows=1)
    rolled = plain.cross_validation(DF, n_windows=3)  # warnings are errors
    assert rolled["cutoff"].min() == TRAIN["ds"].max()
    # Series that training never saw are never inside it.
    plain.cross_validation(frame(("new", "other")), n_windows=5)
    assert all(torch.equal(v, before[k]) for k, v in flat(plain.table.states).items())
    assert plain.ids == ["a", "b"]


def test_cutoffs_inside_the_validation_part_are_fair() -> None:
    f = make(**BASE).fit(DF, val_size=9)
    f.cross_validation(DF, n_windows=3)
    with pytest.warns(AruWarning, match="inside the training data"):
        f.cross_validation(DF, n_windows=4)


def test_cutoffs_count_back_from_the_end_of_each_series(plain: Forecaster) -> None:
    df = pd.concat([DF, frame(("short",), 8, "2024-03-01")])
    rolled = plain.cross_validation(df, n_windows=3, step_size=2)
    counts = rolled.groupby(["unique_id", "cutoff"]).size().reset_index()
    assert (counts[0] == H).all()
    short = counts.loc[counts["unique_id"] == "short", "cutoff"]
    assert short.tolist() == list(pd.to_datetime(["2024-03-01", "2024-03-03", "2024-03-05"]))
    merged = rolled.merge(df, on=["unique_id", "ds"], how="left")
    np.testing.assert_array_equal(merged["y_x"], merged["y_y"])
    lead = (rolled["ds"] - rolled["cutoff"]).dt.days
    assert lead.tolist() == [1, 2, 3] * len(counts)


def test_cross_validation_names_series_that_are_too_short(plain: Forecaster) -> None:
    begins = "2024-03-01"
    df = pd.concat([DF, frame(("some",), 2 * H, begins), frame(("none",), H, begins), frame(("all",), 3 * H, begins)])
    with pytest.warns(
        AruWarning,
        match=r"2 of 5 series are too short for 2 windows: none, some\. They are scored .*, 1 of them with none\.",
    ):
        rolled = plain.cross_validation(df, n_windows=2)
    assert rolled.groupby("unique_id")["cutoff"].nunique().to_dict() == {"a": 2, "all": 2, "b": 2, "some": 1}


@pytest.mark.usefixtures("as_users_run_it")
def test_whole_numbers_may_be_those_of_numpy(plain: Forecaster) -> None:
    expected = plain.cross_validation(DF, n_windows=2, step_size=2)
    found = plain.cross_validation(DF, n_windows=np.int64(2), step_size=np.int32(2))
    pd.testing.assert_frame_equal(found, expected)


def test_utilsforecast_scores_our_frames(plain: Forecaster) -> None:
    rolled = plain.cross_validation(DF, n_windows=3, level=[80])
    for df in (rolled, polars.from_pandas(rolled)):
        table = evaluate(df, metrics=[mae, rmse, mqloss, coverage], models=["aru"], level=[80])
        by_series = pd.DataFrame(table.to_dict(as_series=False) if isinstance(df, polars.DataFrame) else table)
        value = by_series[by_series["metric"] == "mae"].groupby("unique_id")["aru"].mean()
        expected = (rolled["y"] - rolled["aru"]).abs().groupby(rolled["unique_id"]).mean()
        np.testing.assert_allclose(value, expected)
    median = quantile_loss(rolled, {"aru": "aru-median"}, q=0.5)
    assert np.isfinite(median["aru"]).all()
    ours = scores(rolled, "aru", 80)
    assert ours["rmse"] == pytest.approx(np.sqrt(np.mean((rolled["y"] - rolled["aru"]) ** 2)))
    assert ours["nd"] == pytest.approx((rolled["y"] - rolled["aru-median"]).abs().sum() / rolled["y"].abs().sum())
    inside = (rolled["aru-lo-80"] <= rolled["y"]) & (rolled["y"] <= rolled["aru-hi-80"])
    assert ours["coverage"] == pytest.approx(inside.mean())
    with pytest.raises(ColumnError, match="aru-lo-90"):
        scores(rolled, "aru", 90)


@pytest.mark.parametrize(
    "dtype", [polars.Date, polars.Datetime("us"), polars.Datetime("ns"), polars.Datetime("ms")], ids=str
)
def test_polars_in_polars_out(dtype: Any) -> None:
    df = polars.from_pandas(DF).with_columns(polars.col("ds").cast(dtype))
    cut = polars.date(2024, 1, 22)
    f = make(**BASE).fit(df.filter(polars.col("ds") < cut))
    twin = make(**BASE).fit(TRAIN)
    out, expected = f.predict(level=[90]), twin.predict(level=[90])
    assert isinstance(out, polars.DataFrame)
    assert out["ds"].dtype == dtype
    assert out["unique_id"].dtype == polars.String
    np.testing.assert_array_equal(out["aru-hi-90"].to_numpy(), expected["aru-hi-90"])
    rolled = f.cross_validation(df, n_windows=2)
    assert (rolled["ds"].dtype, rolled["cutoff"].dtype) == (dtype, dtype)
    assert rolled.join(df, on=["unique_id", "ds"]).height == rolled.height
    result = f.update(df.filter(polars.col("ds") >= cut))
    assert result.late.schema == {"unique_id": polars.String, "ds": dtype, "y": polars.Float64, "reason": polars.String}
    assert result.applied == len(NEW)
    conflict = df.filter(polars.col("ds") == polars.date(2024, 1, 30)).with_columns(y=polars.lit(1e3))
    late = f.update(conflict, late="skip").late
    assert late.columns == ["unique_id", "ds", "y", "reason"]
    assert late["ds"].dtype == dtype
    twin.update(NEW)
    np.testing.assert_array_equal(f.predict()["aru"].to_numpy(), twin.predict()["aru"])


def test_polars_with_integers() -> None:
    df = polars.from_pandas(DF).with_columns(
        unique_id=polars.col("unique_id").replace_strict({"a": 3, "b": 8}), ds=polars.int_range(N).over("unique_id")
    )
    f = make(**{**BASE, "freq": 1}).fit(df)
    out = f.predict()
    assert (out["unique_id"].to_list(), out["ds"].to_list()) == ([3] * H + [8] * H, [30, 31, 32] * 2)
    assert f.update(df.tail(2)).late.schema["unique_id"] == polars.Int64


def test_the_kind_of_frame_follows_the_frame(rich: Forecaster) -> None:
    """A model trained on pandas answers a polars frame in polars, and the other way round."""
    out = rich.predict(polars.from_pandas(futr(rich)))
    assert isinstance(out, polars.DataFrame)
    assert isinstance(rich.update(polars.from_pandas(NEW)).late, polars.DataFrame)
    assert isinstance(rich.predict(futr(rich)), pd.DataFrame)
    seconds = make(**BASE).fit(TRAIN.assign(ds=TRAIN["ds"].astype("datetime64[s]")))
    assert seconds.predict()["ds"].dtype == "datetime64[s]"
    assert isinstance(seconds.cross_validation(polars.from_pandas(DF), n_windows=2), polars.DataFrame)


def test_pandas_frames_can_be_joined_with_their_input(plain: Forecaster) -> None:
    rolled = plain.cross_validation(DF, n_windows=2)
    assert rolled["ds"].dtype == DF["ds"].dtype
    assert rolled["unique_id"].dtype == DF["unique_id"].dtype
    assert len(rolled.merge(DF, on=["unique_id", "ds", "y"])) == len(rolled)


def test_integer_time() -> None:
    steps = DF.assign(ds=10 + 5 * DF.groupby("unique_id").cumcount())
    old, new = steps[steps["ds"] < 110], steps[steps["ds"] >= 110]
    f = make(**{**BASE, "freq": 5}).fit(old)
    out = f.predict()
    assert out["ds"].tolist() == [110, 115, 120] * 2
    assert out["ds"].dtype == np.int64
    assert f.update(new[new["ds"] != 115]).gaps_filled == 2
    assert f.predict()["ds"].tolist() == [160, 165, 170] * 2
    with pytest.raises(FrequencyError, match=r"\(a, 161\)"):
        f.update(pd.DataFrame({"unique_id": ["a"], "ds": [161], "y": [3.0]}))
    rolled = f.cross_validation(steps, n_windows=2)
    assert rolled["cutoff"].unique().tolist() == [125, 140]


def test_without_a_frequency_rows_are_consecutive() -> None:
    """Whatever their dates: the forecasts are those of the same rows numbered one after the other."""
    random = np.random.default_rng(2)
    irregular, numbered = [], []
    for uid in ("a", "b"):
        y = DF.loc[DF["unique_id"] == uid, "y"].to_numpy()
        y = np.where(np.arange(N) == 11, np.nan, y)
        ds = np.cumsum(random.integers(1, 6, N))
        irregular.append(pd.DataFrame({"unique_id": uid, "ds": ds, "y": y}))
        numbered.append(pd.DataFrame({"unique_id": uid, "ds": np.arange(N), "y": y}))
    frames = pd.concat(irregular), pd.concat(numbered)
    results = []
    for df, freq in zip(frames, (None, 1), strict=True):
        early = df.groupby("unique_id").head(20)
        f = make(**{**BASE, "freq": freq}).fit(early)
        rest = df[~df.index.isin(early.index) | (df.groupby("unique_id").cumcount() >= 20)]
        result = f.update(rest.groupby("unique_id").head(5))
        assert (result.applied, result.gaps_filled) == (10, 0)
        future = df.groupby("unique_id").tail(5)
        future = future[["unique_id", "ds"]]
        if freq is None:
            with pytest.raises(
                FutureError, match=r"need unique_id, ds of the next 3 steps of each series\. Give futr_df"
            ):
                f.predict()
            with pytest.raises(FutureError, match=r"fewer than h=3 rows after the latest time of 1 series: b \(2\)"):
                f.predict(pd.concat([future.head(5), future.tail(5).head(2)]))
            with pytest.raises(FutureError, match=r"fewer than h=3.*a \(0\), b \(0\)"):
                f.predict(early)
        out = f.predict(future.sample(frac=1, random_state=0), level=[80])
        expected = future.groupby("unique_id").head(H)
        assert out["ds"].tolist() == expected["ds"].tolist()
        results.append((out.drop(columns="ds"), f.cross_validation(df, n_windows=2).drop(columns=["ds", "cutoff"])))
    for one, other in zip(*results, strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_without_a_frequency_the_calendar_still_counts() -> None:
    """Shops' open days: Sundays are not there, and days of the week are known from the dates."""
    long = frame(n=80)
    open_days = long[long["ds"].dt.day_of_week != 6]
    f = make(**{**BASE, "freq": None}).fit(open_days[open_days["ds"] < "2024-03-11"])
    assert "day_of_week" in [c.name for c in f.runtime.engine.schema.calendar]
    later = open_days[open_days["ds"] >= "2024-03-11"]
    first = f.predict(later)
    assert first["ds"].tolist() == later.groupby("unique_id").head(H)["ds"].tolist()
    other_days = f.predict(later.assign(ds=later["ds"] + pd.Timedelta(days=2)))
    assert (first["aru"] != other_days["aru"]).any()
    assert f.update(later).gaps_filled == 0


def test_months_and_business_days() -> None:
    for freq in ("MS", "ME", "B", "W-FRI", "QS", "15min"):
        times = pd.date_range("2015-01-01", periods=40, freq=freq)
        df = pd.concat([pd.DataFrame({"unique_id": u, "ds": times, "y": np.arange(40.0) % 7}) for u in "ab"])
        f = make(**{**BASE, "freq": freq, "max_steps": 2}).fit(df[df["ds"] < times[30]])
        assert f.predict()["ds"].tolist() == times[30:33].tolist() * 2
        assert f.update(df[df["ds"].isin(times[32:])]).gaps_filled == 4
        assert (f.predict()["ds"].iloc[0] - times[-1]) > pd.Timedelta(0)


def test_a_saved_forecaster_is_json_safetensors_and_onnx(rich: Forecaster, tmp_path: Path) -> None:
    rich.save(tmp_path / "deep" / "model")
    files = sorted(p.name for p in (tmp_path / "deep" / "model").iterdir())
    networks = [f"network-0-{name}-#.onnx" for name in ("decode", "emit", "encode")]
    assert [re.sub(r"-[0-9a-f]{16}\.", "-#.", name) for name in files] == [
        "model.json", *networks, "series-#.json", "states-#.safetensors", "weights-#.safetensors",
    ]  # fmt: skip
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["model"]
    for path in (tmp_path / "deep" / "model").iterdir():
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".onnx":
            onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        else:
            assert load_file(path)
        assert not re.search(rb"c__builtin__|\x80\x04\x95|torch\.storage", path.read_bytes())
        assert str(Path(aru.__file__).parent).encode() not in path.read_bytes()  # it is nobody's business where we work
    assert not re.search(r"pickle|torch\.(save|load)\b", Path(saving.__file__).read_text().replace("No pickle", ""))


def test_save_over_an_older_save(plain: Forecaster, tmp_path: Path) -> None:
    empty = tmp_path / "model"
    empty.mkdir()
    plain.save(empty)
    plain.update(NEW)
    plain.save(str(empty) + "/")
    loaded = Forecaster.load(empty)
    assert loaded.table.states.context.count.tolist() == [N, N]
    assert loaded.predict()["ds"].min() == pd.Timestamp("2024-01-31")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    with pytest.warns(AruWarning, match="inside the training data"):
        loaded.cross_validation(DF, n_windows=5)
    assert loaded.update(NEW[NEW["ds"] > "2024-01-27"]).duplicates == 6


def test_other_peoples_files_are_left_alone(plain: Forecaster, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"holds other files\. Choose a new or empty folder"):
        plain.save(tmp_path)
    with pytest.raises(StorageError, match="other files"):
        plain.save(tmp_path / "notes.txt")
    with pytest.raises(StorageError, match="cannot be written"):
        plain.save(tmp_path / "notes.txt" / "model")
    plain.save(tmp_path / "model")
    (tmp_path / "model" / "state.db").write_text("a stream's store, put beside the model")
    with pytest.raises(StorageError, match="other files"):
        plain.save(tmp_path / "model")
    assert (tmp_path / "model" / "state.db").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "notes.txt"]
    Forecaster.load(tmp_path / "model")


def test_a_save_that_fails_leaves_the_old_one(
    plain: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.save(tmp_path / "model")

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(saving, "save", full)
        with pytest.raises(StorageError, match="no space left"):
            plain.save(tmp_path / "model")
    # The new one is complete, but cannot take the old one's place.
    replace, calls = os.replace, []

    def stuck(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise PermissionError("in use")
        replace(source, target)

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", stuck)
        with pytest.raises(StorageError, match="in use"):
            plain.save(tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    Forecaster.load(tmp_path / "model")


def file_of(folder: Path, part: str) -> Path:
    (path,) = folder.glob(f"{part}-*")
    return path


def break_json(folder: Path) -> None:
    (folder / "model.json").write_text("{not json")


def other_format(folder: Path) -> None:
    model = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**model, "format": 99}))


def unknown_setting(folder: Path) -> None:
    model = json.loads((folder / "model.json").read_text())
    model["settings"]["colour"] = "blue"
    (folder / "model.json").write_text(json.dumps(model))


def other_size(folder: Path) -> None:
    model = json.loads((folder / "model.json").read_text())
    model["settings"]["size"] = "large"
    (folder / "model.json").write_text(json.dumps(model))


def no_settings(folder: Path) -> None:
    model = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({"format": model["format"], "files": model["files"]}))


def no_files(folder: Path) -> None:
    model = json.loads((folder / "model.json").read_text())
    del model["files"]
    (folder / "model.json").write_text(json.dumps(model))


def a_list(folder: Path) -> None:
    (folder / "model.json").write_text("[1, 2]")


def cut_weights(folder: Path) -> None:
    data = file_of(folder, "weights").read_bytes()
    file_of(folder, "weights").write_bytes(data[: len(data) // 2])


def garbage_states(folder: Path) -> None:
    file_of(folder, "states").write_bytes(b"\x00" * 100)


def no_states(folder: Path) -> None:
    file_of(folder, "states").unlink()


def fewer_ids(folder: Path) -> None:
    series = json.loads(file_of(folder, "series").read_text())
    file_of(folder, "series").write_text(json.dumps({**series, "ids": ["a"]}))


def seal(folder: Path) -> None:
    """Checksums of the files as they are: damage must be found without them, too."""
    model = json.loads((folder / "model.json").read_text())
    for file in model.get("files", {}).values():
        if (folder / file["name"]).exists():
            file["sha256"] = hashlib.sha256((folder / file["name"]).read_bytes()).hexdigest()
    model.pop("sha256", None)
    checksum = hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps({**model, "sha256": checksum}))


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        break_json,
        other_format,
        unknown_setting,
        other_size,
        no_settings,
        no_files,
        a_list,
        cut_weights,
        garbage_states,
        no_states,
        fewer_ids,
    ],
)
def test_a_damaged_save_is_refused(
    damage: Callable[[Path], None], sealed: bool, plain: Forecaster, tmp_path: Path
) -> None:
    plain.save(tmp_path / "model")
    damage(tmp_path / "model")
    if sealed and damage not in (break_json, a_list, no_files):
        seal(tmp_path / "model")
    with pytest.raises(StorageError, match=re.escape(str(tmp_path / "model"))):
        Forecaster.load(tmp_path / "model")


def test_a_model_brings_no_options_of_the_trainer(plain: Forecaster, tmp_path: Path) -> None:
    plain.save(tmp_path / "model")
    model = json.loads((tmp_path / "model" / "model.json").read_text())
    model["settings"]["training"]["trainer"] = {"default_root_dir": "/elsewhere"}
    (tmp_path / "model" / "model.json").write_text(json.dumps(model))
    seal(tmp_path / "model")
    assert Forecaster.load(tmp_path / "model").settings.training.trainer is None


def test_states_that_no_update_can_have_written_are_refused(rich: Forecaster, tmp_path: Path) -> None:
    """With the right checksums: a number that serves as an index must not reach memory."""
    rich.save(tmp_path / "model")
    file = file_of(tmp_path / "model", "states")
    whole = load_file(file)
    changes: dict[str, Callable[[torch.Tensor], Any]] = {
        "context.rows.futr_cat": lambda v: v.fill_(2**30),
        "context.static.categories": lambda v: v.fill_(-1),
        "steps": lambda v: v.fill_(-2),
        "context.rows.y": lambda v: v.resize_(1, 1),
    }
    for name, change in changes.items():
        states = {key: value.clone() for key, value in whole.items()}
        change(states[name])
        file.write_bytes(save(states))
        seal(tmp_path / "model")
        with pytest.raises(StorageError, match=r"damaged or of another version|another type or shape"):
            Forecaster.load(tmp_path / "model")


def test_what_was_never_saved_cannot_be_loaded(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing", Path(__file__)):
        with pytest.raises(StorageError, match=r"is not a saved forecaster.*folder that save wrote"):
            Forecaster.load(path)


def test_integer_ids_survive_a_save(tmp_path: Path) -> None:
    f = make(**BASE).fit(frame((10, 9)))
    f.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    assert loaded.ids == [9, 10]
    pd.testing.assert_frame_equal(loaded.predict(), f.predict())
    more = frame((9,), 3, "2024-01-31")
    assert loaded.update(more).new_series == []


def test_every_error_is_ours() -> None:
    for error in (ColumnError, ConfigError, FutureError, NotFittedError, StorageError, TooLittleDataError):
        assert issubclass(error, AruError)


@pytest.mark.parametrize("kind", [pd.DataFrame, polars.DataFrame], ids=["pandas", "polars"])
def test_forecasts_beyond_the_times_that_fit_are_refused(kind: Any) -> None:
    """Nanoseconds end in April 2262."""
    years = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2239-12-31", periods=20, freq="YE"), "y": 1.0})

    def last_year(unit: str, h: int) -> int:
        df = kind(years.assign(ds=years["ds"].astype(f"datetime64[{unit}]")))
        forecast = make(**{**BASE, "h": h, "freq": "YE"}).fit(df).predict()
        return int(forecast["ds"].dt.year().max() if kind is polars.DataFrame else forecast["ds"].dt.year.max())

    assert last_year("ns", 3) == 2261
    with pytest.raises(
        ValueRangeError, match=r"datetime64\[ns\] .* \(a, 2262-12-31\), \(a, 2263-12-31\)\. .*datetime64\[s\]"
    ):
        last_year("ns", 5)
    assert last_year("us", 5) == 2263


def test_forecasts_beyond_the_largest_integer_are_refused() -> None:
    end = 2**63 - 1 - H
    df = pd.DataFrame({"unique_id": "a", "ds": np.arange(end - 20, end), "y": 1.0})
    f = make(**{**BASE, "freq": 1}).fit(df)
    assert f.predict()["ds"].max() == end + H - 1
    f.update(pd.DataFrame({"unique_id": ["a"] * 2, "ds": [end, end + 1], "y": 1.0}))
    with pytest.raises(ValueRangeError, match=rf"largest integer .*: \(a, {end + 1}\)\. Fit on smaller integers"):
        f.predict()


@pytest.mark.parametrize(
    ("step", "freq", "says"),
    [
        ("QS", "D", r"Only 1\.2 % of the steps of freq='D' .* look like freq='QS'; or use freq=None"),
        ("W-TUE", "h", r"Only 0\.6.* % of the steps of freq='h' .* look like freq='W-TUE'"),
        ("37D", "D", r"Only 2\.8 % of the steps of freq='D' .* Choose a coarser freq; or"),
    ],
)
def test_a_frequency_far_finer_than_the_rows_is_named(step: str, freq: str, says: str) -> None:
    df = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2010-01-01", periods=20, freq=step), "y": 1.0})
    single = pd.DataFrame({"unique_id": ["b", "c"], "ds": df["ds"][0], "y": 1.0})  # tells nothing
    with pytest.warns(AruWarning, match=says):
        make(**{**BASE, "freq": freq}).fit(pd.concat([df, single]))


def test_a_frequency_with_some_rows_missing_is_not_doubted(recwarn: pytest.WarningsRecorder) -> None:
    ds = pd.date_range("2024-01-01", periods=200)
    df = pd.concat(
        [pd.DataFrame({"unique_id": i, "ds": ds[::n], "y": 1.0}) for i, n in (("a", 9), ("b", 9), ("c", 50))]
    )
    make(**BASE).fit(df, val_size=0)
    assert not [w for w in recwarn if issubclass(w.category, AruWarning)]
