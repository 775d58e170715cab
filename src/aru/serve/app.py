"""The HTTP endpoints of the service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, FastAPI, Query, Request
from fastapi.openapi.utils import get_openapi
from pydantic import Field, TypeAdapter
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

from aru.data.clock import Clock
from aru.errors import AruError
from aru.runtime.forecasting import Predicted
from aru.serve import outgoing, schemas
from aru.serve.access import AccessGuard, RequestWatch
from aru.serve.answers import documented, install
from aru.serve.asked import ForecastRequest, ForgetRequest
from aru.serve.batching import Busy
from aru.serve.house import House
from aru.serve.limits import MODEL_BYTES, Bodies
from aru.serve.model_endpoints import MODEL_PATH, NAME_PARAMETER, ModelName, Pick, add_models
from aru.serve.options import MANY_LEVELS, Options
from aru.serve.requests import Reader, content_type
from aru.serve.rollout import Superseded
from aru.serve.served import Served
from aru.serve.service import Service
from aru.serve.tables import ARROW, CSV, JSON

LARGE = 2**16  # larger bodies (bytes) and answers (cells) are handled by a thread instead of the event loop
STATIC_FOLDER = Path(__file__).with_name("static")
LARGE_AT_ONCE = 2  # of these at a time: an object of Python takes far more memory than its text
SWITCHES = 3  # how often the champion may change while a request waits
Found = TypeVar("Found")
API_DESCRIPTION = """\
New observations adapt the forecasts of their series at once. Tables go in as JSON, CSV or Arrow stream by
`Content-Type`, and forecasts come out by `Accept`. An answer to observations is sent when they are safe on disk; to
send them again is harmless. Every failure has the same form, and leaves the states as they were."""


class IdConvertor(Convertor[str]):
    """An id in a path. Unlike starlette's `path` it may have line breaks."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        """The id."""
        return value

    def to_string(self, value: str) -> str:
        """The same in a path."""
        return value


def create_app(house: House) -> FastAPI:
    """The app of all models of a house. It closes the house when it stops."""
    options = house.options

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.started = True
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(house.close)

    register_url_convertor("id", IdConvertor())
    app = FastAPI(
        title="aru", version="1", description=API_DESCRIPTION, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url=None,
    )  # fmt: skip
    app.state.started = False
    install(app, house.metrics)
    app.add_middleware(AccessGuard, options=options)
    app.add_middleware(RequestWatch, metrics=house.metrics)
    work = _Work(options)
    for prefix, pick in (("/v1", _default(house)), (MODEL_PATH, _named(house))):
        _add_stream(app, prefix, house, work)
        _add_series(app, prefix, pick)
        _add_monitor(app, prefix, pick)
    add_models(app, house, _named(house), work.models)
    _add_operations(app, house)
    _add_pages(app)
    return app


def _default(house: House) -> Pick:
    async def find() -> Served:
        return house.find(house.default)

    return find


def _named(house: House) -> Pick:
    async def find(name: ModelName) -> Served:
        return house.find(name)

    return find


class _Work:
    """Bodies within limits, and threads for large ones."""

    def __init__(self, options: Options) -> None:
        self.max_rows = options.max_rows
        self.bodies, self.models = Bodies(options.max_bytes), Bodies(MODEL_BYTES, at_once=1)
        self._few = anyio.CapacityLimiter(LARGE_AT_ONCE)

    async def off_loop(self, size: int, work: Callable[[], Any], waits: bool = False) -> Any:
        """Run small work in the event loop, unless it may wait for a file, and large work in one of few threads."""
        if size > LARGE:
            return await anyio.to_thread.run_sync(work, limiter=self._few)
        return await anyio.to_thread.run_sync(work) if waits else work()


