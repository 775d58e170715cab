"""Run the service until it is stopped."""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from aru.errors import ConfigError, verbatim
from aru.forecaster import Forecaster
from aru.serve.app import create_app
from aru.serve.limits import LogBudget
from aru.serve.options import Options
from aru.stream import Stream

PATIENCE = 30  # seconds to finish requests when the service stops
QUEUE = 2048  # connections that wait to be accepted


def serve(
    load: Callable[[], Forecaster],
    state: Path,
    options: Options,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until the process is asked to stop. `started` is called with the address when the model is warmed up.

    The port is bound before the model is loaded, so that a port in use fails at once. Early clients wait.
    """
    listener = listen(options)
    try:
        app = create_app(Stream(load(), state), options)
        _bound_logs()
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=PATIENCE,
            backlog=QUEUE,
        )
        host = f"[{options.host}]" if ":" in options.host else options.host
        gc.collect()
        gc.freeze()  # garbage collection need not scan what is loaded, which would delay requests
        started(f"http://{host}:{listener.getsockname()[1]}")
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again after it has stopped
            uvicorn.Server(config).run([listener])
    finally:
        listener.close()


def listen(options: Options) -> socket.socket:
    """A socket on the address of the options."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
        listener.listen(QUEUE)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"Nothing can listen on {verbatim(options.host)}, port {options.port}: {verbatim(error.strerror or error)}",
            "Choose another.",
        ) from error
    return listener


def _bound_logs() -> None:
    """Log errors and warnings to standard error, with a limit per minute."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    handler.addFilter(LogBudget())
    logging.captureWarnings(True)
    for name in ("aru", "uvicorn", "py.warnings"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
