"""Rows of a request as checked columns, from JSON, CSV or Arrow.

Values are checked against the types of training for each request alone, so that its result does not depend on the
requests it is batched with.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from flatbuffers.number_types import Uint8Flags
from flatbuffers.table import Table

from aru.data.columns import LARGEST
from aru.data.missing import MISSING_TEXT
from aru.errors import REPORTED, SHOWN, ColumnError, InputError, Offending, ValueRangeError, listing, quoted, verbatim
from aru.serve.options import LONGEST
from aru.serve.tables import ColumnKinds, Columns, among

_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = r"^[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*$|^[+-]?(?i:inf|infinity|nan)$"
MOST_COLUMNS = 1000  # columns of a table at most
SPARE_LINES = 1000  # of a CSV table: header and blank lines
# Arrow's Message.fbs: where the vtable of a message, of a dictionary batch and of a record batch has its fields.
HEADER_TYPE, HEADER, DICTIONARY_DATA, COMPRESSION = 6, 8, 6, 10
DICTIONARY, RECORDS = 2, 3  # types of headers
EXPANSION, SPARE_BYTES = 10, 2**20  # how many times its bytes, and some to spare, the text of a table may have


class BadBody(Exception):
    """A body that is not what its content type says."""


class TooLarge(Exception):
    """A body or a table beyond the limits."""


def from_rows(rows: Sequence[Mapping[str, Any]], kinds: ColumnKinds, fixed: Sequence[str], name: str) -> Columns:
    """Rows of a JSON body. `fixed` are the columns other than id and covariates: ds and y."""
    columns = {}
    for column in ("unique_id", *fixed, *kinds.names):
        try:
            values = [row[column] for row in rows]
        except KeyError:
            raise _lacking(rows, column, name) from None
        columns[column] = _column(column, np.array([*values, None], object)[:-1], kinds, name)
    if kinds.others:
        more = dict.fromkeys(key for row in rows for key in row if key not in columns)
        for column in list(more)[:MOST_COLUMNS]:
            columns[column] = np.array([*(_scalar(row.get(column)) for row in rows), None], object)[:-1]
    return columns


def _scalar(value: Any) -> Any:
    """A value of a column that the model does not know, as far as it can be kept."""
    if type(value) is str and len(value) > LONGEST:
        return None
    return value if type(value) in (str, int, float, bool) else None


def _lacking(rows: Sequence[Mapping[str, Any]], column: str, name: str) -> ColumnError:
    lacking = [number for number, row in enumerate(rows) if column not in row]
    ids = [rows[number]["unique_id"] for number in lacking]
    return ColumnError(
        f"{len(lacking)} rows of {name} have no {quoted(column)}, for instance of series {listing(ids)}",
        "Give it in every row; null is a missing value.",
        columns=[column],
        rows=Offending({"unique_id": ids[:REPORTED], "row": lacking[:REPORTED]}, len(lacking)),
    )


def from_csv(body: bytes, kinds: ColumnKinds, name: str, most: int) -> Columns:
    """A CSV body of at most `most` rows, with a header."""
    if body[: body.find(b"\n")].count(b",") > MOST_COLUMNS:
        raise BadBody(f"The table has more than {MOST_COLUMNS:,} columns.")
    lines = max(body.count(b"\n"), body.count(b"\r"))
    if lines > most + SPARE_LINES:
        raise TooLarge(f"{lines:,} lines are more than {most:,} rows in one request: send them in parts.")
    words, numbers = {"unique_id", "ds", *kinds.categories}, {"y", *kinds.numbers}
    try:
        columns = _from_table(_read_csv(body, words, numbers), kinds, name, most)
    except InputError:
        raise
    except (pa.ArrowException, ValueError) as error:
        _refuse_words(body, words, numbers, name)
        raise BadBody(f"The body cannot be read as CSV: {_first_line(error)}.") from error
    words_of = {c for c in kinds.untold & columns.keys() if columns[c].dtype == object}
    for category in (kinds.categories & columns.keys()) | words_of:
        values = columns[category]
        values[among(values, MISSING_TEXT)] = None
    return columns


def _read_csv(body: bytes, words: Collection[str], numbers: Collection[str]) -> pa.Table:
    options = pa.csv.ConvertOptions(
        column_types={c: pa.string() for c in words} | {c: pa.float64() for c in numbers},
        null_values=sorted(MISSING_TEXT),
        strings_can_be_null=False,  # a series may be called NA
    )
    return pa.csv.read_csv(io.BytesIO(body), convert_options=options)


def _refuse_words(body: bytes, words: Collection[str], numbers: Collection[str], name: str) -> None:
    """Raise an error that lists rows with text in place of a number, if that is why a table cannot be read."""
    try:
        table = _read_csv(body, {*words, *numbers}, ())
        headings = table.column_names
    except (pa.ArrowException, ValueError):  # the header may be no text at all
        return
    for heading, column in zip(headings, table.columns, strict=True):
        if heading in numbers:
            fine = pc.or_(pc.match_substring_regex(column, _NUMBER), pc.is_in(column, pa.array(sorted(MISSING_TEXT))))
            says = f"{quoted(heading)} of {name} must be a number; it is not"
            _refuse(~fine.to_numpy(), column.to_pylist(), heading, says)


def from_arrow(body: bytes, kinds: ColumnKinds, name: str, most: int) -> Columns:
    """A body of at most `most` rows in Arrow's stream format. Compression is refused: it could expand to any size."""
    try:
        if any(map(_is_compressed, pa.ipc.MessageReader.open_stream(pa.BufferReader(body)))):
            raise BadBody("The Arrow stream is compressed: write it without compression.")
        with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
            table = reader.read_all()  # views of the body
        table.validate(full=True)
        _refuse_expansion(table, len(body))
        return _from_table(table, kinds, name, most)
    except InputError:
        raise
    except (pa.ArrowException, ValueError, OSError, OverflowError, TypeError, struct.error, IndexError) as error:
        raise BadBody(f"The body cannot be read as an Arrow stream: {_first_line(error)}.") from error


