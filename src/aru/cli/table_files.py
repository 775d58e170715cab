"""Tables in CSV and Parquet files.

pandas reads the files, but the types of a CSV file are decided here, because pandas' guesses lose data: the id 007
becomes 7, the id NA missing, and 05/06/2024 may be May or June. Ids stay text unless all are plain integers. Times are
integers or ISO dates; others need a format. Columns that were categories in training stay text; for bools, the model
knows all spellings of true and false.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aru.cli.screen import times
from aru.data.missing import MISSING_TEXT
from aru.errors import (
    REPORTED,
    ColumnError,
    ConfigError,
    InputError,
    Offending,
    listing,
    quoted,
    verbatim,
)

if TYPE_CHECKING:
    import pandas as pd

    from aru.data.naming import Names

CSV_ENDINGS, PARQUET_ENDINGS = (".csv", ".csv.gz"), (".parquet",)
_SEPARATORS = {";": "semicolons", "\t": "tabs"}
_INTEGER_ID = r"0|-?[1-9]\d{0,17}"


@dataclasses.dataclass(frozen=True)
class TableFormat:
    """Columns of series, time and target in a file, its date format, and the types that a model expects."""

    names: Names = dataclasses.field(default_factory=lambda: _names())
    date_format: str | None = None
    id_type: type[int] | type[str] | None = None  # None: whatever the file has
    categories: frozenset[str] = frozenset()

    @property
    def unique_id(self) -> str:
        """The column of series."""
        return self.names.unique_id

    @property
    def ds(self) -> str:
        """The column of the time."""
        return self.names.ds

    @property
    def y(self) -> str:
        """The column of the target."""
        return self.names.y

    def like(self, id_type: type[int] | type[str], categories: Collection[str] = ()) -> TableFormat:
        """The same format for files that must match a trained model."""
        return dataclasses.replace(self, id_type=id_type, categories=frozenset(categories))


def _names() -> Names:
    from aru.data.naming import Names

    return Names()


def read_data(path: Path, form: TableFormat) -> pd.DataFrame:
    """A long table with series, time and target."""
    return _read(path, form, {form.unique_id: "--id-col", form.ds: "--time-col", form.y: "--target-col"})


def read_future(path: Path, form: TableFormat) -> pd.DataFrame:
    """A long table with series and time, for known covariates."""
    return _read(path, form, {form.unique_id: "--id-col", form.ds: "--time-col"})


def read_static(path: Path, form: TableFormat) -> pd.DataFrame:
    """A table with one row per series."""
    return _read(path, form, {form.unique_id: "--id-col"})


def check_output(path: Path | None) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path is None:
        return
    if not path.name.endswith((*CSV_ENDINGS, *PARQUET_ENDINGS)):
        raise InputError(f"{verbatim(path)} must end in {', '.join((*CSV_ENDINGS, *PARQUET_ENDINGS))}")
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise InputError(f"{verbatim(path)} cannot be written: {verbatim(reason)}")


def write(frame: pd.DataFrame, path: Path) -> None:
    """A frame as CSV or Parquet, by the file's extension."""
    try:
        if path.name.endswith(CSV_ENDINGS):
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, index=False)
    except OSError as error:
        raise InputError(f"{verbatim(path)} cannot be written: {verbatim(error.strerror or error)}") from error


def _read(path: Path, form: TableFormat, wanted: dict[str, str]) -> pd.DataFrame:
    typed = not path.name.endswith(CSV_ENDINGS)
    frame = _read_parquet(path) if typed else _read_csv(path, form)
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        have = [str(c) for c in frame.columns]
        remedy = f"Name the right one with {listing([wanted[name] for name in missing])}."
        if set(missing) <= {c.strip() for c in have}:
            remedy = "These names have blanks around them: remove the blanks."
        lacks, has = [repr(c) for c in missing], [repr(c) for c in have]
        raise ColumnError(
            f"{verbatim(path)} has no column {listing(lacks)}; it has {listing(has, 20)}", remedy, columns=missing
        )
    if not (typed and form.id_type is None):
        frame[form.unique_id] = _ids(frame[form.unique_id], form, path)
    if form.ds in wanted:
        frame[form.ds] = _times(frame, form, path)
    if form.y in wanted:
        _check_target(frame, form, path)
    return frame


def _read_csv(path: Path, form: TableFormat) -> pd.DataFrame:
    import pandas as pd

    text = {form.unique_id, form.ds, *form.categories}
    try:
        header = pd.read_csv(path, nrows=0, encoding="utf-8-sig").columns
        _check_separator(path, list(header))
        missing = {name: list(MISSING_TEXT) for name in header}
        missing[form.unique_id] = [""]  # a series may be called NA
        frame = pd.read_csv(
            path,
            encoding="utf-8-sig",
            dtype=dict.fromkeys(text.intersection(header), str),
            keep_default_na=False,
            na_values=missing,
            low_memory=False,
        )
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:  # parsing and encoding errors of pandas
        raise InputError(f"{verbatim(path)} cannot be read as CSV: {_first_line(error)}") from error
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes columns without a heading for an index
        raise InputError(f"{verbatim(path)} cannot be read as CSV: its rows have more cells than its first line")
    return frame


