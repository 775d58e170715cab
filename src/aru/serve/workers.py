"""Several processes on one port. Each is a whole service; they share the states, in a database.

The kernel divides connections among the processes that listen. Workers are spawned: a forked process would share
threads and connections with its parent. The parent only watches: it starts a worker that ended anew, and they end with
it, even if it is killed. Metrics and monitors of the workers are in a folder that they share, so that whoever is asked
answers for all of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from prometheus_client.multiprocess import mark_process_dead

from aru.errors import ConfigError
from aru.serve.logs import LOG, start_logs
from aru.serve.metrics import SHARED_FOLDER
from aru.serve.server import PATIENCE, Work, bind, serve
from aru.store.address import is_database

PAUSE = 1.0  # seconds before a worker that never became ready is started again


class _Worker(NamedTuple):
    process: Any  # of multiprocessing's context "spawn"
    ready: Connection  # says the address, or what went wrong


def serve_together(work: Work, started: Callable[[str], None] = lambda _: None) -> None:
    """Serve with several processes until this one is asked to stop. `started` is called when all are ready."""
    if not is_database(work.state):
        raise ConfigError(
            "`workers` processes write at the same time, and a SQLite file has one writer",
            "Keep the states in a database (postgresql://...), or use one process.",
        )
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("This system cannot share a port among `workers`", "Use one process.")
    bind(work.options, share=False).close()  # nobody else may be there, not even one who would share it
    with (
        contextlib.closing(bind(work.options, share=True)) as place,
        _asked_to_stop() as stop,
        _shared_folder() as folder,
    ):
        port = place.getsockname()[1]
        work = work._replace(options=dataclasses.replace(work.options, port=port, scratch=folder))
        workers = [_start(work) for _ in range(work.options.workers)]
        try:
            addresses = [_first_word(worker, stop) for worker in workers]
            if addresses[0] is not None and None not in addresses:
                start_logs(work.options.json_log)
                started(addresses[0])
                _watch(work, workers, stop)
        finally:
            _end(workers)


def _watch(work: Work, workers: list[_Worker], stop: socket.socket) -> None:
    """Replace workers that end, until this process is asked to stop."""
    began = dict.fromkeys(range(len(workers)), 0.0)
    while stop not in wait([stop, *(worker.process.sentinel for worker in workers)], PAUSE):
        for i, worker in enumerate(workers):
            if worker.process.is_alive() or time.monotonic() - began[i] < PAUSE:
                continue
            LOG.error("worker %s ended with %s: another one starts", worker.process.pid, worker.process.exitcode)
            worker.ready.close()
            mark_process_dead(worker.process.pid, work.options.scratch)  # type: ignore[no-untyped-call]
            workers[i], began[i] = _start(work), time.monotonic()


def _start(work: Work) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve_one, args=(work, theirs), name="aru-worker")
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _first_word(worker: _Worker, stop: socket.socket) -> str | None:
    """The address, when the worker is ready; None if we are asked to stop before that. Its error is raised here."""
    if stop in wait([worker.ready, stop]):
        return None
    try:
        word: str | Exception = worker.ready.recv()
    except EOFError:
        raise ConfigError("A worker ended before it was ready", "Its last words are in the log.") from None
    if isinstance(word, Exception):
        raise word
    return word


def _end(workers: list[_Worker]) -> None:
    """Let workers answer what they have accepted, and end them."""
    for worker in workers:
        worker.process.terminate()
    until = time.monotonic() + PATIENCE + 5
    for worker in workers:
        worker.process.join(max(0.0, until - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.ready.close()


@contextlib.contextmanager
def _shared_folder() -> Iterator[str]:
    """A folder for what workers share, which prometheus_client finds in a variable."""
    with tempfile.TemporaryDirectory(prefix="aru-") as folder:
        before = os.environ.get(SHARED_FOLDER)
        os.environ[SHARED_FOLDER] = folder
        try:
            yield folder
        finally:
            os.environ.pop(SHARED_FOLDER)
            if before is not None:
                os.environ[SHARED_FOLDER] = before


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[socket.socket]:
    """A socket that can be read when this process gets a signal to end."""
    ours, theirs = socket.socketpair()
    before = {number: signal.signal(number, lambda *_: theirs.send(b".")) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ours
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()


def _serve_one(work: Work, ready: Connection) -> None:
    """The life of a worker."""
    threading.Thread(target=_follow_parent, name="aru-parent", daemon=True).start()
    try:
        serve(work, ready.send)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        with contextlib.suppress(OSError):
            ready.send(error)


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
