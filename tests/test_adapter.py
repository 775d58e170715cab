"""The adapter: nothing leaks, the whole history equals its steps, an empty state changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from aru import Adapter, Stream
from aru.errors import (
    AruError,
    ColumnError,
    ConfigError,
    DuplicateError,
    FrequencyError,
    InputError,
    JumpError,
    LateError,
    NotFittedError,
    StorageError,
)
from aru.store import MemoryStore
from tests.making import make

H, ROWS = 4, 44
DAYS = pd.date_range("2024-01-01", periods=ROWS + H)
COLUMNS = ["frozen", "frozen-median", "frozen-lo-90", "frozen-hi-90", "other"]
KINDS: list[dict[str, Any]] = [{}, {"gate": True}, {"calibration": "online"}, {"gate": True, "calibration": "online"}]


def truth(series: int = 2, rows: int = ROWS) -> pd.DataFrame:
    """Series with a weekly pattern."""
    rng = np.random.default_rng(1)
    week = 3 * np.sin(2 * np.pi * np.arange(rows) / 7)
    parts = [
        pd.DataFrame({"unique_id": f"s{i}", "ds": DAYS[:rows], "y": 10.0 * i + week + rng.normal(0, 0.5, rows)})
        for i in range(series)
    ]
    return pd.concat(parts, ignore_index=True)


def frozen(series: int = 2, first: int = 8, stride: int = 1) -> pd.DataFrame:
    """Forecasts of a model that knows neither the pattern nor the level."""
    rng = np.random.default_rng(2)
    parts = []
    for i in range(series):
        for at in range(first, ROWS, stride):
            point = 10.0 * i + 2 + rng.normal(0, 0.3, H)
            parts.append(
                pd.DataFrame(
                    {
                        "unique_id": f"s{i}",
                        "ds": DAYS[at + 1 : at + 1 + H],
                        "cutoff": DAYS[at],
                        "frozen": point,
                        "frozen-median": point + 0.1,
                        "frozen-lo-90": point - 1,
                        "frozen-hi-90": point + 1,
                        "other": point * 1.1,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def stepwise(adapter: Adapter, forecasts: pd.DataFrame, actuals: pd.DataFrame) -> pd.DataFrame:
    """What production does: every day its observations, then its forecasts."""
    out = []
    for day in sorted({*actuals.ds, *forecasts.cutoff}):
        today = actuals[actuals.ds == day]
        if len(today):
            adapter.update(today)
        issued = forecasts[forecasts.cutoff == day]
        if len(issued):
            out.append(adapter.adapt(issued))
    return pd.concat(out).sort_index()


def error(forecasts: pd.DataFrame, actuals: pd.DataFrame, column: str = "frozen") -> float:
    both = forecasts.merge(actuals, on=["unique_id", "ds"])
    return float(((both[column] - both.y) ** 2).mean())


@pytest.mark.parametrize(("kind", "stride"), [(KINDS[0], 1), (KINDS[0], 7), (KINDS[1], 3), (KINDS[3], 1)])
def test_a_history_equals_its_steps(kind: dict[str, Any], stride: int) -> None:
    actuals, forecasts = truth(), frozen(stride=stride)
    whole = Adapter(H, freq="D", **kind).cross_validation(forecasts, actuals)
    steps = stepwise(Adapter(H, freq="D", **kind), forecasts, actuals)
    pd.testing.assert_frame_equal(whole, steps, check_exact=True)


def test_a_history_with_gaps_and_series_of_all_lengths_equals_its_steps() -> None:
    actuals, forecasts = truth(3), frozen(3)
    rng = np.random.default_rng(0)
    actuals = actuals[rng.random(len(actuals)) < 0.8]  # missing rows
    actuals.loc[actuals.sample(frac=0.1, random_state=0).index, "y"] = np.nan
    actuals = actuals[(actuals.unique_id != "s1") | (actuals.ds > DAYS[15])]
    actuals = actuals[(actuals.unique_id != "s2") | (actuals.ds < DAYS[30])]
    have = pd.MultiIndex.from_frame(actuals[["unique_id", "ds"]])
    forecasts = forecasts[pd.MultiIndex.from_frame(forecasts[["unique_id", "cutoff"]]).isin(have)]
    whole = Adapter(H, freq="D", gate=True).cross_validation(forecasts, actuals)
    steps = stepwise(Adapter(H, freq="D", gate=True), forecasts, actuals)
    pd.testing.assert_frame_equal(whole, steps, check_exact=True)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3]])
def test_no_value_after_a_cutoff_changes_what_is_adapted_there(kind: dict[str, Any]) -> None:
    actuals, forecasts = truth(), frozen()
    base = Adapter(H, **kind).cross_validation(forecasts, actuals)
    for at in (12, 30):
        changed = actuals.assign(y=np.where(actuals.ds > DAYS[at], -1e6, actuals.y))
        later = forecasts.assign(frozen=np.where(forecasts.cutoff > DAYS[at], 1e6, forecasts.frozen))
        other = Adapter(H, **kind).cross_validation(later, changed)
        before = forecasts.cutoff <= DAYS[at]
        pd.testing.assert_frame_equal(base[before], other[before], check_exact=True)
        assert (base.frozen[~before] != other.frozen[~before]).all()


def test_a_forecast_teaches_lead_by_lead_as_its_truth_arrives() -> None:
    """The first forecasts of a series were wrong by 8 at every lead: after k values leads up to k have learned."""
    actuals = pd.DataFrame({"unique_id": "a", "ds": DAYS, "y": np.where(np.arange(len(DAYS)) < 20, 0.0, 8.0)})
    adapter = Adapter(8, freq="D", ridge=0.01)
    adapter.update(actuals[actuals.ds <= DAYS[19]])

    def issue(at: int) -> pd.DataFrame:
        frame = pd.DataFrame({"unique_id": "a", "ds": DAYS[at + 1 : at + 9], "m": 0.0})
        return adapter.adapt(frame)

    assert (issue(19).m == 0).all()
    adapter.update(actuals[actuals.ds == DAYS[20]])
    first = issue(20).m.to_numpy()
    assert first[0] > 1
    assert (first[1:] == 0).all()  # leads 2 to 8 have no truth yet
    adapter.update(actuals[actuals.ds == DAYS[21]])
    second = issue(21).m.to_numpy()
    assert (second[:3] > 1).all()  # leads 2 and 3 share a block
    assert (second[3:] == 0).all()


def test_an_empty_state_returns_the_forecasts_as_they_are() -> None:
    forecasts = frozen(first=36)
    for kind in KINDS:
        one = forecasts[forecasts.cutoff == DAYS[36]]
        pd.testing.assert_frame_equal(Adapter(H, freq="D", **kind).adapt(one), one, check_exact=True)
        again = one.drop(columns="cutoff").astype({"frozen": np.float32})
        adapter = Adapter(H, freq="D", **kind)
        adapter.update(truth()[lambda d: d.ds <= DAYS[36]])
        pd.testing.assert_frame_equal(adapter.adapt(again), again, check_exact=True)


def test_it_pays() -> None:
    actuals, forecasts = truth(), frozen()
    adapted = Adapter(H).cross_validation(forecasts, actuals)
    late = forecasts.cutoff > DAYS[26]
    for column in ("frozen", "other"):
        assert error(adapted[late], actuals, column) < 0.6 * error(forecasts[late], actuals, column)
    # Intervals and medians move with their model.
    moved = adapted.frozen - forecasts.frozen
    for column in ("frozen-median", "frozen-lo-90", "frozen-hi-90"):
        np.testing.assert_allclose(adapted[column] - forecasts[column], moved, atol=1e-9)


def test_models_do_not_mix() -> None:
    actuals, forecasts = truth(), frozen()
    both = Adapter(H).cross_validation(forecasts, actuals)
    alone = Adapter(H, models=["other"]).cross_validation(forecasts, actuals)
    np.testing.assert_allclose(alone.other, both.other, rtol=1e-12)
    assert alone.frozen.equals(forecasts.frozen)


def test_series_do_not_mix() -> None:
    actuals, forecasts = truth(), frozen()
    whole = Adapter(H).cross_validation(forecasts, actuals)
    one = forecasts.unique_id == "s1"
    alone = Adapter(H).cross_validation(forecasts[one], actuals[actuals.unique_id == "s1"])
    np.testing.assert_allclose(whole[one].frozen, alone.frozen, rtol=1e-12)


@hypothesis_settings(max_examples=6)
@given(scale=st.floats(1e-3, 1e4), shift=st.floats(-1e3, 1e3))
def test_units_do_not_matter(scale: float, shift: float) -> None:
    actuals, forecasts = truth(1), frozen(1)[["unique_id", "ds", "cutoff", "frozen"]]
    base = Adapter(H, gate=True).cross_validation(forecasts, actuals)
    other = Adapter(H, gate=True).cross_validation(
        forecasts.assign(frozen=scale * forecasts.frozen + shift), actuals.assign(y=scale * actuals.y + shift)
    )
    size = scale + abs(shift)
    np.testing.assert_allclose(other.frozen, scale * base.frozen + shift, atol=1e-7 * size, rtol=1e-6)


def test_polars_and_row_order_come_back_as_they_were() -> None:
    actuals, forecasts = truth(), frozen().sample(frac=1, random_state=0)
    mine = Adapter(H).cross_validation(forecasts, actuals)
    assert mine.index.equals(forecasts.index)
    theirs = Adapter(H).cross_validation(pl.from_pandas(forecasts), pl.from_pandas(actuals))
    assert isinstance(theirs, pl.DataFrame)
    np.testing.assert_array_equal(theirs["frozen"].to_numpy(), mine.frozen.to_numpy())


def test_the_truth_may_come_with_the_forecasts() -> None:
    actuals, forecasts = truth(), frozen(first=10)
    joined = forecasts.merge(actuals, on=["unique_id", "ds"], how="left")
    adapted = Adapter(H).cross_validation(joined)
    assert adapted.y.equals(joined.y)
    late = joined.cutoff > DAYS[26]
    assert error(adapted[late].drop(columns="y"), actuals) < error(forecasts[late], actuals)


def test_states_after_a_history_go_on_in_production(tmp_path: Path) -> None:
    actuals, forecasts = truth(), frozen()
    past, until = forecasts.cutoff <= DAYS[34], actuals.ds <= DAYS[34]
    adapter = Adapter(H, freq="D", gate=True, calibration="online", store=tmp_path / "state.db")
    adapter.cross_validation(forecasts[past], actuals[until], keep=True)
    adapter.close()
    adapter = Adapter(H, freq="D", gate=True, calibration="online", store=tmp_path / "state.db")
    later = stepwise(adapter, forecasts[~past], actuals[~until])
    whole = Adapter(H, freq="D", gate=True, calibration="online").cross_validation(forecasts, actuals)
    pd.testing.assert_frame_equal(later, whole[~past], check_exact=True)


def test_saved_and_loaded(tmp_path: Path) -> None:
    actuals, forecasts = truth(), frozen()
    adapter = Adapter(H, gate=True)
    with pytest.raises(NotFittedError):
        adapter.save(tmp_path / "adapter")
    adapter.cross_validation(forecasts, actuals, keep=True)
    adapter.save(tmp_path / "adapter")
    loaded = Adapter.load(tmp_path / "adapter")
    assert loaded.settings == adapter.settings
    pd.testing.assert_frame_equal(loaded.series(), adapter.series())
    last = forecasts[forecasts.cutoff == DAYS[ROWS - 1]]
    pd.testing.assert_frame_equal(loaded.adapt(last), adapter.adapt(last), check_exact=True)
    store = MemoryStore()
    Adapter(H, gate=True, store=store).cross_validation(forecasts, actuals, keep=True)
    with pytest.raises(StorageError, match="has states already"):
        Adapter.load(tmp_path / "adapter", store)


def test_a_store_belongs_to_its_adapter(tmp_path: Path) -> None:
    adapter = Adapter(H, store=tmp_path / "a.db")
    adapter.update(truth())
    with pytest.raises(StorageError, match="other settings"):
        Adapter(H + 1, store=tmp_path / "a.db")
    assert adapter.forget("s1") == 1
    assert list(adapter.series().unique_id) == ["s0"]
    options = {"enable_progress_bar": False}
    model = make(h=2, freq="D", max_steps=1, size="small", trainer=options).fit(truth())
    Stream(model, tmp_path / "stream.db").close()
    model.save(tmp_path / "model")
    with pytest.raises(StorageError, match="no saved adapter"):
        Adapter.load(tmp_path / "model")
    with pytest.raises(StorageError, match="states of a stream"):
        Adapter(H, store=tmp_path / "stream.db")
    with pytest.raises(StorageError):
        Stream(model, tmp_path / "a.db")


def test_the_size_of_a_state_does_not_depend_on_history() -> None:
    store = MemoryStore()
    adapter = Adapter(H, gate=True, calibration="online", store=store)
    sizes = set()
    actuals, forecasts = truth(), frozen()
    for day in range(9, ROWS, 10):
        adapter.update(actuals[(actuals.ds <= DAYS[day]) & (actuals.ds > DAYS[max(day - 10, 0)])])
        if day > 10:
            adapter.adapt(forecasts[forecasts.cutoff == DAYS[day]])
            with store.reading() as view:
                sizes |= {len(r) for r in view.get(view.keys()) if r is not None}
    assert len(sizes) == 1


@pytest.mark.parametrize("gated", [False, True])
def test_calibrated_quantiles_stay_in_order(gated: bool) -> None:
    """Levels come in any order, one of them not always; the truth leaves the intervals for good."""
    forecasts, actuals = frozen(), truth()
    for level, width in ((99, 1.3), (50, 0.4), (80, 0.7)):
        forecasts[f"frozen-lo-{level}"] = forecasts.frozen - width
        forecasts[f"frozen-hi-{level}"] = forecasts.frozen + width
    forecasts.loc[forecasts.cutoff == DAYS[30], ["frozen-lo-80", "frozen-hi-80"]] = np.nan
    actuals["y"] -= 3.0 * (actuals.ds - DAYS[12]).dt.days.clip(lower=0)
    out = Adapter(H, freq="D", gate=gated, calibration="online").cross_validation(forecasts, actuals)
    lows, highs = ([f"frozen-{end}-{level}" for level in (50, 80, 90, 99)] for end in ("lo", "hi"))
    ordered = out[[*lows[::-1], "frozen-median", *highs]]
    assert (ordered.drop(columns=["frozen-lo-80", "frozen-hi-80"]).diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert (ordered.dropna().diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert out["frozen-lo-80"].isna().sum() == forecasts["frozen-lo-80"].isna().sum()
    assert not (out["frozen-median"] - out.frozen).round(9).eq(0.1).all()  # it had to move


def test_a_new_model_or_level_joins_later() -> None:
    actuals, forecasts = truth(), frozen()
    adapter = Adapter(H, freq="D", calibration="online")
    plain = forecasts[["unique_id", "ds", "cutoff", "frozen"]]
    stepwise(adapter, plain[plain.cutoff <= DAYS[26]], actuals[actuals.ds <= DAYS[26]])
    later = stepwise(adapter, forecasts[forecasts.cutoff > DAYS[26]], actuals[actuals.ds > DAYS[26]])
    whole = Adapter(H, freq="D").cross_validation(plain, actuals)
    np.testing.assert_array_equal(later.frozen, whole.frozen[later.index])
    first = later[later.cutoff == DAYS[27]]
    np.testing.assert_array_equal(first.other, forecasts.other[first.index])  # nothing learned about it yet
    last = later[later.cutoff == DAYS[ROWS - 1]]
    assert (last.other != forecasts.other[last.index]).all()


def test_replays_late_rows_and_conflicts() -> None:
    actuals = truth()
    adapter = Adapter(H)
    result = adapter.update(actuals)
    assert (result.applied, result.new_series) == (2 * ROWS, ["s0", "s1"])
    assert adapter.update(actuals.tail(3)).duplicates == 3
    wrong = actuals.tail(1).assign(y=0.0)
    with pytest.raises(LateError, match="another value was consumed"):
        adapter.update(wrong)
    result = adapter.update(wrong, late="skip")
    assert (result.applied, len(result.late)) == (0, 1)
    future = pd.DataFrame({"unique_id": "s0", "ds": [DAYS[ROWS - 1] + pd.Timedelta(days=400)], "y": 1.0})
    with pytest.raises(JumpError, match="far beyond"):
        adapter.update(future)
    assert adapter.update(future, allow_jump=True).gaps_filled == 399


def test_adapting_twice_is_adapting_once() -> None:
    actuals, forecasts = truth(), frozen()
    adapter = Adapter(H, freq="D", gate=True)
    stepwise(adapter, forecasts[forecasts.cutoff <= DAYS[26]], actuals[actuals.ds <= DAYS[26]])
    now = forecasts[forecasts.cutoff == DAYS[26]]
    once = adapter.adapt(now)
    pd.testing.assert_frame_equal(once, adapter.adapt(now), check_exact=True)


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda d: d.drop(columns=COLUMNS), ColumnError, "no numeric column"),
        (lambda d: d.drop(columns=["frozen", "frozen-median"]), ColumnError, "intervals without a forecast"),
        (lambda d: d.drop(columns="ds"), ColumnError, "ds"),
        (lambda d: d.head(0), InputError, "no rows"),
        (lambda d: pd.concat([d, d.head(1)]), DuplicateError, "s0, 2024-02-07"),
        (lambda d: d.assign(ds=d.ds + pd.Timedelta(hours=1)), FrequencyError, "do not lie on the grid"),
        (lambda d: d.assign(ds=d.ds + pd.Timedelta(days=1)), InputError, r"Adapter\(h=5\)"),
        (lambda d: d.assign(ds=d.cutoff), InputError, "at or before the latest observation"),
        (lambda d: d.assign(cutoff=d.cutoff - pd.Timedelta(days=1)).head(2), InputError, "not the latest observation"),
        (lambda d: d.assign(frozen=np.inf), InputError, "infinite"),
        (
            lambda d: d.assign(unique_id=d.unique_id.str[1:].astype(int)),
            ColumnError,
            r"adapter knows strings\. Convert the column\.",
        ),
        (lambda d: frozen(first=35), InputError, "several cutoffs"),
    ],
)
def test_bad_forecasts_are_named_and_nothing_is_kept(change: Any, kind: type[AruError], says: str) -> None:
    store = MemoryStore()
    adapter = Adapter(H, freq="D", store=store)
    adapter.update(truth()[lambda d: d.ds <= DAYS[36]])
    with store.reading() as view:
        before = view.get(view.keys())
    with pytest.raises(kind, match=says):
        adapter.adapt(change(frozen(first=36)[lambda d: d.cutoff == DAYS[36]]))
    with store.reading() as view:
        assert view.get(view.keys()) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"h": 0},
        {"season_length": 0},
        {"alphas": ()},
        {"alphas": (2.0,)},
        {"ridge": 0.0},
        {"models": "a"},
        {"freq": "no"},
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Adapter(**{"h": 3, **wrong})


def test_a_frequency_that_cannot_be_read_off_is_asked_for() -> None:
    with pytest.raises(FrequencyError, match=r"cannot be read off df\. Give freq, for instance freq=\'D\'\."):
        Adapter(H).update(truth().groupby("unique_id").head(2))
    with pytest.raises(ColumnError, match="cutoff"):
        Adapter(H).cross_validation(frozen().drop(columns="cutoff"), truth())


def test_the_frequency_is_read_off_rows_in_any_order() -> None:
    days = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2024-01-01", periods=200), "y": 1.0})
    for seed in range(3):
        adapter = Adapter(H)
        assert adapter.update(days.sample(frac=1, random_state=seed)).gaps_filled == 0
        assert adapter.update(days.tail(1).assign(ds=pd.Timestamp("2024-07-19"))).gaps_filled == 0


@pytest.mark.parametrize("freq", ["QS-FEB", "QE-NOV", "YS-APR", "YE-JUN"])
def test_quarters_and_years_of_any_month_are_read_off(freq: str) -> None:
    rows = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2020-01-01", periods=8, freq=freq), "y": 1.0})
    adapter = Adapter(H)
    adapter.update(rows.head(5))
    assert adapter.update(rows.tail(3)).gaps_filled == 0
    assert (
        adapter.update(rows.tail(1).assign(ds=pd.date_range(rows["ds"].iloc[-1], periods=3, freq=freq)[2])).gaps_filled
        == 1
    )


def test_a_week_without_its_end_is_one_of_business_days() -> None:
    week = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2024-01-01", periods=5), "y": 1.0})
    adapter = Adapter(H)
    adapter.update(week)
    assert adapter.update(week.assign(ds=week["ds"] + pd.Timedelta(days=7))).gaps_filled == 0
    with pytest.raises(FrequencyError, match="'B'"):
        adapter.update(week.head(1).assign(ds=pd.Timestamp("2024-01-13")))


def test_rows_may_be_consecutive_whatever_their_dates() -> None:
    """Open days: without a frequency forecasts and truth are matched by their order."""
    actuals, forecasts = truth(), frozen()
    keep = DAYS[DAYS.day_of_week < 5]
    at = pd.Series(np.arange(len(DAYS)), DAYS)
    numbered = Adapter(H, freq=1, season_length=7).cross_validation(
        forecasts.assign(ds=at[forecasts.ds].to_numpy(), cutoff=at[forecasts.cutoff].to_numpy()),
        actuals.assign(ds=at[actuals.ds].to_numpy()),
    )
    shops = pd.date_range("2024-01-01", periods=200)
    shops = shops[shops.day_of_week < 5]
    dated = Adapter(H, freq=None, season_length=7).cross_validation(
        forecasts.assign(ds=shops[at[forecasts.ds]], cutoff=shops[at[forecasts.cutoff]]),
        actuals.assign(ds=shops[at[actuals.ds]]),
    )
    assert len(keep) < len(DAYS)
    np.testing.assert_array_equal(dated.frozen, numbered.frozen)


def test_nothing_is_compiled_inside_a_transaction() -> None:
    """In a process of its own: other tests have compiled it all."""
    script = """
import pandas as pd
from aru import Adapter
days = pd.date_range("2024-01-01", periods=40)
adapter = Adapter(2, freq="D", gate=True)
from aru.nn import kernels
before = [len(function.signatures) for function in (kernels._solve, kernels._absorb)]
assert min(before) > 0, before
df = pd.DataFrame({"unique_id": "a", "ds": days, "y": range(40)})
for day in range(20, 38):
    adapter.update(df[df.ds <= days[day]], late="skip")
    adapter.adapt(pd.DataFrame({"unique_id": "a", "ds": days[day + 1 : day + 3], "frozen": [1.0, 2.0]}))
assert [len(function.signatures) for function in (kernels._solve, kernels._absorb)] == before
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
