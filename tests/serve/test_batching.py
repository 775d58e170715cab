"""Requests that are computed together: each as if alone and in its turn."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jaxtyping
import pandas as pd
import pytest
import torch

from aru import Forecaster, Stream
from aru.errors import DuplicateError, LateError, StorageError, UnknownSeriesError, ValueRangeError
from aru.nn.tree import leaves
from aru.runtime.engine import NetworkEngine
from aru.runtime.forecasting import Predicted
from aru.serve.asked import ForecastRequest, ForgetRequest, UpdateRequest
from aru.serve.batching import Batcher, Busy, isolate, rounds
from aru.serve.requests import Reader
from aru.serve.service import Service
from tests.shops import H, both, rows

from .conftest import Serve, as_json


def request(service: Service, frame: pd.DataFrame, late: Any = "raise") -> UpdateRequest:
    body = json.dumps({"observations": as_json(frame), "late": late}).encode()
    return Reader(service, 10**6).update(body, "application/json", "raise")


def states(stream: Stream) -> dict[str, Any]:
    ids = stream.series()["unique_id"].tolist()
    with stream.store.reading() as view:
        blobs = [blob for blob in view.get(ids) if blob is not None]
    record = stream.runtime.decode(blobs, ids, stream.correctable_steps)
    return {"ids": ids, **dict(leaves(record))}


def assert_same(one: Stream, other: Stream) -> None:
    first, second = states(one), states(other)
    assert first.pop("ids") == second.pop("ids")
    for name, value in first.items():
        if "members" in name or name.endswith("total"):
            torch.testing.assert_close(value, second[name], rtol=1e-5, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
        else:
            assert torch.equal(value, second[name]), name


def test_rounds_keep_the_order_of_every_series() -> None:
    series = [["a"], ["b"], ["a", "c"], ["c"], ["b"], ["d"], []]
    kinds = ["x", "x", "x", "x", "y", "y", "x"]
    assert rounds(series, kinds) == [[0, 1, 6], [5], [2], [4], [3]]
    assert rounds([], []) == []


def test_those_that_fail_do_so_alone() -> None:
    tried: list[list[int]] = []

    def work(group: list[int]) -> list[int]:
        tried.append(group)
        if {3, 12} & set(group):
            raise ValueError(str(group))
        return [10 * i for i in group]

    outcomes = isolate(work, list(range(16)))
    assert {i for i, outcome in outcomes.items() if isinstance(outcome, ValueError)} == {3, 12}
    assert all(outcomes[i] == 10 * i for i in range(16) if i not in (3, 12))
    assert len(tried) < 2 * 2 * 4 + 4  # not one by one

    def full(group: list[int]) -> list[int]:
        tried.append(group)
        raise StorageError("full")

    tried.clear()
    assert {type(outcome) for outcome in isolate(full, [1, 2, 3]).values()} == {StorageError}
    assert tried == [[1, 2, 3]]


def test_a_batch_is_what_arrived_meanwhile() -> None:
    started, go, batches = threading.Event(), threading.Event(), list[list[int]]()

    def work(requests: list[int]) -> list[Any]:
        batches.append(requests)
        started.set()
        go.wait(10)
        return [KeyError("odd") if r % 2 else r for r in requests]

    async def run() -> list[Any]:
        batcher: Batcher[int] = Batcher(work, max_rows=3, max_waiting=6)
        first = asyncio.create_task(batcher.submit(0, 1))
        await asyncio.to_thread(started.wait, 10)
        rest = [asyncio.create_task(batcher.submit(i, 1)) for i in range(1, 6)]
        large = asyncio.create_task(batcher.submit(6, 2))
        await asyncio.sleep(0.01)
        assert batcher.waiting == 5
        rest[1].cancel()  # its client has gone
        results = await asyncio.gather(large, return_exceptions=True)
        go.set()
        results += await asyncio.gather(first, *rest, return_exceptions=True)
        huge = await batcher.submit(8, 100)  # alone, whatever its size
        await asyncio.to_thread(batcher.close)
        with pytest.raises(Busy):
            await batcher.submit(1, 1)
        return [*results, huge]

    busy, *results = asyncio.run(run())
    assert isinstance(busy, Busy)
    assert [type(r) for r in results] == [int, KeyError, asyncio.CancelledError, KeyError, int, KeyError, int]
    assert batches == [[0], [1, 2, 3], [4, 5], [8]]


def test_nobody_waits_for_ever() -> None:
    def broken(requests: list[int]) -> list[int]:
        raise RuntimeError("a bug")

    async def run() -> None:
        batcher: Batcher[int] = Batcher(broken, max_rows=1, max_waiting=1)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a bug"):
                await batcher.submit(1, 1)
        await asyncio.to_thread(batcher.close)

    asyncio.run(run())


def test_closing_finishes_what_was_accepted() -> None:
    async def run() -> list[int]:
        batcher: Batcher[int] = Batcher(lambda requests: requests, max_rows=1, max_waiting=100)
        tasks = [asyncio.create_task(batcher.submit(i, 1)) for i in range(20)]
        await asyncio.sleep(0)
        await asyncio.to_thread(batcher.close)
        return await asyncio.gather(*tasks)

    assert asyncio.run(run()) == list(range(20))


def test_one_pass_and_one_commit(trained: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, take_in = [], NetworkEngine.take_in

    def counted(self: NetworkEngine, state: Any, *rest: Any) -> Any:
        passes.append(len(state.last))
        return take_in(self, state, *rest)

    service = Service(Stream(trained), monitor=False)  # which warms up with a pass of its own
    monkeypatch.setattr(NetworkEngine, "take_in", counted)
    reports = service.update([request(service, rows(f"s{i}", [20])) for i in range(50)])
    assert passes == [50]
    assert [r["new_series"] for r in reports] == [[f"s{i}"] for i in range(50)]
    assert {r["applied"] for r in reports} == {1}


def test_as_if_one_after_the_other(trained: Forecaster) -> None:
    together, alone = Service(Stream(trained), True), Service(Stream(trained), False)
    frames: list[tuple[pd.DataFrame, str]] = [
        (both([20], "ab"), "raise"),
        (rows("a", [20]), "raise"),  # a replay of the row before it
        (rows("n", [25]), "raise"),
        (rows("a", [20]).assign(y=1.0), "raise"),  # a contradiction
        (pd.concat([rows("b", [22]), rows("n", [24])]), "raise"),  # late for n only: nothing of it
        (pd.concat([rows("b", [22]), rows("n", [24])]), "skip"),
        (rows("o", [20]).assign(y=float("nan")), "raise"),  # a series without any value
        (rows("a", [23]), "skip"),
        (pd.concat([rows("a", [24])] * 2), "raise"),
        (rows("n", [26, 27]), "raise"),
        (rows("p", [3]), "raise"),
    ]
    one_by_one = [alone.update([request(alone, frame, late)])[0] for frame, late in frames]
    at_once = together.update([request(together, frame, late) for frame, late in frames])
    assert [type(o) for o in at_once] == [
        dict, dict, dict, LateError, LateError, dict, ValueRangeError, dict, DuplicateError, dict, dict,
    ]  # fmt: skip
    assert list(map(str, at_once)) == list(map(str, one_by_one))
    assert at_once[1]["duplicates"] == 1
    assert at_once[5]["late"][0]["unique_id"] == "n"
    assert_same(together.stream, alone.stream)


def test_forgetting_takes_its_turn(trained: Forecaster) -> None:
    service = Service(Stream(trained), True)
    outcomes = service.update(
        [
            request(service, rows("a", [20])),
            ForgetRequest(["a"]),
            ForgetRequest(["a"]),
            request(service, rows("a", [5])),
            ForgetRequest(["b"]),
        ]
    )
    service.watch()
    assert [type(o) for o in outcomes] == [dict, dict, UnknownSeriesError, dict, dict]
    assert outcomes[3]["new_series"] == ["a"]
    assert service.keys() == ["a"]


def test_forecasts_of_many_requests(trained: Forecaster, rich: Forecaster) -> None:
    service = Service(Stream(trained), False)
    asked = [(["a"], ()), (["b", "a"], ()), (["x"], ()), (["a"], (80,)), (["b"], ())]
    outcomes = service.forecast([ForecastRequest(ids, None, level) for ids, level in asked])
    assert [type(o) for o in outcomes] == [Predicted, Predicted, UnknownSeriesError, Predicted, Predicted]
    for (ids, level), made in zip(asked, outcomes, strict=True):
        if ids != ["x"]:
            columns = made.columns
            assert made.epoch is None  # nothing is learned in common
            expected = service.stream.predict(level=level, ids=ids)
            assert list(columns) == list(expected)
            assert columns["unique_id"].tolist() == expected["unique_id"].tolist()
            torch.testing.assert_close(torch.tensor(columns["aru"]), torch.tensor(expected["aru"].to_numpy()))
    # With covariates of their own, for the same series.
    service = Service(Stream(rich), False)
    reader = Reader(service, 1000)
    futures = [both([20, 21, 22], "a").assign(promo=promo) for promo in ("yes", "no")]
    asked_for = [{"futr": as_json(future, "unique_id", "ds", "promo")} for future in futures]
    requests = [reader.forecast(json.dumps(body).encode(), "application/json", [], []) for body in asked_for]
    for future, (columns, _) in zip(futures, service.forecast(requests), strict=True):
        expected = service.stream.predict(future, ids=["a"])["aru"].to_numpy()
        torch.testing.assert_close(torch.tensor(columns["aru"]), torch.tensor(expected))


def test_a_hundred_clients_get_what_one_would(
    serve: Serve, trained: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every client has a series of its own and shares one with nine others, which send the same rows."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    running = serve(trained, tmp_path / "state.db")

    def client(number: int) -> tuple[int, int]:
        applied = duplicates = 0
        with httpx.Client(base_url=running.url, timeout=120) as mine:
            for day in (20, 21):
                for name in (f"own-{number}", f"shared-{number % 10}"):
                    body = {"observations": as_json(rows(name, [day])), "late": "skip"}
                    report = mine.post("/v1/observations", json=body).json()
                    applied, duplicates = applied + report["applied"], duplicates + report["duplicates"]
            answer = mine.post("/v1/forecasts", json={"unique_ids": [f"own-{number}"]})
            assert len(answer.json()["forecasts"]) == H
        return applied, duplicates

    with ThreadPoolExecutor(100) as pool:
        counts = list(pool.map(client, range(100)))
    assert sum(applied for applied, _ in counts) == 2 * 110
    assert sum(duplicates for _, duplicates in counts) == 2 * 90
    alone = Stream(trained)
    for day in (20, 21):
        names = [f"own-{n}" for n in range(100)] + [f"shared-{n}" for n in range(10)]
        alone.update(pd.concat([rows(name, [day]) for name in names]))
    assert_same(running.stream, alone)
    batches = running.client.get("/metrics").text
    count = float(next(line for line in batches.splitlines() if line.startswith("aru_batch_rows_count")).split()[1])
    assert count < 400 / 2  # they were computed together


def test_stopping_answers_what_was_accepted(
    serve: Serve, trained: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = serve(trained, tmp_path / "state.db")
    apply, updates = running.stream.apply, running.served.updates
    submit, accepted, everyone = updates.submit, list[Any](), threading.Event()

    def counted(*arguments: Any) -> Any:
        accepted.append(arguments)
        if len(accepted) == 8:
            everyone.set()
        return submit(*arguments)

    def slow(*arguments: Any, **named: Any) -> Any:
        everyone.wait(60)
        threading.Event().wait(0.2)  # the service is asked to stop meanwhile
        return apply(*arguments, **named)

    monkeypatch.setattr(updates, "submit", counted)
    monkeypatch.setattr(running.stream, "apply", slow)
    with ThreadPoolExecutor(8) as pool:
        posts = [
            pool.submit(
                httpx.post,
                f"{running.url}/v1/observations",
                json={"observations": as_json(rows(f"s{i}", [1]))},
                timeout=60,
            )
            for i in range(8)
        ]
        everyone.wait(60)
        running.stop()
        answers = [post.result() for post in posts]
    assert [a.json()["applied"] for a in answers] == [1] * 8
    with Stream(trained, tmp_path / "state.db") as again:
        assert len(again.series()) == 2 + 8
