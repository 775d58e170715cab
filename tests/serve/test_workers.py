"""Several processes on one port, with their states in PostgreSQL."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from aru import Forecaster, Stream
from aru.errors import AruError, ConfigError
from aru.serve.house import CORRECTABLE
from aru.serve.options import Options
from aru.serve.server import Work, bind
from aru.serve.workers import serve_together
from tests import postgres
from tests.cli.running import fails
from tests.shops import both

from .test_batching import assert_same
from .test_processes import Clients, Process, post


def workers_of(parent: int) -> list[int]:
    """The worker processes of a service."""
    found = []
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
            found.append(int(child))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_workers_on_postgres_share_a_port_and_end_together(saved: Path, trained: Forecaster, postgres_url: str) -> None:
    process = Process(saved, postgres_url, "--workers", "2")
    two = workers_of(process.child.pid)
    assert len(two) == 2
    answered: set[str] = set()
    for day in range(20, 32):  # a connection each: the kernel gives them to either
        with httpx.Client(timeout=60) as client:
            assert post(client, process.url, both([day]))["applied"] == 2
            assert post(client, process.url, both([day]))["duplicates"] == 2
            assert client.get(f"{process.url}/readyz").json() == {"status": "ok"}
            answered.add(client.get(f"{process.url}/v1/series/a").json()["ds"])
    assert len(answered) == 12  # whoever answers knows the latest row
    with pytest.raises(ConfigError, match="Nothing can listen"):
        bind(Options(port=int(process.url.rpartition(":")[2])), share=False)
    os.kill(two[0], signal.SIGKILL)
    until = time.monotonic() + 60
    while len(set(workers_of(process.child.pid)) - {two[0]}) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert "another one starts" in process.end(signal.SIGTERM)
    assert not any(map(alive, two))
    expected = Stream(trained, correctable_steps=CORRECTABLE)
    for day in range(20, 32):
        expected.update(both([day]))
    with Stream(saved, postgres_url) as stream:
        assert_same(stream, expected)


@pytest.mark.slow
def test_workers_on_postgres_end_when_their_parent_is_killed(saved: Path, postgres_url: str) -> None:
    process = Process(saved, postgres_url, "--workers", "2")
    two = workers_of(process.child.pid)
    process.child.kill()
    process.child.communicate()
    until = time.monotonic() + 30
    while any(map(alive, two)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, two))


def test_several_workers_need_a_database(saved: Path, tmp_path: Path) -> None:
    message = fails("serve", saved, "--state", tmp_path / "state.db", "--workers", "2")
    assert "--workers processes write at the same time, and a SQLite file has one writer" in message
    assert "postgresql://" in message
    assert "--workers must be a whole number of at least 1" in fails("serve", saved, "--state", "x", "--workers", "0")
    assert not (tmp_path / "state.db").exists()


def test_workers_on_postgres_say_why_they_cannot_start(saved: Path, tmp_path: Path, postgres_url: str) -> None:
    """The command says it, not a traceback of a child."""
    nowhere = f"postgresql://me:s3cret@/shop?host={tmp_path}"
    message = fails("serve", saved, "--state", nowhere, "--workers", "2", "--port", "0")
    assert f"postgresql://me@/shop?host={tmp_path} cannot be reached" in message
    assert "s3cret" not in message
    assert multiprocessing.active_children() == []
    assert "does not exist" in fails("serve", tmp_path / "no", "--state", postgres_url, "--workers", "2", "--port", "0")
    options = Options(host="::2", tokens={"a" * 16: "admin"}, workers=2)
    with pytest.raises(AruError, match="Nothing can listen"):
        serve_together(Work({"model": Forecaster}, postgres_url, options))


@pytest.mark.slow
def test_postgres_and_workers_killed_again_and_again_nothing_is_lost_or_counted_twice(
    saved: Path, trained: Forecaster, postgres_server: postgres.Server, kills: int
) -> None:
    """Two kills of a worker for each of `kills`, and one of the database for every second one, under load."""
    assert kill_workers(saved, trained, postgres_server, 2 * kills, kills // 2) == 24 * 8 * (2 * kills + kills // 2)


def kill_workers(saved: Path, trained: Forecaster, server: postgres.Server, workers: int, databases: int) -> int:
    """Kill workers of a service and its database, and return the number of rows that were sent and found."""
    state, rng = postgres.new_url(server), random.Random(1)
    process = Process(saved, state, "--workers", "2")
    log = threading.Thread(target=process.child.communicate)  # reads it, or the service would wait
    log.start()
    victims = ["worker"] * workers + ["database"] * databases
    rng.shuffle(victims)
    clients = Clients(process.url, 8 * len(victims))
    for until, victim in zip(clients.moments(len(victims)), victims, strict=True):
        clients.wait_for(until)
        if victim == "database":
            server.kill()
            server.start()
        else:
            while not (alive_ones := [pid for pid in workers_of(process.child.pid) if alive(pid)]):
                time.sleep(0.01)
            os.kill(rng.choice(alive_ones), signal.SIGKILL)
    clients.finish()
    process.child.send_signal(signal.SIGTERM)
    log.join(60)
    return clients.check(saved, trained, state)