def _add_stream(app: FastAPI, prefix: str, house: House, work: _Work) -> None:
    # FastAPI takes a tenth of the time of a small request to resolve a dependency, so these do without it.
    named = {"parameters": [NAME_PARAMETER]} if prefix == MODEL_PATH else {}

    def served_by(request: Request) -> Served:
        return house.find(request.path_params.get("name", house.default))

    @app.post(
        f"{prefix}/observations",
        tags=["stream"],
        summary="Take in new observations",
        responses={200: {"model": schemas.UpdateReport}, **documented(404, 409, 413, 415, 422, 503)},
        openapi_extra=named
        | _body(schemas.ObservationsBody, "Observations with a header or a schema: unique_id, ds, y, covariates."),
    )
    async def observations(
        request: Request,
        late: Annotated[
            Literal["raise", "skip", "correct"], Query(description="For CSV and Arrow, where the body cannot say it.")
        ] = "raise",
        allow_jump: Annotated[bool, Query(description="For CSV and Arrow, where the body cannot say it.")] = False,
    ) -> Response:
        """Rows of known and new series, in any order: all are applied or none.

        Rows that repeat consumed ones are ignored and counted. Other rows at or before a series' latest time are late:
        "raise" answers 409, "skip" leaves them out and returns them, "correct" also corrects the latest steps, as many
        as the store keeps. Rows far ahead of the newest time of all series are refused, unless `allow_jump` says that
        they are right. CSV and Arrow bodies may have the static covariates of new series as columns.
        """
        content, served = content_type(request), served_by(request)
        async with work.bodies.of(request) as body:

            async def answer(service: Service) -> Any:
                reader = Reader(service, work.max_rows, served.keeps)
                made = await work.off_loop(len(body), partial(reader.update, body, content, late, allow_jump))
                return await served.updates.submit(made, made.size)

            return JSONResponse(await _of_champion(served, answer))

    @app.post(
        f"{prefix}/forecasts",
        tags=["stream"],
        summary="Forecast the next steps",
        responses={
            200: {"model": schemas.Forecasts, "content": {CSV: {}, ARROW: {}}},
            **documented(404, 413, 415, 422, 503),
        },
        openapi_extra=named
        | _body(schemas.ForecastBody, "Known covariates of the next steps: unique_id, ds, covariates."),
    )
    async def forecasts(
        request: Request,
        unique_id: Annotated[list[str], Query(description="For CSV and Arrow: series to forecast.")] = [],  # noqa: B006
        level: Annotated[
            list[Annotated[float, Field(gt=0, lt=100)]],
            Query(description="For CSV and Arrow: central intervals, in percent.", max_length=MANY_LEVELS),
        ] = [],  # noqa: B006
    ) -> Response:
        """Forecast the next h steps of each series from its present state. States do not change."""
        content, served = content_type(request), served_by(request)
        async with work.bodies.of(request) as body:

            async def answer(service: Service) -> tuple[Service, int, Predicted]:
                made: ForecastRequest = await work.off_loop(
                    len(body),
                    lambda: Reader(service, work.max_rows).forecast(body, content, unique_id, level),
                    waits=True,
                )
                rows = len(made.ids) * service.runtime.h
                return service, rows, await served.forecasts.submit(made, rows)

            service, rows, found = await _of_champion(served, answer)
        encode = _encoder(request.headers.get("accept", ""), service.datetime)
        encoded: Response = await work.off_loop(rows * len(found.columns), lambda: encode(found))
        return encoded


def _add_series(app: FastAPI, prefix: str, pick: Pick) -> None:
    served_here = Depends(pick)

    @app.get(
        f"{prefix}/series",
        tags=["series"],
        summary="List series",
        responses={200: {"model": schemas.SeriesPage}, **documented(404, 422, 503)},
    )
    def pages(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Annotated[str | None, Query(description="next_cursor of the page before.")] = None,
        query: Annotated[str, Query(description="Part of the name, in any case.")] = "",
        served: Served = served_here,
    ) -> Response:
        """Series in order of their names, page by page."""
        return JSONResponse(served.present().page(limit, cursor, query))

    @app.get(
        f"{prefix}/series/{{unique_id:id}}",
        tags=["series"],
        summary="Look at a series",
        responses={200: {"model": schemas.SeriesReport}, **documented(404, 422, 503)},
    )
    def series(unique_id: str, served: Served = served_here) -> Response:
        """Latest row, number of observations, and how well recent forecasts did."""
        return JSONResponse(served.present().series(unique_id))

    @app.delete(
        f"{prefix}/series/{{unique_id:id}}",
        tags=["series"],
        summary="Forget a series",
        responses={200: {"model": schemas.Forgotten}, **documented(404, 422, 503)},
    )
    async def forget(unique_id: str, served: Served = served_here) -> Response:
        """Delete the state of a series. Its next observation begins a new series."""

        async def answer(service: Service) -> Any:
            return await served.updates.submit(ForgetRequest([service.key(unique_id)]), 1)

        return JSONResponse(await _of_champion(served, answer))


