"""Hourly load of 370 Portuguese clients, and ten of them over one year.

The file has mean kW per quarter of an hour, labelled by its end; an hour is the mean of its four quarters. A client
begins with its first value that is not zero: earlier zeros mean that the client did not exist yet.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from aru.datasets.description import (
    PARQUET,
    Dataset,
    Description,
    Facts,
    PaperRow,
    check,
    check_facts,
    find,
    read_csv,
    read_parquet,
)

_FILE = "LD2011_2014.txt"
_SOURCE = "archive.ics.uci.edu/dataset/321 (ElectricityLoadDiagrams20112014)"
ELECTRICITY = Description(
    name="electricity",
    title="Electricity load diagrams",
    h=24,
    freq="h",
    input_size=168,
    series=370,
    lengths=(1, 35064),
    season=24,
    stream_windows=7,
    lags=(168, 336),
    files=(_FILE,),
    source=_SOURCE,
    facts=Facts(370 * 140_256, 370),
    paper=PaperRow(370, 44000, 5),
    note="T is at most 35,064 hours: the source ends with 2014, not 2015.",
)
ELECTRICITY_10 = Description(
    name="electricity_10",
    title="Electricity, ten clients, 2014",
    h=24,
    freq="h",
    input_size=168,
    series=10,
    lengths=(8760, 8760),
    season=24,
    stream_windows=7,
    files=(_FILE,),
    source=_SOURCE,
    facts=Facts(87_600, 10, 6_920_129.7),
    note="Clients MT_002 to MT_011: a stand-in for Electricity.",
)


def load(data_dir: Path, checked: bool = True) -> Dataset:
    """Read UCI's file, or a Parquet copy of its hours."""
    folder = find(ELECTRICITY, data_dir)
    if (folder / PARQUET).exists():
        return Dataset(read_parquet(folder / PARQUET), None, ELECTRICITY)
    quarters = _read(folder / _FILE)
    if checked:
        check_facts(Facts(int(quarters.count().sum()), quarters.shape[1]), ELECTRICITY, folder)
    return Dataset(_hours(quarters), None, ELECTRICITY)


def load_10(data_dir: Path, checked: bool = True) -> Dataset:
    """Read the Parquet copy, or take ten clients out of UCI's file."""
    folder = find(ELECTRICITY_10, data_dir)
    if (folder / PARQUET).exists():
        df = read_parquet(folder / PARQUET)
    else:
        quarters = _read(folder / _FILE, [f"MT_{i:03d}" for i in range(2, 12)])
        df = _hours(quarters[quarters.index > pd.Timestamp("2014-01-01")])
    if checked:
        check(df, ELECTRICITY_10, folder)
    return Dataset(df, None, ELECTRICITY_10)


def _read(path: Path, clients: list[str] | None = None) -> pd.DataFrame:
    """Quarters of hours by client; semicolons between columns, commas as decimal points."""
    frame = read_csv(path, clients or (), sep=";", decimal=",", index_col=0)
    frame.index = pd.to_datetime(frame.index)
    return frame if clients is None else frame[clients]


def _hours(quarters: pd.DataFrame) -> pd.DataFrame:
    hours = (pd.DatetimeIndex(quarters.index) - pd.Timedelta(minutes=1)).floor("h")
    mean = quarters.groupby(hours).mean().astype(np.float32)
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(mean.columns.to_numpy(), len(mean)),
            "ds": np.tile(mean.index.to_numpy(), mean.shape[1]),
            "y": mean.to_numpy().T.ravel(),
        }
    )
    begun = (mean.to_numpy().T != 0).cumsum(axis=1).ravel() > 0
    hourly: pd.DataFrame = frame[begun].reset_index(drop=True)
    return hourly
