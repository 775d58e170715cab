"""Hourly occupancy of 963 car lanes in the San Francisco bay area, 440 days of 2008 and 2009.

UCI's PEMS-SF has one line per day, a matrix in Matlab's syntax: 963 stations by 144 periods of ten minutes. Days are
shuffled; `randperm` holds the position of each in time, and the labels its weekday (1 is Monday). Holidays and two
other days are missing, so the date of a day is the next one with its weekday.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from aru.data.columns import Floats, Ints
from aru.datasets.description import PARQUET, Dataset, Description, Facts, PaperRow, check, find, read_parquet
from aru.errors import StorageError, verbatim

TRAFFIC = Description(
    name="traffic",
    title="PEMS-SF traffic",
    h=24,
    freq="h",
    input_size=168,
    series=963,
    lengths=(10_560, 10_560),
    season=24,
    stream_windows=7,
    lags=(168, 336),
    files=("PEMS_train", "PEMS_test", "PEMS_trainlabels", "PEMS_testlabels", "randperm"),
    source="archive.ics.uci.edu/dataset/204 (PEMS-SF)",
    facts=Facts(963 * 10_560, 963),
    paper=PaperRow(963, 2100, 3),
    note="T is 10,560 hours, as in the paper's text; holidays are missing.",
)
_FIRST_DAY = pd.Timestamp("2008-01-01")


def load(data_dir: Path, checked: bool = True) -> Dataset:
    """Read UCI's files, or a Parquet copy of their hours."""
    folder = find(TRAFFIC, data_dir)
    df = read_parquet(folder / PARQUET) if (folder / PARQUET).exists() else _read_original(folder)
    if checked:
        check(df, TRAFFIC, folder)
    return Dataset(df, None, TRAFFIC)


def _read_original(folder: Path) -> pd.DataFrame:
    days = np.concatenate([_matrices(folder / "PEMS_train"), _matrices(folder / "PEMS_test")])
    labels = np.concatenate([_numbers(folder / "PEMS_trainlabels"), _numbers(folder / "PEMS_testlabels")])
    places = _numbers(folder / "randperm")
    if sorted(places.tolist()) != list(range(1, len(days) + 1)) or len(labels) != len(days):
        raise StorageError(
            f"{verbatim(folder)}: {len(days)} days, {len(labels)} labels and a permutation of {len(places)} do not "
            "fit together",
            f"Download the files again from {TRAFFIC.source}.",
        )
    order = np.argsort(places)
    dates = _dates(labels[order])
    hourly = days[order].reshape(len(days), days.shape[1], 24, 6).mean(axis=3)  # day, station, hour
    stamps = (dates.to_numpy()[:, None] + np.arange(24) * np.timedelta64(1, "h")).ravel()
    stations = hourly.shape[1]
    return pd.DataFrame(
        {
            "unique_id": np.repeat([f"lane-{i:03d}" for i in range(stations)], len(stamps)),
            "ds": np.tile(stamps, stations),
            "y": hourly.transpose(1, 0, 2).reshape(-1).astype(np.float32),
        }
    )


def _dates(weekdays: Ints) -> pd.DatetimeIndex:
    """Consecutive dates with these weekdays; weekday 1 is Monday."""
    gaps = np.diff(weekdays) % 7
    first = (weekdays[0] - 1 - _FIRST_DAY.weekday()) % 7
    passed = np.concatenate([[first], first + np.cumsum(np.where(gaps == 0, 7, gaps))])
    return _FIRST_DAY + pd.to_timedelta(passed, unit="D")


def _matrices(path: Path) -> Floats:
    """(day, station, ten minutes): a matrix in every line."""
    days: list[Floats] = []
    for line in _lines(path):
        rows = [row.split() for row in line.strip().strip("[]").split(";")]
        try:
            day = np.array(rows, dtype=np.float64)
        except ValueError as error:
            raise StorageError(
                f"{verbatim(path)}, line {len(days) + 1}, is no matrix: {verbatim(error)}", "Download it again."
            ) from error
        if day.shape[1] != 144:
            raise StorageError(f"{verbatim(path)}, line {len(days) + 1}, has {day.shape[1]} columns instead of 144")
        days.append(day)
    return np.stack(days)


def _numbers(path: Path) -> Ints:
    return np.array(" ".join(_lines(path)).strip().strip("[]").split(), dtype=np.int64)


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise StorageError(f"{verbatim(path)} cannot be read: {verbatim(error)}", "Download it again.") from error
