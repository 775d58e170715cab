"""What used to be a failure of the service: odd ids and cursors, clients that hang up, full disks, damaged files."""

from __future__ import annotations

import base64
import json
import logging
import random
import re
import resource
import signal
import socket
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.errors import UnknownSeriesError
from aru.serve.logs import LogBudget, LogJson, LogText
from tests.making import make
from tests.postgres import Server
from tests.shops import BASE, H, both, rows

from .conftest import Running, Serve, as_json, error_of
from .test_processes import Process

# Ids


@pytest.fixture(scope="module")
def counted() -> Forecaster:
    """A model whose series and times are integers."""
    frame = pd.DataFrame({"unique_id": np.repeat([3, 10], 12), "ds": [*range(12)] * 2, "y": np.arange(24.0)})
    return make(**{**BASE, "freq": 1}).fit(frame)


def test_ids_of_another_type_are_not_known(serve: Serve, counted: Forecaster, trained: Forecaster) -> None:
    for model, odd in ((counted, "a"), (counted, "3"), (trained, 3)):
        running = serve(model)
        error = error_of(running.client.post("/v1/forecasts", json={"unique_ids": [odd]}), 404, "UnknownSeriesError")
        assert error["rows"] == [{"unique_id": odd}]
        with pytest.raises(UnknownSeriesError):
            running.stream.predict(ids=[odd])
    for path in ("/v1/series/a", "/v1/monitor/series/a"):
        error_of(serve(counted).client.get(path), 404, "UnknownSeriesError")


@pytest.mark.parametrize("name", ["two\nlines", "\n", "a\n", "\r\n\t", "a/b\n", "%0A", "‮", "x" * 500])
def test_an_id_of_any_characters_can_be_read_and_deleted(serve: Serve, trained: Forecaster, name: str) -> None:
    running = serve(trained)
    assert running.post(rows("q", [20]).assign(unique_id=name)).json()["new_series"] == [name]
    path = f"{running.url}/v1/series/" + "".join(f"%{byte:02X}" for byte in name.encode())
    assert running.client.get(path).json()["unique_id"] == name
    assert running.client.get(path.replace("/v1/", "/v1/monitor/")).json()["unique_id"] == name
    assert running.client.delete(path).json() == {"forgotten": name}
    error_of(running.client.get(path), 404, "UnknownSeriesError")


def test_cursors_that_are_none(serve: Serve, trained: Forecaster, counted: Forecaster) -> None:
    for running, wrong in ((serve(trained), b"3"), (serve(counted), b'"a"')):
        for text in (b"[" * 5000, b"[" * 2000 + b"]" * 2000, b"true", b"null", b"1.5", b"\xff", b"9" * 5000, wrong):
            cursor = base64.urlsafe_b64encode(text).decode()
            error_of(running.client.get("/v1/series", params={"cursor": cursor}), 422, "InputError")
        page = running.client.get("/v1/series", params={"limit": 1}).json()
        assert len(running.client.get("/v1/series", params={"cursor": page["next_cursor"]}).json()["series"]) == 1


# Clients and disks


def test_a_client_that_hangs_up_is_no_failure(
    serve: Serve, trained: Forecaster, caplog: pytest.LogCaptureFixture
) -> None:
    running = serve(trained)
    port = int(running.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            b"POST /v1/observations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: 100\r\n\r\n{"
        )
        time.sleep(0.2)
    hung_up = 'aru_http_requests_total{method="POST",route="/v1/observations",status="499"} 1.0'
    until = time.monotonic() + 30
    while hung_up not in (text := running.client.get("/metrics").text) and time.monotonic() < until:
        time.sleep(0.05)
    assert hung_up in text
    assert "aru_errors_total 0.0" in text
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def becomes(client: httpx.Client, status: int) -> Any:
    """What /readyz says once it answers so."""
    until = time.monotonic() + 30
    while (answer := client.get("/readyz")).status_code != status and time.monotonic() < until:
        time.sleep(0.1)
    return answer.json()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits the files of another process")
