"""The examples of docs/service.md and docs/start/service.md are sent as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

from aru import Forecaster
from tests.making import make
from tests.shops import BASE, rows

from .conftest import Running, Serve

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "service.md").read_text()
START = (DOCS / "start" / "service.md").read_text()
FIRST = (DOCS / "start" / "zero-shot.md").read_text()


def commands(page: str = PAGE) -> list[list[str]]:
    """The words of every curl command."""
    blocks = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    return [shlex.split(f"curl {part}") for block in blocks for part in re.split(r"^curl ", block, flags=re.M)[1:]]


def send(running: Running, words: list[str]) -> httpx.Response:
    """What curl would send."""
    headers, body, method, url = {}, "", "GET", ""
    options = iter(words[1:])
    for word in options:
        if word == "-H":
            name, _, value = next(options).partition(": ")
            headers[name] = value
        elif word in ("-d", "--data-binary"):
            body = next(options)
            body = Path(body[1:]).read_text() if body.startswith("@") else body
        elif word == "-X":
            method = next(options)
        else:
            url = word.replace("localhost:8000", running.url)
    return httpx.request(method, url, headers=headers, content=body)


def test_the_examples_are_what_they_say(serve: Serve) -> None:
    past = pd.concat([rows(name, range(20)) for name in ("shop-1", "shop-2")])
    past = past.assign(ds=past["ds"] + pd.Timedelta(days=224), y=past["y"] + 300)
    running = serve(make(**BASE).fit(past))
    observed, forecast, bulk, table = commands()
    answer: dict[str, Any] = send(running, observed).json()
    assert answer == json.loads(re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)[0])
    made = pd.DataFrame(send(running, forecast).json()["forecasts"])
    assert list(made) == [
        "unique_id", "ds", "aru", "aru-median", "aru-lo-80", "aru-hi-80", "aru-lo-95", "aru-hi-95",
    ]  # fmt: skip
    assert set(made["unique_id"]) == {"shop-1", "shop-99"}
    assert send(running, bulk).json()["applied"] == 2
    assert send(running, table).text.splitlines()[0] == "unique_id,ds,aru,aru-median,aru-lo-90,aru-hi-90"


def test_the_quick_start_is_what_it_says(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the file that the first quick start writes."""
    monkeypatch.chdir(tmp_path)
    exec(re.findall(r"```python\n(.*?)```", FIRST, flags=re.DOTALL)[0], {})
    running = serve(Forecaster.from_pretrained("nano", h=14, freq="D"))
    history, observed, forecast, table = commands(START)
    assert send(running, history).json()["applied"] == len(pd.read_csv("sales.csv"))
    assert send(running, observed).json() == json.loads(re.findall(r"```json\n(.*?)```", START, flags=re.DOTALL)[0])
    made = pd.DataFrame(send(running, forecast).json()["forecasts"])
    assert len(made) == 14
    assert {"aru-lo-80", "aru-hi-95"} <= set(made)
    assert len(send(running, table).text.splitlines()) == 1 + 3 * 14


def test_every_endpoint_and_status_is_listed(serve: Serve, trained: Forecaster) -> None:
    document = serve(trained).client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f"{method.upper()} {path}" in PAGE
            for status in operation["responses"]:
                assert status == "200" or f"| {status} |" in PAGE
