"""Training rows in parts that hold whole series: one frame, or the files of a Parquet folder.

One part is in memory at a time; of the others only the ids and lengths of series.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from aru.data.beginnings import leave_out_empty, warn_empty
from aru.data.clock import Times
from aru.data.columns import Bools, Categories, Column, Floats, as_frame, read_static, require_columns
from aru.data.frequency import Frequency
from aru.data.guess import usual_frequency
from aru.data.learning import Learner
from aru.data.naming import Names
from aru.data.panel import Panel, read_panel, refuse_split
from aru.data.rows import Ragged, Whole
from aru.data.schema import Schema, choose_lags, context_length
from aru.errors import ColumnError, InputError, TooLittleDataError, quoted, verbatim, warn
from aru.nn.envelope import Envelope, hold_back
from aru.settings import Settings
from aru.training.batches import TrainingData, is_long, trained_lengths

SPARSE = 0.1  # if fewer of the steps have a row, the frequency is probably wrong
PART_ROWS = 2**21  # of a part, if its smallest pieces allow


class ParquetParts(Sequence[Any]):
    """The Parquet files of a folder as frames. A part holds several subfolders, or several files without subfolders.

    Only these columns are read, and those of series, time and target, which have these names. Types that differ between
    files are widened.
    """

    def __init__(self, folder: str | Path, columns: Sequence[str], names: Names) -> None:
        self._columns, self._names = [*names, *columns], names
        pieces: dict[Path, list[Path]] = {}
        for file in sorted(Path(folder).rglob("*.parquet")):
            pieces.setdefault(file if file.parent == Path(folder) else file.parent, []).append(file)
        if not pieces:
            raise InputError(f"{verbatim(folder)} has no Parquet files", "Give a folder of files that end in .parquet.")
        self._parts: list[list[Path]] = []
        room = 0
        for files in pieces.values():
            rows = sum(_metadata(file).num_rows for file in files)
            if rows > room:
                self._parts, room = [*self._parts, []], PART_ROWS
            self._parts[-1] += files
            room -= rows

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: Any) -> Any:
        # Neither columns from the names of folders nor a pandas index are read.
        tables = {file: _read(file, self._columns) for file in self._parts[index]}
        for column in self._columns:
            _widen(tables, column)
        return self._names.read(pa.concat_tables(tables.values()).to_pandas())


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{verbatim(file)} cannot be read ({verbatim(error)})", "Give a folder of Parquet files."
        ) from error


def _metadata(file: Path) -> pq.FileMetaData:
    with _reading(file):
        return pq.read_metadata(file)


def _read(file: Path, columns: list[str]) -> pa.Table:
    with _reading(file), pq.ParquetFile(file) as opened:
        require_columns(as_frame(opened.schema_arrow.empty_table(), str(file)), columns, str(file))
        return opened.read(columns).select(columns).replace_schema_metadata()


def _widen(tables: dict[Path, pa.Table], column: str) -> None:
    """Give a column the same type in all tables: the narrowest one that fits all values."""
    if len({table.field(column).type for table in tables.values()}) == 1:
        return
    wide = pa.schema([pa.field(column, pa.null())])
    for file, table in tables.items():
        if pa.types.is_dictionary(table.field(column).type):  # other files may hold plain text
            table = _cast(file, table, column, table.field(column).type.value_type)
            tables[file] = table
        own = pa.schema([table.field(column)])
        try:
            wide = pa.unify_schemas([wide, own], promote_options="permissive")
        except pa.ArrowException as error:
            raise ColumnError(
                f"Column {quoted(column)} is {own.types[0]} in {verbatim(file)}, and {wide.types[0]} in the files "
                "before it",
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
            f"Column {quoted(column)} of {verbatim(file)} does not fit into {kind}, as other files need it "
            f"({verbatim(error)})",
            "Write it as the same type into all files.",
            columns=[column],
        ) from error


class History:
    """Reads the parts, learns the schema from them, and loads them again for training and for the states."""

    def __init__(
        self,
        frames: Sequence[Any],
        freq: Frequency,
        static_df: Any,
        settings: Settings,
        val_size: int,
        withheld: int = 0,
    ) -> None:
        self._frames, self._freq, self._static_df, self._settings = frames, freq, static_df, settings
        self.val_size, self.withheld = val_size, withheld
        self._panel: _Last[Panel] = _Last(lambda part: self._read(self._frames[part]))
        self._encoded: _Last[TrainingData] = _Last(self._encode)
        self._empty: dict[Any, None] = {}  # series without any value
        # The longest series is not known before reading, so this takes the longest lags that may be chosen.
        lags = choose_lags(settings, freq, rows=sys.maxsize)
        self._seen = context_length(settings, freq) + max(lags, default=0)

    def _read(self, df: Any) -> Panel:
        """Rows of a part, without the series that have no value. Gaps are filled only as far as forecasts can see."""
        settings = self._settings
        columns = [*settings.futr_exog_list, *settings.hist_exog_list]
        panel = read_panel(df, self._freq, columns, max_gap=self._seen + settings.longest_window)
        panel, empty = leave_out_empty(panel)
        self._empty.update(dict.fromkeys(empty))
        return panel

    def learn(self, identify: bool = False, allow_jump: bool = False, known: Schema | None = None) -> Schema:
        """Learn the schema in one pass over all parts; with `identify` also compute `fingerprint` of their rows.

        If it is `known`, it stays as it is. Rows far from all others in time are refused, unless `allow_jump`.
        """
        learner = Learner(self._settings, self._freq)
        digest = _Digest(self.val_size, self.withheld)
        ids, presence = [], []
        until: list[list[Times]] = []
        self.part_lengths: list[Tensor] = []
        for part in range(len(self._frames)):
            panel = self._panel(part)
            lengths = torch.from_numpy(panel.lengths)
            # The rows that are trained on: all of them in the end, and those before the withheld ones.
            ends = [panel.starts + trained_lengths(lengths, self.val_size, n).numpy() for n in (0, self.withheld)]
            train, early = (np.arange(len(panel.ds)) < np.repeat(end, panel.lengths) for end in ends)
            static = read_static(self._static_df, panel.ids, self._settings.stat_exog_list)
            learner.add(panel, static, train, early)
            if identify:
                digest.add(panel, static)
            if part == 0:
                self._likely = usual_frequency(panel.longest(), panel.clock is not None)
            presence.append(panel.presence)
            ids.append(panel.ids)
            until.append([panel.ds[(end - 1).clip(min=panel.starts)] for end in ends])
            self.part_lengths.append(lengths)
            del panel  # before the next one is read
        self.ids: pd.Index[Any] = ids[0].append(ids[1:]) if len(ids) > 1 else ids[0]
        # The latest time of each series that was trained on: in the end, and before the withheld rows.
        self.until, self.until_early = (np.concatenate(times) for times in zip(*until, strict=True))
        self.presence: Floats = np.concatenate(presence)
        refuse_split(self.ids)
        self._check_enough()
        if not allow_jump:
            learner.timeline.refuse((self._panel(part) for part in range(len(self._frames))), "df")
        self.schema = known or learner.schema()
        self.fingerprint = digest.text()
        warn_empty(list(self._empty), len(self._empty) + len(self.ids))
        self._warn_fine()
        return self.schema

    def _warn_fine(self) -> None:
        """Warn if nearly all steps of the frequency are missing values: it is probably too fine."""
        share = float(np.median(self.presence)) if len(self.presence) else 1.0
        if share >= SPARSE:
            return
        freq, likely = self._freq, self._likely
        known = likely not in (None, freq.freq)
        advice = f"Series look like `freq={quoted(likely)}`" if known else "Choose a coarser freq"
        warn(
            f"Only {100 * share:.2g} % of the steps of `freq={quoted(freq.freq)}` have a row in the typical series; "
            f"the rest are missing values. {advice}; or use `freq=None` if rows are consecutive.",
        )

    def _check_enough(self) -> None:
        """A series needs a row before its first horizon, besides the rows of validation."""
        h, longest = self._settings.h, max(int(lengths.max()) for lengths in self.part_lengths) - self.val_size
        if longest < h + 1:
            raise TooLittleDataError(
                f"The longest series has {max(longest, 0)} rows to train on"
                + (f" besides `val_size={self.val_size}`" if self.val_size else "")
                + f", but `h={h}` needs at least {h + 1}",
                "Use a shorter horizon" + (", a smaller `val_size`" if self.val_size else "") + " or more history.",
            )

    @property
    def kept_apart(self) -> int:
        """Rows at the end of series that are for validation, or withheld until the last steps."""
        return self.val_size or self.withheld

    def spared(self) -> list[Bools]:
        """By part: the series that have such rows."""
        return [is_long(lengths, self.withheld).numpy() for lengths in self.part_lengths]

    def part(self, index: int) -> TrainingData:
        """The rows of a part, for training."""
        return self._encoded(index)

    def whole(self, index: int) -> Whole:
        """All rows of a part. Let go of it before the next one, so that no two are in memory."""
        data, panel = self._encoded(index), self._panel(index)
        rows = Ragged(data.rows, data.starts, data.lengths, torch.from_numpy(panel.skipped))
        return Whole(panel, rows, data.static)

    def _encode(self, index: int) -> TrainingData:
        panel, schema = self._panel(index), self.schema
        static = read_static(self._static_df, panel.ids, self._settings.stat_exog_list)
        starts, lengths, skipped = (torch.from_numpy(v) for v in (panel.starts, panel.lengths, panel.skipped))
        data = hold_back(Envelope.empty(len(panel.ids)), Ragged(schema.encode(panel), starts, lengths, skipped))[1]
        return TrainingData(
            names=[str(i) for i in panel.ids],
            rows=data.rows,
            static=schema.encode_static(static, panel.ids),
            starts=data.starts,
            lengths=data.lengths,
            val_size=self.val_size,
            withheld=self.withheld,
        )


class _Digest:
    """A hash of all rows in their parts: the same for the same data, whatever the order of a frame's rows."""

    def __init__(self, val_size: int, withheld: int) -> None:
        self._hash = hashlib.sha256(f"{val_size} {withheld}".encode())

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
        """The hash of all parts so far."""
        return self._hash.hexdigest()


Held = TypeVar("Held")


class _Last(Generic[Held]):
    """Caches the last value only, and frees it before it makes the next one."""

    def __init__(self, make: Callable[[int], Held]) -> None:
        self._make = make
        self._held: tuple[int, Held] | None = None

    def __call__(self, index: int) -> Held:
        if self._held is None or self._held[0] != index:
            self._held = None
            self._held = (index, self._make(index))
        return self._held[1]
