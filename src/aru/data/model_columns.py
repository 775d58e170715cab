"""Frames of forecasts, as Nixtla's libraries write them, as arrays by series, origin and lead, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from aru.data.clock import Clock, Times
from aru.data.columns import Floats, Ints, name_rows, read_column, read_ids, require_columns
from aru.data.frequency import Frequency
from aru.data.moments import read_times
from aru.data.panel import Known
from aru.errors import ColumnError, DuplicateError, FrequencyError, InputError, listing, quoted

KEYS = ("unique_id", "ds", "cutoff", "y")
ENDS = ("lo", "hi")
_END = re.compile(r"(?P<model>.+)-(?P<end>lo|hi)-(?P<level>\d+(\.\d+)?)")
_MEDIAN = "-median"


class Issued(NamedTuple):
    """Forecasts of some origins, NaN where there are none."""

    point: Tensor  # (origin, model, lead) float64
    ends: Tensor  # (origin, model, level, end, lead) float64


class Role(NamedTuple):
    """What a column holds: a model's point forecast, an end of an interval, or the median of a model with a mean."""

    model: str
    level: float | None = None
    end: int | None = None
    beside: bool = False


class ModelColumns(NamedTuple):
    """The forecasts of a frame."""

    roles: Mapping[str, Role]

    @property
    def points(self) -> list[str]:
        """Models, in the order of their columns."""
        return list(dict.fromkeys(r.model for r in self.roles.values()))

    @property
    def levels(self) -> list[float]:
        """Percentages of intervals."""
        return list(dict.fromkeys(r.level for r in self.roles.values() if r.level is not None))


def find_models(frame: nw.DataFrame[Any], models: Sequence[str] | None) -> ModelColumns:
    """Which columns are forecasts, and of which model. Without a mean, the median is the point forecast."""
    names = [c for c in frame.columns if c not in KEYS and frame[c].dtype.is_numeric()]
    ends = {c: m for c in names if (m := _END.fullmatch(c))}
    plain = [c for c in names if c not in ends]
    roles = {}
    for column in plain:
        base = column.removesuffix(_MEDIAN)
        roles[column] = Role(base, beside=column != base and base in plain)
    for column, match in ends.items():
        roles[column] = Role(match["model"], float(match["level"]), ENDS.index(match["end"]))
    points = {r.model for r in roles.values() if r.level is None}
    if models is not None:
        require_columns(frame, [m for m in models if m not in points], "forecasts")
        roles = {c: r for c, r in roles.items() if r.model in models}
    lost = [c for c, r in roles.items() if r.model not in points]
    if lost or not roles:
        what = f"intervals without a forecast ({listing(lost, 20)})" if lost else "no numeric column with forecasts"
        raise ColumnError(
            f"`forecasts` has {what}; it has {listing(frame.columns, 20)}", "Add a column for each model.", columns=lost
        )
    return ModelColumns(roles)


class ReadForecasts(NamedTuple):
    """Forecasts by origin, and the origin and lead of each row of the frame."""

    ids: pd.Index[Any]
    clock: Clock | None  # of timestamps; None for integers
    series: Ints  # (origin,)
    cutoff: Times  # (origin,)
    issued: Issued
    row: Ints  # origin of each row of the frame
    lead: Ints  # lead of each row, from 0
    columns: ModelColumns
    models: tuple[str, ...]
    levels: tuple[float, ...]