def _is_compressed(message: pa.Message) -> bool:
    """Whether the buffers of a message are compressed.

    pyarrow cannot refuse compressed buffers or detect them before it expands them. So this reads the header's field
    `compression` with the flatbuffers library, which onnxruntime installs.
    """
    data = message.metadata.to_pybytes()
    root = Table(data, Table(data, 0).Indirect(0))
    kind, header = root.GetSlot(HEADER_TYPE, 0, Uint8Flags), _child(root, HEADER)
    if kind == DICTIONARY:
        kind, header = RECORDS, _child(header, DICTIONARY_DATA)
    return bool(kind == RECORDS and header.Offset(COMPRESSION))


def _refuse_expansion(table: pa.Table, size: int) -> None:
    """Refuse a table whose text is far larger than its bytes, as dictionaries and string views allow."""
    text = [column for column in table.columns if _is_text(_values_of(column.type))]
    total = sum(int(_lengths(chunk).sum()) for column in text for chunk in column.chunks)
    most = EXPANSION * (size + SPARE_BYTES)
    if total > most:
        raise TooLarge(f"The text of the table has {total:,} bytes where {size:,} were sent: send it in parts.")


def _lengths(chunk: pa.Array) -> Any:
    """Bytes of every string, as an array of int64."""
    if pa.types.is_dictionary(chunk.type):
        return pc.take(pa.array(_lengths(chunk.dictionary)), chunk.indices).fill_null(0).to_numpy()
    if pa.types.is_string_view(chunk.type):  # for which pyarrow has no function: a view begins with its length
        views = np.frombuffer(chunk.buffers()[1] or b"", np.int32)[::4][chunk.offset : chunk.offset + len(chunk)]
        return np.where(chunk.is_valid().to_numpy(zero_copy_only=False), views, 0).astype(np.int64)
    return pc.binary_length(chunk).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)


def _values_of(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _child(parent: Table, slot: int) -> Table:
    return Table(parent.Bytes, parent.Indirect(parent.Pos + parent.Offset(slot)))


def _from_table(table: pa.Table, kinds: ColumnKinds, name: str, most: int) -> Columns:
    if table.num_rows > most:
        raise TooLarge(f"{table.num_rows:,} rows are more than {most:,} in one request: send them in parts.")
    have = table.column_names
    repeated = sorted({c for c in have if have.count(c) > 1})
    if repeated:
        raise ColumnError(f"{name} has several columns of the same name", "Keep one.", columns=repeated)
    require(have, ["unique_id"], name)
    wanted = {"unique_id", "ds", "y", *kinds.names}
    columns = {c: _column(c, _to_numpy(table[c], c, name), kinds, name) for c in have if c in wanted}
    for c in (c for c in have if kinds.others and c not in wanted):
        with contextlib.suppress(ColumnError):
            columns[c] = np.array([*map(_scalar, _to_numpy(table[c], c, name).tolist()), None], object)[:-1]
    return columns


def require(have: Collection[str], names: Sequence[str], table: str) -> None:
    """Refuse a table that lacks a column."""
    missing = [name for name in names if name not in have]
    if missing:
        raise ColumnError(
            f"{table} has no column {', '.join(map(quoted, missing))}; it has {listing(list(have), 20)}",
            "Rename or add the columns.",
            columns=missing,
        )


def _to_numpy(column: pa.ChunkedArray, heading: str, name: str) -> Any:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_timestamp(kind):
        stamps = column.to_numpy().astype("datetime64[us]")
        if kind.tz is None or np.isnat(stamps).any():
            return stamps
        return np.datetime_as_string(stamps, timezone="UTC").astype(object)  # Arrow keeps them in UTC
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("us"), safe=False).to_numpy()
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if plain and not column.null_count:
        return column.to_numpy()
    if not (plain or pa.types.is_boolean(kind) or pa.types.is_null(kind) or _is_text(kind)):
        raise _mistyped(
            heading, f"{verbatim(heading)} of {name} has type {kind}", "Use numbers, strings, bools or times."
        )
    return np.array([*column.to_pylist(), None], object)[:-1]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _mistyped(heading: str, problem: str, remedy: str) -> ColumnError:
    return ColumnError(problem, remedy, columns=[heading])


