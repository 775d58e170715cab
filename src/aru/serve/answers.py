"""Errors as HTTP responses: status, reason, remedy, columns and rows, but no internals."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from aru.errors import AruError, ConfigError, InputError, LateError, StorageError, UnknownSeriesError, reword
from aru.serve import schemas
from aru.serve.batching import Busy
from aru.serve.house import UnknownModel
from aru.serve.incoming import BadBody, TooLarge
from aru.serve.logs import LOG
from aru.serve.metrics import Metrics
from aru.serve.outgoing import offending_rows
from aru.serve.requests import InvalidBody, UnknownFormat, list_faults
from aru.serve.rollout import RolloutError

WORDS = {
    "df": "observations",
    "futr_df": "futr",
    "static_df": "static",
    "late='skip'": '"late": "skip"',
    "late='correct'": '"late": "correct"',
    "allow_jump=True": '"allow_jump": true',
    "update": "/v1/observations",
}  # names in requests for the library's tables and arguments
REASONS = {
    400: "The body is not of the type that its header says, or the host is unknown.",
    401: "The token is missing or wrong.",
    403: "The token does not allow this.",
    404: "A series or a model is not known.",
    409: "Rows are late or contradict what was consumed, or versions do not allow this step; nothing was changed.",
    413: "The body or the number of rows is beyond the limit.",
    415: "The type of the body is not known.",
    422: "The rows or parameters cannot be used; nothing was applied.",
    500: "The service failed; the log has the id of the error.",
    503: "Too many requests are waiting, or the store cannot be used now. Try again.",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: the error responses of an endpoint, in addition to those of every endpoint."""
    return {
        status: {"model": schemas.Failure, "description": REASONS[status]} for status in (400, 401, 403, 500, *statuses)
    }


def failure(status: int, kind: str, message: str, **more: Any) -> JSONResponse:
    """An error response."""
    problem = {"type": kind, "message": message, **{k: v for k, v in more.items() if v is not None}}
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": problem}, status, headers)


def refusal(status: int, error: AruError) -> JSONResponse:
    """The response to a request that the library refused: the whole error, with the names of requests."""
    rows = error.rows
    return failure(
        status,
        type(error).__name__,
        error.worded(_word),
        remedy=reword(error.remedy, _word) or None,
        columns=list(error.columns) or None,
        rows=None if rows is None else offending_rows(rows),
        total_rows=None if rows is None else len(rows),
    )


def _word(name: str) -> str:
    return WORDS.get(name, name)


def install(app: FastAPI, metrics: Metrics) -> None:
    """Install a handler for every exception."""

    def answer(kind: type[Exception], make: Callable[[Any], Response]) -> None:
        async def handle(request: Request, error: Exception) -> Response:
            return make(error)

        app.add_exception_handler(kind, handle)

    answer(InputError, lambda e: refusal(422, e))
    answer(ConfigError, lambda e: refusal(422, e))
    answer(RolloutError, lambda e: refusal(409, e))
    answer(UnknownModel, lambda e: failure(404, "UnknownModelError", f"There is no model {str(e)[:100]!r}."))
    answer(UnknownSeriesError, lambda e: refusal(404, e))
    answer(LateError, lambda e: refusal(409, e))
    answer(StorageError, lambda e: internal(e, metrics, 503))
    answer(AruError, lambda e: internal(e, metrics))
    answer(BadBody, lambda e: failure(400, "BodyError", str(e)))
    answer(InvalidBody, lambda e: failure(422, "SchemaError", str(e), rows=e.faults))
    answer(UnknownFormat, lambda e: failure(415, "ContentTypeError", str(e)))
    answer(TooLarge, lambda e: failure(413, "SizeError", str(e)))
    answer(Busy, lambda e: failure(503, "BusyError", "Too many requests are waiting. Try again."))
    answer(RequestValidationError, _parameters)
    answer(HTTPException, _plain)


def internal(error: Exception, metrics: Metrics, status: int = 500) -> JSONResponse:
    """The response to a failure of the service: the cause goes to the log, its id to the client."""
    name = uuid.uuid4().hex
    metrics.errors.inc()
    LOG.error("error %s", name, exc_info=error)
    kind, what = (
        ("StorageError", "The store cannot be used now") if status == 503 else ("InternalError", "The request failed")
    )
    return failure(status, kind, f"{what}. The service's log has more under this id.", id=name)


def _plain(error: HTTPException) -> Response:
    answer = failure(error.status_code, "HTTPError", str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


def _parameters(error: RequestValidationError) -> Response:
    faults = list_faults(error.errors())
    return failure(422, "SchemaError", "The parameters do not have the form that /docs describes.", rows=faults)
