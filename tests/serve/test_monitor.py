"""Monitoring: bounded, beside the states, and equal to what forecasts at the time would have been."""

from __future__ import annotations

import sqlite3
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.data.clock import Clock
from aru.errors import StorageError
from aru.runtime.state import SeriesState
from aru.serve.monitor import KEPT, Monitor
from aru.serve.summaries import rolling
from tests.making import make
from tests.shops import BASE, E, H, both, rows

from .conftest import Serve, as_json


class Watched:
    """A stream whose updates a monitor sees."""

    def __init__(self, model: Forecaster, path: Path | None = None) -> None:
        self.stream = Stream(model)
        self.monitor = Monitor(self.stream.runtime, path)

    def update(self, frame: pd.DataFrame, static: Any = None) -> None:
        update = self.stream.apply(frame, static)
        assert update.record is not None
        self.monitor.observe(update.ids.tolist(), update.record.now)

    def state(self, key: str) -> SeriesState:
        found, state = self.stream.states([key])
        assert found.tolist() == [key]
        return state

    def history(self, key: str) -> pd.DataFrame:
        ring = self.monitor.history(key, self.state(key))
        return pd.DataFrame({name: ring[name] for name in ring.dtype.names})

    def unadapted(self, futr: Any = None) -> pd.DataFrame:
        """Forecasts of a stream that has the same contexts and no statistics."""
        runtime, (ids, state) = self.stream.runtime, self.stream.states(self.stream.keys())
        return runtime.build(runtime.predict(ids, runtime.engine.unadapted(state), runtime.read_futr(futr), None))