def test_it_is_not_ready_while_the_disk_is_full(saved: Path, tmp_path: Path) -> None:
    process = Process(saved, tmp_path / "state.db")
    with httpx.Client(base_url=process.url, timeout=60) as client:
        assert becomes(client, 200) == {"status": "ok"}
        _, hard = resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE, (2**12, hard))
        assert becomes(client, 503) == {"status": "unwritable"}
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/observations", json={"observations": as_json(both([20]))}).status_code == 503
        resource.prlimit(process.child.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert becomes(client, 200) == {"status": "ok"}
        answer = client.post("/v1/observations", json={"observations": as_json(both([20]))})
        assert answer.json()["applied"] == 2
    log = process.end(signal.SIGTERM)
    assert re.search(f"not ready: {tmp_path} cannot be written .*File too large", log), log
    assert log.count("not ready: ") == log.count("ready again: ") == 1


@pytest.mark.slow
def test_it_is_not_ready_while_postgres_is_down(saved: Path, postgres_server: Server, postgres_url: str) -> None:
    process = Process(saved, postgres_url)
    with httpx.Client(base_url=process.url, timeout=60) as client:
        assert becomes(client, 200) == {"status": "ok"}
        postgres_server.kill()
        try:
            assert becomes(client, 503) == {"status": "unwritable"}
            assert client.get("/healthz").status_code == 200
            assert [line for line in client.get("/metrics").text.splitlines() if re.match("aru_ready.* 0.0$", line)]
        finally:
            postgres_server.start()
        assert becomes(client, 200) == {"status": "ok"}
        answer = client.post("/v1/observations", json={"observations": as_json(both([20]))})
        assert answer.json()["applied"] == 2
    log = process.end(signal.SIGTERM)
    assert "cannot be reached" in log[log.index("not ready: ") :].splitlines()[0]
    assert log.count("not ready: ") == log.count("ready again: ") == 1


# The monitor's file

ASKED = ("/v1/monitor/fleet", "/v1/monitor/series/a", "/v1/series", "/v1/series/a", "/metrics", "/readyz")


def use(running: Running, day: int) -> list[int]:
    """All that meets the monitor."""
    statuses = [running.post(both([day])).status_code]
    return statuses + [running.client.get(path).status_code for path in ASKED]


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_monitor_costs_the_monitor_alone(
    serve: Serve, trained: Forecaster, tmp_path: Path, seed: int
) -> None:
    state, rng = tmp_path / "state.db", random.Random(seed)
    running = serve(trained, state)
    for day in range(20, 20 + 3 * H):
        running.post(both([day]))
    running.stop()
    path = state.with_name("state.db.monitor")
    data = bytearray(path.read_bytes())
    if seed == 0:
        data = bytearray(b"no database at all" * 1000)
    elif seed == 1:
        data = data[: len(data) // 2]
    else:
        for _ in range(60):
            at = rng.randrange(100 if seed < 5 else 0, len(data))
            data[at : at + 8] = rng.randbytes(min(8, len(data) - at))
    path.write_bytes(data)
    again = serve(trained, state)
    for day in range(20 + 3 * H, 20 + 6 * H):
        assert use(again, day) == [200] * (1 + len(ASKED))
    assert again.client.get("/v1/series/a").json()["observations"] == 20 + 6 * H
    assert b"no database" not in data or again.client.get("/v1/monitor/fleet").json()["monitored"] is False


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE scores SET scored = 'many', error = x'00', covered = 1e308",
        "UPDATE scores SET size = 1e-320, error = 9e999, drift = 9e999",
        "UPDATE kept SET ring = x'0102'",
        "UPDATE kept SET origin = x'0102'",
        "UPDATE scores SET id = x'ff00' WHERE id = 'a'",
        "UPDATE times SET scored = 'x', ds = -9223372036854775808 WHERE ds = (SELECT min(ds) FROM times)",
        "DROP TABLE scores",
    ],
)
def test_no_value_in_the_monitors_file_is_trusted(
    serve: Serve, trained: Forecaster, tmp_path: Path, damage: str
) -> None:
    running = serve(trained, tmp_path / "state.db")
    for day in range(20, 20 + 3 * H):
        running.post(both([day]))
    database = sqlite3.connect(tmp_path / "state.db.monitor", timeout=30)
    with database:
        database.execute(damage)
    database.close()
    for day in range(20 + 3 * H, 20 + 6 * H):
        assert use(running, day) == [200] * (1 + len(ASKED))


# Corrections


