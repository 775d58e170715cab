"""Access control, and limits of request sizes and logging."""

from __future__ import annotations

import hmac
import logging
import time

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from aru.serve.incoming import TooLarge
from aru.serve.options import Options, is_local

OPEN = frozenset({"/", "/docs", "/openapi.json", "/healthz", "/readyz"})  # need no token: they show no data
STATIC_PATH = "/static/"
LINES = 60  # log records a minute


class AccessGuard:
    """Accepts requests with the token. Without a token, only requests whose Host header names this machine.

    This prevents DNS rebinding: web pages whose own host name points to 127.0.0.1.
    """

    # Written by hand: starlette's TrustedHostMiddleware knows no address ranges, reads [::1] only in its latest
    # versions, and answers in plain text instead of JSON. FastAPI's HTTPBearer and starlette's AuthenticationMiddleware
    # would leave the comparison of the token to us anyway.

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self._app = app
        self._token = None if options.token is None else f"Bearer {options.token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        answer = self._refusal(scope) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if self._token is None:
            if is_local(_host(headers.get("host", ""))):
                return None
            return _refuse(400, "HostError", "Without a token this service answers only to 127.0.0.1 and localhost.")
        given = headers.get("authorization", "").encode("latin-1")
        if _is_open(scope["path"]) or hmac.compare_digest(given, self._token):
            return None
        answer = _refuse(401, "TokenError", "Send the token of this service as 'Authorization: Bearer TOKEN'.")
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(STATIC_PATH)


def _host(value: str) -> str:
    """The host of a Host header, without its port."""
    return value[: value.find("]") + 1] if value.startswith("[") else value.partition(":")[0]


def _refuse(status: int, kind: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"type": kind, "message": message}}, status)


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request, unless it is larger than `limit` bytes. Neither starlette nor uvicorn has such a limit."""
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


class LogBudget(logging.Filter):
    """Limits log records per minute, and reports how many were left out."""

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
