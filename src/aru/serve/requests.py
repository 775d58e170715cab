"""Parse the bytes of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from aru.errors import InputError
from aru.serve import schemas, tables
from aru.serve.asked import ForecastRequest, UpdateRequest
from aru.serve.incoming import BadBody, TooLarge, from_arrow, from_csv, from_rows, require
from aru.serve.options import LONGEST
from aru.serve.service import Service, unique_ids
from aru.serve.tables import ARROW, CSV, JSON, ColumnKinds, Columns
from aru.store.receipts import digest_of

FAULTS_SHOWN = 20  # faults of a body that an answer lists
LOOKED_AT = 1000  # rows that are looked at for more faults
# A JSON body is counted before it becomes objects: brackets and values for each row, and some to spare.
BRACKETS, VALUES, SPARE = 2, 32, 1000

_observations: TypeAdapter[Any] = TypeAdapter(schemas.ObservationsBody)
_forecasts: TypeAdapter[Any] = TypeAdapter(schemas.ForecastBody)
_FIELDS: dict[TypeAdapter[Any], frozenset[str]] = {
    _observations: frozenset(schemas.ObservationsBody.__annotations__),
    _forecasts: frozenset(schemas.ForecastBody.__annotations__),
}
_ROWS: dict[str, TypeAdapter[Any]] = {
    "observations": TypeAdapter(schemas.Observation),
    "static": TypeAdapter(schemas.StaticRow),
    "futr": TypeAdapter(schemas.FutureRow),
}


class UnknownFormat(Exception):
    """A content type that the service does not read."""


def content_type(request: Request) -> str:
    """The type of the body. It is required, because a web page of another site cannot send these types unasked."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise UnknownFormat("Compressed bodies are not known: send them as they are.")
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


class InvalidBody(Exception):
    """A JSON body that does not have the documented form; `faults` say where."""

    def __init__(self, faults: Sequence[Any]) -> None:
        super().__init__("The body does not have the form that /docs describes.")
        self.faults = list_faults(faults)


def list_faults(faults: Sequence[Any]) -> list[dict[str, str]]:
    """Places and reasons of the first faults that pydantic found."""
    return [{"where": ".".join(map(str, f["loc"])), "reason": f["msg"]} for f in faults[:FAULTS_SHOWN]]


