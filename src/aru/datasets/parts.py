"""Monthly demand of spare parts for cars, mostly zero.

2,674 parts over 51 months from January 1998 on. `load` keeps the 1,310 that the authors' code keeps: complete series
with at least one sale in the last 15 months and at least ten months with a sale. (Their code also tests the first 15
months, but counts the part's number as a month, so that this has no effect.)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from aru.datasets.description import PARQUET, Dataset, Description, Facts, PaperRow, check, find, read_csv, read_parquet

PARTS_MONTHS = 51
PARTS = Description(
    name="parts",
    title="Car parts",
    h=8,
    freq="MS",
    input_size=8,
    series=1310,
    lengths=(PARTS_MONTHS, PARTS_MONTHS),
    season=12,
    files=("carparts.csv",),
    source="robjhyndman.com/expsmooth/expsmooth_data.zip",
    facts=Facts(130_252, 2674, 66_194.0),
    paper=PaperRow(2246, 52, 1),
    note="It has 51 months and 2,674 parts, 1,310 after the authors' filter; no filter tried gives 2,246.",
)


def load(data_dir: Path, checked: bool = True) -> Dataset:
    """Read the Parquet copy or the published file."""
    folder = find(PARTS, data_dir)
    df = read_parquet(folder / PARQUET) if (folder / PARQUET).exists() else _read_original(folder)
    if checked:
        check(df, PARTS, folder)
    return Dataset(_filtered(df), None, PARTS)


def _read_original(folder: Path) -> pd.DataFrame:
    """One line per part: its number, then 51 months; empty where unknown."""
    wide = read_csv(folder / "carparts.csv")
    values = wide.iloc[:, 1 : PARTS_MONTHS + 1].to_numpy(np.float32)
    months = pd.date_range("1998-01-01", periods=values.shape[1], freq="MS")
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(wide.iloc[:, 0].astype(str).to_numpy(), values.shape[1]),
            "ds": np.tile(months.to_numpy(), len(wide)),
            "y": values.ravel(),
        }
    )
    return frame[frame["y"].notna()].sort_values(["unique_id", "ds"], ignore_index=True)


def _filtered(df: pd.DataFrame) -> pd.DataFrame:
    months = sorted(df["ds"].unique())
    y = df.pivot_table(index="unique_id", columns="ds", values="y").dropna()
    recent = (y[[m for m in months[-15:] if m in y.columns]] > 0).sum(axis=1) >= 1
    keep = y.index[recent & ((y > 0).sum(axis=1) >= 10)]
    return df[df["unique_id"].isin(keep)].reset_index(drop=True)
