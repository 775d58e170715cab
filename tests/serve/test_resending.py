"""The same request again: whoever got no answer sends it once more, and nothing is counted twice or refused."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.serve.house import CORRECTABLE
from aru.serve.requests import Reader
from aru.serve.service import Service
from aru.store import MemoryStore, receipts
from tests.shops import E, both, rows

from .conftest import NOTHING, Running, Serve, arrow, as_json, error_of
from .test_batching import assert_same
from .test_processes import Process

LONG = range(20, 20 + 5 * E)  # more rows than a series remembers


def send(running: Running, body: bytes, content: str = "application/json", late: str = "raise") -> httpx.Response:
    headers = {"content-type": content}
    return running.client.post("/v1/observations", content=body, headers=headers, params={"late": late})


def test_the_same_body_is_a_duplicate_however_long_ago(serve: Serve, trained: Forecaster, tmp_path: Path) -> None:
    running, frame = serve(trained, tmp_path / "state.db"), both(LONG, "abn")[["unique_id", "ds", "y"]]
    bodies = [
        (json.dumps({"observations": as_json(frame)}).encode(), "application/json"),
        (frame.assign(ds=frame["ds"] + pd.Timedelta(days=100)).to_csv(index=False).encode(), "text/csv"),
        (arrow(frame.assign(ds=frame["ds"] + pd.Timedelta(days=200))), "application/vnd.apache.arrow.stream"),
    ]
    for body, content in bodies:
        assert send(running, body, content).json()["applied"] == len(frame)
    for body, content in bodies:
        answer = send(running, body, content)
        assert (answer.status_code, answer.json()) == (200, NOTHING | {"duplicates": len(frame)})
    # In other pieces these rows are late, and the answer says how to leave them out.
    half = json.dumps({"observations": as_json(frame)[::2]}).encode()
    assert '"late": "skip"' in error_of(send(running, half), 409, "LateError")["remedy"]
    text = running.client.get("/metrics").text
    assert f'aru_rows_total{{model="model",outcome="duplicates"}} {3 * len(frame)}.0' in text
    assert f'aru_rows_total{{model="model",outcome="late"}} {len(frame[::2])}.0' in text


def test_it_is_known_after_a_kill(saved: Path, trained: Forecaster, tmp_path: Path) -> None:
    body, state = {"observations": as_json(both(LONG))}, tmp_path / "state.db"
    for expected in ("applied", "duplicates"):
        process = Process(saved, state)
        answer = httpx.post(f"{process.url}/v1/observations", json=body, timeout=60)
        process.end(signal.SIGKILL)
        assert answer.json()[expected] == 2 * len(LONG)
    expected_stream = Stream(trained, correctable_steps=CORRECTABLE)
    expected_stream.update(both(LONG))
    with Stream(saved, state) as stream:
        assert_same(stream, expected_stream)


def test_a_body_twice_in_one_batch(trained: Forecaster) -> None:
    service = Service(Stream(trained), monitor=False)
    body = json.dumps({"observations": as_json(both(LONG))}).encode()
    reader = Reader(service, 1000)
    first, second = service.update([reader.update(body, "application/json", "raise") for _ in range(2)])
    assert (first["applied"], second) == (2 * len(LONG), NOTHING | {"duplicates": 2 * len(LONG)})


def test_what_memory_holds_is_compared(serve: Serve, trained: Forecaster) -> None:
    """Rows in memory are duplicates in any piece; another value for one of them is an error."""
    running = serve(trained)
    running.post(both(LONG))
    assert running.post(both([LONG[-1]])).json() == NOTHING | {"duplicates": 2}
    wrong = rows("a", [LONG[-1]]).assign(y=-5.0)
    for _ in range(2):  # a refused request is not kept
        error = error_of(running.post(wrong), 409, "LateError")
        assert error["rows"][0]["reason"] == "another value was consumed for this time"


def test_another_rule_for_late_rows_is_another_request(serve: Serve, trained: Forecaster, tmp_path: Path) -> None:
    Stream(trained, tmp_path / "state.db", correctable_steps=3).close()
    running = serve(trained, tmp_path / "state.db")
    running.post(both([20, 21]))
    wrong = rows("a", [21]).assign(y=7.5)
    for _ in range(2):  # what was left out is no duplicate
        assert len(running.post(wrong, late="skip").json()["late"]) == 1
    assert running.post(wrong, late="correct").json() == NOTHING | {"corrected": 1}
    running.post(rows("a", [21]).assign(y=8.5), late="correct")
    assert running.post(wrong, late="correct").json() == NOTHING | {"duplicates": 1}  # an old correction, resent
    assert running.client.get("/v1/series/a").json()["y"] == 8.5


def test_a_forgotten_series_begins_again(serve: Serve, trained: Forecaster) -> None:
    """A digest says that rows were consumed, not that they still are."""
    running = serve(trained)
    assert running.post(both(LONG, "an")).json()["new_series"] == ["n"]
    running.client.delete("/v1/series/n")
    report = running.post(both(LONG, "an")).json()
    assert report == NOTHING | {"applied": len(LONG), "duplicates": len(LONG), "new_series": ["n"]}


def test_digests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "BUCKETS", 4)
    store, digests = MemoryStore(), [receipts.digest_of(bytes([i])) for i in range(200)]
    for digest in digests:
        with store.writing() as change:
            receipts.remember(change, [digest, digest])
    with store.reading() as view:
        records = [record or b"" for record in view.get(view.keys("request"), "request")]
        known = receipts.consumed(view, digests)
    assert sum(map(len, records)) <= 4 * receipts.SLOTS * receipts.DIGEST_BYTES
    assert sum(known) == 4 * receipts.SLOTS
    assert all(known[-receipts.SLOTS :])
    assert not any(known[:50])


def test_a_digest_knows_its_parts() -> None:
    assert receipts.digest_of(b"ab", b"c") != receipts.digest_of(b"a", b"bc")
