"""One wrong row, and input that works or is named, in the library: Forecaster, Stream and Adapter alike."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from aru import Adapter, Forecaster, Stream
from aru.cli.rebuilding import rebuild_store
from aru.errors import AruWarning, ColumnError, JumpError, ValueRangeError
from aru.store import exchange

from .making import make
from .shops import BASE, COVARIATES, START, STATIC, TRAINED, H, both, rows

PLAIN = ["unique_id", "ds", "y"]
FAR = pd.Timestamp("2099-01-01")


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    return make(**BASE).fit(both(range(TRAINED)))


@pytest.fixture
def plain(fitted: Forecaster) -> Forecaster:
    return fitted.__copy__()


def wrong(uid: str = "a", ds: pd.Timestamp = FAR) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": [uid], "ds": [ds], "y": [1.0]})


# Rows far ahead of all series.


def adapter_of(df: pd.DataFrame) -> Adapter:
    adapter = Adapter(h=H, freq="D")
    adapter.update(df)
    return adapter


@pytest.mark.parametrize("kind", ["forecaster", "stream", "adapter"])
@pytest.mark.parametrize("uid", ["a", "new"])
def test_one_row_far_ahead_loses_no_series(kind: str, uid: str, plain: Forecaster) -> None:
    target: Any = plain
    if kind != "forecaster":
        target = Stream(plain) if kind == "stream" else adapter_of(both(range(TRAINED))[PLAIN])
    day = both([TRAINED])[PLAIN]
    with pytest.raises(JumpError, match=rf"1 rows far beyond 2024-01-21.*\({uid}, 2099-01-01\).*allow_jump=True"):
        target.update(pd.concat([day, wrong(uid)]) if uid == "new" else pd.concat([day[1:], wrong(uid)]))
    assert target.update(day).applied == 2  # nothing of the first call was applied
    assert target.update(wrong(uid), allow_jump=True).applied == 1
    assert target.update(wrong("b", FAR + pd.Timedelta(days=99))).applied == 1  # time has gone on
    with pytest.raises(JumpError, match="far beyond 2099-04-10"):
        target.update(wrong("b", pd.Timestamp("2261-01-01")))


def test_several_wrong_rows_do_not_vouch_for_each_other(plain: Forecaster) -> None:
    days = [wrong(uid, FAR + pd.Timedelta(days=i)) for uid in "abcd" for i in range(30)]
    with pytest.raises(JumpError, match="120 rows far beyond"):
        plain.update(pd.concat(days))


def test_a_series_may_pause_for_years_while_others_go_on(plain: Forecaster) -> None:
    stream = Stream(plain)
    for begin in range(TRAINED, 900, 40):
        stream.update(rows("a", range(begin, begin + 40))[PLAIN])
    assert stream.update(rows("b", [901])[PLAIN]).applied == 1
    assert plain.update(pd.concat([rows("a", range(TRAINED, 900)), rows("b", [901])])[PLAIN]).applied == 881


@pytest.mark.parametrize("path", [None, "state.db"])
def test_the_store_knows_its_newest_time(path: str | None, fitted: Forecaster, tmp_path: Path) -> None:
    store = None if path is None else tmp_path / path
    stream = Stream(fitted, store)

    def newest() -> int | None:
        with stream.store.reading() as view:
            return view.newest()

    def day(number: int) -> int:
        return (START + pd.Timedelta(days=number)).value // 1000

    assert newest() == day(TRAINED - 1)
    stream.update(rows("a", [TRAINED, TRAINED + 1])[PLAIN])
    assert newest() == day(TRAINED + 1)
    stream.update(rows("b", [TRAINED])[PLAIN])  # older than the newest
    assert newest() == day(TRAINED + 1)
    stream.update(wrong("c"), allow_jump=True)
    exchange.forget(stream.store, "c")
    assert newest() is None  # not known, and found again by reading all series
    with pytest.raises(JumpError, match="far beyond 2024-01-22"):
        stream.update(wrong("c"))
    stream.update(rows("b", [TRAINED + 1])[PLAIN])
    assert newest() == day(TRAINED + 1)
    stream.export(tmp_path / "states.parquet")
    stream.import_(tmp_path / "states.parquet")
    assert newest() is None


def test_training_and_evaluation_refuse_single_rows_far_away(plain: Forecaster, tmp_path: Path) -> None:
    df = both(range(40))[PLAIN]
    for far in (FAR, pd.Timestamp("1970-01-01")):
        mistaken = pd.concat([df, wrong("c", far)])
        says = rf"1 rows far from all others in time: \(c, {far:%Y-%m-%d}\)\. Correct or drop them.*allow_jump=True"
        with pytest.raises(JumpError, match=says):
            make(**BASE).fit(mistaken)
        with pytest.raises(JumpError, match=says):
            plain.cross_validation(mistaken, n_windows=1)
        with pytest.raises(JumpError, match=says):
            rebuild_store(plain, tmp_path / "new.db", mistaken)
        assert make(**BASE).fit(mistaken, allow_jump=True).ids == ["a", "b", "c"]
    with pytest.warns(AruWarning):  # too short to evaluate, inside the training data
        assert len(plain.cross_validation(mistaken, n_windows=1, allow_jump=True))
    assert rebuild_store(plain, tmp_path / "new.db", mistaken, allow_jump=True).applied == 81


def test_training_in_parts_refuses_single_rows_far_away(tmp_path: Path) -> None:
    for uid in "ab":
        (tmp_path / uid).mkdir()
        rows(uid, range(40))[PLAIN].to_parquet(tmp_path / uid / "rows.parquet")
    make(**BASE).fit(tmp_path)
    pd.concat([rows("b", range(40))[PLAIN], wrong("b")]).to_parquet(tmp_path / "b" / "rows.parquet")
    with pytest.raises(JumpError, match=r"\(b, 2099-01-01\)"):
        make(**BASE).fit(tmp_path)


def test_forecasts_of_others_do_not_begin_a_series_far_ahead() -> None:
    adapter = adapter_of(both(range(TRAINED))[PLAIN])
    made = pd.DataFrame({"unique_id": ["new"], "cutoff": [FAR], "ds": [FAR + pd.Timedelta(days=1)], "m": [1.0]})
    with pytest.raises(JumpError, match=r"1 cutoffs far beyond 2024-01-20.*\(new, 2099-01-01\)"):
        adapter.adapt(made)
    assert adapter.series()["unique_id"].tolist() == ["a", "b"]
    adapter.adapt(made, allow_jump=True)
    history = both(range(40))[PLAIN]
    past = history.assign(cutoff=history["ds"] - pd.Timedelta(days=1), m=1.0)[5:]
    mistaken = pd.concat([past, made.assign(y=2.0)])
    with pytest.raises(JumpError, match=r"rows far from all others"):
        adapter.cross_validation(mistaken)
    assert len(adapter.cross_validation(mistaken, allow_jump=True)) == len(mistaken)


# Values that cannot be computed with.


@pytest.mark.parametrize("huge", [1e31, -1e80, 1e308, Decimal("1e300"), 10**400])
def test_values_beyond_the_arithmetic_are_refused_by_name(huge: Any, plain: Forecaster) -> None:
    day = both([TRAINED])[PLAIN].astype({"y": object})
    day.loc[1, "y"] = huge
    says = r"y of df is (infinite|larger than 1e\+30.*) at \(b, 2024-01-21"
    for update in (plain.update, Stream(plain).update, adapter_of(both(range(TRAINED))[PLAIN]).update):
        with pytest.raises(ValueRangeError, match=says):
            update(day)
    with pytest.raises(ValueRangeError, match=says):
        plain.cross_validation(pd.concat([both(range(TRAINED))[PLAIN], day]), n_windows=1)


def test_forecasts_beyond_the_arithmetic_are_refused_by_name() -> None:
    """A regret of 1e80 would leave a gate at one half for ever."""
    adapter = adapter_of(both(range(TRAINED))[PLAIN])
    made = both([TRAINED])[["unique_id", "ds"]].assign(m=[1.0, 1e80])
    with pytest.raises(ValueRangeError, match=r"Column 'm' of forecasts is larger than 1e\+30.*\(b, 2024-01-21"):
        adapter.adapt(made)


def test_covariates_beyond_the_arithmetic_are_refused_by_name() -> None:
    f = make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)
    day = both([TRAINED])
    with pytest.raises(ValueRangeError, match=r"Column 'temp' of df is larger than 1e\+30.*\(a, 2024-01-21"):
        f.update(day.assign(temp=[1e200, 0.0]))
    f.update(day)
    ahead = both(range(TRAINED + 1, TRAINED + 1 + H))[["unique_id", "ds", "promo"]]
    f.predict(ahead)


def test_the_largest_values_can_be_computed_with(plain: Forecaster) -> None:
    with pytest.warns(AruWarning, match="far outside the range"):
        plain.update(both([TRAINED])[PLAIN].assign(y=1e30))
    plain.update(both([TRAINED + 1])[PLAIN])
    assert np.isfinite(plain.predict(level=[90]).drop(columns=["unique_id", "ds"]).to_numpy()).all()


# Input that should work, or be named.


@pytest.mark.parametrize("write", [Decimal, str, float, int])
def test_numbers_of_any_kind(write: Any, plain: Forecaster) -> None:
    """Of None and NaN beside them, too. Text is no number, as in covariates."""
    day = both([TRAINED, TRAINED + 1])[PLAIN]
    values = [write("5"), None, float("nan"), write(7)]
    twin = plain.__copy__()
    if write is str:
        with pytest.raises(
            ColumnError, match=r"must be numeric, but holds '5', '7' at \(a, 2024-01-21.* in row 0, \(b,"
        ):
            plain.update(day.assign(y=pd.Series(values, dtype=object)))
        return
    plain.update(day.assign(y=pd.Series(values, dtype=object)))
    twin.update(day.assign(y=[5.0, np.nan, np.nan, 7.0]))
    pd.testing.assert_frame_equal(plain.predict(), twin.predict(), check_exact=True)


def test_words_in_place_of_numbers_name_their_rows(plain: Forecaster) -> None:
    day = both([TRAINED])[PLAIN].assign(y=pd.Series([1.0, "n/a"], dtype=object))
    with pytest.raises(ColumnError, match=r"holds 'n/a' at \(b, 2024-01-21\) in row 1\.") as caught:
        plain.update(day)
    assert caught.value.rows is not None
    assert caught.value.rows.columns["value"] == ["'n/a'"]
    with pytest.raises(ColumnError, match=r"holds 'n/a' at \(b, 2024-01-21\) in row 1\."):
        plain.update(
            pl.DataFrame({**day[["unique_id", "ds"]].to_dict("list"), "y": ["1", "n/a"]}).with_columns(
                y=pl.when(pl.col("y") == "1").then(None).otherwise(pl.col("y"))
            )
        )


def test_covariates_may_be_decimals() -> None:
    df = both(range(TRAINED))
    exact = df.assign(temp=[Decimal(repr(v)) for v in df["temp"]])
    one, other = (make(**BASE, hist_exog_list=["temp"]).fit(frame) for frame in (df, exact))
    pd.testing.assert_frame_equal(one.predict(), other.predict(), check_exact=True)


def test_a_level_that_looks_like_a_share_is_told(plain: Forecaster) -> None:
    with pytest.warns(
        AruWarning, match=r"level is in percent: 0.9 asks for less than 1 %\. For 90 % give 90\."
    ) as told:
        assert "aru-lo-0.9" in plain.predict(level=[0.9, 80]).columns
    assert len(told) == 1


def test_covariates_unlike_training_are_told_once_with_counts() -> None:
    f = make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)
    stream, day = Stream(f), both([TRAINED], "abn").assign(promo=["yes", "maybe", "maybe"], temp=[0.0, 900.0, np.nan])
    says = (
        r"^Covariates are unlike those of training: 'promo' has categories that training never saw in 2 of 3 rows "
        r"\('maybe'\); 'temp' lies far outside of -?[.\d]+ to [.\d]+ in 1 of 2 rows \(900\)\. Unknown categories count"
    )
    for update in (f.update, stream.update):
        with pytest.warns(AruWarning, match=says) as told:
            update(day, STATIC)
        assert len(told) == 1
    ahead = both(range(TRAINED + 1, TRAINED + 1 + H), "a").assign(promo=["no", "odd", "yes"])
    with pytest.warns(AruWarning, match=r"'promo' has .* in 1 of 3 rows \('odd'\)\.") as told:
        f.predict(ahead, ids=["a"])
    assert len(told) == 1
    with pytest.warns(AruWarning, match=r"'kind' has .* in 1 of 1 rows \('z'\)\.") as told:
        f.update(rows("o", [TRAINED]), STATIC.assign(kind="z"))
    assert len(told) == 1


def test_ids_of_several_types_are_told(plain: Forecaster) -> None:
    day = rows("a", [TRAINED])[PLAIN]
    mixed = pd.concat([day, day.assign(unique_id=7), day.assign(unique_id=8)]).astype({"unique_id": object})
    with pytest.warns(AruWarning, match="unique_id of df holds 1 strings and 2 values of other types") as told:
        assert plain.update(mixed).new_series == ["7", "8"]
    assert len(told) == 1


def test_a_series_without_any_value_is_left_out_of_training_and_named() -> None:
    df = pd.concat([both(range(TRAINED)), *(rows(uid, range(TRAINED)).assign(y=np.nan) for uid in ("e", "f"))])[PLAIN]
    says = r"2 of 4 series of df have no value of y at all and are left out: e, f\."
    with pytest.warns(AruWarning, match=says) as told:
        f = make(**BASE).fit(df, val_size=0)
    assert len(told) == 1
    assert f.ids == ["a", "b"]
    twin = make(**BASE).fit(both(range(TRAINED))[PLAIN], val_size=0)
    pd.testing.assert_frame_equal(f.predict(), twin.predict(), check_exact=True)
    with pytest.warns(AruWarning) as told:  # and that these rows were trained on
        found = f.cross_validation(df, n_windows=1)
    assert sum("left out: e, f." in str(warning.message) for warning in told) == 1
    assert found["unique_id"].unique().tolist() == ["a", "b"]
    with pytest.raises(ValueRangeError, match="have no value of y at all: e"):
        f.update(rows("e", [TRAINED])[PLAIN].assign(y=np.nan))


@pytest.mark.parametrize(("old", "new"), [("1d", "D"), ("d", "D"), ("24H", "24h")])
def test_frequencies_of_older_pandas(old: str, new: str, plain: Forecaster) -> None:
    df = both(range(TRAINED))[PLAIN]
    one, other = (make(**{**BASE, "freq": freq}).fit(df) for freq in (old, new))
    pd.testing.assert_frame_equal(one.predict(), other.predict(), check_exact=True)


# Time zones.


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_the_autumn_hour_survives(library: str, tmp_path: Path) -> None:
    berlin = "Europe/Berlin"
    times = pd.date_range("2024-10-24", periods=72, freq="h", tz=berlin)
    df = pd.DataFrame({"unique_id": "a", "ds": times, "y": 10.25 + times.hour})
    make(**{**BASE, "freq": "h", "h": 6}).fit(df if library == "pandas" else pl.from_pandas(df)).save(
        tmp_path / "model"
    )
    stream = Stream(tmp_path / "model")
    night = pd.date_range(times[-1] + pd.Timedelta(hours=1), periods=6, freq="h")
    found = stream.predict()
    assert found["ds"].dtype == (df["ds"].dtype if library == "pandas" else pl.Datetime("us", berlin))
    assert [str(t) for t in pd.DatetimeIndex(found["ds"].to_list())] == [str(t) for t in night]
    ways = (
        [t.isoformat() for t in night],
        [t.tz_convert("UTC").strftime("%Y-%m-%dT%H:%M:%SZ") for t in night],
        night,
        night.tz_convert("Asia/Tokyo"),
    )
    for ds in ways:
        one = Stream(tmp_path / "model")
        assert one.update(pd.DataFrame({"unique_id": "a", "ds": ds, "y": 1.0})).applied == 6
        assert [str(t) for t in pd.DatetimeIndex(one.series()["ds"].to_list())] == [str(night[-1])]
        again = one.update(pd.DataFrame({"unique_id": "a", "ds": ds, "y": 2.0}), late="skip")
        assert [str(t) for t in pd.DatetimeIndex(again.late["ds"])] == [str(t) for t in night]


def test_adapters_keep_zones() -> None:
    berlin = "Europe/Berlin"
    for freq, unit in (("h", "h"), ("auto", "D")):
        times = pd.date_range("2024-10-20", periods=12, freq=unit, tz=berlin)
        adapter = Adapter(h=1, freq=freq)
        adapter.update(pd.DataFrame({"unique_id": "a", "ds": times, "y": 1.0}))
        assert adapter.series()["ds"].tolist() == [times[-1]]
        nxt = times[-1:] + pd.tseries.frequencies.to_offset(unit)
        made = pd.DataFrame({"unique_id": "a", "ds": nxt, "cutoff": times[-1:], "m": 2.0})
        assert adapter.adapt(made)["ds"].tolist() == nxt.tolist()
        assert (
            adapter.update({"unique_id": ["a"], "ds": [nxt[0].tz_convert("UTC").isoformat()], "y": [2.0]}).applied == 1
        )
