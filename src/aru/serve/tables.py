"""Rows that came over the wire as checked columns, and columns as rows that go out: JSON, CSV and Arrow.

Every value is checked against the kind that training saw, request by request: what a request means must not depend
on the requests it is computed together with.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from aru.columns import LARGEST
from aru.errors import ColumnError, InputError, ValueRangeError, listing
from aru.frequency import to_index
from aru.schema import Group, Schema
from aru.serve.options import LONGEST
from aru.settings import Settings

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
_MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = r"^[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*$|^[+-]?(?i:inf|infinity|nan)$"
WIDE = 1000  # columns of a table at most
DICTIONARY, RECORDS = 2, 3  # kinds of Arrow messages

Columns = dict[str, np.ndarray[Any, np.dtype[Any]]]


class BadBody(Exception):
    """A body that is not what its content type says."""


class TooLarge(Exception):
    """A body or a table beyond the limits."""


class Kinds(NamedTuple):
    """What training knows about the columns of a table."""

    integer_ids: bool
    datetime: bool
    numbers: frozenset[str]
    categories: frozenset[str]
    bools: frozenset[str]  # those of the categories that training saw as such

    @property
    def names(self) -> list[str]:
        """The covariates."""
        return sorted(self.numbers | self.categories)


class Layouts(NamedTuple):
    """The columns of the three kinds of tables."""

    observations: Kinds
    future: Kinds
    static: Kinds

    @classmethod
    def of(cls, settings: Settings, schema: Schema) -> Layouts:
        """What a model expects."""

        def kinds(*groups: Group) -> Kinds:
            numbers = frozenset(c.name for group in groups for c in group[0])
            categories = frozenset(c.name for group in groups for c in group[1])
            bools = frozenset(c.name for group in groups for c in group[1] if c.boolean)
            return Kinds(schema.integer_ids, schema.datetime, numbers, categories, bools)

        static = (schema.stat[0], tuple(c for c in schema.stat[1] if c.name in settings.stat_exog_list))
        return cls(kinds(schema.futr, schema.hist), kinds(schema.futr), kinds(static))


def from_rows(rows: Sequence[Mapping[str, Any]], kinds: Kinds, fixed: Sequence[str], name: str) -> Columns:
    """Rows of a JSON body. `fixed` are the columns besides the id and the covariates: ds and y."""
    columns = {}
    for column in ("unique_id", *fixed, *kinds.names):
        try:
            values = [row[column] for row in rows]
        except KeyError:
            lacking = [row["unique_id"] for row in rows if column not in row]
            raise ColumnError(
                f"{len(lacking)} rows of {name} have no {column!r}, for instance of series {listing(lacking)}. "
                "Give it in every row; null is a missing value."
            ) from None
        columns[column] = _column(column, np.array([*values, None], object)[:-1], kinds, name)
    return columns


def from_csv(body: bytes, kinds: Kinds, name: str, most: int) -> Columns:
    """A CSV body of `most` rows at most, with a header; columns that are not asked for are left out."""
    if body[: body.find(b"\n")].count(b",") > WIDE:
        raise BadBody(f"The table has more than {WIDE:,} columns.")
    words, numbers = {"unique_id", "ds", *kinds.categories}, {"y", *kinds.numbers}
    try:
        columns = _from_table(_read_csv(body, words, numbers), kinds, name, most)
    except InputError:
        raise
    except (pa.ArrowException, ValueError) as error:
        _refuse_words(body, words, numbers, name)
        raise BadBody(f"The body cannot be read as CSV: {_first_line(error)}.") from error
    for category in kinds.categories & columns.keys():
        values = columns[category]
        values[_among(values, _MISSING)] = None
    return columns


def _read_csv(body: bytes, words: Collection[str], numbers: Collection[str]) -> pa.Table:
    options = pa.csv.ConvertOptions(
        column_types={c: pa.string() for c in words} | {c: pa.float64() for c in numbers},
        null_values=sorted(_MISSING),
        strings_can_be_null=False,  # a series may be called NA
    )
    return pa.csv.read_csv(io.BytesIO(body), convert_options=options)


def _refuse_words(body: bytes, words: Collection[str], numbers: Collection[str], name: str) -> None:
    """Say which rows have a word in place of a number, if that is why a table cannot be read."""
    try:
        table = _read_csv(body, {*words, *numbers}, ())
        headings = table.column_names
    except (pa.ArrowException, ValueError):  # the header may be no text at all
        return
    for heading, column in zip(headings, table.columns, strict=True):
        if heading in numbers:
            fine = pc.or_(pc.match_substring_regex(column, _NUMBER), pc.is_in(column, pa.array(sorted(_MISSING))))
            _refuse(~fine.to_numpy(), column.to_pylist(), f"{heading!r} of {name} must be a number; it is not")


def from_arrow(body: bytes, kinds: Kinds, name: str, most: int) -> Columns:
    """A body of `most` rows at most in Arrow's stream format, not compressed: what is small must stay small."""
    try:
        if any(map(_is_compressed, pa.ipc.MessageReader.open_stream(io.BytesIO(body)))):
            raise BadBody("The Arrow stream is compressed: write it without compression.")
        with pa.ipc.open_stream(io.BytesIO(body)) as reader:
            table = reader.read_all()
        table.validate(full=True)
        return _from_table(table, kinds, name, most)
    except InputError:
        raise
    except (pa.ArrowException, ValueError, OSError, OverflowError, struct.error, IndexError) as error:
        raise BadBody(f"The body cannot be read as an Arrow stream: {_first_line(error)}.") from error


