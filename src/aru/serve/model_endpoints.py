"""The endpoints about models and their versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import anyio.to_thread
from fastapi import Depends, FastAPI, Request
from fastapi import Path as PathParameter
from pydantic import TypeAdapter, ValidationError
from starlette.responses import JSONResponse, Response

from aru.serve import schemas
from aru.serve.answers import documented
from aru.serve.house import House
from aru.serve.limits import Bodies
from aru.serve.requests import InvalidBody, UnknownFormat, content_type
from aru.serve.served import Served
from aru.serve.tables import JSON

MODEL_PATH = "/v1/models/{name}"
TAR = "application/x-tar"
MOST_BYTES = 2**12  # of a body that names a version
NAME_HELP = "Name of a model, as /v1/models lists them."
ModelName = Annotated[str, PathParameter(description=NAME_HELP)]
NAME_PARAMETER = {
    "name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "description": NAME_HELP,
}  # fmt: skip
Pick = Callable[..., Awaitable[Served]]
_steps: TypeAdapter[schemas.Step] = TypeAdapter(schemas.Step)


def add_models(app: FastAPI, house: House, pick: Pick, bundles: Bodies) -> None:
    """Add the endpoints."""
    served_here, small = Depends(pick), Bodies(MOST_BYTES)
    changed = {200: {"model": schemas.ModelReport}, **documented(404, 409, 413, 415, 422, 503)}

    @app.get(
        "/v1/models",
        tags=["models"],
        summary="List models",
        responses={200: {"model": schemas.ModelList}, **documented(503)},
    )
    def models() -> Response:
        """The models of the service, and which of them answers where no name is given."""
        reports = [_report(served) for served in house.models.values()]
        return JSONResponse({"models": reports, "default": house.default})

    @app.get(
        MODEL_PATH,
        tags=["models"],
        summary="Look at a model",
        responses={200: {"model": schemas.ModelReport}, **documented(404, 503)},
    )
    def model(served: Served = served_here) -> Response:
        """Its versions, how champion and shadow compare on the same rows, and the rows that are kept."""
        return JSONResponse(_report(served))

    @app.put(
        MODEL_PATH,
        tags=["models"],
        summary="Bring in a new version",
        responses=changed,
        openapi_extra={"requestBody": {"required": True, "content": {TAR: {"schema": {"type": "string"}}}}},
    )
    async def challenge(request: Request, served: Served = served_here) -> Response:
        """Bring in a challenger: the files of a saved model as a tar archive.

        It starts with the states that the model was saved with, takes in the rows that are kept, in the background,
        and then shadows the champion. Needs a token of scope admin.
        """
        if content_type(request) != TAR:
            raise UnknownFormat(f"Send the files of a model as {TAR}.")
        async with bundles.of(request) as body:
            await anyio.to_thread.run_sync(served.challenge, body)
        return JSONResponse(await anyio.to_thread.run_sync(_report, served))

    def step(path: str, summary: str, about: str, take: Callable[[Served, schemas.Step], object]) -> None:
        async def endpoint(request: Request, served: Served = served_here) -> Response:
            if content_type(request) != JSON:
                raise UnknownFormat(f"Send a body of type {JSON}.")
            async with small.of(request) as body:
                try:
                    given = _steps.validate_json(body)
                except ValidationError as error:
                    faults = error.errors(include_url=False, include_context=False, include_input=False)
                    raise InvalidBody(faults) from None
            await anyio.to_thread.run_sync(take, served, given)
            return JSONResponse(await anyio.to_thread.run_sync(_report, served))

        endpoint.__doc__ = about
        schema = {"$ref": "#/components/schemas/Step"}
        app.post(
            f"{MODEL_PATH}/{path}",
            tags=["models"],
            summary=summary,
            responses=changed,
            operation_id=path,
            openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}},
        )(endpoint)

    step(
        "promote",
        "Make the challenger the champion",
        "It takes in what is left of the champion's rows first; requests wait meanwhile. The champion of before "
        "follows it from then on. Needs a token of scope admin.",
        lambda served, given: served.promote(given["version"], given.get("force", False)),
    )
    step(
        "rollback",
        "Make the former champion the champion again",
        "It has taken in all rows since. Needs a token of scope admin.",
        lambda served, given: served.roll_back(given["version"]),
    )

    @app.delete(
        f"{MODEL_PATH}/versions/{{version}}",
        tags=["models"],
        summary="Drop a version",
        responses={200: {"model": schemas.ModelReport}, **documented(404, 409, 422, 503)},
    )
    def drop(version: int, served: Served = served_here) -> Response:
        """Remove a challenger or a former champion, with its states. Needs a token of scope admin."""
        served.drop(version)
        return JSONResponse(_report(served))


def _report(served: Served) -> dict[str, object]:
    service = served.present()
    return {**served.report(), **service.about(), "series": service.number()}