def _check_separator(path: Path, header: list[str]) -> None:
    found = [name for sign, name in _SEPARATORS.items() if len(header) == 1 and sign in header[0]]
    if found:
        raise InputError(
            f"{verbatim(path)} is separated by {found[0]}: its first line is {quoted(header[0])}",
            "Separate columns by commas, and write decimals with a point.",
        )


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.name.endswith(PARQUET_ENDINGS):
        raise InputError(
            f"{verbatim(path)} has an extension that is not known",
            f"Tables are {', '.join((*CSV_ENDINGS, *PARQUET_ENDINGS))} files.",
        )
    if path.is_dir():
        raise InputError(f"{verbatim(path)} is a folder", "Give one file.")
    try:
        frame = pd.read_parquet(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise InputError(f"{verbatim(path)} cannot be read as Parquet: {_first_line(error)}") from error
    return frame.reset_index() if any(name is not None for name in frame.index.names) else frame


def _ids(column: pd.Series[Any], form: TableFormat, path: Path) -> pd.Series[Any]:
    """Ids of the model's type; without a model integers if all are plain integers, else text."""
    integers = column.dtype.kind in "iu"
    if integers and form.id_type is not str:
        return column
    if not integers and column.isna().any():
        return column  # the library's own checks raise an error with the rows
    ids = column.astype(str)
    if form.id_type is str:
        return ids
    plain = ids.str.fullmatch(_INTEGER_ID)
    if form.id_type is int and not plain.all():
        raise InputError(
            f"The series of the model are numbered, but {verbatim(form.unique_id)} of {verbatim(path)} holds "
            f"{listing([repr(i) for i in ids[~plain].unique()])}",
            "Use the ids of the training data.",
            columns=[form.unique_id],
        )
    return ids.astype("int64") if plain.all() and len(ids) else ids


def _times(frame: pd.DataFrame, form: TableFormat, path: Path) -> pd.Series[Any]:
    """Integers, or timestamps. Dates that could be read in two ways are refused, not guessed."""
    import pandas as pd

    from aru.data.moments import iso_times, zoned

    column = frame[form.ds]
    if column.dtype.kind == "M":
        return column
    written = form.date_format
    if column.dtype.kind in "iuf" and written is None:
        return column
    text = column.astype(str).where(column.notna(), None)
    exact = written is None and bool(zoned(text).any())
    if written is None and text.dropna().str.fullmatch(r"-?\d{1,18}").all():
        return pd.to_numeric(column)
    try:
        in_utc = exact or (written is not None and "%z" in written)
        parsed = (
            pd.to_datetime(text, format=written, errors="coerce", utc=in_utc) if written else iso_times(text, in_utc)
        )
    except ValueError as error:
        raise ConfigError(f"--date-format {verbatim(written)} is no format: {_first_line(error)}") from error
    bad = frame[parsed.isna() & column.notna()]
    if len(bad):
        how = f"a date written as {verbatim(written)}" if written else "a date such as 2024-01-31"
        cells = zip(bad[form.ds], bad[form.unique_id], strict=True)
        shown = listing([f"{time!r} (series {series})" for time, series in cells])
        raise ColumnError(
            f"{verbatim(form.ds)} of {verbatim(path)} is not {how} in {len(bad)} rows: {shown}",
            "Say how dates are written, for instance with --date-format %d/%m/%Y.",
            columns=[form.ds],
            rows=_offending(bad, form),
        )
    return text if exact else parsed  # the library knows what times with and without a zone mean to a model


def _check_target(frame: pd.DataFrame, form: TableFormat, path: Path) -> None:
    import pandas as pd

    target = frame[form.y]
    if target.dtype.kind in "iufb":
        return
    bad = frame[pd.to_numeric(target, errors="coerce").isna() & target.notna()]
    if len(bad):
        cells = zip(bad[form.y], bad[form.unique_id], times(bad[form.ds]), strict=True)
        shown = listing([f"{value!r} at ({series}, {time})" for value, series, time in cells])
        raise ColumnError(
            f"{verbatim(form.y)} of {verbatim(path)} is not a number in {len(bad)} rows: {shown}",
            "Leave missing values empty.",
            columns=[form.y],
            rows=_offending(bad, form),
        )


def _offending(bad: pd.DataFrame, form: TableFormat) -> Offending:
    head = bad.head(REPORTED)
    with form.names.spoken():
        keys = {"unique_id": head[form.unique_id].tolist(), "ds": head[form.ds].tolist()}
        return Offending({**keys, "row": head.index.tolist()}, len(bad))


def _unreadable(path: Path, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{verbatim(path)} does not exist")
    return InputError(f"{verbatim(path)} cannot be read: {error.strerror or _first_line(error)}")


def _first_line(error: Exception) -> str:
    return verbatim((str(error).strip() or type(error).__name__).splitlines()[0].rstrip("."))