@pytest.mark.parametrize("step", [1, 2, H])
def test_past_forecasts_are_those_of_their_time(trained: Forecaster, step: int) -> None:
    watched = Watched(trained)
    watched.update(both([20]))
    made: dict[tuple[str, int], tuple[Any, ...]] = {}
    scored = 0
    for first in range(21, 21 + 4 * H * step, step):
        if (first - 21) % (-(-H // step) * step) == 0:  # here a window begins
            adapted, plain = watched.stream.predict(level=[80]), watched.unadapted()
            columns = [adapted[c] for c in ("aru-median", "aru-lo-80", "aru-hi-80")]
            columns += [plain["aru-median"], adapted["aru"] - plain["aru"]]
            for key, *values in zip(zip(adapted["unique_id"], adapted["ds"], strict=True), *columns, strict=True):
                made[key] = tuple(values)
        watched.update(both(range(first, first + step)))
    for name in "ab":
        history = watched.history(name)
        times = history["ds"].to_numpy().view("datetime64[us]")
        assert (np.diff(times) == np.timedelta64(1, "D")).all()
        np.testing.assert_array_equal(
            history["y"], rows(name, (pd.DatetimeIndex(times) - pd.Timestamp("2024-01-01")).days)["y"]
        )
        past = history[history["median"].notna()]
        scored += len(past)
        assert len(past) >= 3 * H
        for row, time in zip(past.itertuples(), times[history["median"].notna()], strict=True):
            expected = made[name, pd.Timestamp(time)]
            np.testing.assert_allclose([row.median, row.lo_80, row.hi_80, row.median_global], expected[:4], rtol=1e-5)
            np.testing.assert_allclose(row.local, expected[4], rtol=1e-4, atol=1e-4)
        score = watched.monitor.scores([name]).get(name)
        assert score is not None
        assert score.scored == len(past)
        np.testing.assert_allclose(score.error, (past["y"] - past["median"]).abs().sum())
        np.testing.assert_allclose(score.global_error, (past["y"] - past["median_global"]).abs().sum())
        np.testing.assert_allclose(score.size, past["y"].abs().sum())
        assert score.covered == past["y"].between(past["lo_80"], past["hi_80"]).sum()
    assert watched.monitor.fleet().scored == scored


def test_known_covariates_are_those_that_came(rich: Forecaster) -> None:
    watched = Watched(rich)
    watched.update(both([20]))
    futr = both(range(21, 21 + H))[["unique_id", "ds", "promo"]]
    adapted, plain = watched.stream.predict(futr_df=futr), watched.unadapted(futr)
    for day in range(21, 21 + H):
        watched.update(both([day]))
    past = watched.history("b").tail(H)
    np.testing.assert_allclose(past["median"], adapted["aru-median"].tail(H), rtol=1e-5)
    np.testing.assert_allclose(past["median_global"], plain["aru-median"].tail(H), rtol=1e-5)


def test_without_frequency_and_with_a_short_context() -> None:
    short = {**BASE, "freq": None, "input_size": 2, "h": 4}
    watched = Watched(make(**short).fit(both(range(30))))
    watched.update(both([30]))
    futr = both(range(31, 35))[["unique_id", "ds"]]
    adapted = watched.stream.predict(futr, ids=["a"])
    watched.update(both([31, 32]))
    np.testing.assert_allclose(watched.history("a")["median"].tail(2), adapted["aru-median"].head(2), rtol=1e-5)


def test_what_was_not_seen_is_not_scored(trained: Forecaster) -> None:
    watched = Watched(trained)
    watched.update(both([20]))
    watched.update(both(range(21, 21 + E + 1)))  # more than the context holds
    assert watched.monitor.scores(["a"]).get("a") is None
    watched.update(both([90]))  # a gap
    assert watched.monitor.scores(["a"]).get("a") is None
    watched.update(both(range(91, 91 + H)))
    score = watched.monitor.scores(["a"]).get("a")
    assert score is not None
    assert score.scored == H
    history = watched.history("a")
    assert (history["ds"].diff().dropna() > 0).all()


def test_it_is_bounded_and_survives_the_process(trained: Forecaster, tmp_path: Path) -> None:
    watched = Watched(trained, tmp_path / "monitor")
    for day in range(20, 20 + KEPT + 40):
        watched.update(rows("a", [day]))
    assert len(watched.history("a")) == KEPT
    (size,) = watched.monitor._select("SELECT length(ring) FROM kept", ())
    assert size == (KEPT * 56,)
    score, history = watched.monitor.scores(["a"]).get("a"), watched.history("a")
    watched.monitor.close()
    watched.monitor = Monitor(watched.stream.runtime, tmp_path / "monitor")
    assert watched.monitor.scores(["a"]).get("a") == score
    pd.testing.assert_frame_equal(watched.history("a"), history)
    watched.monitor.forget(["a"])
    assert watched.monitor.scores(["a"]).get("a") is None
    watched.monitor.close()
    other = make(**BASE, random_seed=1).fit(both(range(20)))
    fresh = Monitor(other.runtime, tmp_path / "monitor")
    assert fresh._select("SELECT count(*) FROM kept", ()) == [(0,)]
    fresh.close()
    (tmp_path / "notes").write_text("these are my notes " * 100)
    with pytest.raises(StorageError, match="cannot be used for monitoring"):
        Monitor(other.runtime, tmp_path / "notes")


def test_accuracy_over_time_is_that_of_all_series(trained: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(trained)
    watched.update(both([20]))
    for day in range(21, 21 + 4 * H):
        watched.update(both([day]))
    past = pd.concat([watched.history(name) for name in "ab"])
    past = past[past["median"].notna()]
    past["error"] = (past["y"] - past["median"]).abs()
    past["size"] = past["y"].abs()
    daily = past.groupby("ds")[["error", "size"]].sum()
    timeline = watched.monitor.timeline()
    assert [ds for ds, _ in timeline] == daily.index.tolist()
    assert [score.scored for _, score in timeline] == [2] * (4 * H)
    np.testing.assert_allclose([score.error for _, score in timeline], daily["error"])
    shown = rolling(timeline, H, Clock())
    moving = daily.rolling(H, min_periods=1).sum()
    np.testing.assert_allclose([row["nd"] for row in shown], moving["error"] / moving["size"])
    assert shown[-1]["ds"] == f"{(pd.Timestamp('2024-01-01') + pd.Timedelta(days=20 + 4 * H)).date()}T00:00:00"
    monkeypatch.setattr("aru.serve.summaries.POINTS", 4)
    few = rolling(timeline, H, Clock())
    assert few == shown[::-1][::3][::-1]  # the latest always
    monkeypatch.setattr("aru.serve.monitor.TIMES", 5)
    for day in range(21 + 4 * H, 21 + 5 * H):
        watched.update(both([day]))
    assert len(watched.monitor.timeline()) == 5


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e200])
def test_forecasts_that_are_none_are_not_scored(
    trained: Forecaster, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(trained)
    watched.update(both([20]))
    engine = watched.stream.runtime.engine
    forecast, made = engine.forecast, list[Any]()

    def broken(*arguments: Any) -> Any:
        made.append(arguments)
        found = forecast(*arguments)
        found.quantiles[0, 0, 1] = wrong  # the median of the first series, two steps ahead
        return found

    monkeypatch.setattr(engine, "forecast", broken)
    watched.update(both(range(21, 21 + H)))
    assert len(made) == 2  # with adaptation and without
    scores = watched.monitor.scores(["a", "b"])
    assert (scores["a"].scored, scores["b"].scored) == (H - 1, H)
    assert np.isfinite([*scores["a"], *watched.monitor.fleet()]).all()
    assert [sums.scored for _, sums in watched.monitor.timeline()] == [2, 1, 2]
    past = watched.history("a").tail(H)
    assert past["median"].isna().tolist() == past["lo_80"].isna().tolist() == [False, True, False]
    assert past["y"].notna().all()


def test_the_largest_values_leave_all_scores_finite(trained: Forecaster) -> None:
    watched = Watched(trained)
    watched.update(both([20]))
    frame = both(range(21, 21 + H))
    frame.loc[0, "y"] = 1e29
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it lies far from all other values
        watched.update(frame)
    scores = watched.monitor.scores(["a", "b"])
    assert (scores["a"].scored, scores["b"].scored) == (H - 1, H)  # an outlier that is held back is not scored
    assert np.isfinite([*watched.monitor.fleet()]).all()


def test_who_was_helped(trained: Forecaster) -> None:
    watched = Watched(trained)
    assert watched.monitor.helped() == (0, 0, 0)
    for day in range(20, 20 + 3 * H + 1):
        watched.update(both([day], "abn"))
    scores = watched.monitor.scores(["a", "b", "n", "unknown"])
    better = sum(score.error < score.global_error for score in scores.values())
    assert watched.monitor.helped() == (3, better, 3 - better)


def test_a_database_with_other_tables_is_refused(trained: Forecaster, tmp_path: Path) -> None:
    for i, tables in enumerate((["about", "kept", "scores"], ["about", "kept", "scores", "times", "notes"])):
        path = tmp_path / f"monitor{i}"
        database = sqlite3.connect(path)
        database.executescript(" ".join(f"CREATE TABLE {name} (id);" for name in tables))
        database.close()
        with pytest.raises(StorageError, match="a database of another program"):
            Monitor(trained.runtime, path)


@pytest.mark.filterwarnings("ignore:y lies far outside")
def test_drift(trained: Forecaster) -> None:
    watched = Watched(trained)
    assert watched.monitor.drifting_share() is None
    for day in range(20, 20 + 16 * H + 1):
        frame = both([day], "abn")
        if day > 20 + 12 * H:
            frame.loc[frame["unique_id"] == "n", "y"] *= 9 + day % 5
        watched.update(frame)
    (key, drift, score), *rest = watched.monitor.drifting(2)
    assert key == "n"
    assert drift > 3
    assert score.scored == 16 * H - 1  # the first row of the new level is held back
    assert len(rest) == 1
    assert rest[0][1] < 3
    assert watched.monitor.drifting_share() == 1 / 3


def test_the_service_shows_it(serve: Serve, trained: Forecaster, tmp_path: Path) -> None:
    running = serve(trained, tmp_path / "state.db")
    for day in range(20, 20 + 2 * H + 1):
        running.post_and_watch(both([day]))
    assert (tmp_path / "state.db.monitor").exists()
    fleet = running.client.get("/v1/monitor/fleet").json()
    assert fleet["series"] == 2
    assert fleet["observations_per_second"] > 0
    accuracy = running.client.get("/v1/series/a").json()["accuracy"]
    assert accuracy["observations"] == 2 * H
    assert accuracy["nd"] > 0
    assert accuracy["nd_global"] > 0
    shown = running.client.get("/v1/monitor/series/a").json()
    assert shown["accuracy"] == accuracy
    assert shown["forecast_missing"] is None
    expected = running.stream.predict(level=[50, 80, 95], ids=["a"])
    np.testing.assert_allclose([r["hi_95"] for r in shown["forecast"]], expected["aru-hi-95"])
    assert all(abs(r["mean"] - r["mean_global"] - r["local"]) < 1e-6 for r in shown["forecast"])
    assert any(r["local"] for r in shown["forecast"])
    assert [r["y"] for r in shown["history"]][-1] == rows("a", [20 + 2 * H])["y"][0]
    assert 'aru_rolling_nd{forecast="adapted",model="model"} 0.' in running.client.get("/metrics").text


def test_covariates_of_the_future_are_asked_for(serve: Serve, rich: Forecaster) -> None:
    running = serve(rich)
    shown = running.client.get("/v1/monitor/series/a").json()
    assert shown["forecast"] is None
    assert "/v1/forecasts" in shown["forecast_missing"]
    assert len(shown["history"]) == E
    futr = as_json(rows("a", range(20, 20 + H)), "unique_id", "ds", "promo")
    made = running.client.post("/v1/forecasts", json={"futr": futr}).json()["forecasts"]
    shown = running.client.get("/v1/monitor/series/a").json()
    assert [row["median"] for row in shown["forecast"]] == pytest.approx([row["aru-median"] for row in made])


def test_covariates_of_requests_about_many_series_serve_each(
    serve: Serve, rich: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = serve(rich)
    futr = as_json(both(range(20, 20 + 2 * H)), "unique_id", "ds", "promo")  # further than needed
    made = running.client.post("/v1/forecasts", json={"futr": futr}).json()["forecasts"]

    def shown(name: str) -> Any:
        return running.client.get(f"/v1/monitor/series/{name}").json()

    for name in "ab":
        expected = [row["aru-median"] for row in made if row["unique_id"] == name]
        assert [row["median"] for row in shown(name)["forecast"]] == pytest.approx(expected)
    running.client.post(
        "/v1/observations", json={"observations": as_json(both([20]), "unique_id", "ds", "y", "promo", "temp")}
    ).raise_for_status()
    assert shown("a")["forecast"][0]["ds"] == "2024-01-22T00:00:00"
    monkeypatch.setattr("aru.serve.fan.REMEMBERED", 2 * H * 3 * 100)  # bytes: three strings in a row
    alone = [row for row in futr if row["unique_id"] == "a"]
    running.client.post("/v1/forecasts", json={"futr": alone}).raise_for_status()
    assert shown("a")["forecast"] is not None
    assert "unique_id, ds, promo" in shown("b")["forecast_missing"]


def test_it_can_be_left_out(serve: Serve, trained: Forecaster, tmp_path: Path) -> None:
    running = serve(trained, tmp_path / "state.db", monitor=False)
    for day in range(20, 20 + 2 * H + 1):
        running.post(both([day]))
    assert sorted(p.name for p in tmp_path.iterdir() if "monitor" in p.name) == []
    assert running.client.get("/v1/monitor/fleet").json()["accuracy"]["observations"] == 0
    assert running.client.get("/v1/monitor/series/a").json()["history"] == []
    assert running.client.get("/v1/series/a").json()["accuracy"] is None


def test_a_broken_monitor_does_not_stop_the_service(
    serve: Serve, trained: Forecaster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = serve(trained)

    def broken(*_: Any) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(Monitor, "observe", broken)
    assert running.post(both([20])).json()["applied"] == 2
    assert running.post(both([21])).json()["applied"] == 2
    assert "monitoring failed" in caplog.text
