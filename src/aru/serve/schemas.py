"""Requests and responses as pydantic types: they check requests and describe both in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, with_config
from typing_extensions import NotRequired, TypedDict

from aru.serve.options import LONGEST, MANY_LEVELS

Text = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST)]
Whole = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
Number = Annotated[float, Field(strict=True)]
Id = Text | Whole
Time = Annotated[
    Text | Whole, Field(description="ISO time, also with Z or an offset, or an integer where training had those.")
]
Level = Annotated[float, Field(strict=True, gt=0, lt=100)]


class StopAtFirst(FailFast):
    """Lists the faults of one item only. Unlike pydantic's it can be part of a union."""

    __hash__ = object.__hash__


Item = TypeVar("Item")
Checked = Annotated[list[Item], StopAtFirst()]

OBSERVATIONS_EXAMPLE: dict[str, Any] = {
    "observations": [
        {"unique_id": "shop-1", "ds": "2024-09-01", "y": 311.5, "promo": 1},
        {"unique_id": "shop-2", "ds": "2024-09-01", "y": None, "promo": 0},
    ]
}
FORECASTS_EXAMPLE: dict[str, Any] = {
    "unique_ids": ["shop-1"],
    "futr": [{"unique_id": "shop-1", "ds": "2024-09-02", "promo": 0}],
    "level": [80, 95],
}


def _body(example: dict[str, Any]) -> ConfigDict:
    """A body without other fields. These are refused afterwards: pydantic would report each of a million."""
    return ConfigDict(extra="allow", json_schema_extra={"examples": [example], "additionalProperties": False})


@with_config(ConfigDict(extra="allow"))
class Observation(TypedDict):
    """One value of one series. Further fields are covariates; null is a missing value."""

    unique_id: Id
    ds: Time
    y: Number | None


@with_config(ConfigDict(extra="allow"))
class FutureRow(TypedDict):
    """Known covariates of one series at one future time."""

    unique_id: Id
    ds: Time


@with_config(ConfigDict(extra="allow"))
class StaticRow(TypedDict):
    """Static covariates of one series."""

    unique_id: Id


@with_config(_body(OBSERVATIONS_EXAMPLE))
class ObservationsBody(TypedDict):
    """New observations, rows in any order. Either all of them are taken in or none."""

    observations: Annotated[Checked[Observation], Field(min_length=1)]
    static: NotRequired[Annotated[Checked[StaticRow] | None, Field(description="Static covariates of new series.")]]
    late: NotRequired[
        Annotated[
            Literal["raise", "skip", "correct"],
            Field(description="What to do with rows at or before the latest time of their series."),
        ]
    ]
    allow_jump: NotRequired[
        Annotated[bool, Field(strict=True, description="Take in rows far ahead of the newest time of all series.")]
    ]


@with_config(_body(FORECASTS_EXAMPLE))
class ForecastBody(TypedDict):
    """Which series to forecast."""

    unique_ids: NotRequired[
        Annotated[Checked[Id] | None, Field(description="Without it: the series of `futr`, or every known series.")]
    ]
    futr: NotRequired[
        Annotated[Checked[FutureRow] | None, Field(description="Known covariates of the next steps of each series.")]
    ]
    level: NotRequired[
        Annotated[list[Level] | None, Field(max_length=MANY_LEVELS, description="Central intervals, in percent.")]
    ]


class LateRow(BaseModel):
    """A row that was left out."""

    unique_id: str | int
    ds: str | int
    y: float | None
    reason: str


class HeldRow(BaseModel):
    """A row whose value was held back as an outlier."""

    unique_id: str | int
    ds: str | int
    y: float


class UpdateReport(BaseModel):
    """What became of the rows of a request."""

    applied: int
    duplicates: int = Field(description="Rows that their series had consumed before; ignored.")
    corrected: int = Field(description="Late rows that replaced what had been consumed.")
    gaps_filled: int = Field(description="Steps without a row, taken as missing values.")
    new_series: list[str | int]
    late: list[LateRow]
    held_back: list[HeldRow] = Field(description="Applied as missing values: y is far outside the range of its series.")


class Forecasts(BaseModel):
    """Rows as in the library's frame: unique_id, ds, then mean, median and intervals under the model's name."""

    forecasts: list[dict[str, Any]]
    epoch: int | None = Field(
        description="How often the effects that all series have in common had been learned; null if nothing is. CSV "
        "and Arrow have it in the header Aru-Epoch."
    )


class Accuracy(BaseModel):
    """Error of the latest forecasts one window ahead, over the observations that monitoring keeps."""

    observations: int = Field(description="How many observations were compared with a forecast.")
    nd: float | None = Field(description="Sum of |y - median| over sum of |y|.")
    nd_global: float | None = Field(description="The same for the forecast without adaptation.")
    coverage_80: float | None = Field(description="Share of observations inside the adapted forecast's 80 % interval.")


class SeriesRow(BaseModel):
    """A series in a list."""

    unique_id: str | int
    ds: str | int = Field(description="Time of the latest row.")
    observations: int
    accuracy: Accuracy | None = Field(description="null until a window of forecasts has passed, or without monitoring.")


class SeriesPage(BaseModel):
    """Some of the series, in order."""

    series: list[SeriesRow]
    next_cursor: str | None = Field(description="Where the next page begins; null on the last one.")


class SeriesReport(SeriesRow):
    """Details of a series."""

    y: float | None = Field(description="Latest value; null where it is missing.")
    effective_sample_size: list[float] | None = Field(
        description="Effective number of observations in the local statistics, per aging factor; null if the model has "
        "none."
    )
    aging_factors: list[float] | None = Field(description="Share of an observation's weight that remains after a step.")


class Forgotten(BaseModel):
    """A series was removed."""

    forgotten: str | int


