"""Daily sales of 1,115 drug stores; open days as consecutive rows.

Days without sales are left out, as in the authors' code and the entity-embedding code that it follows, because closed
days are known in advance. So `freq` is None. There is no weather, no search trends and no series id.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from aru.datasets.description import PARQUET, Dataset, Description, Facts, PaperRow, check, find, read_csv, read_parquet

ROSSMANN_NUMBERS = (
    "promo", "school_holiday", "promo2", "distance", "competition", "trend", "closed_before", "closed_after",
)  # fmt: skip
ROSSMANN = Description(
    name="rossmann",
    title="Rossmann store sales",
    h=16,
    freq=None,
    input_size=16,
    series=1115,
    lengths=(592, 942),
    season=6,
    stream_windows=2,
    futr_exog_list=(*ROSSMANN_NUMBERS, "state_holiday"),
    stat_exog_list=("store_type", "assortment", "state"),
    files=("train.csv", "store.csv", "store_states.csv"),
    source="kaggle.com/c/rossmann-store-sales (store_states.csv: github.com/entron/entity-embedding-rossmann)",
    facts=Facts(1_017_209, 1115, 5_873_180_623.0),
    paper=PaperRow(1115, 1600, 39),
    note="T is 942 days, of which a shop has 592 to 942 with sales; the paper's text says about 900.",
)

_SALES = {
    "Store": "unique_id",
    "Date": "ds",
    "Sales": "y",
    "Promo": "promo",
    "StateHoliday": "state_holiday",
    "SchoolHoliday": "school_holiday",
}
_SHOPS = {
    "Store": "unique_id",
    "StoreType": "store_type",
    "Assortment": "assortment",
    "CompetitionDistance": "competition_distance",
    "CompetitionOpenSinceMonth": "competition_open_since_month",
    "CompetitionOpenSinceYear": "competition_open_since_year",
    "Promo2": "promo2",
    "Promo2SinceWeek": "promo2_since_week",
    "Promo2SinceYear": "promo2_since_year",
}


def load(data_dir: Path, checked: bool = True) -> Dataset:
    """Read the Parquet copy or Kaggle's files."""
    folder = find(ROSSMANN, data_dir)
    if (folder / PARQUET).exists():
        df, shops = read_parquet(folder / PARQUET), read_parquet(folder / "static.parquet")
    else:
        df, shops = _read_original(folder)
    if checked:
        check(df, ROSSMANN, folder)
    static = shops[["unique_id", *ROSSMANN.stat_exog_list]]
    return Dataset(_features(df[df["y"] > 0], shops), static, ROSSMANN)


def _read_original(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    df = read_csv(folder / "train.csv", list(_SALES), ["StateHoliday", "Store"]).rename(columns=_SALES)
    df["ds"] = pd.to_datetime(df["ds"])
    df["y"] = df["y"].astype(np.float32)
    shops = read_csv(folder / "store.csv", list(_SHOPS), ["Store"]).rename(columns=_SHOPS)
    states = read_csv(folder / "store_states.csv", ["Store", "State"], ["Store", "State"])
    states = states.rename(columns={"Store": "unique_id", "State": "state"})
    return df[list(_SALES.values())], shops.merge(states, on="unique_id", how="left", validate="one_to_one")


def _features(df: pd.DataFrame, shops: pd.DataFrame) -> pd.DataFrame:
    """Known covariates: promotions, holidays, the competitor next door, days closed before and after."""
    df = df.sort_values(["unique_id", "ds"], ignore_index=True)
    shop = shops.set_index("unique_id").loc[df["unique_id"]].reset_index()
    year, month, week = df["ds"].dt.year, df["ds"].dt.month, df["ds"].dt.isocalendar().week.astype(int)
    opened = 12 * (year - shop["competition_open_since_year"]) + month - shop["competition_open_since_month"]
    running = (year - shop["promo2_since_year"]) * 52 + week - shop["promo2_since_week"]
    days = df.groupby("unique_id")["ds"]
    return df[["unique_id", "ds", "y", "promo", "school_holiday", "state_holiday"]].assign(
        promo2=((shop["promo2"] == 1) & (running > 0)).astype(float),
        distance=np.log1p(shop["competition_distance"]),
        competition=opened.clip(0, 24),
        trend=(df["ds"] - df["ds"].min()).dt.days.astype(float),
        closed_before=(days.diff().dt.days - 1).clip(0, 14).fillna(0.0),
        closed_after=(-days.diff(-1).dt.days - 1).clip(0, 14).fillna(0.0),
    )
