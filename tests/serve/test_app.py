"""The contract of every endpoint."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa
import pytest

from aru import Forecaster, Stream

from .conftest import H, START, STATIC, TRAINED, Running, Serve, as_json, both, rows


def test_it_starts(serve: Serve, trained: Forecaster) -> None:
    running = serve(trained)
    answer = running.post(both([20, 21], "abn"))
    print(answer.text)
    assert answer.status_code == 200
    print(running.client.post("/v1/forecasts", json={"unique_ids": ["a"], "level": [80]}).text)
    print(running.client.get("/v1/series").text)
    print(running.client.get("/v1/series/a").text)
    print(running.client.get("/v1/monitor/fleet").text)
    print(running.client.get("/v1/monitor/series/a").text)
    print(running.client.get("/metrics").text[:300])
    print(running.client.get("/openapi.json").text[:300])
    print(running.client.get("/docs").text[:30])
