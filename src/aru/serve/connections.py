"""Connections that cannot be held for ever, nor fill the memory before a request is complete.

uvicorn has no limit for the bytes of a head (request line and headers) when httptools reads it, no time-out but that
between two requests, and `limit_concurrency` counts requests whose head is complete. So its protocol is extended here,
by the methods that asyncio and httptools call.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, ClassVar

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from aru.serve.options import Options

PIPELINED = 16  # requests that a connection may send before the first of them is answered
CHECKS = 4  # times that a connection is looked at within `idle_seconds`
PHRASES = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Connection(HttpToolsProtocol):
    """A connection of a client, which must send its requests and take its answers in time."""

    limits: ClassVar[Options]  # uvicorn makes connections, so that they cannot be given any

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._framing = 0  # bytes since the latest byte of a body: a head, trailers, or the frames of chunks
        self._unanswered = 0  # complete requests; without any, it is the client's turn to send or to take
        self._since = self._moved = self.loop.time()  # begin of that turn, and when bytes went over the line
        self._unsent = 0  # bytes of answers that the client has not taken
        self._check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept a connection if there are not too many."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.limits.max_connections:
            self._refuse(503, "BusyError", "Too many connections are open. Try again.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to watch it."""
        super().connection_lost(exc)
        if self._check is not None:
            self._check.cancel()

    def data_received(self, data: bytes) -> None:
        """Read bytes of requests."""
        if self.transport.is_closing():
            return
        self._moved = self.loop.time()
        self._framing += len(data)
        super().data_received(data)
        if self._framing > self.limits.max_header_bytes:
            self._refuse_head()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._since, self._framing = self._moved, 0

    def on_headers_complete(self) -> None:
        """A head is complete."""
        if sum(map(len, itertools.chain(*self.headers))) + len(self.url) > self.limits.max_header_bytes:
            self._refuse_head()
            raise ValueError("the head is too large")  # for the parser, which stops
        if len(self.pipeline) >= PIPELINED:
            raise ValueError("too many requests at once")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body arrived."""
        self._framing = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete: now it is our turn."""
        super().on_message_complete()
        self._framing = 0
        self._unanswered += not self.cycle.response_complete

    def on_response_complete(self) -> None:
        """An answer is complete: now the client has to take it."""
        super().on_response_complete()
        self._unanswered = max(self._unanswered - 1, 0)
        self._since = self._moved = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(400, "ProtocolError", msg)

    def _watch(self) -> None:
        """End the connection if the client keeps us waiting."""
        now, options = self.loop.time(), self.limits
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._moved = now
        self._unsent = unsent
        if unsent or not self._unanswered:
            late = now - self._moved > options.idle_seconds or now - self._since > options.request_seconds
            if late and (unsent or self.transport.is_closing()):
                self.transport.abort()  # what it does not take would be kept for ever
            elif late:
                self._refuse(408, "TimeoutError", "The request did not arrive in time.")
        self._check = self.loop.call_later(options.idle_seconds / CHECKS, self._watch)

    def _answering(self) -> bool:
        """Whether an answer is on its way."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_started and not cycle.response_complete

    def _refuse_head(self) -> None:
        most = self.limits.max_header_bytes
        self._refuse(431, "SizeError", f"The headers of a request may have {most:,} bytes; these have more.")

    def _refuse(self, status: int, kind: str, message: str) -> None:
        """Answer in the form of all failures, and close the connection."""
        if self.transport.is_closing():
            return
        body = json.dumps({"error": {"type": kind, "message": message}})
        if not self._answering():
            self.transport.write(
                f"HTTP/1.1 {status} {PHRASES[status]}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
            )
        self.transport.close()


def connections(options: Options) -> type[Connection]:
    """The class of connections within these limits."""

    class LimitedConnection(Connection):
        limits = options

    return LimitedConnection