def _column(heading: str, values: Any, kinds: ColumnKinds, name: str) -> Any:
    """Values converted to the type of this column in training."""
    if heading == "unique_id":
        return _keys(values, kinds.integer_ids, heading, name)
    if heading == "ds":
        if values.dtype.kind == "M" and kinds.datetime:
            _refuse(np.isnat(values), values, heading, f"ds of {name} is missing")
            return values
        return _keys(values, not kinds.datetime, heading, name)
    if heading == "y" or heading in kinds.numbers:
        return _floats(values, heading, name)
    if heading in kinds.untold:
        return _as_sent(values, heading, name)
    return _words(values, heading in kinds.bools, heading, name)


def _keys(values: Any, integer: bool, heading: str, name: str) -> Any:
    """Integers or strings, as in training."""
    have, what = values, f"{verbatim(heading)} of {name}"
    if values.dtype == object:
        types = set(map(type, values))
        if integer and types == {str}:  # of a CSV file
            wrong = np.array([_INTEGER_TEXT.fullmatch(value) is None for value in values])
            _refuse(wrong, have, heading, f"{what} must be an integer, as in training; it is not")
            values, types = np.array([*map(int, values), None], object)[:-1], {int}
        if types - {int if integer else str}:
            wrong = np.array([type(v) is not (int if integer else str) for v in values])
            kind = "an integer" if integer else "a string"
            _refuse(wrong, have, heading, f"{what} must be {kind}, as in training; it is not")
        if not integer:
            _refuse(values == "", have, heading, f"{what} is missing")
            wrong = np.fromiter(map(len, values), np.int64, len(values)) > LONGEST
            _refuse(wrong, have, heading, f"{what} may have {LONGEST} characters; it has more")
    elif (values.dtype.kind in "iu") != integer:
        kind = "integers" if integer else "strings"
        raise _mistyped(heading, f"{what} has type {values.dtype}, but training had {kind}", "Convert the column.")
    if not integer:
        return values
    wrong = np.asarray((values > LARGEST) | (values < -LARGEST - 1), bool)
    _refuse(wrong, have, heading, f"{what} must fit into 64 bits with a sign, as in training; it does not")
    return values.astype(np.int64)


def _floats(values: Any, heading: str, name: str) -> Any:
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    wrong = np.array([not (v is None or type(v) in (int, float)) for v in values], bool)
    _refuse(wrong, values, heading, f"{quoted(heading)} of {name} must be a number; it is not")
    try:
        return values.astype(np.float64)
    except OverflowError:
        raise ValueRangeError(
            f"{quoted(heading)} of {name} has numbers too large for a float", "Correct these rows.", columns=[heading]
        ) from None


def _words(values: Any, boolean: bool, heading: str, name: str) -> Any:
    """Categories as strings: strings, bools, and numbers that stand for bools; None where missing."""
    what = f"{quoted(heading)} of {name} was a category in training"
    if values.dtype != object:
        missing = np.isnan(values.astype(float))
        if not (boolean or missing.all()):
            raise _mistyped(heading, f"{what} and is numeric now", "Send strings.")
        values = np.where(missing, None, values.astype(object))
    allowed = (str, bool, int, float) if boolean else (str, bool)
    wrong = np.array([not (v is None or type(v) in allowed) for v in values], bool)
    _refuse(wrong, values, heading, f"{what}; it is no string", "Send a string.")
    wrong = np.array([type(v) is str and len(v) > LONGEST for v in values], bool)
    _refuse(wrong, values, heading, f"{quoted(heading)} of {name} may have {LONGEST} characters; it has more")
    return np.array([*(None if v is None or v != v else str(v) for v in values), None], object)[:-1]


def _as_sent(values: Any, heading: str, name: str) -> Any:
    """Numbers, strings or bools of a column whose type is not known yet."""
    if values.dtype != object:
        return values
    wrong = np.array([type(v) is str and len(v) > LONGEST for v in values], bool)
    _refuse(wrong, values, heading, f"{quoted(heading)} of {name} may have {LONGEST} characters; it has more")
    return values


def _refuse(wrong: Any, values: Any, heading: str, says: str, remedy: str = "Correct these rows.") -> None:
    if not wrong.any():
        return
    at = np.flatnonzero(wrong)
    rows, shown = at[:REPORTED].tolist(), [_short(values[row]) for row in at[:REPORTED]]
    first = ", ".join(f"row {row} ({verbatim(value)})" for row, value in zip(rows[:SHOWN], shown, strict=False))
    more = f" and {len(at) - SHOWN} more" if len(at) > SHOWN else ""
    raise ColumnError(
        f"{says} in {first}{more}",
        remedy,
        columns=[heading],
        rows=Offending({"row": rows, "value": shown}, len(at)),
    )


def _short(value: object) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) < 40 else f"{text[:37]}..."


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:200]
