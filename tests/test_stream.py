"""A stream: frames in and out, states in a store, equal to a forecaster that never lost its memory."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
import torch

from aru import Forecaster, Stream
from aru.errors import (
    ColumnError,
    ConfigError,
    DuplicateError,
    FutureError,
    InputError,
    JumpError,
    LateError,
    StorageError,
    UnknownSeriesError,
    ValueRangeError,
)
from aru.runtime.engine import NetworkEngine
from aru.runtime.runtime import Runtime
from aru.store import MemoryStore, SQLiteStore, exchange
from aru.store.layout import Layout
from tests.making import flat, make
from tests.shops import BASE, COVARIATES, START, STATIC, TRAINED, H, both, rows


@pytest.fixture(scope="module")
def trained() -> Forecaster:
    return make(**BASE).fit(both(range(TRAINED)))


@pytest.fixture(scope="module")
def rich() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)


@pytest.fixture(scope="module")
def saved(trained: Forecaster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stream") / "model"
    trained.save(path)
    return path


def record_of(stream: Stream, ids: list[Any]) -> dict[str, torch.Tensor]:
    with stream.store.reading() as view:
        blobs = view.get(ids)
    present = [blob for blob in blobs if blob is not None]
    return flat(stream.runtime.decode(present, ids, stream.correctable_steps))


def assert_same(one: Stream, other: Stream, exact: bool = False) -> None:
    """Counts, times and contexts equal exactly; statistics and forecasts to rounding, or also exactly."""
    pd.testing.assert_frame_equal(one.series(), other.series(), check_exact=True)
    ids = one.series()["unique_id"].tolist()
    first, second = record_of(one, ids), record_of(other, ids)
    assert first.keys() == second.keys()
    for name, value in first.items():
        if exact or not ("members" in name or name.endswith("total")):
            assert torch.equal(value, second[name]), name
        else:
            torch.testing.assert_close(value, second[name], rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
    if one.runtime.engine.settings.futr_exog_list:
        return
    options = {"check_exact": True} if exact else {"rtol": 1e-5}
    pd.testing.assert_frame_equal(one.predict(level=[80]), other.predict(level=[80]), **options)


# The same as a forecaster


def test_a_stream_does_what_the_forecaster_does(trained: Forecaster, saved: Path, tmp_path: Path) -> None:
    forecaster = copy.copy(trained)
    with Stream(saved, tmp_path / "state.db") as stream:
        for days in ([20, 21], [23], [22, 40]):
            new = both(days, "abn")
            late = "skip" if days == [22, 40] else "raise"
            mine, theirs = stream.update(new, late=late), forecaster.update(new, late=late)
            pd.testing.assert_frame_equal(mine.late, theirs.late)
            for name in ("applied", "duplicates", "corrected", "gaps_filled", "new_series"):
                assert getattr(mine, name) == getattr(theirs, name)
            pd.testing.assert_frame_equal(stream.predict(level=[50, 90]), forecaster.predict(level=[50, 90]))
        assert mine.late["reason"].tolist() == ["arrived too late"] * 3


def test_covariates_and_new_series(rich: Forecaster, tmp_path: Path) -> None:
    forecaster, stream = copy.copy(rich), Stream(rich, tmp_path / "state.db")
    with pytest.raises(ColumnError, match="static_df"):
        stream.update(both([20], "an"))
    assert stream.series()["observations"].tolist() == [TRAINED, TRAINED]
    new = both([20, 21], "an")
    assert stream.update(new, STATIC).new_series == forecaster.update(new, STATIC).new_series == ["n"]
    future = both(range(22, 25), "an")[["unique_id", "ds", "promo"]]
    pd.testing.assert_frame_equal(stream.predict(future, ids=["n", "a"]), forecaster.predict(future, ids=["n", "a"]))
    with pytest.raises(
        FutureError, match=r"need unique_id, ds, promo of the next 3 steps of each series\. Give futr_df"
    ):
        stream.predict()
    polars = stream.predict(pl.from_pandas(future), [90], ["a"])
    assert isinstance(polars, pl.DataFrame)
    assert polars.columns == ["unique_id", "ds", "aru", "aru-median", "aru-lo-90", "aru-hi-90"]
    stream.close()


def test_integer_ids(tmp_path: Path) -> None:
    f = make(**BASE).fit(pd.concat([rows(9, range(12)), rows(10, range(12))]))
    with Stream(f, tmp_path / "state.db") as stream:
        assert stream.update(rows(11, [3])).new_series == [11]
        assert stream.series()["unique_id"].tolist() == [9, 10, 11]
        assert stream.predict(ids=np.array([11, 9]))["unique_id"].tolist() == [11] * H + [9] * H
        with pytest.raises(InputError, match="not known: 10"):
            stream.predict(ids=["10", 12])
        with pytest.raises(ColumnError, match=r"unique_id of df holds strings, but training had integers"):
            stream.update(rows("9", [12]))
        stream.export(tmp_path / "out.parquet")
    with Stream(f.without_series(), tmp_path / "other.db") as other:
        assert other.import_(tmp_path / "out.parquet") == 3
        assert other.series()["unique_id"].tolist() == [9, 10, 11]


def test_every_model_and_an_ensemble_survive_bytes() -> None:
    for changed in ({"model": "baseline"}, {"model": "baseline-finetuned"}, {"ensemble": 2, "lags": [7]}):
        f = make(**{**BASE, **changed}).fit(both(range(TRAINED)))
        expected = copy.copy(f)
        stream = Stream(f)
        for day in (20, 21, 22):
            stream.update(both([day]))
            expected.update(both([day]))
        pd.testing.assert_frame_equal(stream.predict(), expected.predict())


# Batches


def test_batches_in_any_cut_and_order_give_the_same(trained: Forecaster) -> None:
    new = both(range(20, 37), "abno")
    whole, single, shuffled = Stream(trained), Stream(trained), Stream(trained)
    assert whole.update(new.sample(frac=1, random_state=0)).applied == len(new)
    for _, row in new.sort_values(["ds", "unique_id"]).iterrows():
        single.update(pd.DataFrame([row]))
    for uid, part in new.groupby("unique_id"):
        for cut in (part.head(3), part.iloc[3:11].sample(frac=1, random_state=1), part.tail(6)):
            assert shuffled.update(cut).applied == len(cut), uid
    assert_same(whole, single)
    assert_same(whole, shuffled)


def test_a_batch_is_one_network_pass_and_one_write(trained: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, take_in = [], NetworkEngine.take_in
    stream = Stream(trained)

    def counted(self: NetworkEngine, state: Any, *rest: Any) -> Any:
        passes.append(len(state.last))
        return take_in(self, state, *rest)

    monkeypatch.setattr(NetworkEngine, "take_in", counted)
    stream.update(pd.concat([rows(f"s{i}", [20]) for i in range(300)]))
    assert passes == [300]


def test_only_touched_series_are_read_and_written(trained: Forecaster) -> None:
    store = MemoryStore()
    stream = Stream(trained, store)
    records = store._records["series"]
    before = dict(records)
    asked: list[Any] = []
    load = store.load

    def noted(keys: Any, kind: Any) -> Any:
        asked.append((list(keys), kind))
        return load(keys, kind)

    store.load = noted  # type: ignore[method-assign]
    stream.update(both([20], "an"))
    assert asked == [(["a", "n"], "series")]
    assert records["b"] is before["b"]
    assert records["a"] != before["a"]


def test_what_an_update_wrote_is_at_hand_for_what_follows(trained: Forecaster) -> None:
    store = MemoryStore()
    stream, other = Stream(trained, store), Stream(trained, store)
    stream.update(both([20], "ab"))
    store.load = lambda keys, kind: pytest.fail("read again")  # type: ignore[method-assign]
    first = stream.predict(ids=["b"])
    stream.update(both([21], "b"))
    del store.load
    pd.testing.assert_frame_equal(other.predict(ids=["b"]), stream.predict(ids=["b"]), rtol=1e-9)
    assert first["ds"].min() < stream.predict(ids=["b"])["ds"].min()


def test_nothing_is_at_hand_once_others_have_written(trained: Forecaster, saved: Path, tmp_path: Path) -> None:
    alone = Stream(trained)
    with Stream(saved, tmp_path / "state.db") as one, Stream(saved, tmp_path / "state.db") as two:
        for day in range(20, 26):
            (one, two)[day % 2].update(both([day], "ab"))
            alone.update(both([day], "ab"))
            for stream in (one, two):
                assert_same(stream, alone)
        one.update(both([26], "ab"))
        exchange.forget(two.store, ["a"])
        with pytest.raises(UnknownSeriesError):
            one.predict(ids=["a"])
        assert one.update(both([26], "a")).new_series == ["a"]


# Late, duplicate, conflicting


def test_what_happened_to_every_row_is_said(trained: Forecaster) -> None:
    stream = Stream(trained)
    known = both([18, 19], "a")
    old, other = rows("a", [2]), rows("b", [19]).assign(y=-1.0)
    new = pd.concat([known, old, other, both([21], "abn")])
    with pytest.raises(LateError, match=r"df has 2 rows.*\(a, 2024-01-03\), \(b, 2024-01-20\).*late='skip'"):
        stream.update(new)
    assert stream.series()["observations"].tolist() == [TRAINED, TRAINED]  # nothing of it
    result = stream.update(new, late="skip")
    assert (result.applied, result.duplicates, result.gaps_filled, result.corrected) == (3, 2, 2, 0)
    assert result.new_series == ["n"]
    assert result.late["reason"].tolist() == ["arrived too late", "another value was consumed for this time"]
    assert result.late["unique_id"].tolist() == ["a", "b"]
    assert isinstance(stream.update(pl.from_pandas(other), late="skip").late, pl.DataFrame)
    with pytest.raises(ConfigError, match=r"late='correct' needs a store .* correctable_steps=1"):
        stream.update(new, late="correct")


def test_a_covariate_alone_can_be_corrected(rich: Forecaster) -> None:
    days = [TRAINED, TRAINED + 1, TRAINED + 2]
    new, future = both(days), both(range(TRAINED + 3, TRAINED + 3 + H)).drop(columns=["y", "temp"])
    other = {"no": "yes", "yes": "no"}
    right = new.assign(promo=[other[p] if d == 1 else p for p, d in zip(new["promo"], [0, 1, 2] * 2, strict=True)])
    stream, direct = Stream(rich, correctable_steps=3), Stream(rich)
    stream.update(new)
    result = stream.update(right, late="correct")
    assert (result.corrected, result.duplicates) == (2, 4)
    direct.update(right)
    forecast, expected = stream.predict(futr_df=future), direct.predict(futr_df=future)
    pd.testing.assert_frame_equal(forecast, expected, rtol=1e-6)
    stream.update(new, late="correct")  # and back
    plain = Stream(rich)
    plain.update(new)
    pd.testing.assert_frame_equal(stream.predict(futr_df=future), plain.predict(futr_df=future), rtol=1e-6)
    assert not np.allclose(plain.predict(futr_df=future)["aru"], expected["aru"], rtol=1e-6)  # it made a difference


def test_a_rule_for_late_rows_must_exist(trained: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ConfigError, match="late='drop' is not known"):
        Stream(trained).update(both([20]), late="drop")  # type: ignore[arg-type]


def test_a_client_may_resend_everything_since_the_beginning(trained: Forecaster) -> None:
    """Rows older than context and lags cannot be told from late ones; they are left out all the same."""
    once, again = Stream(trained), Stream(trained)
    everything = both(range(45), "abn")
    for end in (21, 30, 31, 45):
        part = everything[everything["ds"] < START + pd.Timedelta(days=end)]
        once.update(part, late="skip")
        for _ in range(2):
            result = again.update(part.sample(frac=1, random_state=end), late="skip")
    assert result.applied == 0
    kept = 3 * trained.runtime.schema.history
    assert result.duplicates == kept
    assert result.late["reason"].eq("arrived too late").all()
    assert len(result.late) == len(everything) - kept
    assert_same(once, again, exact=True)
    fresh = Stream(trained.without_series())
    fresh.update(everything)
    assert_same(once, fresh)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda: both([20, 20], "a"), DuplicateError),
        (lambda: both([20], "an").assign(y=[1.0, np.inf]), ValueRangeError),
        (lambda: both([20], "an").assign(y=[1.0, np.nan]), ValueRangeError),
        (lambda: both([20]).drop(columns="y"), ColumnError),
        (lambda: "rows", InputError),
    ],
)
def test_malformed_input_changes_nothing(bad: Callable[[], Any], error: type[Exception], trained: Forecaster) -> None:
    stream, untouched = Stream(trained), Stream(trained)
    with pytest.raises(error):
        stream.update(bad())
    assert_same(stream, untouched, exact=True)


def test_a_failure_while_writing_changes_nothing(
    trained: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(trained, tmp_path / "state.db")
    with monkeypatch.context() as broken:
        broken.setattr(Runtime, "encode", lambda self, record, ids: [b"x"])
        with pytest.raises(ValueError, match="zip"):
            stream.update(both([20]))
    assert_same(stream, Stream(trained), exact=True)
    assert stream.update(both([20])).applied == 2
    stream.close()


# Stores and models


def test_a_store_outlives_the_stream(saved: Path, trained: Forecaster, tmp_path: Path) -> None:
    memory = Stream(trained)
    for days in ([20], [21, 22], [30]):
        memory.update(both(days, "an"))
        with Stream(saved, tmp_path / "state.db") as stream:
            stream.update(both(days, "an"))
    with Stream(saved, str(tmp_path / "state.db")) as stream:
        assert_same(stream, memory, exact=True)
        assert stream.series()["ds"].tolist() == [START + pd.Timedelta(days=d) for d in (30, 19, 30)]


def test_a_store_is_never_read_with_another_model(trained: Forecaster, saved: Path, tmp_path: Path) -> None:
    Stream(trained, tmp_path / "state.db").close()
    other = make(**BASE, random_seed=1).fit(both(range(TRAINED)))
    with pytest.raises(StorageError, match=r"written by another model .*aru state migrate"):
        Stream(other, tmp_path / "state.db")
    with Stream(Forecaster.load(saved, "auto"), tmp_path / "state.db") as stream:
        assert len(stream.series()) == 2
    assert trained.runtime.engine.fingerprint == Forecaster.load(saved).runtime.engine.fingerprint
    assert other.runtime.engine.fingerprint != trained.runtime.engine.fingerprint


def test_a_store_of_another_format_is_refused(trained: Forecaster, tmp_path: Path) -> None:
    with Stream(trained, tmp_path / "state.db") as stream:
        about = stream.about
    store = SQLiteStore(tmp_path / "state.db")
    foreign = r"state\.db was written in another format .*aru state migrate"
    fewer = {"layout": about.layout[1:], "size": Layout(about.layout[1:]).size}
    odd = {"size": about.size + 1}
    for other, says in (
        ({"format": about.format + 1}, foreign),
        (fewer, foreign),
        (odd, "its layout has another size"),
    ):
        with store.writing() as change:
            change.describe(dataclasses.replace(about, **other))
        with pytest.raises(StorageError, match=says):
            Stream(trained, tmp_path / "state.db")
    store.close()


def test_a_store_keeps_what_it_was_created_with(trained: Forecaster, tmp_path: Path) -> None:
    Stream(trained, tmp_path / "state.db", correctable_steps=4).close()
    with Stream(trained, tmp_path / "state.db") as stream:
        assert stream.correctable_steps == 4
    with pytest.raises(StorageError, match=r"has correctable_steps=4, here it is 2: it was fixed"):
        Stream(trained, tmp_path / "state.db", correctable_steps=2)


@pytest.mark.usefixtures("as_users_run_it")
def test_correctable_is_a_whole_number(trained: Forecaster) -> None:
    for value in ("3", 1.5, -1, True):
        with pytest.raises(ConfigError, match=f"correctable_steps must be a whole number of at least 0, got {value!r}"):
            Stream(trained, correctable_steps=value)  # type: ignore[arg-type]
    assert Stream(trained, correctable_steps=np.int64(3)).correctable_steps == 3


def test_damaged_records_are_named(trained: Forecaster) -> None:
    stream = Stream(trained)
    with stream.store.writing() as change:
        (good,) = change.get(["a"])
        assert good is not None
        change.put(["b"], [good[:-1]])
    with pytest.raises(StorageError, match=r"states of 1 series are damaged or of another version: b\."):
        stream.predict()
    assert len(stream.predict(ids="a")) == H
    with stream.store.writing() as change:
        change.put(["b"], [b"ARU\x63" + good[4:]])
    with pytest.raises(StorageError, match=r"damaged or of another version: b\."):
        stream.update(both([20]))


def test_series_can_be_forgotten(trained: Forecaster) -> None:
    stream = Stream(trained)
    with pytest.raises(InputError, match="not known: nobody"):
        stream.forget(["a", "nobody"])
    assert stream.forget("a") == 1
    assert stream.series()["unique_id"].tolist() == ["b"]
    with pytest.raises(InputError, match="not known: a"):
        stream.predict(ids=["a", "b"])
    assert stream.update(both([30], "a")).new_series == ["a"]  # from nothing


def test_names_must_be_names(trained: Forecaster) -> None:
    stream = Stream(trained)
    for ids in ([None], [1.5, "a"], [("a",)]):
        with pytest.raises(InputError, match=r"not ids of series: .*strings or integers"):
            stream.predict(ids=ids)
    assert stream.predict(ids=np.str_("a"))["unique_id"].tolist() == ["a"] * H


def test_no_series_at_all(trained: Forecaster) -> None:
    stream = Stream(trained.without_series())
    assert len(stream.series()) == 0
    assert len(stream.predict()) == 0
    assert list(stream.predict().columns) == ["unique_id", "ds", "aru", "aru-median"]
    assert stream.update(both([5])).new_series == ["a", "b"]


def test_an_export_moves_states(trained: Forecaster, tmp_path: Path) -> None:
    stream = Stream(trained, tmp_path / "state.db", correctable_steps=3)
    stream.update(both([20, 21, 22], "abn"))
    assert stream.export(tmp_path / "states.parquet") == 3
    assert pq.read_table(tmp_path / "states.parquet").column_names == ["unique_id", "record"]
    other = Stream(trained, correctable_steps=3)
    other.update(rows("o", [50]))
    assert other.import_(tmp_path / "states.parquet") == 3  # over the two that came with the model
    assert other.forget(["o"]) == 1
    assert_same(stream, other, exact=True)
    with pytest.raises(StorageError, match="has correctable_steps=3, here it is 0"):
        Stream(trained).import_(tmp_path / "states.parquet")
    with pytest.raises(StorageError, match="Choose another file"):
        stream.export(tmp_path / "no" / "states.parquet")
    both([1]).to_parquet(tmp_path / "table.parquet")
    with pytest.raises(StorageError, match="is no export of a store"):
        other.import_(tmp_path / "table.parquet")
    with pytest.raises(StorageError, match="cannot be read"):
        other.import_(tmp_path / "nothing.parquet")
    stream.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.db", "states.parquet", "table.parquet"]


def test_states_can_be_imported_without_their_model(trained: Forecaster, tmp_path: Path) -> None:
    stream = Stream(trained)
    stream.update(both([20], "an"))
    stream.export(tmp_path / "states.parquet")
    store = SQLiteStore(tmp_path / "new.db")
    with pytest.raises(StorageError, match="nothing was ever written"):
        exchange.contents(store)
    assert exchange.import_(store, tmp_path / "states.parquet") == 3
    assert exchange.contents(store).ids.tolist() == ["a", "b", "n"]
    assert_same(Stream(trained, store), stream, exact=True)
    store.close()


# Many at once


@pytest.mark.parametrize("durable", [True, False])
def test_a_hundred_clients_equal_one(
    trained: Forecaster, tmp_path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every client has a series of its own and shares one with nine others, which send the same rows."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    stream = Stream(trained, tmp_path / "state.db" if durable else None)

    def client(number: int) -> int:
        for day in (20, 21):
            own, shared = rows(f"own-{number}", [day]), rows(f"shared-{number % 10}", [day])
            stream.update(pd.concat([own, shared]), late="skip")
        return len(stream.predict(ids=[f"own-{number}"]))

    with ThreadPoolExecutor(100) as pool:
        assert list(pool.map(client, range(100))) == [H] * 100
    alone = Stream(trained)
    for day in (20, 21):
        names = [f"own-{n}" for n in range(100)] + [f"shared-{n}" for n in range(10)]
        alone.update(pd.concat([rows(name, [day]) for name in names]))
    assert_same(stream, alone)
    stream.close()


# Corrections


@pytest.mark.filterwarnings("ignore:y lies far outside")
@pytest.mark.parametrize("freq", ["D", None])
def test_a_correction_gives_the_state_of_the_corrected_history(freq: str | None) -> None:
    f = make(**{**BASE, "freq": freq}).fit(both(range(TRAINED))).without_series()
    c = 6
    truth = both(range(30), "ab")
    wrong = truth.copy()
    wrong.loc[wrong["ds"] == START + pd.Timedelta(days=25), "y"] = 999.0  # revised
    wrong.loc[wrong["ds"] == START + pd.Timedelta(days=28), "y"] = np.nan  # late
    stream, expected = Stream(f, correctable_steps=c), Stream(f, correctable_steps=c)
    for part in (wrong.iloc[:11], wrong.iloc[11:50], wrong.iloc[50:]):
        stream.update(part)
    expected.update(truth.iloc[::-1])
    corrections = truth[truth["ds"].isin([START + pd.Timedelta(days=d) for d in (23, 24, 25, 28)])]
    result = stream.update(pd.concat([corrections, both([30])]), late="correct")
    assert (result.corrected, result.applied) == (4, 2)
    # Day 23 had been consumed like this: whether it can still be told is a question of the context.
    assert result.duplicates + len(result.late) == 4
    expected.update(both([30]))
    assert_forecasts_equal(stream, expected, freq)
    # And further corrections work on top of it.
    again = both([27]).assign(y=[3.0, 4.0])
    assert stream.update(again, late="correct").corrected == 2
    fresh = Stream(f, correctable_steps=c)
    fresh.update(pd.concat([truth[truth["ds"] != again["ds"].iloc[0]], again, both([30])]))
    assert_forecasts_equal(stream, fresh, freq)


def assert_forecasts_equal(one: Stream, other: Stream, freq: str | None) -> None:
    ids = one.series()["unique_id"].tolist()
    first, second = record_of(one, ids), record_of(other, ids)
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
    futr = both(range(31, 31 + H))[["unique_id", "ds"]] if freq is None else None
    pd.testing.assert_frame_equal(one.predict(futr_df=futr), other.predict(futr_df=futr), rtol=1e-5)


def test_without_frequency_a_forgotten_row_finds_its_place() -> None:
    f = make(**{**BASE, "freq": None}).fit(both(range(TRAINED))).without_series()
    stream, expected = Stream(f, correctable_steps=4), Stream(f, correctable_steps=4)
    stream.update(both([d for d in range(30) if d != 27]))
    assert stream.update(both([27]), late="correct").corrected == 2
    expected.update(both(range(30)))
    assert_forecasts_equal(stream, expected, None)


def test_what_is_out_of_reach_is_returned(trained: Forecaster) -> None:
    stream = Stream(trained, correctable_steps=3)
    stream.update(both([20, 21], "an"))
    # Of a seeded series nothing before the stream, of a new one not the removal of its first value.
    late = pd.concat([rows("a", [19, 20]), rows("b", [19]), rows("n", [18, 20])]).assign(y=[1.0, 2.0, 3.0, 4.0, np.nan])
    result = stream.update(late, late="correct")
    assert result.corrected == 1
    assert result.late["unique_id"].tolist() == ["a", "b", "n", "n"]
    expected = Stream(trained, correctable_steps=3)
    expected.update(pd.concat([rows("a", [20]).assign(y=2.0), rows("a", [21]), rows("n", [20, 21])]))
    assert_same(stream, expected)
    # Off the grid there is nothing to correct.
    off = rows("a", [20]).assign(ds=START + pd.Timedelta(days=20, hours=5))
    assert len(stream.update(off, late="correct").late) == 1


def test_corrections_across_a_long_gap(trained: Forecaster) -> None:
    """The steps of a gap can be filled in afterwards, as far as the store is correctable."""
    c = 12
    f = trained.without_series()
    stream, expected = Stream(f, correctable_steps=c), Stream(f, correctable_steps=c)
    stream.update(both(range(10)))
    with pytest.raises(JumpError, match=r"2 rows far beyond 2024-01-10.*Times up to 2024-04-19 are taken"):
        stream.update(both([200]))
    stream.update(both([200]), allow_jump=True)
    filled = both(range(200 - c + 1, 200))
    assert stream.update(filled, late="correct").corrected == len(filled)
    expected.update(pd.concat([both(range(10)), filled, both([200])]), allow_jump=True)
    assert_same(stream, expected)
    assert len(stream.update(both([200 - c]), late="correct").late) == 2


def test_a_correctable_stream_takes_in_rows_like_any_other(trained: Forecaster) -> None:
    plain, correctable = Stream(trained), Stream(trained, correctable_steps=7)
    for days in ([20], [21, 22, 25], [], [60], range(61, 90)):
        if len(days):
            assert plain.update(both(days, "abn")).applied == correctable.update(both(days, "abn")).applied
    pd.testing.assert_frame_equal(plain.predict(), correctable.predict(), check_exact=True)
    pd.testing.assert_frame_equal(plain.series(), correctable.series())


def test_the_size_of_a_record_does_not_depend_on_history(trained: Forecaster) -> None:
    stream = Stream(trained, correctable_steps=2)
    before = stream.about.size
    stream.update(both(range(20, 500)))
    with stream.store.reading() as view:
        assert {len(blob) for blob in view.get(["a", "b"]) if blob is not None} == {before}
