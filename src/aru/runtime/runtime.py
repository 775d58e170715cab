"""`Runtime`: the operations on a trained model that all interfaces share.

Forecaster, Stream, Adapter, service, monitor and Spark keep series in different places, but all use these operations:
read rows, update records, build future rows, forecast, encode and decode records.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch

from aru.data.beginnings import leave_out_empty, warn_empty
from aru.data.columns import Bools, Ints, as_frame
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.jumps import Newest, refuse_apart
from aru.data.moments import read_times
from aru.data.panel import Observations, Panel, read_observations, read_panel
from aru.data.schema import Schema
from aru.data.target import check_values
from aru.errors import ColumnError, InputError
from aru.nn.tree import flatten, leaves, rebuild
from aru.runtime.engine import Engine
from aru.runtime.records import Record, begin, code_limits, impossible
from aru.runtime.update import Invalid, Late, Update, compute_update
from aru.store.contract import About
from aru.store.layout import FORMAT, Layout, unreadable

AnyEngine = TypeVar("AnyEngine", bound=Engine)


class Runtime(Generic[AnyEngine]):
    """An engine with the frequency of its series and the style of result frames."""

    def __init__(self, engine: AnyEngine, freq: Frequency, style: FrameStyle) -> None:
        self.engine = engine
        self.freq = freq
        self.style = style
        self._formats: dict[int, _Format] = {}  # by correctable_steps

    @property
    def schema(self) -> Schema:
        """The schema of the training data."""
        return self.engine.schema

    @property
    def max_gap(self) -> int:
        """Most missing steps of a gap that are filled in; longer gaps are shortened."""
        return self.engine.max_gap

    # Rows in

    def read(self, df: Any, name: str = "df") -> Observations:
        """Check a frame of new observations, without comparing it with the known series."""
        new = read_observations(df, self.freq, self.engine.columns, name)
        self.check_kinds(new, name)
        return new

    def read_history(self, df: Any, in_sight: int = 0, allow_jump: bool = False) -> Panel:
        """Check a frame of whole series. Long gaps are shortened to what a forecast can see plus `in_sight` steps."""
        max_gap = self.engine.max_gap + in_sight
        panel = read_panel(df, self.freq, self.engine.columns, max_gap=max_gap, settled=True)
        self.check_kinds(panel, "df")
        check_values(panel, self.engine.rules)
        if not allow_jump:
            refuse_apart(panel, self.freq, "df")
        total = len(panel.ids)
        panel, lost = leave_out_empty(panel)
        warn_empty(lost, total)
        return panel

    def check_kinds(self, panel: Panel | Observations, name: str) -> None:
        """Refuse ids or times of another type than in training: they would look like new series or late rows."""
        schema = self.engine.schema
        for column, known, given, kinds in (
            ("unique_id", schema.integer_ids, pd.api.types.is_integer_dtype(panel.ids), ("strings", "integers")),
            ("ds", schema.datetime, panel.clock is not None, ("integers", "timestamps")),
        ):
            if len(panel.ids) and bool(given) != known:
                raise ColumnError(
                    f"`{column}` of `{name}` holds {kinds[bool(given)]}, but training had {kinds[known]}",
                    "Convert the column.",
                    columns=[column],
                )

    def update(
        self,
        new: Observations,
        ids: pd.Index[Any],
        record: Record,
        newest: int | None,
        static_df: Any = None,
        late: Late = "raise",
        invalid: Invalid = "raise",
        style: FrameStyle | None = None,
        allow_jump: bool = False,
        resent: bool = False,
    ) -> Update:
        """The records after new observations. `ids` and `record` are the known series among those in `new`.

        `newest` is the newest time of all known series, also of those not in `new`; None if there are none. With
        `resent` these very rows were consumed before, so that none of them is late.
        """
        style = style or self.style
        limit = None if allow_jump else Newest(newest, self.engine.schema.jump)
        with self.engine.threads(len(ids)):
            return compute_update(
                self.engine, self.freq, style, new, ids, record, static_df, late, invalid, limit, resent
            )

    def read_time(self, value: Any, name: str) -> int:
        """A time from a user, as an internal one."""
        times, clock = read_times(as_frame({"unique_id": [""], "ds": [value]}, name), self.freq, name)
        if (clock is not None) != self.schema.datetime:
            kinds = ("an integer", "a timestamp")
            raise InputError(f"`{name}` is {kinds[clock is not None]}", f"Give {kinds[self.schema.datetime]}.")
        return int(times[0])

    # Records

    def no_records(self, correctable_steps: int = 0) -> Record:
        """Records of zero series."""
        return begin(self.engine.empty(self.engine.schema.no_static()), correctable_steps)

    def encode(self, record: Record, ids: Sequence[Any] | pd.Index[Any]) -> list[bytes]:
        """Records as bytes, one blob per series."""
        layout = self._format(record.correctable_steps).layout
        arrays = (value.cpu().numpy() for value in flatten(record))
        return layout.pack({field.name: array for field, array in zip(layout.fields, arrays, strict=True)}, ids)

    def decode(self, blobs: Sequence[bytes], ids: Sequence[Any] | pd.Index[Any], correctable_steps: int = 0) -> Record:
        """The inverse of `encode`. Records that are damaged or belong to other series are an error."""
        layout, like, limits = self._format(correctable_steps)
        arrays = layout.unpack(blobs, ids)
        _refuse(impossible(arrays, limits, correctable_steps), ids)
        return rebuild(like, {path: torch.from_numpy(value) for path, value in arrays.items()})

    def check(self, states: Any, ids: Sequence[Any]) -> None:
        """Refuse states from a file that no update can have written."""
        layout, _, limits = self._format(0)
        arrays = {path: value.cpu().numpy() for path, value in leaves(Record(states))}
        for field in layout.fields:
            found = arrays[field.name]
            if (found.dtype, found.shape) != (np.dtype(field.dtype), (len(ids), *field.shape)):
                raise ValueError(f"{field.name} has another type or shape")
        _refuse(impossible(arrays, limits, 0), ids)

    def describe(self, correctable_steps: int = 0) -> About:
        """The description of the records for a store."""
        layout, schema = self._format(correctable_steps).layout, self.engine.schema
        return About(
            format=FORMAT,
            fingerprint=self.engine.fingerprint,
            correctable_steps=correctable_steps,
            size=layout.size,
            layout=layout.to_json(),
            integer_ids=schema.integer_ids,
            datetime=schema.datetime,
            zone=self.freq.clock.zone,
            wall=self.freq.clock.wall,
            schema=json.loads(json.dumps(schema.to_json())) if self.engine.learned_late else None,
        )

    def _format(self, correctable_steps: int) -> _Format:
        if correctable_steps not in self._formats:
            like = self.no_records(correctable_steps)
            layout = Layout.of({path: value.cpu().numpy() for path, value in leaves(like)})
            self._formats[correctable_steps] = _Format(layout, like, code_limits(layout, self.engine.schema))
        return self._formats[correctable_steps]


def _refuse(wrong: Bools, ids: Sequence[Any] | pd.Index[Any]) -> None:
    if wrong.any():
        raise unreadable([ids[i] for i in np.flatnonzero(wrong).tolist()])


class _Format(NamedTuple):
    """The byte layout of records, records of zero series, and the largest codes of their categories."""

    layout: Layout
    like: Record
    limits: dict[str, Ints]
