"""Parse the bytes of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from aru.errors import InputError
from aru.serve import schemas, tables
from aru.serve.incoming import BadBody, TooLarge, from_arrow, from_csv, from_rows, require
from aru.serve.service import ForecastRequest, Service, UpdateRequest, unique_ids
from aru.serve.tables import ARROW, CSV, JSON, ColumnKinds, Columns

FAULTS_SHOWN = 20  # faults of a body that an answer lists

_observations: TypeAdapter[schemas.ObservationsBody] = TypeAdapter(schemas.ObservationsBody)
_forecasts: TypeAdapter[schemas.ForecastBody] = TypeAdapter(schemas.ForecastBody)


class UnknownFormat(Exception):
    """A content type that the service does not read."""


class InvalidBody(Exception):
    """A JSON body that does not have the documented form; `faults` say where."""

    def __init__(self, error: ValidationError) -> None:
        super().__init__("The body does not have the form that /docs describes.")
        self.faults = [
            {"where": ".".join(map(str, fault["loc"])), "reason": fault["msg"]}
            for fault in error.errors(include_url=False, include_context=False, include_input=False)[:FAULTS_SHOWN]
        ]


class Reader(NamedTuple):
    """Reads requests for one service."""

    service: Service
    max_rows: int

    def update(self, body: bytes, content: str, late: Any, allow_jump: bool = False) -> UpdateRequest:
        """New observations. `late` and `allow_jump` are used if the body does not contain them."""
        kinds = self.service.tables
        static: Columns | None = None
        if content == JSON:
            given = _read(_observations.validate_json, body)
            self._check(len(given["observations"]), "rows")
            rows = from_rows(given["observations"], kinds.observations, ("ds", "y"), "observations")
            late, allow_jump = given.get("late", late), given.get("allow_jump", allow_jump)
            if given.get("static") and kinds.static.names:
                static = from_rows(given["static"] or [], kinds.static, (), "static")
        else:
            both = kinds.observations.with_columns_of(kinds.static)
            whole = self._table(body, content, both, "observations")
            rows = _pick(whole, ("unique_id", "ds", "y", *kinds.observations.names), "observations")
            if kinds.static.names and set(kinds.static.names) <= whole.keys():
                static = tables.static_of(whole, kinds.static)
        ids = unique_ids(rows["unique_id"])
        return UpdateRequest(rows, ids, static if static is None else tables.only(static, ids), late, allow_jump)

    def forecast(self, body: bytes, content: str, ids: Sequence[str], level: Sequence[float]) -> ForecastRequest:
        """What to forecast. `ids` and `level` are used for CSV and Arrow, whose bodies cannot contain them."""
        kinds, futr, wanted = self.service.tables.future, None, None
        if content == JSON:
            given = _read(_forecasts.validate_json, body)
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
        return ForecastRequest(keys, futr, tuple(level))

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

    def _check(self, rows: int, what: str) -> None:
        if rows > self.max_rows:
            raise TooLarge(f"{rows:,} {what} are more than {self.max_rows:,} in one request: ask in parts.")


def _read(parse: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return parse(body)
    except ValidationError as error:
        if error.errors()[0]["type"] == "json_invalid":
            raise BadBody(f"The body is no JSON: {error.errors()[0]['msg']}.") from None
        raise InvalidBody(error) from None


def _pick(columns: Columns, names: Sequence[str], table: str) -> Columns:
    """These columns of a table, which must have them."""
    require(columns, names, table)
    return {name: columns[name] for name in names}
