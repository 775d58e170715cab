"""366 monthly series of tourism demand, with trend and multiplicative seasons; the last 24 months are the test.

The two published files have a column per series: number of values, first year, first month, then the values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from aru.datasets.description import PARQUET, Dataset, Description, Facts, PaperRow, check, find, read_csv, read_parquet
from aru.errors import StorageError, verbatim

TOURISM = Description(
    name="tourism_monthly",
    title="Tourism, monthly",
    h=24,
    freq="MS",
    input_size=48,
    series=366,
    lengths=(91, 333),
    season=12,
    files=("monthly_in.csv", "monthly_oos.csv"),
    source="the forecasting competition of Athanasopoulos et al. 2011 (github.com/ellisp/Tcomp-r-package, source-data)",
    facts=Facts(109_280, 366, 1_089_431_255.0),
    paper=PaperRow(366, None, 1),
    note="It is in the paper's text, not in its table.",
)


def load(data_dir: Path, checked: bool = True) -> Dataset:
    """Read the Parquet copy or the two published files."""
    folder = find(TOURISM, data_dir)
    if (folder / PARQUET).exists():
        df = read_parquet(folder / PARQUET)[["unique_id", "ds", "y"]]
    else:
        df = pd.concat([_read_original(folder / name) for name in TOURISM.files])
        df = df.sort_values(["unique_id", "ds"], ignore_index=True)
    if checked:
        check(df, TOURISM, folder)
    return Dataset(df, None, TOURISM)


def _read_original(path: Path) -> pd.DataFrame:
    wide = read_csv(path)
    parts = []
    for name in wide.columns:
        column = wide[name].to_numpy(np.float64)
        count, year, month = (int(v) for v in column[:3])
        values = column[3 : 3 + count]
        if len(values) < count or np.isnan(values).any():
            raise StorageError(f"{verbatim(path)}: series {name} has fewer than the {count} values it announces")
        months = pd.date_range(pd.Timestamp(year, month, 1), periods=count, freq="MS")
        parts.append(pd.DataFrame({"unique_id": name, "ds": months, "y": values.astype(np.float32)}))
    return pd.concat(parts, ignore_index=True)
