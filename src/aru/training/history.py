"""The rows to train on, in parts that hold whole series: one frame, or the files of a Parquet folder.

Of several parts one is in memory at a time. What stays is small: ids and lengths of all series.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from aru.data.columns import Categories, Column, Floats, as_frame, read_static, require_columns
from aru.data.frequency import Frequency, Times
from aru.data.guess import usual_frequency
from aru.data.learning import Learner
from aru.data.panel import Panel
from aru.data.rows import Ragged, Static
from aru.data.schema import Schema
from aru.errors import ColumnError, InputError, listing
from aru.settings import Settings
from aru.training.batches import TrainingData

ROWS = 2**21  # of a part, if its smallest pieces allow


class ParquetParts(Sequence[Any]):
    """The Parquet files of a folder as frames: each subfolder a piece, or else each file, several pieces a part.

    Of each file the rows have these columns alone, whatever their order; types that differ between files are widened.
    """

    def __init__(self, folder: str | Path, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        pieces: dict[Path, list[Path]] = {}
        for file in sorted(Path(folder).rglob("*.parquet")):
            pieces.setdefault(file if file.parent == Path(folder) else file.parent, []).append(file)
        if not pieces:
            raise InputError(f"{folder} has no Parquet files", "Give a folder of files that end in .parquet.")
        self._parts: list[list[Path]] = []
        room = 0
        for files in pieces.values():
            rows = sum(_metadata(file).num_rows for file in files)
            if rows > room:
                self._parts, room = [*self._parts, []], ROWS
            self._parts[-1] += files
            room -= rows

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: Any) -> Any:
        # Columns that folders are named after are no part of the rows, nor is the index of a frame.
        tables = {file: _read(file, self._columns) for file in self._parts[index]}
        for column in self._columns:
            _widen(tables, column)
        return pa.concat_tables(tables.values()).to_pandas()


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file} cannot be read ({error})", "Give a folder of Parquet files.") from error


def _metadata(file: Path) -> pq.FileMetaData:
    with _reading(file):
        return pq.read_metadata(file)


def _read(file: Path, columns: list[str]) -> pa.Table:
    with _reading(file), pq.ParquetFile(file) as opened:
        require_columns(as_frame(opened.schema_arrow.empty_table(), str(file)), columns, str(file))
        return opened.read(columns).select(columns).replace_schema_metadata()


def _widen(tables: dict[Path, pa.Table], column: str) -> None:
    """Give a column the same type in all tables: the narrowest one that has room for the values of each."""
    if len({table.field(column).type for table in tables.values()}) == 1:
        return
    wide = pa.schema([pa.field(column, pa.null())])
    for file, table in tables.items():
        if pa.types.is_dictionary(table.field(column).type):  # of text, which it may be in other files
            table = _cast(file, table, column, table.field(column).type.value_type)
            tables[file] = table
        own = pa.schema([table.field(column)])
        try:
            wide = pa.unify_schemas([wide, own], promote_options="permissive")
        except pa.ArrowException as error:
            raise ColumnError(
                f"Column {column!r} is {own.types[0]} in {file}, and {wide.types[0]} in the files before it",
                "Write it as the same type into all files.",
                columns=[column],
            ) from error
    for file, table in tables.items():
        tables[file] = _cast(file, table, column, wide.types[0])


def _cast(file: Path, table: pa.Table, column: str, kind: Any) -> pa.Table:
    try:
        return table.set_column(table.column_names.index(column), column, table[column].cast(kind))
    except pa.ArrowException as error:
        raise ColumnError(
            f"Column {column!r} of {file} does not fit into {kind}, as other files need it ({error})",
            "Write it as the same type into all files.",
            columns=[column],
        ) from error


class Whole(NamedTuple):
    """All rows of the series of a part, and their static covariates."""

    rows: Ragged
    static: Static


class History:
    """Reads parts, learns the schema from them, and hands them out as training and states need them."""

    def __init__(
        self, frames: Sequence[Any], read: Callable[[Any], Panel], static_df: Any, settings: Settings, val_size: int
    ) -> None:
        self._frames, self._read, self._static_df, self._settings = frames, read, static_df, settings
        self.val_size = val_size
        self._panel: _Last[Panel] = _Last(lambda part: self._read(self._frames[part]))
        self._encoded: _Last[TrainingData] = _Last(self._encode)

    def learn(self, freq: Frequency, identify: bool = False) -> Schema:
        """One pass over all parts, which can leave a `fingerprint` of their rows."""
        learner = Learner(self._settings, freq)
        digest = _Digest(self.val_size)
        ids, until, presence = [], [], []
        self.part_lengths: list[Tensor] = []
        for part in range(len(self._frames)):
            panel = self._panel(part)
            end = panel.starts + panel.lengths
            train = np.arange(len(panel.ds)) < np.repeat(end - self.val_size, panel.lengths)
            static = read_static(self._static_df, panel.ids, self._settings.stat_exog_list)
            learner.add(panel, static, train)
            if identify:
                digest.add(panel, static)
            if part == 0:
                self.likely = usual_frequency(panel.longest(), panel.datetime)
            presence.append(panel.presence)
            ids.append(panel.ids)
            until.append(panel.ds[(end - 1 - self.val_size).clip(min=panel.starts)])
            self.part_lengths.append(torch.from_numpy(panel.lengths))
            del panel  # before the next one is read
        self.ids: pd.Index[Any] = ids[0].append(ids[1:]) if len(ids) > 1 else ids[0]
        self.until: Times = np.concatenate(until)  # the latest time of each series that was trained on
        self.presence: Floats = np.concatenate(presence)
        twice = self.ids[self.ids.duplicated()]
        if len(twice):
            raise InputError(
                f"Rows of the series {listing(list(twice))} lie in several parts", "Partition the files by series."
            )
        self.schema = learner.schema()
        self.fingerprint = digest.text()
        return self.schema

    def part(self, index: int) -> TrainingData:
        """The rows of a part, for training."""
        return self._encoded(index)

    def parts(self) -> Iterator[Whole]:
        """All rows of one part after the other."""
        for index in range(len(self._frames)):
            data = self._encoded(index)
            skipped = torch.from_numpy(self._panel(index).skipped)
            yield Whole(Ragged(data.rows, data.starts, data.lengths, skipped), data.static)

    def _encode(self, index: int) -> TrainingData:
        panel, schema = self._panel(index), self.schema
        static = read_static(self._static_df, panel.ids, self._settings.stat_exog_list)
        return TrainingData(
            names=[str(i) for i in panel.ids],
            rows=schema.encode(panel),
            static=schema.encode_static(static, panel.ids),
            starts=torch.from_numpy(panel.starts),
            lengths=torch.from_numpy(panel.lengths),
            val_size=self.val_size,
        )


class _Digest:
    """A hash of all rows in their parts: the same for the same data, whatever the order of a frame's rows."""

    def __init__(self, val_size: int) -> None:
        self._hash = hashlib.sha256(str(val_size).encode())

    def add(self, panel: Panel, static: Mapping[str, Column]) -> None:
        """Take in a part."""
        self._add(pd.util.hash_array(panel.ids.to_numpy()))
        for array in (panel.lengths, panel.ds, panel.y, panel.skipped):
            self._add(array)
        for columns in (panel.columns, static):
            for name, column in columns.items():
                self._hash.update(name.encode())
                if isinstance(column, Categories):
                    self._add(pd.util.hash_array(np.array(column.values, dtype=object)))
                self._add(column.codes if isinstance(column, Categories) else column)

    def _add(self, array: npt.NDArray[Any]) -> None:
        self._hash.update(str((array.dtype, array.shape)).encode())
        self._hash.update(np.ascontiguousarray(array).view(np.uint8).data)

    def text(self) -> str:
        """The hash of what there was."""
        return self._hash.hexdigest()


T = TypeVar("T")


class _Last(Generic[T]):
    """Remembers the last value alone, and lets go of it before it makes the next one."""

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._held: tuple[int, T] | None = None

    def __call__(self, index: int) -> T:
        if self._held is None or self._held[0] != index:
            self._held = None
            self._held = (index, self._make(index))
        return self._held[1]