def test_corrections_reach_back_seven_steps_by_default(saved: Path, tmp_path: Path) -> None:
    """In a new store of `aru serve`; an existing one keeps its number."""

    def correct(process: Process, days: list[int]) -> dict[str, Any]:
        with httpx.Client(base_url=process.url, timeout=60) as client:
            client.post("/v1/observations", json={"observations": as_json(both(range(20, 30)))}).raise_for_status()
            wrong = as_json(rows("a", days).assign(y=1.5))
            answer = client.post("/v1/observations", json={"observations": wrong, "late": "correct"})
        process.end(signal.SIGTERM)
        found: dict[str, Any] = answer.json()
        return found

    found = correct(Process(saved, tmp_path / "state.db"), [22, 23, 29])
    assert (found["corrected"], len(found["late"])) == (2, 1)
    chosen = correct(Process(saved, tmp_path / "other.db", "--correctable-steps", "0"), [29])
    assert "correctable_steps" in chosen["error"]["message"]
    with Stream(saved, tmp_path / "other.db") as stream:
        assert stream.correctable_steps == 0
    assert correct(Process(saved, tmp_path / "other.db"), [29])["error"]["type"] == "ConfigError"


# Logs and metrics


def line(name: str, message: str, **more: Any) -> logging.LogRecord:
    record = logging.LogRecord(name, logging.INFO, "", 0, message, None, None)
    record.__dict__.update(more)
    return record


def test_one_line_of_every_request(serve: Serve, trained: Forecaster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aru.access")
    running = serve(trained)
    running.client.get("/v1/series/two%0Alines?secret=1")
    running.post(both([20]))
    running.stop()  # a line is written after the answer was sent
    records = [record for record in caplog.records if record.name == "aru.access"]
    made: list[Any] = [getattr(record, "fields") for record in records]  # noqa: B009 - no type checker knows it
    assert [(f["method"], f["path"], f["status"], f["client"]) for f in made] == [
        ("GET", "/v1/series/two%0Alines", 404, "127.0.0.1"),
        ("POST", "/v1/observations", 200, "127.0.0.1"),
    ]
    assert json.loads(LogJson().format(records[1])).items() >= made[1].items()
    assert "method=POST path=/v1/observations status=200 ms=" in LogText().format(records[1])
    assert "\n" not in LogText().format(records[0])


def test_a_traceback_counts_as_the_lines_it_has() -> None:
    budget = LogBudget(lines=10)
    try:
        raise RuntimeError("one\ntwo")
    except RuntimeError as error:
        failed = line("aru", "trouble", exc_info=(type(error), error, error.__traceback__))
    taken = [budget.filter(failed) for _ in range(10)]
    assert 1 <= sum(taken) <= 3
    assert json.loads(LogJson().format(failed))["trace"].endswith("two")


def test_metrics_say_what_happens(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)

    def value(name: str) -> float:
        lines = running.client.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).rpartition(" ")[2])

    assert "aru_drifting_share{" not in running.client.get("/metrics").text
    days = 12 * H
    for day in range(20, 20 + days):
        running.post(both([day]))
    last, following = 20 + days - 1, 20 + days
    error_of(running.post(pd.concat([rows("a", [1, 2]), rows("b", [following])])), 409, "LateError")
    odd = rows("a", [following]).assign(ds=lambda f: f["ds"] + pd.Timedelta(hours=5))
    error_of(running.post(odd), 422, "FrequencyError")
    assert len(running.post(both([last]).assign(y=0.5), late="skip").json()["late"]) == 2
    running.post(both([last]))
    running.client.post("/v1/forecasts", json={})
    outcomes = ("applied", "duplicates", "corrected", "late", "rejected")
    counts = {name: value(f'aru_rows_total{{model="model",outcome="{name}"}}') for name in outcomes}
    assert counts == {"applied": 2 * days, "duplicates": 2, "corrected": 0, "late": 4, "rejected": 2}
    assert 0 <= value('aru_rolling_coverage{level="80",model="model"}') <= 1
    assert 0 <= value('aru_drifting_share{model="model"}') <= 1
    assert value('aru_forecast_seconds_count{model="model"}') == 1
    assert value('aru_series{model="model"}') == 2
    newest = time.time() - (pd.Timestamp("2024-01-01") + pd.Timedelta(days=last)).timestamp()
    assert value('aru_newest_observation_age_seconds{model="model"}') == pytest.approx(newest, abs=60)
    version = running.stream.about.fingerprint
    labels = f'fingerprint="{version}",freq="D",h="3",method="aru",model="model",role="champion",status="serving"'
    assert value(f'aru_version_info{{{labels},version="1"}}') == 1
