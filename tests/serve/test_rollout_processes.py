"""Versions of a model while processes are killed, and with several processes: nothing is lost or answered twice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from aru import Forecaster, Stream
from aru.serve.bundles import pack_folder
from aru.serve.house import CORRECTABLE
from aru.store.address import beside
from tests.making import make
from tests.shops import BASE, TRAINED, H, both

from .test_batching import assert_same
from .test_processes import Clients, Process, post
from .test_workers import alive, workers_of

KEEP = ("--keep", "400d")
MODEL = "/v1/models/model"


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("second") / "model-2"
    make(**{**BASE, "h": H + 1, "random_seed": 5}).fit(both(range(TRAINED))).save(path)
    return path


def report(url: str) -> dict[str, Any]:
    answer = httpx.get(url + MODEL, timeout=60)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def challenge(url: str, folder: Path) -> httpx.Response:
    return httpx.put(
        url + MODEL, content=pack_folder(folder), headers={"content-type": "application/x-tar"}, timeout=60
    )


def settled(found: dict[str, Any]) -> bool:
    return all(v["status"] != "building" and v["behind"] == 0 for v in found["versions"][1:])


def wait_for(url: str, seconds: float = 60.0) -> dict[str, Any]:
    """Wait until the versions have caught up, while requests come in: as far as that is possible."""
    end, found = time.monotonic() + seconds, None
    while time.monotonic() < end:
        with contextlib.suppress(httpx.HTTPError):
            found = report(url)
            if settled(found):
                return found
        time.sleep(0.1)
    raise AssertionError(found)


def next_step(url: str, folder: Path) -> None:
    """Do what can be done next: challenge, promote, roll back."""
    with contextlib.suppress(httpx.HTTPError):
        found = report(url)
        roles = {v["role"]: v for v in found["versions"]}
        if "challenger" in roles:
            httpx.post(f"{url}{MODEL}/promote", json={"version": roles["challenger"]["version"]}, timeout=60)
        elif "former" in roles:
            httpx.post(f"{url}{MODEL}/rollback", json={"version": roles["former"]["version"]}, timeout=60)
        else:
            challenge(url, folder)


@pytest.mark.slow
def test_killed_while_it_shadows_and_is_promoted_nothing_is_lost_or_counted_twice(
    saved: Path, trained: Forecaster, second: Path, state: str | Path, kills: int
) -> None:
    """Services on a file; on PostgreSQL one of two workers each time."""
    sent = kill_rollouts(saved, trained, second, state, max(4, kills // 2))
    assert sent == 24 * 12 * max(4, kills // 2)


def kill_rollouts(saved: Path, trained: Forecaster, second: Path, state: str | Path, kills: int) -> int:
    """Kill processes in the middle of all steps, and return the number of rows that were sent and found."""
    rng, together = random.Random(2), isinstance(state, str)
    options = (*KEEP, "--workers", "2") if together else KEEP
    process = Process(saved, state, *options)
    log = threading.Thread(target=process.child.communicate) if together else None
    if log is not None:
        log.start()  # reads it, or the service would wait
    clients = Clients(process.url, 12 * kills)
    for round_, until in enumerate(clients.moments(kills)):
        clients.wait_for(until)
        if round_ % 2:
            with contextlib.suppress(AssertionError):
                wait_for(process.url, 20)
        step = threading.Thread(target=next_step, args=(process.url, second))
        step.start()
        time.sleep(rng.random() * 0.5)
        if together:
            while not (there := [pid for pid in workers_of(process.child.pid) if alive(pid)]):
                time.sleep(0.01)
            os.kill(rng.choice(there), signal.SIGKILL)
        else:
            process.end(signal.SIGKILL)
            process = Process(saved, state, *options)
            clients.url = process.url
        step.join(60)
    while wait_for(process.url)["versions"][0]["version"] != 2:
        next_step(process.url, second)
    clients.finish()
    found = wait_for(process.url)
    assert [v["refused_rows"] for v in found["versions"]] == [None, 0]
    process.child.send_signal(signal.SIGTERM)
    if log is not None:
        log.join(60)
    else:
        process.child.communicate(timeout=60)
    clients.check(saved, trained, state)
    return clients.check(second, Forecaster.load(second), beside(state, "2"))


@pytest.mark.slow
def test_a_version_that_is_promoted_in_postgres_answers_in_all_workers(
    saved: Path, second: Path, postgres_url: str
) -> None:
    process = Process(saved, postgres_url, "--workers", "2", *KEEP)
    log = threading.Thread(target=process.child.communicate)
    log.start()
    url, model = process.url, Forecaster.load(second)
    try:
        for day in range(20, 26):
            with httpx.Client(timeout=60) as client:
                post(client, url, both([day]))
        assert challenge(url, second).status_code == 200
        wait_for(url)
        expected = Stream(model, correctable_steps=CORRECTABLE)
        expected.update(both(range(20, 26)))
        for path, version, steps in (("promote", 2, H + 1), ("rollback", 1, H), ("rollback", 2, H + 1)):
            assert httpx.post(f"{url}{MODEL}/{path}", json={"version": version}, timeout=60).status_code == 200
            for _ in range(8):  # a connection each: the kernel gives them to either
                made = httpx.post(f"{url}/v1/forecasts", json={"unique_ids": ["a"]}, timeout=60).json()["forecasts"]
                assert len(made) == steps
        for day in range(26, 34):
            with httpx.Client(timeout=60) as client:
                assert post(client, url, both([day]))["applied"] == 2
                assert post(client, url, both([day]))["duplicates"] == 2
        expected.update(both(range(26, 34)))
        metrics = [httpx.get(f"{url}/metrics", timeout=60).text for _ in range(6)]
        assert all('aru_rows_total{model="model",outcome="applied"} 28.0' in text for text in metrics)
        assert all('role="champion"' in text and 'aru_series{model="model"} 2.0' in text for text in metrics)
        fleets = [httpx.get(f"{url}/v1/monitor/fleet", timeout=60).json() for _ in range(6)]
        assert len({fleet["accuracy"]["observations"] for fleet in fleets}) == 1  # they share a monitor
        wait_for(url)
    finally:
        process.child.send_signal(signal.SIGTERM)
        log.join(60)
    with Stream(model, beside(postgres_url, "2")) as stream:
        assert_same(stream, expected)