class Reader(NamedTuple):
    """Reads requests for one service. With `whole` observations keep the columns that its model does not know."""

    service: Service
    max_rows: int
    whole: bool = False

    def update(self, body: bytes, content: str, late: Any, allow_jump: bool = False) -> UpdateRequest:
        """New observations. `late` and `allow_jump` are used if the body does not contain them."""
        kinds = self.service.tables
        if self.whole:
            kinds = kinds._replace(observations=kinds.observations._replace(others=True))
        static: Columns | None = None
        if content == JSON:
            given = self._read(_observations, body)
            self._check(len(given["observations"]), "rows")
            whole = from_rows(given["observations"], kinds.observations, ("ds", "y"), "observations")
            late, allow_jump = given.get("late", late), given.get("allow_jump", allow_jump)
            if given.get("static") and kinds.static.names:
                static = from_rows(given["static"] or [], kinds.static, (), "static")
        else:
            both = kinds.observations.with_columns_of(kinds.static)
            whole = self._table(body, content, both, "observations")
            if kinds.static.names and set(kinds.static.names) <= whole.keys():
                static = tables.static_of(whole, kinds.static)
        rows = _pick(whole, ("unique_id", "ds", "y", *kinds.observations.names), "observations")
        known = {*rows, *kinds.static.names} if self.whole else whole
        extra = {name: values for name, values in whole.items() if name not in known}
        ids = unique_ids(rows["unique_id"])
        digest = digest_of(content.encode(), late.encode(), body)
        static = static if static is None else tables.only(static, ids)
        return UpdateRequest(rows, ids, static, late, allow_jump, digest, extra)

    def forecast(self, body: bytes, content: str, ids: Sequence[str], level: Sequence[float]) -> ForecastRequest:
        """What to forecast. `ids` and `level` are used for CSV and Arrow, whose bodies cannot contain them."""
        kinds, futr, wanted = self.service.tables.future, None, None
        if content == JSON:
            given = self._read(_forecasts, body)
            level, wanted = given.get("level") or (), given.get("unique_ids")
            if given.get("futr"):
                self._check(len(given["futr"] or ()), "rows")
                futr = from_rows(given["futr"] or (), kinds, ("ds",), "futr")
        else:
            if body:
                futr = _pick(self._table(body, content, kinds, "futr"), ("unique_id", "ds", *kinds.names), "futr")
            wanted = [self.service.key(name) for name in ids] or None
        if wanted is None:
            wanted = self.service.keys() if futr is None else unique_ids(futr["unique_id"])
        keys = list(dict.fromkeys(wanted))
        self._check(len(keys) * self.service.runtime.h, "rows of forecasts")
        if not keys:
            raise InputError("There is no series to forecast", "Send observations first, or name a series.")
        if futr is not None and len(keys) < len(futr["unique_id"]):
            futr = tables.only(futr, keys)
        return ForecastRequest(keys, futr, tuple(level), self.service)

    def _table(self, body: bytes, content: str, kinds: ColumnKinds, name: str) -> Columns:
        readers: dict[str, Callable[[bytes, ColumnKinds, str, int], Columns]] = {
            CSV: from_csv,
            ARROW: from_arrow,
        }
        if content not in readers:
            raise UnknownFormat(f"Bodies of type {content[:100]!r} are not known: send {JSON}, {CSV} or {ARROW}.")
        columns = readers[content](body, kinds, name, self.max_rows)
        if len(columns["unique_id"]) == 0:
            raise InputError(f"{name} has no rows", "Send at least one.")
        return columns

    def _read(self, adapter: Any, body: bytes) -> Any:
        """A JSON body of the documented form."""
        brackets, commas = body.count(b"{") + body.count(b"["), body.count(b",")
        if brackets > SPARE + BRACKETS * self.max_rows or commas > SPARE + VALUES * self.max_rows:
            raise TooLarge(
                f"The body has {brackets:,} brackets and {commas:,} commas, more than {BRACKETS} and {VALUES} for each "
                f"of {self.max_rows:,} rows: send it in parts."
            )
        try:
            given = adapter.validate_json(body)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            if faults[0]["type"] == "json_invalid":
                raise BadBody(f"The body is no JSON: {faults[0]['msg']}.") from None
            raise InvalidBody(_more_faults(faults, body)) from None
        others = [name for name in given if name not in _FIELDS[adapter]]
        if others:
            message = f"Extra inputs are not permitted; known are {', '.join(sorted(_FIELDS[adapter]))}"
            raise InvalidBody([{"loc": (name[:LONGEST],), "msg": message} for name in others[:FAULTS_SHOWN]])
        return given

    def _check(self, rows: int, what: str) -> None:
        if rows > self.max_rows:
            raise TooLarge(f"{rows:,} {what} are more than {self.max_rows:,} in one request: ask in parts.")


def _more_faults(faults: list[Any], body: bytes) -> list[Any]:
    """The faults of the first wrong row, and of the rows after it.

    pydantic stops at the first wrong row, since a fault takes a kilobyte and a row of two bytes can have three.
    """
    table, first = faults[0]["loc"][:2] if len(faults[0]["loc"]) > 1 else ("", 0)
    if table not in _ROWS:
        return faults
    rows = from_json(body)[table]
    for number, row in enumerate(rows[first + 1 : first + LOOKED_AT], first + 1):
        if len(faults) >= FAULTS_SHOWN:
            break
        try:
            _ROWS[table].validate_python(row)
        except ValidationError as error:
            faults += [
                {**fault, "loc": (table, number, *fault["loc"])}
                for fault in error.errors(include_url=False, include_context=False, include_input=False)
            ]
    return faults


def _pick(columns: Columns, names: Sequence[str], table: str) -> Columns:
    """These columns of a table, which must have them."""
    require(columns, names, table)
    return {name: columns[name] for name in names}
