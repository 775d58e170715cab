"""A small model, and services of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
import uvicorn

from aru import Forecaster, Stream
from aru.serve.app import create_app
from aru.serve.options import Options
from aru.serve.run import listen
from tests.shops import BASE, COVARIATES, STATIC, TRAINED, both

Serve = Callable[..., "Running"]


def as_json(frame: pd.DataFrame, *columns: str) -> list[dict[str, Any]]:
    """The rows of a frame as a body has them."""
    chosen = frame[[*columns]] if columns else frame[["unique_id", "ds", "y"]]
    if "ds" in chosen:
        chosen = chosen.assign(ds=chosen["ds"].dt.strftime("%Y-%m-%dT%H:%M:%S"))
    records: list[dict[str, Any]] = chosen.astype(object).where(chosen.notna(), None).to_dict("records")
    return records


class Running:
    """A service that listens, and a client of it."""

    def __init__(self, stream: Stream, options: Options) -> None:
        self.stream = stream
        self.app = create_app(stream, options)
        self._socket = listen(options)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(self.app, log_config=None, lifespan="on"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=60)
        while not self._server.started:
            self._thread.join(0.01)

    def post(self, frame: pd.DataFrame, **more: Any) -> httpx.Response:
        return self.client.post("/v1/observations", json={"observations": as_json(frame), **more})

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.client.close()
        self._socket.close()


@pytest.fixture(scope="session")
def trained() -> Forecaster:
    return Forecaster(**BASE).fit(both(range(TRAINED)))


@pytest.fixture(scope="session")
def rich() -> Forecaster:
    return Forecaster(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)


@pytest.fixture(scope="session")
def saved(trained: Forecaster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "model"
    trained.save(path)
    return path


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts services, and stops them in the end."""
    with contextlib.ExitStack() as stack:

        def start(model: Forecaster, state: Path | None = None, **options: Any) -> Running:
            running = Running(Stream(model, state), Options(**{"port": 0, **options}))
            stack.callback(running.stop)
            return running

        yield start