def _is_compressed(message: pa.Message) -> bool:
    """Whether a message has compressed buffers, as the flatbuffer of its header says (Message.fbs of Arrow)."""
    data = message.metadata.to_pybytes()

    def field(table: int, number: int) -> int:
        """Where a field of a table lies; 0 if it is absent."""
        (back,) = struct.unpack_from("<i", data, table)
        (size,) = struct.unpack_from("<H", data, table - back)
        slot = 4 + 2 * number
        (offset,) = struct.unpack_from("<H", data, table - back + slot) if slot < size else (0,)
        return table + offset if offset else 0

    def follow(at: int) -> int:
        (offset,) = struct.unpack_from("<I", data, at)
        return at + int(offset)

    root = follow(0)
    kind, header = data[field(root, 1)], follow(field(root, 2))
    if kind == DICTIONARY:
        kind, header = RECORDS, follow(field(header, 1))
    return kind == RECORDS and field(header, 3) != 0


def join(parts: Sequence[Columns]) -> Columns:
    """The rows of several requests, all of the same columns."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def static_of(columns: Columns, kinds: Kinds) -> Columns:
    """Static covariates that came along with other rows: one row per series, or several that contradict each other."""
    static = {name: columns[name] for name in ("unique_id", *kinds.names)}
    first = ~pd.DataFrame(static).duplicated().to_numpy()
    return {name: values[first] for name, values in static.items()}


def only(columns: Columns, ids: Iterable[Any]) -> Columns:
    """The rows of these series."""
    inside = _among(columns["unique_id"], set(ids))
    return {name: values[inside] for name, values in columns.items()}


def _among(values: Any, wanted: Collection[Any]) -> Any:
    return np.fromiter((value in wanted for value in values.tolist()), bool, len(values))


def _from_table(table: pa.Table, kinds: Kinds, name: str, most: int) -> Columns:
    if table.num_rows > most:
        raise TooLarge(f"{table.num_rows:,} rows are more than {most:,} in one request: send them in parts.")
    if len(set(table.column_names)) < len(table.column_names):
        raise ColumnError(f"{name} has several columns of the same name. Keep one.")
    if "unique_id" not in table.column_names:
        raise ColumnError(f"{name} has no column 'unique_id'; it has {listing(table.column_names, 20)}.")
    wanted = {"unique_id", "ds", "y", *kinds.names}
    return {c: _column(c, _to_numpy(table[c], c, name), kinds, name) for c in table.column_names if c in wanted}


def _to_numpy(column: pa.ChunkedArray, heading: str, name: str) -> Any:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_timestamp(kind):
        if kind.tz is not None:
            raise ColumnError(f"{heading} of {name} carries the time zone {kind.tz}: use times without one.")
        return column.to_numpy().astype("datetime64[us]")
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("us"), safe=False).to_numpy()
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if plain and not column.null_count:
        return column.to_numpy()
    if not (plain or pa.types.is_boolean(kind) or pa.types.is_null(kind) or _is_text(kind)):
        raise ColumnError(f"{heading} of {name} has type {kind}: use numbers, strings, bools or times.")
    return np.array([*column.to_pylist(), None], object)[:-1]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _column(heading: str, values: Any, kinds: Kinds, name: str) -> Any:
    """Values of the kind that training had in this column."""
    if heading == "unique_id":
        return _keys(values, kinds.integer_ids, heading, name)
    if heading == "ds":
        if values.dtype.kind == "M" and kinds.datetime:
            _refuse(np.isnat(values), values, f"ds of {name} is missing")
            return values
        return _keys(values, not kinds.datetime, heading, name)
    if heading == "y" or heading in kinds.numbers:
        return _floats(values, f"{heading!r} of {name}")
    return _words(values, heading in kinds.bools, f"{heading!r} of {name}")


def _keys(values: Any, integer: bool, heading: str, name: str) -> Any:
    """Integers or strings, as in training."""
    have = values
    if values.dtype == object:
        types = set(map(type, values))
        if integer and types == {str}:  # of a CSV file
            odd = np.array([_INTEGER.fullmatch(value) is None for value in values])
            _refuse(odd, have, f"{heading} of {name} must be an integer, as in training; it is not")
            values, types = np.array([*map(int, values), None], object)[:-1], {int}
        if types - {int if integer else str}:
            odd = np.array([type(v) is not (int if integer else str) for v in values])
            kind = "an integer" if integer else "a string"
            _refuse(odd, have, f"{heading} of {name} must be {kind}, as in training; it is not")
        if not integer:
            _refuse(values == "", have, f"{heading} of {name} is missing")
            odd = np.fromiter(map(len, values), np.int64, len(values)) > LONGEST
            _refuse(odd, have, f"{heading} of {name} may have {LONGEST} characters; it has more")
    elif (values.dtype.kind in "iu") != integer:
        kind = "integers" if integer else "strings"
        raise ColumnError(f"{heading} of {name} has type {values.dtype}, but training had {kind}: convert the column.")
    if not integer:
        return values
    odd = np.asarray((values > LARGEST) | (values < -LARGEST - 1), bool)
    _refuse(odd, have, f"{heading} of {name} must fit into 64 bits with a sign, as in training; it does not")
    return values.astype(np.int64)


def _floats(values: Any, what: str) -> Any:
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    odd = np.array([not (v is None or type(v) in (int, float)) for v in values], bool)
    _refuse(odd, values, f"{what} must be a number; it is not")
    try:
        return values.astype(np.float64)
    except OverflowError:
        raise ValueRangeError(f"{what} has numbers too large for a float.") from None


def _words(values: Any, boolean: bool, what: str) -> Any:
    """Categories: strings and bools as strings, and numbers where they stand for bools; None where missing."""
    if values.dtype != object:
        missing = np.isnan(values.astype(float))
        if not (boolean or missing.all()):
            raise ColumnError(f"{what} was a category in training and is numeric now: send strings.")
        values = np.where(missing, None, values.astype(object))
    allowed = (str, bool, int, float) if boolean else (str, bool)
    odd = np.array([not (v is None or type(v) in allowed) for v in values], bool)
    _refuse(odd, values, f"{what} was a category in training: send a string; it is none")
    return np.array([*(None if v is None or v != v else str(v) for v in values), None], object)[:-1]


def _refuse(odd: Any, values: Any, what: str) -> None:
    if odd.any():
        rows = np.flatnonzero(odd)
        raise ColumnError(f"{what} in {listing([f'row {row} ({_short(values[row])})' for row in rows])}.")


def _short(value: object) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) < 40 else f"{text[:37]}..."


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:200]


# Out


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
    plain = {name: _plain(name, values, datetime) for name, values in columns.items()}
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def _plain(name: str, values: Any, datetime: bool) -> list[Any]:
    if name == "ds":
        return times(values, datetime)
    return numbers(values) if values.dtype.kind == "f" else values.tolist()


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
