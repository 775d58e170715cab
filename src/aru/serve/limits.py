"""Who may come in, how much they may send, and how much is logged."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from aru.serve.options import Options, is_local
from aru.serve.tables import TooLarge

OPEN = frozenset({"/", "/docs", "/openapi.json", "/healthz", "/readyz"})  # no data in there
STATIC = "/static/"
LINES = 60  # log records a minute

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """Lets in requests with the token. Without a token, only those that were meant for this machine.

    The second rule keeps web pages out that point a name of their own at 127.0.0.1 and let a visitor's browser do the
    rest.
    """

    def __init__(self, app: App, options: Options) -> None:
        self._app = app
        self._token = None if options.token is None else f"Bearer {options.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self._token is None:
            if is_local(_host(headers.get(b"host", b"").decode("latin-1"))):
                await self._app(scope, receive, send)
                return
            answer = _refuse(400, "HostError", "Without a token this service answers to 127.0.0.1 and localhost alone.")
        elif _is_open(scope["path"]) or hmac.compare_digest(headers.get(b"authorization", b""), self._token):
            await self._app(scope, receive, send)
            return
        else:
            answer = _refuse(401, "TokenError", "Send the token of this service as 'Authorization: Bearer TOKEN'.")
            answer.headers["WWW-Authenticate"] = "Bearer"
        await answer(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(STATIC)


def _host(value: str) -> str:
    """The host of a Host header, without its port."""
    return value[: value.find("]") + 1] if value.startswith("[") else value.partition(":")[0]


def _refuse(status: int, kind: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"type": kind, "message": message}}, status)


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request, unless it is larger than `limit` bytes."""
    length = request.headers.get("content-length", "0")
    body = bytearray()
    if length.isdecimal() and int(length) <= limit:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                break
        else:
            return bytes(body)
    raise TooLarge(f"The body is larger than {limit:,} bytes: send it in parts.")


class Budget(logging.Filter):
    """Lets so many records a minute through, and says how many it held back."""

    def __init__(self, lines: int = LINES) -> None:
        super().__init__()
        self._lines, self._minute, self._seen = lines, -1, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write this record."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            held = self._seen - self._lines
            self._minute, self._seen = minute, 0
            if held > 0:
                record.msg = f"{record.msg} ({held} earlier lines were left out)"
        self._seen += 1
        return self._seen <= self._lines
