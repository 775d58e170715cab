"""Who may come in, how much they may send, how much is logged."""

from __future__ import annotations

import json
import logging
import socket
import time
from typing import Any

import numpy as np
import pytest

from aru import Forecaster
from aru.errors import ConfigError
from aru.serve.fan import Fans
from aru.serve.logs import LogBudget
from aru.serve.options import Options
from tests.shops import both

from .conftest import Serve, error_of


def test_large_requests_are_refused(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained, max_rows=10, max_bytes=2000)
    error_of(running.post(both(range(20, 26))), 413, "SizeError")
    csv = both(range(20, 26))[["unique_id", "ds", "y"]].to_csv(index=False)
    error_of(
        running.client.post("/v1/observations", content=csv, headers={"content-type": "text/csv"}), 413, "SizeError"
    )

    def chunks() -> Any:
        for _ in range(100):
            yield b" " * 100

    for content in (b" " * 2001, chunks()):
        answer = running.client.post("/v1/observations", content=content, headers={"content-type": "application/json"})
        error_of(answer, 413, "SizeError")
    assert running.post(both([20])).status_code == 200


def test_a_token_is_needed(serve: Serve, trained: Forecaster) -> None:
    token = "a-long-and-secret-token"
    running = serve(trained, tokens={token: "admin"})
    for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": token}, {"authorization": "Bearer \xe9"}):
        for method, path in (
            ("GET", "/v1/series"),
            ("GET", "/metrics"),
            ("DELETE", "/v1/series/a"),
            ("POST", "/v1/forecasts"),
        ):
            answer = running.client.request(method, path, headers={k: v.encode("latin-1") for k, v in header.items()})
            error_of(answer, 401, "TokenError")
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/static/docs.js"):
        assert running.client.get(path).status_code == 200
    assert running.client.get("/v1/series", headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_other_hosts_need_a_token(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]:80"):
        assert running.client.get("/v1/series", headers={"host": host}).status_code == 400
    for host in ("localhost", "localhost:99", "127.0.0.1:8000", "[::1]:8000"):
        assert running.client.get("/v1/series", headers={"host": host}).status_code == 200
    for host in ("0.0.0.0", "192.168.1.5", "example.com", "::"):
        with pytest.raises(ConfigError, match=r"can be reached by other machines\. Give a token"):
            Options(host=host)
        Options(host=host, tokens={"a-long-and-secret-token": "read"})
    for wrong in ({"tokens": {"short": "read"}}, {"keep": -1.0}, {"max_rows": 0}, {"max_bytes": -1}, {"port": 70000}):
        with pytest.raises(ConfigError):
            Options(**wrong)


def test_logs_are_bounded() -> None:
    budget, minute = LogBudget(lines=3), [0.0]
    record = logging.LogRecord("aru", logging.ERROR, "", 0, "trouble", None, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", lambda: minute[0])
        assert [budget.filter(record) for _ in range(5)] == [True] * 3 + [False] * 2
        minute[0] = 61.0
        assert budget.filter(record)
    assert record.getMessage() == "trouble (2 earlier lines were left out)"


def test_half_a_request_is_not_waited_for(serve: Serve, trained: Forecaster) -> None:
    """Neither before its first byte, nor in its head, nor in its body; an answer that takes long is."""
    running = serve(trained, idle_seconds=0.5, request_seconds=1000.0)
    port = int(running.url.rpartition(":")[2])
    get, host = b"GET /healthz HTTP/1.1\r\n", b"host: localhost\r\n"
    post = b"POST /v1/forecasts HTTP/1.1\r\n" + host + b"content-type: text/csv\r\ncontent-length: 9\r\n\r\nuniq"
    for half in (b"", b"\r\n\r\n", get + b"host: loc", post, get + host + b"\r\n\r"):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(half)
            said = b""
            while part := connection.recv(2**16):
                said += part
        assert b"HTTP/1.1 408 " in said
    work = running.served.forecasts._work

    def slow(requests: Any) -> Any:
        time.sleep(1.5)
        return work(requests)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.served.forecasts, "_work", slow)
        assert running.client.post("/v1/forecasts", json={}).status_code == 200


def test_what_is_no_http_is_refused_like_all_else(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), timeout=60) as connection:
        connection.sendall(b"this is no http\r\n\r\n")
        said = connection.recv(2**16)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["type"] == "ProtocolError"


def test_covariates_that_are_kept_are_counted_in_bytes(rich: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aru.serve.fan.REMEMBERED", 10_000)
    fans = Fans(rich.runtime)
    for number in range(100):
        words = np.array([str(number) * 400] * 3, object)
        fans.remember([str(number)], {"unique_id": words, "ds": np.zeros(3, "M8[us]"), "promo": words})
    assert 1 <= len(fans._asked) < 10
    fans.remember(["large"], {"ds": np.zeros(10_000)})
    assert len(fans._asked) == 0
