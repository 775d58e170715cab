"""Covariates behind the service and with several writers: what one process alone would learn."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Stream
from aru.nn.tree import leaves
from aru.runtime import epochs
from aru.runtime.common_record import COMMON
from aru.serve.options import Options
from tests.pretrained.test_effects import FUTURE, LAST, PANEL, PAST, opened
from tests.serve.conftest import Running

STATIC = pd.DataFrame({"unique_id": PANEL["unique_id"].unique(), "region": ["north", "south"] * 10})
MORE: dict[str, Any] = {"hist_exog_list": ["noise"], "stat_exog_list": ["region"]}


def panel_of(stream: Stream) -> dict[str, Any]:
    with stream.store.reading() as view:
        (record,) = view.get([COMMON], "panel")
    assert record is not None
    return json.loads(record)


def assert_same_series(one: Stream, other: Stream) -> None:
    keys = one.keys()
    assert keys == other.keys()
    (_, ours), (_, theirs) = one.states(keys), other.states(keys)
    found = dict(leaves(theirs))
    for name, value in leaves(ours):
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")


def assert_same_panel(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in ("mean", "spread", "noise", "unit", "way"):
        np.testing.assert_allclose(one["effects"][name], other["effects"][name], rtol=1e-9, atol=1e-12, err_msg=name)
    begin, again = (found["effects"]["newcomers"] for found in (one, other))
    assert begin.keys() == again.keys()
    for name in begin:
        np.testing.assert_allclose(begin[name], again[name], rtol=1e-7, atol=1e-9, err_msg=name)


def learned_now(stream: Stream) -> dict[str, Any]:
    """What an epoch that begins now learns."""
    names, state = stream.states(stream.keys())
    engine = stream.runtime.engine.twin()
    engine.learn_common(state, names.tolist(), now=True)
    return dict(engine.common.to_json())


@pytest.mark.parametrize("order", [1, -1])
def test_two_writers_learn_what_one_would(state: str | Path, order: int) -> None:
    """Whichever of them begins, and in whatever order series come."""
    begin, rest = PAST[PAST["ds"] < "2024-04-01"], PAST[PAST["ds"] >= "2024-04-01"]
    alone = Stream(opened(**MORE))
    both = [Stream(opened(**MORE), state) for _ in range(2)][::order]
    for stream in (alone, both[0]):
        stream.update(begin, STATIC)
    for _, day in rest.groupby(pd.Grouper(key="ds", freq="8D")):
        alone.update(day)
        parts = [day[day["unique_id"].isin(STATIC["unique_id"][half::2])] for half in (0, 1)][::order]
        for writer, part in zip(both, parts, strict=True):
            writer.update(part)
    assert_same_series(alone, both[0])
    assert_same_panel(learned_now(alone), learned_now(both[1]))
    counted = [panel_of(stream)["epoch"] for stream in (alone, *both)]
    assert counted[0] > 2
    assert counted[1] == counted[2]
    assert abs(counted[1] - counted[0]) <= 1  # rows of either writer count; there are twice as many occasions
    futr = FUTURE.sort_values(["unique_id", "ds"])
    assert both[0].predict(futr).attrs["epoch"] == counted[1]
    one, other = (stream.predict(futr) for stream in both)
    pd.testing.assert_frame_equal(one.astype(other.dtypes), other, check_exact=True)


def test_writers_in_postgres_count_and_learn_side_by_side(postgres_url: str) -> None:
    """Nobody waits for a writer of other series, and an epoch is learned once, whoever sees first that it is due."""
    begin, rest = PAST[PAST["ds"] < "2024-04-01"], PAST[PAST["ds"] >= "2024-04-01"]
    names, alone = STATIC["unique_id"].tolist(), Stream(opened(**MORE))
    streams = [Stream(opened(**MORE), postgres_url) for _ in range(4)]
    for stream in (alone, streams[0]):
        stream.update(begin, STATIC)
    first = rest[rest["ds"] == rest["ds"].min()]
    for stream, name in zip(streams, names, strict=False):
        stream.update(first[first["unique_id"] == name])  # which shows each that all is counted
    with streams[0].store.writing(names[:1]):
        assert streams[1].update(rest[rest["unique_id"] == names[1]].iloc[1:9]).applied == 8
    epochs_seen = list[int]()

    def work(number: int) -> None:
        for name in names[number::4]:
            for _, week in rest[rest["unique_id"] == name].groupby(pd.Grouper(key="ds", freq="8D")):
                streams[number].update(week, late="skip")
                epochs_seen.append(panel_of(streams[number])["epoch"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    alone.update(rest)
    assert_same_series(alone, streams[0])
    with streams[2].store.reading() as view:
        assert view.counted() == len(PAST)
    assert_same_panel(learned_now(alone), learned_now(streams[3]))
    learned = panel_of(streams[0])
    assert learned["epoch"] > 2
    assert sorted(set(epochs_seen)) == list(range(min(epochs_seen), learned["epoch"] + 1))
    assert learned["observations"] * 1.1 > len(PAST)
    for stream in streams:
        stream.close()


def test_a_sample_does_not_depend_on_the_order_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "EPOCH_SAMPLE", 7)
    stream, f = Stream(opened()), opened()
    stream.update(PAST)
    f.update(PAST)  # decides how columns are read
    back = f.without_series()
    for name in f.ids[::-1]:
        back.update(PAST[PAST["unique_id"] == name])
    assert back.ids == f.ids[::-1]
    found = []
    for forecaster in (f, back):
        engine = forecaster.runtime.engine.twin()
        engine.learn_common(forecaster.table.states, forecaster.ids, now=True)
        found.append(engine.common.to_json())
    assert_same_panel(*found)
    assert_same_panel(panel_of(stream), found[0])
    monkeypatch.setattr(epochs, "EPOCH_SAMPLE", 20)
    engine.learn_common(f.table.states, f.ids, now=True)
    assert engine.common.to_json()["effects"] != found[0]["effects"]


def test_a_second_process_takes_over_what_the_first_has_found(tmp_path: Path) -> None:
    """Both were opened on an empty store; and what a forecaster knows goes into a new one."""
    first, second, third = (Stream(opened(), tmp_path / "state.db") for _ in range(3))
    first.update(PAST)
    truth = first.predict(FUTURE)
    pd.testing.assert_frame_equal(second.predict(FUTURE).astype(truth.dtypes), truth, check_exact=True)
    third.update(PANEL[PANEL["ds"] == LAST + pd.Timedelta(days=1)])
    pd.testing.assert_frame_equal(second.effects(), third.effects())
    f = opened()
    f.update(PAST)
    truth = f.predict(FUTURE)
    with Stream(f, tmp_path / "other.db") as stream:
        stream.update(PANEL[PANEL["ds"] == LAST + pd.Timedelta(days=1)])
    pd.testing.assert_frame_equal(f.predict(FUTURE), truth, check_exact=True)  # the stream's learning is its own
    with Stream(opened(), tmp_path / "other.db") as stream:
        assert panel_of(stream)["epoch"] >= 1


def test_series_that_go_or_come_begin_an_epoch(tmp_path: Path) -> None:
    one, other = (Stream(opened(), tmp_path / f"{name}.db") for name in "ab")
    one.update(PAST)
    one.forget([f"shop-{i}" for i in range(10)])
    rest = PANEL[~PANEL["unique_id"].isin([f"shop-{i}" for i in range(10)])]
    one.update(rest[rest["ds"] == LAST + pd.Timedelta(days=1)])
    assert panel_of(one)["epoch"] == 2
    assert_same_panel(panel_of(one), learned_now(one))
    one.export(tmp_path / "states.parquet")
    other.update(PAST)
    with Stream(opened(), tmp_path / "c.db") as empty:
        empty.import_(tmp_path / "states.parquet")
        pd.testing.assert_frame_equal(empty.effects(), one.effects())


def posts(df: pd.DataFrame) -> list[dict[str, Any]]:
    return json.loads(df.assign(ds=df["ds"].dt.strftime("%Y-%m-%d")).to_json(orient="records"))


@pytest.mark.parametrize("how", ["json", "csv"])
def test_the_service_from_an_empty_store_on(tmp_path: Path, how: str) -> None:
    model = opened(**MORE)
    running = Running(Stream(model, tmp_path / "state.db", correctable_steps=3), Options(port=0))
    begin, rest = PAST[PAST["ds"] < "2024-06-01"], PAST[PAST["ds"] >= "2024-06-01"]
    try:
        client = running.client
        alone = Stream(opened(**MORE), correctable_steps=3)
        alone.update(begin, STATIC)
        if how == "json":
            body = {"observations": posts(begin.drop(columns="flat")), "static": STATIC.to_dict("records")}
            answer = client.post("/v1/observations", json=body)
        else:
            table = begin.merge(STATIC).to_csv(index=False, date_format="%Y-%m-%d")
            answer = client.post("/v1/observations", content=table, headers={"content-type": "text/csv"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["applied"] == len(begin)
        alone.update(rest)
        with ThreadPoolExecutor(8) as pool:  # every client has a few series
            parts = [rest[rest["unique_id"].isin(STATIC["unique_id"][i::8])].drop(columns="flat") for i in range(8)]
            done = pool.map(lambda part: client.post("/v1/observations", json={"observations": posts(part)}), parts)
            assert [answer.status_code for answer in done] == [200] * 8
        assert_same_series(alone, running.stream)
        assert_same_panel(learned_now(alone), learned_now(running.stream))
        futr = FUTURE[FUTURE["unique_id"] == "shop-3"][["unique_id", "ds", "promo", "kind"]]
        found = client.post("/v1/forecasts", json={"futr": posts(futr), "level": [80]}).json()
        epoch = panel_of(running.stream)["epoch"]
        assert found["epoch"] == epoch
        wanted = running.stream.predict(futr, level=[80], ids="shop-3")
        assert wanted.attrs["epoch"] == epoch
        np.testing.assert_allclose([row["aru"] for row in found["forecasts"]], wanted["aru"], rtol=1e-6)
        plain = client.post("/v1/forecasts", json={"futr": posts(futr)}, headers={"accept": "text/csv"})
        assert plain.headers["Aru-Epoch"] == str(epoch)
        wrong = posts(futr)
        wrong[0]["promo"] = "yes"
        assert client.post("/v1/forecasts", json={"futr": wrong}).status_code == 422
        for page in ("/", "/healthz", "/metrics", "/v1/series", "/v1/series/shop-3", "/v1/monitor/series/shop-3"):
            assert client.get(page).status_code == 200, page
    finally:
        running.stop()
        running.stream.close()
    reopened = Running(Stream(opened(**MORE), tmp_path / "state.db"), Options(port=0))
    try:
        late = PANEL[(PANEL["ds"] == LAST + pd.Timedelta(days=1)) & (PANEL["unique_id"] == "shop-3")]
        body = {"observations": posts(late.drop(columns="flat"))}
        assert reopened.client.post("/v1/observations", json=body).json()["applied"] == 1
    finally:
        reopened.stop()
        reopened.stream.close()
