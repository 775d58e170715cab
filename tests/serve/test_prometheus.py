"""Alert rules: checked and tested by promtool, and a real Prometheus that scrapes a service."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aru import Forecaster
from tests.shops import both

from .conftest import Serve

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "aru-rules.yml"
TOKEN = "a-token-to-read-with"


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install prometheus")
    return found


def promtool(*arguments: str | Path, **more: Any) -> str:
    done = subprocess.run([program("promtool"), *map(str, arguments)], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def scrape(running: Any) -> str:
    answer = running.client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    text: str = answer.text
    return text


def test_prometheus_rules_name_metrics_that_there_are(serve: Serve, trained: Forecaster) -> None:
    text = scrape(serve(trained, tokens={TOKEN: "read"}))
    known = set(re.findall(r"^# TYPE (\w+) \w+$", text, flags=re.MULTILINE))
    known |= {f"{name}_bucket" for name in known}
    rules = re.findall(r"expr: (.*?)\n        for:", RULES.read_text(), flags=re.DOTALL)
    used = set(re.findall(r"\baru_\w+", " ".join(rules)))
    assert len(used) > 10
    assert used <= known
    labels = set(re.findall(r"\$labels\.(\w+)", RULES.read_text()))
    assert labels <= {"instance", "model", "version", "route"}


@pytest.mark.slow
def test_prometheus_rules_are_right(serve: Serve, trained: Forecaster) -> None:
    assert "13 rules found" in promtool("check", "rules", RULES)
    assert "SUCCESS" in promtool("test", "rules", "aru-rules-test.yml", cwd=RULES.parent)
    promtool("check", "config", "--syntax-only", RULES.with_name("prometheus.yml"))
    named = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    tested = RULES.with_name("aru-rules-test.yml").read_text()
    for alert in named:  # each is tested when it fires and when it does not
        assert len(re.findall(rf"alertname: {alert}\b", tested)) >= 2, alert
    running = serve(trained, tokens={TOKEN: "read"})
    running.client.get("/v1/series", headers={"authorization": f"Bearer {TOKEN}"})
    promtool("check", "metrics", input=scrape(running))


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[int], httpx.Client]]:
    """Starts a Prometheus with the rules and the configuration of deploy/, only faster; returns a client of it."""
    with contextlib.ExitStack() as stack:

        def start(port: int) -> httpx.Client:
            shutil.copy(RULES, tmp_path)
            (tmp_path / "token").write_text(TOKEN)
            text = RULES.with_name("prometheus.yml").read_text()
            own = {
                "15s": "1s",
                "/etc/prometheus/aru-token": str(tmp_path / "token"),
                "127.0.0.1:8000": f"127.0.0.1:{port}",
            }
            for old, new in own.items():
                assert old in text
                text = text.replace(old, new)
            (tmp_path / "prometheus.yml").write_text(text)
            with socket.create_server(("127.0.0.1", 0)) as free:
                place = f"127.0.0.1:{free.getsockname()[1]}"
            files = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
            command = [program("prometheus"), *files, f"--web.listen-address={place}"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return stack.enter_context(httpx.Client(base_url=f"http://{place}/api/v1"))

        yield start


def eventually(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, IndexError):
            if found := true():
                return found
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.slow
def test_prometheus_scrapes_a_service_and_alerts(
    serve: Serve, trained: Forecaster, tmp_path: Path, prometheus: Callable[[int], httpx.Client]
) -> None:
    running = serve(trained, tmp_path / "state.db", tokens={TOKEN: "admin"}, keep=86400.0)
    running.client.headers["authorization"] = f"Bearer {TOKEN}"
    for day in range(20, 26):
        assert running.post(both([day])).status_code == 200
    assert running.post(both([21])).status_code in (200, 409)
    asked = prometheus(int(running.url.rpartition(":")[2]))

    def value(query: str) -> float:
        found = asked.get("/query", params={"query": query}).json()["data"]["result"]
        return float(found[0]["value"][1])

    assert eventually(lambda: value('up{job="aru"}')) == 1
    assert value('aru_rows_total{outcome="applied",model="model"}') == 12
    assert value('aru_series{model="model"}') == 2
    assert value("aru_ready") == 1
    assert value("aru_kept_bytes") > 0
    assert value("sum(aru_http_request_seconds_count)") > 6

    def evaluated() -> Any:
        groups = asked.get("/rules").json()["data"]["groups"]
        return [group for group in groups if all(rule["health"] == "ok" for rule in group["rules"])]

    groups = eventually(evaluated)
    assert {rule["name"] for group in groups for rule in group["rules"]} == set(
        re.findall(r"alert: (\w+)", RULES.read_text())
    )
    assert {rule["state"] for group in groups for rule in group["rules"]} == {"inactive"}
    running.stop()

    def down() -> Any:
        alerts = asked.get("/alerts").json()["data"]["alerts"]
        return [alert for alert in alerts if alert["labels"]["alertname"] == "AruDown"]

    (alert,) = eventually(down)
    assert alert["state"] in ("pending", "firing")
    assert alert["annotations"]["summary"].endswith("does not answer")
