"""The service as a process of its own: started, killed, stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.serve.house import CORRECTABLE
from tests.making import make
from tests.shops import BASE, COVARIATES, STATIC, TRAINED, both, rows

from .conftest import as_json
from .test_batching import assert_same

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """`aru serve` on a free port."""

    def __init__(self, model: Path, state: str | Path, *options: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "aru.cli", "serve", model, "--state", state, "--port", "0", "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        )
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, self.child.communicate()[1]
        self.url = json.loads(line)["address"]

    def end(self, how: int) -> str:
        """Send a signal, wait, and return what was logged."""
        self.child.send_signal(how)
        _, err = self.child.communicate(timeout=60)
        return err


def post(client: httpx.Client, url: str, frame: pd.DataFrame) -> dict[str, Any]:
    answer = client.post(f"{url}/v1/observations", json={"observations": as_json(frame)})
    answer.raise_for_status()
    report: dict[str, Any] = answer.json()
    return report


def test_a_process_serves_and_stops_when_asked_to(saved: Path, trained: Forecaster, tmp_path: Path) -> None:
    process = Process(saved, tmp_path / "state.db")
    assert process.url.startswith("http://127.0.0.1:")
    with httpx.Client(timeout=60) as client:
        assert post(client, process.url, both([20]))["applied"] == 2
        assert client.get(f"{process.url}/readyz").json() == {"status": "ok"}
    logged = [json.loads(line) for line in process.end(signal.SIGTERM).splitlines()]
    assert [(line["logger"], line["method"], line["path"], line["status"]) for line in logged] == [
        ("aru.access", "POST", "/v1/observations", 200),
        ("aru.access", "GET", "/readyz", 200),
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.db", "state.db.monitor"]  # logs are merged
    expected = Stream(trained, correctable_steps=CORRECTABLE)
    expected.update(both([20]))
    with Stream(saved, tmp_path / "state.db") as stream:
        assert_same(stream, expected)


WARM = """
import sys

import numpy as np
import onnxruntime

from aru import Stream
from aru.nn import kernels
from aru.serve.asked import ForecastRequest, UpdateRequest
from aru.serve.service import Service
from tests.shops import STATIC, both


def late(*_, **__):
    raise AssertionError("a network is loaded after the service was ready")


services = [Service(Stream(path, f"{path}.db"), monitor=True) for path in sys.argv[1:]]
compiled = [kernels._solve, kernels._absorb]
ready = [function.signatures for function in compiled]
assert all(ready), "the solve is not compiled when the service is ready"
onnxruntime.InferenceSession = late
for service in services:
    for day in range(20, 31):
        frame = both([day], "abn" if day > 25 else "ab")
        rows = {name: frame[name].to_numpy() for name in ("unique_id", "ds", "y", "promo", "temp")}
        static = {name: STATIC[name].to_numpy(object) for name in ("unique_id", "kind")}
        ids = frame["unique_id"].unique().tolist()
        (report,) = service.update([UpdateRequest(rows, ids, static, "raise", False, bytes([day]) * 16)])
        assert report["applied"] == len(frame), report
        service.watch()
    futr = both([31, 32, 33])
    columns = {name: futr[name].to_numpy() for name in ("unique_id", "ds", "promo")}
    (made,) = service.forecast([ForecastRequest(["a", "b"], columns, (80,))])
    assert np.isfinite(made.columns["aru"]).all()
    assert service.watched("a")["accuracy"]["observations"] == 9
    assert b"aru_errors_total 0.0" in service.metrics.render()
assert [function.signatures for function in compiled] == ready, "compiled after the service was ready"
"""


def test_nothing_is_compiled_or_loaded_once_the_service_is_ready(rich: Forecaster, tmp_path: Path) -> None:
    """In a process of its own, in which no other test has compiled anything."""
    followed = make(**BASE, **COVARIATES, gate=True, calibration="online").fit(both(range(TRAINED)), STATIC)
    for name, model in (("plain", rich), ("followed", followed)):
        model.save(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", WARM, tmp_path / "plain", tmp_path / "followed"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_killed_again_and_again_nothing_is_lost_or_counted_twice(
    saved: Path, trained: Forecaster, state: str | Path, kills: int
) -> None:
    """Clients resend what was not acknowledged, to whichever process is there."""
    assert kill_services(saved, trained, state, kills) == 24 * 8 * kills


def kill_services(saved: Path, trained: Forecaster, state: str | Path, kills: int) -> int:
    """Kill one service after the other, and return the number of rows that were sent and found."""
    process = Process(saved, state)
    clients = Clients(process.url, 8 * kills)
    for until in clients.moments(kills):
        clients.wait_for(until)
        process.end(signal.SIGKILL)
        process = Process(saved, state)
        clients.url = process.url
    clients.finish()
    process.end(signal.SIGTERM)
    return clients.check(saved, trained, state)


class Clients:
    """Clients that send rows of their own series, day by day, and again whatever was not acknowledged."""

    def __init__(self, url: str, days: int, count: int = 12) -> None:
        self.url, self._days, self._count = url, range(20, 20 + days), count
        self.resent, self._acknowledged, self.failed = [0] * count, [0] * count, list[str]()
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._client, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def moments(self, kills: int) -> list[float]:
        """After how many acknowledged requests to kill: spread over the work, so that every one comes under load."""
        rng = random.Random(0)
        return [self._count * len(self._days) * (kill + rng.random()) / kills for kill in range(kills)]

    def wait_for(self, acknowledged: float) -> None:
        while sum(self._acknowledged) < acknowledged and not self.failed:
            time.sleep(0.001)

    def finish(self) -> None:
        """Wait until all is sent."""
        for thread in self._threads:
            thread.join(600)
        self._done.set()

    def check(self, saved: Path, trained: Forecaster, state: str | Path) -> int:
        """The store has every row once. Returns the number of rows."""
        assert self.failed == []
        assert sum(self.resent) > 0
        expected = Stream(trained, correctable_steps=CORRECTABLE)
        names = [f"own-{n}" for n in range(self._count)] + [f"pair-{n // 2}-{n % 2}" for n in range(self._count)]
        for day in self._days:
            expected.update(pd.concat([rows(name, [day]) for name in names]))
        with Stream(saved, state) as stream:
            assert_same(stream, expected)
        return len(names) * len(self._days)

    def _client(self, number: int) -> None:
        mine = httpx.Client(timeout=60)
        for day in self._days:
            frame = pd.concat([rows(f"own-{number}", [day]), rows(f"pair-{number // 2}-{number % 2}", [day])])
            while not self._done.is_set():
                try:
                    report = post(mine, self.url, frame)
                except (httpx.HTTPError, ValueError) as error:
                    if isinstance(error, httpx.HTTPStatusError) and error.response.status_code != 503:
                        self.failed.append(error.response.text)
                        return
                    self.resent[number] += 1
                    time.sleep(0.05)
                    continue
                if report["applied"] + report["duplicates"] != 2 or report["applied"] == 1:
                    self.failed.append(str(report))  # both rows of a request or none
                self._acknowledged[number] += 1
                break
        mine.close()
