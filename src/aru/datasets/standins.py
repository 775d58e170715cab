"""Hourly series that stand in for Electricity and Traffic, from Parquet copies."""

from __future__ import annotations

from pathlib import Path

from aru.datasets.description import PARQUET, Dataset, Description, Facts, check, find, read_parquet

GEFCOM2012 = Description(
    name="gefcom2012",
    title="GEFCom2012 load",
    h=24,
    freq="h",
    input_size=168,
    series=20,
    lengths=(18_246, 18_246),
    season=24,
    stream_windows=7,
    futr_exog_list=("temperature", "cooling", "heating"),
    copy="data.parquet with unique_id, ds and y of 20 zones and temperature.parquet with ds and 11 stations",
    source="github.com/robjhyndman/tscompdata",
    facts=Facts(761_400, 20),
    note="From June 2006 on; temperature counts as known.",
)
M4_HOURLY = Description(
    name="m4_hourly",
    title="M4, hourly",
    h=24,
    freq="h",
    input_size=168,
    series=414,
    lengths=(748, 1008),
    season=24,
    copy="data.parquet with unique_id, ds and y of 414 series",
    source="github.com/skforecast/skforecast-datasets",
    facts=Facts(373_372, 414, 2_127_339_749.3),
)


def load_gefcom2012(data_dir: Path, checked: bool = True) -> Dataset:
    """Load of 20 zones with the mean temperature of all stations, and how far it is from comfortable."""
    folder = find(GEFCOM2012, data_dir)
    df = read_parquet(folder / PARQUET)
    if checked:
        check(df, GEFCOM2012, folder)
    stations = read_parquet(folder / "temperature.parquet").set_index("ds")
    mean = stations.mean(axis=1).rename("temperature").reset_index()
    df = df[df["ds"] >= "2006-06-01"].merge(mean, on="ds", how="left")
    df["cooling"] = (df["temperature"] - 65).clip(lower=0)
    df["heating"] = (60 - df["temperature"]).clip(lower=0)
    return Dataset(df, None, GEFCOM2012)


def load_m4_hourly(data_dir: Path, checked: bool = True) -> Dataset:
    """All hourly series of the M4 competition, training and test."""
    folder = find(M4_HOURLY, data_dir)
    df = read_parquet(folder / PARQUET)
    if checked:
        check(df, M4_HOURLY, folder)
    return Dataset(df, None, M4_HOURLY)
