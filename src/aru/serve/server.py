"""Run the service until it is stopped."""

from __future__ import annotations

import contextlib
import gc
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import uvicorn
from fastapi import FastAPI

from aru.errors import ConfigError, verbatim
from aru.serve.app import create_app
from aru.serve.connections import connections
from aru.serve.house import House, Load
from aru.serve.logs import LOG, start_logs
from aru.serve.options import Options

PATIENCE = 30  # seconds to finish requests when the service stops
QUEUE = 2048  # connections that wait to be accepted


class Work(NamedTuple):
    """What a service serves: models by name, where their states are, and how.

    `by_name`: each model has a store of its own name, even if there is only one so far.
    """

    models: Mapping[str, Load]
    state: str | Path
    options: Options
    correctable_steps: int | None = None
    default: str | None = None
    by_name: bool = False


def serve(work: Work, started: Callable[[str], None] = lambda _: None) -> None:
    """Serve in this process until it is asked to stop. `started` is called with the address once it is warmed up.

    The port is bound before the model is loaded, so that a port in use fails at once. Early clients wait.
    """
    options = work.options
    listener = listen(options)
    try:
        house = House.open(work.models, work.state, options, work.default, work.correctable_steps, work.by_name)
        app = create_app(house)
        start_logs(options.json_log)
        for note in house.notes:
            LOG.warning(note)
        config = configure(app, options)
        host = f"[{options.host}]" if ":" in options.host else options.host
        gc.collect()
        gc.freeze()  # garbage collection need not scan what is loaded, which would delay requests
        started(f"http://{host}:{listener.getsockname()[1]}")
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after it has stopped
            uvicorn.Server(config).run([listener])
    finally:
        listener.close()


def configure(app: FastAPI, options: Options) -> uvicorn.Config:
    """How uvicorn serves the app."""
    return uvicorn.Config(
        app,
        http=connections(options),
        ws="none",
        access_log=False,
        log_config=None,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=PATIENCE,
        backlog=QUEUE,
    )


def listen(options: Options) -> socket.socket:
    """A socket on the address of the options, which other workers listen on as well."""
    listener = bind(options, share=options.workers > 1)
    listener.listen(QUEUE)
    return listener


def bind(options: Options, share: bool) -> socket.socket:
    """A socket that has the address of the options, alone or shared with sockets that share it, too."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"Nothing can listen on {verbatim(options.host)}, port {options.port}: {verbatim(error.strerror or error)}",
            "Choose another.",
        ) from error
    return listener
