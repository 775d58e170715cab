"""Columns as JSON, CSV or Arrow responses, with times in the format of requests."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from aru.data.clock import Clock
from aru.errors import Offending


def times(ds: Any, datetime: Clock | None) -> list[Any]:
    """Internal times for JSON and CSV: ISO times, in the zone of training if it had one, or integers."""
    if datetime is None:
        return list(map(int, ds))
    if datetime.zone is not None:
        return [time.isoformat() for time in datetime.write(np.asarray(ds, np.int64))]
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


def to_rows(columns: Mapping[str, Any], datetime: Clock | None) -> list[dict[str, Any]]:
    """Columns as the rows of a JSON body."""
    return _as_rows({name: _plain(name, values, datetime) for name, values in columns.items()})


def _plain(name: str, values: Any, datetime: Clock | None) -> list[Any]:
    if name == "ds":
        return times(values, datetime)
    return numbers(values) if values.dtype.kind == "f" else values.tolist()


def _as_rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def to_csv(columns: Mapping[str, Any], datetime: Clock | None) -> bytes:
    """Columns as a CSV body."""
    data = {name: times(v, datetime) if name == "ds" else v for name, v in columns.items()}
    return pd.DataFrame(data).to_csv(index=False).encode()


def to_arrow(columns: Mapping[str, Any], datetime: Clock | None) -> bytes:
    """Columns as an Arrow stream."""
    data = {n: datetime.write(v) if n == "ds" and datetime else v for n, v in columns.items()}
    ids = {True: pa.int64(), False: pa.string()}[columns["unique_id"].dtype.kind in "iu"]
    arrays = {n: pa.array(v, ids) if n == "unique_id" else pa.array(v) for n, v in data.items()}
    table = pa.table(arrays)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def offending_rows(rows: Offending) -> list[dict[str, Any]]:
    """The rows that an error lists, with times as in other responses, and null for NaN and infinity."""
    return _as_rows({name: list(map(_json, values)) for name, values in rows.columns.items()})


def _json(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    return None if isinstance(value, float) and not np.isfinite(value) else value
