"""What a peer is given, and what it gives back."""

from __future__ import annotations

import abc
import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

LEVEL = 90  # percent: the central interval that is scored
FORECAST = ["unique_id", "step", "mean", "median", "low", "high"]


@dataclasses.dataclass(frozen=True)
class Spec:
    """The task in words; the rows come as frames.

    Series are numbered from 0 (`unique_id`), rows of a series from 0 (`step`), without gaps. Known covariates are
    columns of the rows: `numbers` lie in [0, 1] and have no missing value, `codes` map a column to its number of
    categories, of which 0 is "unknown". Calendar features are codes, too.
    """

    entry: str  # "module:callable" that makes the peer
    h: int
    freq: str | int | None  # None: rows are consecutive, their timestamps irregular
    season: int
    input_size: int
    seed: int
    steps: int  # training steps, where the method has any
    accelerator: str
    numbers: list[str]
    codes: dict[str, int]
    calendar: list[str]  # which of the codes are calendar features
    static_numbers: list[str]
    static_codes: dict[str, int]
    intervals: bool = True  # whether they are asked for; without, the median may stand for the mean

    @classmethod
    def read(cls, path: Path) -> Spec:
        """The specification in a JSON file."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """The inverse of `read`."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2))

    @property
    def context(self) -> int:
        """Values that a network reads: as ours, but at least two horizons, and a season besides the horizon."""
        return max(self.input_size, 2 * self.h, self.season + self.h)


class Peer(Protocol):
    """A method, made from a Spec and the frame of static covariates, one row per series.

    Frames have the columns `unique_id`, `step`, `ds`, `y` (missing values are NaN) and
    covariates.
    """

    libraries: tuple[str, ...]  # distributions whose versions belong to the result

    def fit(self, past: pd.DataFrame) -> None:
        """Train on all rows up to the first cutoff."""

    def predict(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.DataFrame:
        """Forecast the rows of `future`, which has no y, from all rows up to a later cutoff.

        Returns the columns of FORECAST, without `low` and `high` where the method has no intervals.
        """


class Streaming(abc.ABC):
    """A peer that tells its library's own work from making ready what the library takes.

    Only `answer` is timed where cost is compared: what arrives, arrives in the form that suits each library best.
    """

    @abc.abstractmethod
    def host(self, past: pd.DataFrame, static: pd.DataFrame, copies: NDArray[np.int64]) -> None:
        """Forecast other series from now on: series i is the trained series copies[i], its rows are in `past`."""

    @abc.abstractmethod
    def read(self, past: pd.DataFrame, future: pd.DataFrame) -> Any:
        """What the library is to be given; arguments as those of `predict`."""

    @abc.abstractmethod
    def answer(self, asked: Any) -> pd.DataFrame:
        """Take in what is new, and forecast."""

    def predict(self, past: pd.DataFrame, future: pd.DataFrame) -> pd.DataFrame:
        """Forecast the rows of `future`."""
        return self.answer(self.read(past, future))


def threads() -> int:
    """How many cores a peer may use: OMP_NUM_THREADS, else all."""
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)


def filled(frame: pd.DataFrame) -> pd.Series[float]:
    """The target with missing values replaced by the last known one; a series begins with a known value."""
    return frame.groupby("unique_id").y.ffill()


def one_hot(frame: pd.DataFrame, codes: dict[str, int]) -> pd.DataFrame:
    """A column of 0 and 1 for each category but "unknown"."""
    columns = {
        f"{name}_{value}": (frame[name].to_numpy() == value).astype(np.float32)
        for name, levels in codes.items()
        for value in range(1, levels)
    }
    return pd.DataFrame(columns, index=frame.index)
