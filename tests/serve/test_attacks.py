"""Clients that mean harm: what they send is refused, and the memory of the process hardly grows.

One process serves all of them. Memory is the peak of its resident set, which Linux counts anew when asked to.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from aru import Forecaster
from aru.serve.tables import ARROW, JSON
from tests.shops import both

from .conftest import as_json, error_of

MB = 2**20
MAX_BYTES, IDLE, WHOLE, CONNECTIONS = 4 * MB, 2.0, 5.0, 100
TOKEN = "a-long-and-secret-token"
ALLOWED = {"authorization": f"Bearer {TOKEN}"}
ROOT = Path(__file__).resolve().parents[2]
SERVE = f"""
import sys
from pathlib import Path
from aru import Forecaster
from aru.serve.options import Options
from aru.serve.server import Work, serve
options = Options(port=0, tokens={{{TOKEN!r}: "admin"}}, max_bytes={MAX_BYTES}, idle_seconds={IDLE},
                  request_seconds={WHOLE}, max_connections={CONNECTIONS})
load = lambda: Forecaster.load(sys.argv[1])
serve(Work({{"model": load}}, Path(sys.argv[2]), options), started=lambda address: print(address, flush=True))
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux measures the memory")


class Victim:
    """A process that serves."""

    def __init__(self, model: Path, state: Path) -> None:
        self.log = state.with_name("log").open("w+")
        self.child = subprocess.Popen(
            [sys.executable, "-c", SERVE, model, state],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        )
        assert self.child.stdout is not None
        self.url = self.child.stdout.readline().strip()
        self.port = int(self.url.rpartition(":")[2])
        self.client = httpx.Client(base_url=self.url, timeout=60, headers=ALLOWED)

    def post(self, path: str, body: bytes, content: str = JSON) -> httpx.Response:
        return self.client.post(path, content=body, headers={"content-type": content})

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.settimeout(60)
        return connection

    def status(self, name: str) -> int:
        lines = Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])

    def sockets(self) -> int:
        """Open ones."""
        targets = []
        for descriptor in Path(f"/proc/{self.child.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                targets.append(os.readlink(descriptor))
        return sum(target.startswith("socket") for target in targets)

    @contextlib.contextmanager
    def growing_at_most(self, allowed: int) -> Iterator[None]:
        """The peak of the memory while the context lasts, above what was there before."""
        Path(f"/proc/{self.child.pid}/clear_refs").write_text("5")
        before = self.status("VmRSS")
        yield
        assert self.client.get("/healthz").status_code == 200
        assert self.status("VmHWM") - before <= allowed

    def stop(self) -> None:
        self.client.close()
        self.child.terminate()
        self.child.communicate(timeout=60)
        self.log.close()


@pytest.fixture(scope="module")
def victim(rich: Forecaster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("victim")
    rich.save(folder / "model")
    started = Victim(folder / "model", folder / "state.db")
    try:
        started.post("/v1/forecasts", json.dumps({"futr": future("x")}).encode())  # what is loaded once
        started.post("/v1/observations", b'{"observations":[{}]}')
        yield started
    finally:
        started.stop()


def future(promo: str) -> list[dict[str, Any]]:
    return [{**row, "promo": promo} for row in as_json(both([20, 21, 22], "a"), "unique_id", "ds")]


def stream_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def until_closed(connection: socket.socket) -> bytes:
    """All that the service says before it closes the connection."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(2**16):
            said += part
    return said


# Bodies


def test_rows_that_are_nothing(victim: Victim) -> None:
    with victim.growing_at_most(64 * MB):
        answer = victim.post("/v1/observations", b'{"observations":[%s]}' % b",".join([b"{}"] * 350_000))
        error_of(answer, 413, "SizeError")
    with victim.growing_at_most(128 * MB):
        answer = victim.post("/v1/observations", b'{"observations":[%s]}' % b",".join([b"{}"] * 90_000))
        rows = error_of(answer, 422, "SchemaError")["rows"]
    places = [f"observations.{place}" for place in ("0.unique_id", "0.ds", "0.y", "1.unique_id")]
    assert [row["where"] for row in rows[:4]] == places
    assert len(rows) == 20


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/forecasts", b'{"unique_ids":[%s]}' % b",".join([b"0"] * 2_000_000)),
        ("/v1/forecasts", b'{"unique_ids":[%s]}' % b",".join([b"null"] * 600_000)),
        ("/v1/forecasts", b'{"futr":[%s]}' % b",".join([b"[]"] * 1_300_000)),
        ("/v1/observations", b'{"observations":[%s]}' % (b"[" * 3_000_000)),
        ("/v1/observations", b"{%s}" % b",".join(b'"%x":0' % i for i in range(350_000))),
    ],
    ids=["numbers", "nulls", "lists", "brackets", "fields"],
)
def test_values_that_are_nothing(victim: Victim, path: str, body: bytes) -> None:
    with victim.growing_at_most(256 * MB):
        answer = victim.post(path, body)
    unknown = path == "/v1/forecasts" and b"unique_ids" in body[:20]  # there is no such series
    assert answer.status_code in ((404, 413, 422) if unknown else (413, 422))
    assert len(answer.content) < 10_000


@pytest.mark.parametrize("kind", ["dictionary", "view", "dictionary of views"])
def test_text_that_expands(victim: Victim, kind: str) -> None:
    """Each row of a few bytes names the same long text."""
    n, text = 90_000, "x" * 40_000
    views = pa.array([text], pa.string_view())
    if kind == "view":
        _, view, characters = views.buffers()
        words = pa.Array.from_buffers(pa.string_view(), n, [None, pa.py_buffer(view.to_pybytes() * n), characters])
    else:
        values = views if "views" in kind else pa.array([text])
        words = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), values)
    table = pa.table({"unique_id": words, "ds": pa.array([0] * n, pa.timestamp("us")), "y": pa.nulls(n, pa.float64())})
    body = stream_of(table)
    assert len(body) < MAX_BYTES
    with victim.growing_at_most(64 * MB):
        error_of(victim.post("/v1/observations", body, ARROW), 413, "SizeError")


def test_covariates_for_the_dashboard_are_bounded_by_bytes(victim: Victim) -> None:
    with victim.growing_at_most(64 * MB):
        for number in range(100):
            body = json.dumps({"futr": future(str(number) + "x" * MB)}).encode()
            error_of(victim.post("/v1/forecasts", body), 422, "ColumnError")


def test_bodies_of_many_clients(victim: Victim) -> None:
    """Each is small enough, and all of them are not."""
    head = (
        f"POST /v1/observations HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
        f"content-type: application/json\r\ncontent-length: {MAX_BYTES}\r\n\r\n"
    ).encode()
    with victim.growing_at_most(12 * MAX_BYTES), contextlib.ExitStack() as stack:
        refused = 0
        for _ in range(40):
            connection = stack.enter_context(victim.connect())
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(head + b" " * (MAX_BYTES - 1))
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                refused += b" 503 " in connection.recv(2**16)
        assert refused > 20
    time.sleep(0.2)
    assert victim.post("/v1/forecasts", json.dumps({"futr": future("x")}).encode()).status_code == 200


# Heads and connections


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /v1/series HTTP/1.1\r\nhost: localhost\r\nx-long: ",
        b"GET /v1/series?query=",
        b"POST /v1/forecasts HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n \r\n0\r\nx-long: ",
        b"POST /v1/forecasts HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1;x=",
    ],
    ids=["header", "line", "trailer", "chunk"],
)
def test_heads_without_an_end(victim: Victim, begin: bytes) -> None:
    """300 MB of them, before any token was seen; the service hangs up long before."""
    with victim.growing_at_most(32 * MB), victim.connect() as connection:
        sent = 0
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(begin)
            while sent < 300 * MB:
                sent += connection.send(b"a" * MB)
        assert sent < 20 * MB


def test_a_large_head_is_named(victim: Victim) -> None:
    with victim.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: %s\r\n\r\n" % (b"a" * 2**14))
        said = until_closed(connection)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["type"] == "SizeError"


def test_many_requests_at_once_on_one_connection(victim: Victim) -> None:
    """They are refused before they all wait for their turn."""
    with victim.growing_at_most(32 * MB), victim.connect() as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\n\r\n" * 9000)  # what one read of a socket holds
        answers = 0
        with contextlib.suppress(ConnectionResetError):
            while (part := connection.recv(2**16)) and answers < 1000:
                answers += part.count(b"HTTP/1.1")
    assert answers < 100


def test_half_a_request_is_not_waited_for(victim: Victim) -> None:
    """More connections than are allowed, each with half a request: some are refused, and none lives for ever."""
    with victim.growing_at_most(64 * MB), contextlib.ExitStack() as stack:
        halves = [stack.enter_context(victim.connect()) for _ in range(CONNECTIONS + 50)]
        for half in halves:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                half.sendall(b"GET /healthz HTTP/1.1\r\nhost: local")
        said = [until_closed(half) for half in halves]
    statuses = [answer[9:12] for answer in said]
    assert statuses.count(b"408") >= CONNECTIONS - 10
    assert 0 < len([s for s in statuses if s in (b"503", b"")]) <= 60


def test_a_request_may_not_trickle(victim: Victim) -> None:
    with victim.connect() as connection:
        connection.sendall(
            f"POST /v1/forecasts HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
            f"content-length: {MAX_BYTES}\r\ncontent-type: application/json\r\n\r\n".encode()
        )
        connection.settimeout(0.2)
        said, until = b"", time.monotonic() + 60
        while not said and time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                connection.sendall(b" ")
                said = connection.recv(2**16)
        assert said.startswith(b"HTTP/1.1 408 ")


def test_an_answer_that_is_not_taken_is_given_up(victim: Victim) -> None:
    """Answers larger than the system's buffers, to clients that read nothing of them."""
    names, level = [f"many-{i}" for i in range(2000)], list(range(5, 100, 5))
    row = as_json(both([20], "a"), "ds", "y", "promo", "temp")[0]
    rows, kinds = [{"unique_id": name, **row} for name in names], [{"unique_id": name, "kind": "x"} for name in names]
    assert victim.client.post("/v1/observations", json={"observations": rows, "static": kinds}).status_code == 200
    ahead = as_json(both([21, 22, 23], "a"), "ds", "promo")
    futr = [{"unique_id": name, **step} for name in names for step in ahead]
    body = json.dumps({"futr": futr, "level": level}).encode()
    before = victim.sockets()
    with victim.growing_at_most(512 * MB), contextlib.ExitStack() as stack:
        for _ in range(6):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", victim.port))
            connection.sendall(
                f"POST /v1/forecasts HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
                f"content-length: {len(body)}\r\ncontent-type: application/json\r\n\r\n".encode()
            )
            connection.sendall(body)
        time.sleep(2 * IDLE)  # so that all were accepted
        until = time.monotonic() + 60
        while victim.sockets() > before and time.monotonic() < until:
            time.sleep(0.2)
        assert victim.sockets() <= before


def test_the_log_has_no_failure_of_our_own(victim: Victim) -> None:
    """After all of this; requests themselves are lines of their own."""
    assert "aru_errors_total 0.0" in victim.client.get("/metrics").text
    victim.log.flush()
    lines = Path(victim.log.name).read_text().splitlines()
    expected = ("aru.access", "Invalid HTTP request", "AruWarning: ")
    assert [line for line in lines if not any(part in line for part in expected)] == []