class Drift(Accuracy):
    """A series whose latest errors are larger than those before."""

    unique_id: str | int
    drift: float = Field(
        description="By how many standard deviations they are larger, in a rank test; over 3 a series drifts."
    )
    y: list[float | None] = Field(description="Its latest values that were compared with a forecast.")
    median: list[float | None] = Field(description="The forecast medians of these values.")


class Moment(Accuracy):
    """The accuracy of all series over the h times up to `ds`."""

    ds: str | int


class ModelSummary(BaseModel):
    """The model of the service."""

    name: str
    h: int
    freq: str | int | None
    version: str = Field(description="Fingerprint of settings and weights, as in the store.")


class VersionReport(BaseModel):
    """A version of a model."""

    version: int
    role: Literal["champion", "challenger", "former"]
    status: Literal["serving", "building", "shadowing", "diverged"] = Field(
        description="building: it takes in the rows that are kept; shadowing: it has caught up with the champion; "
        "diverged: it is ahead of it, as when only one of their stores was restored, and follows no longer."
    )
    fingerprint: str = Field(description="Of the model as it was brought in.")
    since: str = Field(description="When it was brought in.")
    behind: int | None = Field(description="Entries of the champion's journal that it has not taken in; null: unknown.")
    refused_rows: int | None = Field(description="Rows of the champion that it could not take.")
    refused_reason: str | None


class ContestMoment(BaseModel):
    """The error (ND) of both versions over the times up to `ds`."""

    ds: str | int
    champion: float | None
    shadow: float | None


class ContestReport(BaseModel):
    """Champion and shadow, scored on the same rows."""

    window: int = Field(description="Steps ahead, at most.")
    champion: Accuracy
    shadow: Accuracy
    series: int = Field(description="Series on which they were compared.")
    series_better: int = Field(description="Series of which the shadow has the smaller error.")
    series_worse: int
    timeline: list[ContestMoment]


class RolloutReport(BaseModel):
    """The versions of a model, the champion first, and the rows that are kept."""

    model: str = Field(description="Its name in paths.")
    versions: list[VersionReport]
    contest: ContestReport | None = Field(description="Of the challenger, or else of the former champion.")
    keep_seconds: float | None = Field(description="For how long rows are kept; null: they are not.")
    kept_bytes: int
    kept_since: str | None = Field(description="When the oldest row that is kept arrived.")


class ModelReport(RolloutReport, ModelSummary):
    """A model and its versions."""

    series: int


class ModelList(BaseModel):
    """The models of the service."""

    models: list[ModelReport]
    default: str = Field(description="The model that answers where no name is given.")


@with_config(ConfigDict(extra="forbid"))
class Step(TypedDict):
    """Which version to make the champion."""

    version: Annotated[int, Field(strict=True, ge=1)]
    force: NotRequired[Annotated[bool, Field(strict=True, description="Also if it could not take some rows.")]]


class Fleet(BaseModel):
    """All series at a glance."""

    model: ModelSummary
    monitored: bool = Field(description="Whether recent history and accuracy are kept.")
    series: int
    observations_per_second: float = Field(description="Over the last minute.")
    observations_by_second: list[int] = Field(description="The same second by second, oldest first.")
    accuracy: Accuracy
    series_scored: int = Field(description="Series whose forecasts were compared with observations.")
    series_improved: int = Field(description="Scored series whose adapted forecast was better than the global one.")
    series_worsened: int = Field(description="Scored series whose adapted forecast was worse than the global one.")
    timeline: list[Moment]
    drifting: list[Drift]
    rollout: RolloutReport


class HistoryRow(BaseModel):
    """The observation at one time, and its forecast made up to one window before."""

    ds: str | int
    y: float | None
    median: float | None
    lo_80: float | None
    hi_80: float | None
    median_global: float | None
    local: float | None = Field(
        description="What the local model added: mean of the adapted forecast minus global mean."
    )


class DriftReport(BaseModel):
    """Whether the latest errors of a series are larger than those before."""

    drift: float = Field(description="By how many standard deviations they are larger, in a rank test.")
    limit: float = Field(description="From which on it is drift.")
    error_latest: float = Field(description="ND over the latest rows.")
    error_before: float = Field(description="ND over the rows before.")
    rows_latest: int
    rows_before: int


class SeriesMonitor(SeriesReport):
    """A series with its recent history, past forecasts, and present forecast."""

    model: ModelSummary
    monitored: bool = Field(description="Whether recent history and accuracy are kept.")
    drift: DriftReport | None = Field(description="null until enough forecasts were scored.")
    history: list[HistoryRow]
    forecast: list[dict[str, Any]] | None = Field(
        description="Rows of ds, mean, median, lo_L and hi_L for every level, mean_global, median_global, and local, "
        "which is the local model's contribution: mean - mean_global. If null, `forecast_missing` has the reason."
    )
    forecast_missing: str | None


class Problem(BaseModel):
    """Why a request was refused."""

    type: str
    message: str = Field(description="What is wrong and what to do about it.")
    remedy: str | None = Field(None, description="What to do about it: the last part of the message.")
    columns: list[str] | None = Field(None, description="The columns concerned.")
    rows: list[dict[str, Any]] | None = Field(
        None,
        description="The first 100 rows concerned: unique_id, ds, number of the row in the table (from 0) and reason, "
        "as far as known; for a malformed body or parameter: place and reason.",
    )
    total_rows: int | None = Field(None, description="Number of rows concerned.")
    id: str | None = Field(None, description="Id of the error in the server's log.")


class Failure(BaseModel):
    """The body of every error response."""

    error: Problem


class Health(BaseModel):
    """State of the service."""

    status: Literal["ok", "starting", "stopping", "unwritable"]
