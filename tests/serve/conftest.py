"""A small model, and services of it."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa
import pytest
import uvicorn

from aru import Forecaster, Stream
from aru.serve.app import create_app
from aru.serve.house import House
from aru.serve.options import Options
from aru.serve.server import configure, listen
from tests.making import make
from tests.shops import BASE, COVARIATES, START, STATIC, TRAINED, both

Serve = Callable[..., "Running"]
NOTHING = {
    "applied": 0,
    "duplicates": 0,
    "corrected": 0,
    "gaps_filled": 0,
    "new_series": [],
    "late": [],
    "held_back": [],
}


def as_json(frame: pd.DataFrame, *columns: str) -> list[dict[str, Any]]:
    """The rows of a frame as a body has them."""
    chosen = frame[[*columns]] if columns else frame[["unique_id", "ds", "y"]]
    if "ds" in chosen:
        chosen = chosen.assign(ds=chosen["ds"].dt.strftime("%Y-%m-%dT%H:%M:%S"))
    records: list[dict[str, Any]] = chosen.astype(object).where(chosen.notna(), None).to_dict("records")
    return records


class Running:
    """A service that listens, and a client of it."""

    def __init__(self, stream: Stream, options: Options, place: str | Path | None = None) -> None:
        self.stream = stream
        self.house = House.of_stream(stream, options, place)
        self.served = self.house.models["model"]
        self.app = create_app(self.house)
        self._socket = listen(options)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(configure(self.app, options))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=60)
        while not self._server.started:
            self._thread.join(0.01)

    def post(self, frame: pd.DataFrame, **more: Any) -> httpx.Response:
        return self.client.post("/v1/observations", json={"observations": as_json(frame), **more})

    def post_and_watch(self, frame: pd.DataFrame) -> None:
        """Post rows and wait until the monitor has seen them: it has when the next request is answered."""
        self.post(frame).raise_for_status()
        assert self.post(frame).json()["applied"] == 0

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.client.close()
        self._socket.close()


def day(number: int) -> str:
    return (START + pd.Timedelta(days=number)).isoformat()


def arrow(frame: pd.DataFrame) -> bytes:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def error_of(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["type"] == kind
    return error


def forecast(running: Running, **body: Any) -> pd.DataFrame:
    answer = running.client.post("/v1/forecasts", json=body)
    assert answer.status_code == 200, answer.text
    frame = pd.DataFrame(answer.json()["forecasts"])
    return frame.assign(ds=pd.to_datetime(frame["ds"]))


def assert_same_forecasts(one: pd.DataFrame, other: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(one, other, check_dtype=False, rtol=1e-6)


@pytest.fixture(scope="session")
def trained() -> Forecaster:
    return make(**BASE).fit(both(range(TRAINED)))


@pytest.fixture(scope="session")
def rich() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)


@pytest.fixture(scope="session")
def saved(trained: Forecaster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "model"
    trained.save(path)
    return path


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts services, and stops them in the end."""
    with contextlib.ExitStack() as stack:

        def start(model: Forecaster, state: str | Path | None = None, **options: Any) -> Running:
            steps = options.pop("correctable_steps", None)
            running = Running(Stream(model, state, steps), Options(**{"port": 0, **options}), state)
            stack.callback(running.stop)
            return running

        yield start
