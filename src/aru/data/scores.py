"""Scores of forecasts whose actual values are known, and the scorecard of a model beside seasonal naive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from aru.data.columns import Floats, as_frame, require_columns

NAIVE = "seasonal naive"


class Judged(NamedTuple):
    """Forecasts beside their actual values, all of one shape. Where y is NaN there is nothing to score."""

    y: Floats
    mean: Floats
    median: Floats
    intervals: Mapping[float, tuple[Floats, Floats]]  # by level


def pooled(judged: Judged) -> dict[str, float]:
    """ND of the median and RMSE of the mean, pooled over all series and steps with a known y; and how many these are.

    For each level L also `coverage-L` and `width-L`, the mean width relative to mean |y|.
    """
    # Not by utilsforecast, which averages the scores of series, so that small series weigh as much as large ones.
    known = ~np.isnan(judged.y)
    y = judged.y[known]
    size = float(np.abs(y).sum())
    out = {
        "nd": float(np.abs(y - judged.median[known]).sum() / size) if size else math.nan,
        "rmse": float(np.sqrt(np.mean((y - judged.mean[known]) ** 2))) if len(y) else math.nan,
        "values": float(len(y)),
    }
    for level, ends in judged.intervals.items():
        low, high = (end[known] for end in ends)
        out[f"coverage-{level:g}"] = float(np.mean((low <= y) & (y <= high))) if len(y) else math.nan
        out[f"width-{level:g}"] = float((high - low).sum() / size) if size else math.nan
    return out


def mase(y: Floats, forecast: Floats, unit: Floats) -> float:
    """Mean over rows of (row, lead) of the mean absolute error in units of the row: utilsforecast's MASE, averaged.

    Rows without a known y, or whose unit is zero or unknown, are left out.
    """
    known = ~np.isnan(y)
    counted = known.any(1) & (unit > 0)
    error = np.where(known, np.abs(y - forecast), 0.0)[counted].sum(1) / known[counted].sum(1)
    return float((error / unit[counted]).mean()) if counted.any() else math.nan


def scores(frame: Any, name: str, level: float | None = None) -> Mapping[str, float]:
    """ND of the median and RMSE of the mean of a frame that holds forecasts and actual values (see `pooled`).

    With `level` also the coverage and the relative width of that central interval.
    """
    data = as_frame(frame, "frame")
    ends = [f"{name}-lo-{level:g}", f"{name}-hi-{level:g}"] if level else []
    require_columns(data, ["y", name, f"{name}-median", *ends], "frame")

    def column(of: str) -> Floats:
        return np.asarray(data[of].to_numpy(), dtype=np.float64)

    intervals = {level: (column(ends[0]), column(ends[1]))} if level else {}
    out = pooled(Judged(column("y"), column(name), column(f"{name}-median"), intervals))
    return {key.partition("-")[0]: value for key, value in out.items()}


@dataclasses.dataclass(frozen=True)
class Scorecard:
    """Scores of a model beside those of seasonal naive, on the same rows.

    Args:
        name: Name of the model's forecast columns.
        about: Which rows were forecast, and whether the scored weights had seen them.
        season: Rows of the season that seasonal naive repeats; 1 if it repeats the latest value.
        series: Series with a forecast.
        forecasts: Forecasts of all series together.
        model: `nd`, `mase`, `rmse`, then `coverage-L` and `width-L` of each level L, and the number of `values`.
        naive: The same of seasonal naive.
    """

    name: str
    about: str
    season: int
    series: int
    forecasts: int
    model: Mapping[str, float]
    naive: Mapping[str, float]

    @property
    def loses(self) -> bool:
        """Whether the model's ND is above that of seasonal naive."""
        return self.model["nd"] > self.naive["nd"]

    @property
    def warning(self) -> str:
        """What to tell if it loses."""
        return (
            f"The forecasts of {self.name} are worse than seasonal naive on {self.about}: ND {self.model['nd']:.4f} "
            f"against {self.naive['nd']:.4f}. Train longer (`max_steps`), give more history or covariates, and check "
            "`freq`."
        )

    @property
    def naive_name(self) -> str:
        """Seasonal naive with its season."""
        return f"{NAIVE} ({self.season})" if self.season > 1 else "latest value"

    def rows(self) -> dict[str, Mapping[str, float]]:
        """The scores by row of a table."""
        return {self.name: self.model, self.naive_name: self.naive}

    def __str__(self) -> str:
        """A small table."""
        keys = [key for key in self.model if key in ("nd", "mase") or key.startswith("coverage")]
        table = [["", *(score_name(key) for key in keys)]]
        table += [[name, *(score_text(key, row[key]) for key in keys)] for name, row in self.rows().items()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in table
        ]
        return "\n".join([f"Scores on {self.about}", *lines])

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold: null for a score that does not exist."""
        out = dataclasses.asdict(self)
        for part in ("model", "naive"):
            out[part] = {k: v if math.isfinite(v) else None for k, v in out[part].items()}
        return out

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Scorecard:
        """The inverse of `to_json`."""
        parts = {
            part: {k: math.nan if v is None else float(v) for k, v in values[part].items()}
            for part in ("model", "naive")
        }
        return cls(**{**values, **parts})


def score_name(key: str) -> str:
    """Heading of a score: `coverage-90` is "coverage 90"."""
    kind, _, level = key.partition("-")
    return f"{kind} {level}" if level else kind.upper()


def score_text(key: str, value: float) -> str:
    """A score as text; nothing where it does not exist."""
    if math.isnan(value):
        return ""
    if key.startswith("coverage"):
        return f"{100 * value:.1f} %"
    small = abs(value) < 1
    return f"{value:,.{4 if small else 3 if abs(value) < 10 else 1}f}"
