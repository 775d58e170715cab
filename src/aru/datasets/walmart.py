"""Weekly sales of 3,040 departments of 45 stores, on the calendar, missing weeks as missing values.

Negative sales and series with fewer than 32 values are dropped, as in the authors' code. Gaps are missing values. All
series run to the last week of the data, so the test of the fixed protocol is the last eight weeks for all of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from aru.datasets.description import PARQUET, Dataset, Description, Facts, PaperRow, check, find, read_csv, read_parquet

LEAST = 32
WALMART_NUMBERS = (
    "is_holiday", "temperature", "fuel_price", "cpi", "unemployment", "trend",
    "markdown1", "markdown2", "markdown3", "markdown4", "markdown5",
)  # fmt: skip
WALMART = Description(
    name="walmart",
    title="Walmart store sales",
    h=8,
    freq="W-FRI",
    input_size=8,
    series=3040,
    lengths=(32, 143),
    season=52,
    stream_windows=2,
    futr_exog_list=WALMART_NUMBERS,
    stat_exog_list=("type", "size"),
    lags=(52,),
    files=("train.csv", "features.csv", "stores.csv"),
    source="kaggle.com/c/walmart-recruiting-store-sales-forecasting",
    facts=Facts(421_570, 3331, 6_737_218_987.11),
    paper=PaperRow(3331, 143, 16),
    note="It has 3,331 series of 1 to 143 weeks, to October 2012; 3,040 have 32 values that are not negative.",
)

_FEATURES = {
    "Store": "store", "Date": "ds", "Temperature": "temperature", "Fuel_Price": "fuel_price", "CPI": "cpi",
    "Unemployment": "unemployment", "IsHoliday": "is_holiday", **{f"MarkDown{i}": f"markdown{i}" for i in range(1, 6)},
}  # fmt: skip


def load(data_dir: Path, checked: bool = True) -> Dataset:
    """Read the Parquet copy or Kaggle's files."""
    folder = find(WALMART, data_dir)
    if (folder / PARQUET).exists():
        df, stores = read_parquet(folder / PARQUET), read_parquet(folder / "store_features.parquet")
        static = read_parquet(folder / "static.parquet")
    else:
        df, stores, static = _read_original(folder)
    if checked:
        check(df, WALMART, folder)
    frame = _on_the_calendar(df, stores)
    static = static[static["unique_id"].isin(frame["unique_id"].unique())][["unique_id", "type", "size"]]
    return Dataset(frame, static.reset_index(drop=True), WALMART)


def _read_original(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    df = read_csv(folder / "train.csv", ["Store", "Dept", "Date", "Weekly_Sales"])
    df["unique_id"] = df["Store"].astype(str) + "_" + df["Dept"].astype(str)
    df["ds"], df["y"] = pd.to_datetime(df["Date"]), df["Weekly_Sales"]
    features = read_csv(folder / "features.csv", list(_FEATURES)).rename(columns=_FEATURES)
    features["ds"] = pd.to_datetime(features["ds"])
    stores = read_csv(folder / "stores.csv", ["Store", "Type", "Size"])
    static = df[["unique_id", "Store"]].drop_duplicates().merge(stores, on="Store", validate="many_to_one")
    static = static.rename(columns={"Type": "type", "Size": "size"})
    return df[["unique_id", "ds", "y"]], features, static


def _on_the_calendar(df: pd.DataFrame, features: pd.DataFrame) -> pd.DataFrame:
    """Every week from a series' first value to the last week of all, with the covariates of its store."""
    df = df[df["y"] >= 0]
    df = df[df.groupby("unique_id")["y"].transform("size") >= LEAST]
    y = df.pivot_table(index="unique_id", columns="ds", values="y")
    y = y.reindex(columns=pd.date_range(df["ds"].min(), df["ds"].max(), freq="W-FRI"))
    store = y.index.str.split("_").str[0].astype(int)
    weeks = pd.MultiIndex.from_product([np.unique(store), y.columns], names=["store", "ds"])
    known = features.assign(store=features["store"].astype(int), is_holiday=features["is_holiday"].astype(float))
    known = known.set_index(["store", "ds"]).reindex(weeks)
    columns = [name for name in WALMART_NUMBERS if name != "trend"]
    of_store = known[columns].to_numpy(np.float64).reshape(-1, len(y.columns), len(columns))
    values = of_store[np.searchsorted(np.unique(store), store)].reshape(-1, len(columns))
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(y.index.to_numpy(), len(y.columns)),
            "ds": np.tile(y.columns.to_numpy(), len(y)),
            "y": y.to_numpy().ravel(),
            **{name: values[:, i] for i, name in enumerate(columns)},
        }
    )
    frame["trend"] = (frame["ds"] - frame["ds"].min()).dt.days.astype(float)
    begun = y.notna().to_numpy().cumsum(axis=1).ravel() > 0
    return frame.loc[begun, ["unique_id", "ds", "y", *WALMART_NUMBERS]].reset_index(drop=True)