async def _of_champion(served: Served, answer: Callable[[Service], Awaitable[Found]]) -> Found:
    """An answer of the champion; asked for anew, if another version has become the champion meanwhile."""
    for _ in range(SWITCHES):
        service = served.service
        try:
            return await answer(service)
        except Superseded:
            continue
        except AruError:  # another process may have promoted a version that would not have refused it
            if await anyio.to_thread.run_sync(served.present) is service:
                raise
    raise Busy


def _add_monitor(app: FastAPI, prefix: str, pick: Pick) -> None:
    served_here = Depends(pick)

    @app.get(
        f"{prefix}/monitor/fleet",
        tags=["monitor"],
        summary="All series at a glance",
        responses={200: {"model": schemas.Fleet}, **documented(404, 503)},
    )
    def fleet(served: Served = served_here) -> Response:
        """Number of series, rate of observations, accuracy with and without adaptation, and drifting series."""
        return JSONResponse({**served.present().fleet(), "rollout": served.report()})

    @app.get(
        f"{prefix}/monitor/series/{{unique_id:id}}",
        tags=["monitor"],
        summary="History and forecasts of a series",
        responses={200: {"model": schemas.SeriesMonitor}, **documented(404, 422, 503)},
    )
    def watched(unique_id: str, served: Served = served_here) -> Response:
        """The latest rows with their forecasts, and the present forecast with its local part."""
        return JSONResponse(served.present().watched(unique_id))


def _add_operations(app: FastAPI, house: House) -> None:
    @app.get("/healthz", tags=["operations"], responses={200: {"model": schemas.Health}, **documented()})
    async def healthz() -> Response:
        """The process is alive."""
        return JSONResponse({"status": "ok"})

    @app.get(
        "/readyz",
        tags=["operations"],
        responses={200: {"model": schemas.Health}, 503: {"model": schemas.Health}, **documented()},
    )
    def readyz() -> Response:
        """Models are loaded and warmed up, requests are worked on, and the stores can be read and written."""
        status = house.status() if app.state.started else "starting"
        return JSONResponse({"status": status}, 200 if status == "ok" else 503)

    @app.get(
        "/metrics",
        tags=["operations"],
        responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"}, **documented(503)},
        response_class=Response,
    )
    def metrics() -> Response:
        """Requests, latencies, errors, rows, series, accuracy, drift, versions and sizes, for Prometheus."""
        return Response(house.metrics.render(), media_type="text/plain; version=0.0.4")


def _add_pages(app: FastAPI) -> None:
    document: dict[str, Any] = {}

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        if not document:
            document.update(_openapi(app))
        return JSONResponse(document)

    pages = {"/": "index.html", "/docs": "docs.html"}
    for path, name in pages.items():
        app.add_api_route(path, _file(STATIC_FOLDER / name), include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))


def _encoder(accept: str, datetime: Clock | None) -> Callable[[Predicted], Response]:
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if ARROW in kinds:
        return lambda made: Response(outgoing.to_arrow(made.columns, datetime), 200, _epoch(made), ARROW)
    if CSV in kinds:
        return lambda made: Response(outgoing.to_csv(made.columns, datetime), 200, _epoch(made), CSV)
    return lambda made: JSONResponse({"forecasts": outgoing.to_rows(made.columns, datetime), "epoch": made.epoch})


def _epoch(made: Predicted) -> dict[str, str]:
    """The epoch as a header, where the body cannot name it."""
    return {} if made.epoch is None else {"Aru-Epoch": str(made.epoch)}


def _file(path: Path) -> Callable[[], Any]:
    async def send() -> FileResponse:
        return FileResponse(path)

    return send


def _body(kind: Any, table: str) -> dict[str, Any]:
    binary = {"schema": {"type": "string", "description": table}}
    content = {JSON: {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}, CSV: binary, ARROW: binary}
    return {"requestBody": {"required": True, "content": content}}


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's OpenAPI document, with the types of request bodies and the token added."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    bodies = [TypeAdapter(kind) for kind in (schemas.ObservationsBody, schemas.ForecastBody, schemas.Step)]
    _, types = TypeAdapter.json_schemas(
        [(i, "validation", body) for i, body in enumerate(bodies)], ref_template="#/components/schemas/{model}"
    )
    document["components"]["schemas"] |= types["$defs"]
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{}, {"token": []}]
    return document
