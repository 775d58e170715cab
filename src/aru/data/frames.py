"""Result frames: of the same library as the input, with the column names of Nixtla's libraries."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from aru.data.clock import UTC, Clock, from_index
from aru.data.columns import as_frame, name_rows
from aru.data.frequency import Frequency
from aru.data.moments import type_of_times, zone_of
from aru.data.naming import ARGUMENTS, Names
from aru.errors import ConfigError, ValueRangeError, listing, quoted, warn

MANY = 2**12  # from this many rows on, each series' name is converted once instead of in every row
NANOSECONDS = (2**63 - 1) // 1000  # range of datetime64[ns] around 1970, in microseconds


def quantiles_of(level: Sequence[float] | None) -> list[float]:
    """The median, then the two ends of each central interval."""
    values = percentages(level)
    shares = [value for value in values if value < 1]
    if shares:
        warn(
            f"`level` is in percent: {listing(shares)} asks for less than 1 %. For 90 % give 90.",
        )
    return [0.5] + [q for value in values for q in (0.5 - value / 200, 0.5 + value / 200)]


def percentages(level: Any) -> list[float]:
    """The levels of intervals, checked."""
    values = [] if level is None else list(np.atleast_1d(np.asarray(level, dtype=object)))
    named: dict[str, numbers.Real] = {}
    for value in values:
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 100:
            raise ConfigError(f"level must hold percentages between 0 and 100, got {quoted(value)}")
        name = f"{value:g}"
        if name == "100" or named.setdefault(name, value) != value:
            raise ConfigError(
                f"level {quoted(value)} would be named {name}, as another one is: column names have six digits"
            )
    return values


def forecast_names(name: str, level: Sequence[float] | None) -> list[str]:
    """`<name>` is the mean, then `<name>-median`, `<name>-lo-<level>` and `<name>-hi-<level>`."""
    ends = [f"{name}-{end}-{value:g}" for value in percentages(level) for end in ("lo", "hi")]
    return [name, f"{name}-median", *ends]


@dataclasses.dataclass(frozen=True)
class FrameStyle:
    """Which library a frame belongs to, and how it writes `ds`."""

    backend: str
    ds: str  # "int", "date", or the unit of a datetime
    zone: str | None = None
    wall: bool = False  # whether times are kept as the zone's clocks show them (`aru.data.clock`)
    names: Names = Names()  # noqa: RUF009  # of series, time and target; a tuple, which cannot change

    def called(self, names: Names) -> FrameStyle:
        """The same with other names of columns."""
        return dataclasses.replace(self, names=names)

    @classmethod
    def of(cls, df: Any, default: FrameStyle | None = None) -> FrameStyle:
        """The style of a frame. `default` gives the style of `ds`, and the whole style for a dictionary of columns."""
        if default is not None and isinstance(df, dict):
            return default
        if default is not None and isinstance(df, pd.DataFrame):
            return dataclasses.replace(default, backend="pandas")
        frame = as_frame(df, "df")
        backend = "polars" if frame.implementation.is_polars() else "pandas"
        if default is not None:
            return dataclasses.replace(default, backend=backend)
        kind = type_of_times(frame["ds"]) if "ds" in frame.columns else None
        if kind is not None and kind.is_integer():
            return cls(backend, "int")
        if kind == nw.Date:
            return cls(backend, "date")
        return cls(backend, getattr(kind, "time_unit", "ns"), None if kind is None else zone_of(frame))

    def on(self, freq: Frequency) -> FrameStyle:
        """The same with times as this frequency keeps them."""
        return dataclasses.replace(self, wall=freq.clock.wall)

    def build(self, columns: Mapping[str, Any], each: int = 1) -> Any:
        """A frame of these columns, with the user's names. `ds` and `cutoff` are internal times.

        Every series has `each` rows.
        """
        called = self._called(columns)
        if self.ds == "ns" and len(columns["ds"]):
            _refuse_wrapping(columns)
        data = {k: self._times(v) if k in ("ds", "cutoff") else v for k, v in columns.items()}
        if self.backend == "pandas":
            if each > 1 and len(data["unique_id"]) > MANY:
                data["unique_id"] = pd.Series(data["unique_id"][::each]).array.repeat(each)
            return pd.DataFrame({called[k]: v for k, v in data.items()}, copy=False)
        text = [k for k, v in data.items() if v.dtype == object]
        frame = nw.from_dict({k: v.tolist() if k in text else v for k, v in data.items()}, backend="polars")
        dates = [k for k in ("ds", "cutoff") if k in data] if self.ds == "date" else []
        casts = [nw.col(k).cast(nw.Date) for k in dates] + [nw.col(k).cast(nw.String) for k in text]
        if self.zone is not None:
            moved = [nw.col(k).dt.replace_time_zone(UTC) for k in ("ds", "cutoff") if k in data]
            casts += [time.dt.convert_time_zone(self.zone) for time in moved]
        frame = frame.with_columns(*casts)  # casts also give an empty frame its types
        return frame.rename(called).to_native()

    def build_plain(self, columns: Mapping[str, Any]) -> Any:
        """A frame of columns without times."""
        called = self._called(columns)
        lists = {called[k]: v.tolist() if v.dtype == object else v for k, v in columns.items()}
        return nw.from_dict(lists, backend="polars" if self.backend == "polars" else "pandas").to_native()

    def _called(self, columns: Mapping[str, Any]) -> dict[str, str]:
        """The names of columns in a result; an error if two would have the same."""
        called = {name: self.names._asdict().get(name, name) for name in columns}
        twice = [name for name, new in called.items() if name != new and called.get(new) == new]
        if twice:
            shown = quoted(called[twice[0]])
            raise ConfigError(
                f"`{ARGUMENTS[twice[0]]}={shown}` is also the name of another column of this result", "Rename yours."
            )
        return called

    def _times(self, times: Any) -> Any:
        if self.ds == "int":
            return times
        # Dates are cast afterwards, and polars has no seconds.
        unit = "us" if self.ds == "date" or (self.backend, self.ds) == ("polars", "s") else self.ds
        if self.zone is not None:
            exact = Clock(self.zone, self.wall).write(np.asarray(times, dtype=np.int64))
            if self.backend == "pandas":
                return exact.astype(f"datetime64[{unit}, {self.zone}]")
            times = from_index(exact.tz_convert(UTC).tz_localize(None))  # the zone is added afterwards
        return np.asarray(times, dtype=np.int64).view("datetime64[us]").astype(f"datetime64[{unit}]")

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> FrameStyle:
        """The inverse of `to_json`."""
        return cls(**{**values, "names": Names(*values["names"])})


def _refuse_wrapping(columns: Mapping[str, Any]) -> None:
    """Refuse times beyond datetime64[ns], which would wrap around to 1677."""
    ds = np.asarray(columns["ds"])
    if ds.max() > NANOSECONDS or ds.min() < -NANOSECONDS:
        far = np.abs(ds) > NANOSECONDS
        rows = name_rows(np.asarray(columns["unique_id"])[far], ds[far], Clock())
        raise ValueRangeError(
            f"Forecasts would lie beyond what `ds` as datetime64[ns] can hold, which ends in April 2262, at {rows}",
            "Fit on `ds` of a coarser unit, such as datetime64[s], or use a shorter horizon.",
            columns=["ds"],
            rows=rows,
        )
