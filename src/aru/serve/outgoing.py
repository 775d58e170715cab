"""Columns as they leave the service: JSON, CSV or Arrow, with times as clients write them."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from aru.data.frequency import to_index
from aru.errors import Offending

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?: (\d\d:\d\d:\d\d(?:\.\d+)?))?")
_WHOLE = re.compile(r"[+-]?\d{1,19}")


def times(ds: Any, datetime: bool) -> list[Any]:
    """Internal times as JSON and CSV have them: ISO times, or integers."""
    if not datetime:
        return list(map(int, ds))
    stamps = np.asarray(ds, np.int64).view("datetime64[us]")
    whole = bool((np.asarray(ds, np.int64) % 1_000_000 == 0).all())
    text: list[Any] = stamps.astype("datetime64[s]" if whole else "datetime64[us]").astype(str).tolist()
    return text


def numbers(values: Any) -> list[float | None]:
    """NaN and infinity as null, since JSON has neither."""
    array = np.asarray(values, np.float64)
    if np.isfinite(array).all():
        finite: list[float | None] = array.tolist()
        return finite
    return [value if kept else None for value, kept in zip(array.tolist(), np.isfinite(array), strict=True)]


def to_rows(columns: Mapping[str, Any], datetime: bool) -> list[dict[str, Any]]:
    """Columns as the rows of a JSON body."""
    return _as_rows({name: _plain(name, values, datetime) for name, values in columns.items()})


def _plain(name: str, values: Any, datetime: bool) -> list[Any]:
    if name == "ds":
        return times(values, datetime)
    return numbers(values) if values.dtype.kind == "f" else values.tolist()


def _as_rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def to_csv(columns: Mapping[str, Any], datetime: bool) -> bytes:
    """Columns as a CSV body."""
    data = {name: times(v, datetime) if name == "ds" else v for name, v in columns.items()}
    return pd.DataFrame(data).to_csv(index=False).encode()


def to_arrow(columns: Mapping[str, Any], datetime: bool) -> bytes:
    """Columns as an Arrow stream."""
    data = {n: to_index(v) if n == "ds" and datetime else v for n, v in columns.items()}
    ids = {True: pa.int64(), False: pa.string()}[columns["unique_id"].dtype.kind in "iu"]
    arrays = {n: pa.array(v, ids) if n == "unique_id" else pa.array(v) for n, v in data.items()}
    table = pa.table(arrays)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def offending_rows(rows: Offending, integer_ids: bool, datetime: bool) -> list[dict[str, Any]]:
    """The rows that an error lists, with ids and times as other answers have them.

    Errors name rows by text. A client wants the values that it sent: integers, or ISO times.
    """
    columns = dict(rows.columns)
    if integer_ids and "unique_id" in columns:
        columns["unique_id"] = list(map(_whole, columns["unique_id"]))
    if "ds" in columns:
        columns["ds"] = list(map(_iso if datetime else _whole, columns["ds"]))
    return _as_rows({name: list(map(_finite, values)) for name, values in columns.items()})


def _whole(text: Any) -> Any:
    return int(text) if isinstance(text, str) and _WHOLE.fullmatch(text) else text


def _iso(text: Any) -> Any:
    """`2024-01-31` and `2024-01-31 18:00:00` as `times` writes them; other text stays as it is."""
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    return f"{found[1]}T{found[2] or '00:00:00'}" if found else text


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