def read_forecasts(
    frame: nw.DataFrame[Any],
    freq: Frequency,
    h: int,
    columns: ModelColumns,
    models: tuple[str, ...],
    levels: tuple[float, ...],
    known: Known | None = None,
) -> ReadForecasts:
    """Check a frame and sort it by series, origin and lead.

    Without `cutoff` the origin of a series is its latest time in `known`, or one step before its first forecast.
    """
    require_columns(frame, ["unique_id", "ds"], "forecasts")
    if len(frame) == 0:
        raise InputError("`forecasts` has no rows")
    names = read_ids(frame, "forecasts")
    ds, clock = read_times(frame, freq, "forecasts")
    series, ids = pd.factorize(names, sort=True)
    if "cutoff" in frame.columns:
        cutoff, _ = read_times(frame.select("unique_id", ds="cutoff"), freq, "the cutoffs of forecasts")
    else:
        cutoff = _cutoffs(freq, ids, series, ds, known)[series]
    early = ds <= cutoff
    if early.any():
        rows = name_rows(names[early], ds[early], clock)
        raise InputError(
            f"`forecasts` has {len(rows)} rows at or before the latest observation of their series: {rows}",
            "Adapt forecasts before their actual values are observed.",
            rows=rows,
        )
    order = np.lexsort((ds, cutoff, series))
    first = np.concatenate([[True], (np.diff(series[order]) != 0) | (np.diff(cutoff[order]) != 0)])
    row = np.empty(len(ds), np.int64)
    row[order] = np.cumsum(first) - 1
    if freq.freq is None:
        lead = np.empty(len(ds), np.int64)
        begin = np.flatnonzero(first)
        lead[order] = np.arange(len(ds)) - begin[row[order]]
    else:
        lead = freq.steps(cutoff, ds) - 1
    bad = lead < 0
    if bad.any():
        rows = name_rows(names[bad], ds[bad], clock)
        raise FrequencyError(
            f"{len(rows)} rows of `forecasts` do not lie on the grid of `freq={quoted(freq.freq)}` from their cutoff: "
            f"{rows}",
            "Correct them, or give the right freq.",
            rows=rows,
        )
    if (lead >= h).any():
        far = lead >= h
        rows = name_rows(names[far], ds[far], clock)
        raise InputError(
            f"{len(rows)} forecasts lie more than `h={h}` steps ahead: {rows}",
            f"Use Adapter(h={int(lead.max()) + 1}), or drop them.",
            rows=rows,
        )
    same = (row[order][1:] == row[order][:-1]) & (ds[order][1:] == ds[order][:-1])
    if same.any():
        at = order[1:][same]
        rows = name_rows(names[at], ds[at], clock)
        raise DuplicateError(
            f"`forecasts` has {len(rows)} duplicate rows for a series, cutoff and time: {rows}",
            "Keep one row of each.",
            rows=rows,
        )
    at = order[first]
    R, M, L = len(at), len(models), len(levels)
    point, ends = np.full((R, M, h), np.nan), np.full((R, M, L, 2, h), np.nan)
    for column, role in columns.roles.items():
        values = read_column(frame, column, "forecasts")
        assert isinstance(values, np.ndarray)
        m = models.index(role.model)
        if role.level is not None:
            ends[row, m, levels.index(role.level), role.end, lead] = values
        elif not role.beside:
            point[row, m, lead] = values
    issued = Issued(torch.from_numpy(point), torch.from_numpy(ends))
    return ReadForecasts(ids, clock, series[at], cutoff[at], issued, row, lead, columns, models, levels)


def _cutoffs(freq: Frequency, ids: pd.Index[Any], series: Ints, ds: Times, known: Known | None) -> Times:
    """The origin of each series' forecasts in a frame without `cutoff`."""
    first = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(first, series, ds)
    at = np.full(len(ids), -1) if known is None or not len(known.ids) else known.ids.get_indexer(ids)
    before = first - 1 if freq.freq is None else freq.shift(first, -1)
    return before if known is None else np.where(at >= 0, np.append(known.last, 0)[at], before)


def _inside(before: Floats, after: Floats, given: Tensor, adapted: Tensor) -> Floats:
    """Keep medians inside the narrowest of their (row, level, end) intervals, if they were inside before."""
    bounds = []
    for ends in (given, adapted):
        low, high = ends.nan_to_num(nan=-torch.inf)[..., 0], ends.nan_to_num(nan=torch.inf)[..., 1]
        bounds.append((low.numpy().max(1, initial=-np.inf), high.numpy().min(1, initial=np.inf)))
    (low, high), now = bounds
    return np.where((low <= before) & (before <= high), np.clip(after, *now), after)


def with_values(frame: nw.DataFrame[Any], given: ReadForecasts, adapted: Issued) -> Any:
    """The frame with its forecasts replaced by the adapted ones, in the same columns and types."""
    new = []
    for column, role in given.columns.roles.items():
        m = given.models.index(role.model)
        old = frame[column]
        if role.level is not None:
            values = adapted.ends[given.row, m, given.levels.index(role.level), role.end, given.lead].numpy()
        else:
            values = adapted.point[given.row, m, given.lead].numpy()
            before = old.cast(nw.Float64).to_numpy()
            if role.beside:  # moves with its mean
                values = before + (values - given.issued.point[given.row, m, given.lead].numpy())
            if column.endswith(_MEDIAN):
                values = _inside(
                    before, values, *(i.ends[given.row, m, :, :, given.lead] for i in (given.issued, adapted))
                )
        kind = old.dtype if old.dtype.is_float() else nw.Float64
        made = nw.new_series(column, values, nw.Float64, backend=frame.implementation)
        new.append(made.cast(kind))
    if frame.implementation.is_pandas():
        data = frame.to_native().copy()
        for series in new:
            data[series.name] = series.to_native().to_numpy()
        return data
    return frame.with_columns(*new).to_native()
