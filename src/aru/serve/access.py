"""What every request goes through: access control, counting, timing, one line in the log."""

from __future__ import annotations

import hmac
import re
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from aru.serve.answers import internal
from aru.serve.logs import ACCESS, FIELDS
from aru.serve.metrics import Metrics
from aru.serve.options import LONGEST, SCOPES, Options, TokenScope, is_local

OPEN = frozenset({"/", "/docs", "/openapi.json", "/healthz", "/readyz"})  # need no token: they show no data
STATIC_PATH = "/static/"
FORECASTS = re.compile(r"/v1(/models/[^/]+)?/forecasts")
WRITES = re.compile(r"/v1(/models/[^/]+)?/(observations|series/.*)", re.DOTALL)
HUNG_UP = 499  # status in log and metrics of requests whose client went away, as nginx counts them
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]


def scope_of(method: str, path: str) -> TokenScope:
    """The scope that a request needs. What is not known to read or write series is for administrators."""
    if method in ("GET", "HEAD") or FORECASTS.fullmatch(path):
        return "read"
    return "write" if WRITES.fullmatch(path) else "admin"


class AccessGuard:
    """Accepts requests with a token that allows them.

    Without tokens, only requests whose Host header names this machine are accepted. This prevents DNS rebinding: web
    pages whose own host name points to 127.0.0.1.
    """

    # Written by hand: starlette's TrustedHostMiddleware knows no address ranges, reads [::1] only in its latest
    # versions, and answers in plain text instead of JSON. FastAPI's HTTPBearer and starlette's AuthenticationMiddleware
    # would leave the comparison of the token to us anyway.

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self._app = app
        self._tokens = [(f"Bearer {token}".encode(), scope) for token, scope in options.tokens.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        answer = self._refusal(scope) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if not self._tokens:
            if is_local(_host(headers.get("host", ""))):
                return None
            return _refuse(400, "HostError", "Without a token this service answers only to 127.0.0.1 and localhost.")
        if _is_open(scope["path"]):
            return None
        given = headers.get("authorization", "").encode("latin-1")
        found = [scope_ for token, scope_ in self._tokens if hmac.compare_digest(given, token)]  # all are compared
        if not found:
            answer = _refuse(401, "TokenError", "Send a token of this service as 'Authorization: Bearer TOKEN'.")
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        needed = scope_of(scope["method"], scope["path"])
        if SCOPES.index(found[0]) >= SCOPES.index(needed):
            return None
        return _refuse(403, "ScopeError", f"This needs a token of scope {needed}; this one is for {found[0]}.")


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(STATIC_PATH)


def _host(value: str) -> str:
    """The host of a Host header, without its port."""
    return value[: value.find("]") + 1] if value.startswith("[") else value.partition(":")[0]


def _refuse(status: int, kind: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"type": kind, "message": message}}, status)


class RequestWatch:
    """Counts, times and logs requests, adds headers, and handles unexpected exceptions."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            status = HUNG_UP
        except Exception as error:  # noqa: BLE001 - the last resort
            answer = internal(error, self._metrics)
            if status == 0:
                await answer(scope, receive, watched)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if route != "other" else "other"
        self._metrics.requests.labels(method, route, status).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        fields = {
            "method": scope["method"],
            "path": _one_line(scope),
            "status": status,
            "ms": round(1000 * seconds, 1),
            "client": (scope.get("client") or ("",))[0],
        }
        ACCESS.info("request", extra={FIELDS: fields})


def _one_line(scope: Scope) -> str:
    """The path as it was sent, in which no character ends a line, without the query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("unicode_escape")
    return raw.partition(b"?")[0][:LONGEST].decode("latin-1").encode("ascii", "backslashreplace").decode()
