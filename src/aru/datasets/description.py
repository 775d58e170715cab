"""Shared by all datasets: description, reading and checking of the published files."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru.errors import StorageError, listing, verbatim

PARQUET = "data.parquet"


class PaperRow(NamedTuple):
    """A row of the paper's Table 1."""

    series: int
    length: int | None
    features: int


class Facts(NamedTuple):
    """What a complete file holds: rows with a value, series, and the sum of all values."""

    rows: int
    series: int
    total: float | None = None


@dataclasses.dataclass(frozen=True)
class Description:
    """Everything a forecaster and a protocol need to know about a dataset.

    `series` and `lengths` describe the frame that `load` returns. `files` are the published ones, to be put into a
    folder named like the dataset. The last h rows are the test of the fixed protocol, the last `stream_windows * h`
    that of the streaming protocol.
    """

    name: str
    title: str
    h: int
    freq: str | None
    input_size: int
    series: int
    lengths: tuple[int, int]
    season: int
    stream_windows: int = 1
    futr_exog_list: tuple[str, ...] = ()
    hist_exog_list: tuple[str, ...] = ()
    stat_exog_list: tuple[str, ...] = ()
    lags: tuple[int, ...] | None = None
    files: tuple[str, ...] = ()
    copy: str = ""  # without `files`: what to put into that folder as Parquet
    source: str = ""
    package: str = ""  # Python package that contains the files
    facts: Facts | None = None
    paper: PaperRow | None = None
    note: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of the forecaster: `Forecaster(**description.settings)`."""
        lags = {} if self.lags is None else {"lags": list(self.lags)}
        return {
            "h": self.h,
            "freq": self.freq,
            "input_size": self.input_size,
            "futr_exog_list": list(self.futr_exog_list),
            "hist_exog_list": list(self.hist_exog_list),
            "stat_exog_list": list(self.stat_exog_list),
            **lags,
        }

    def how_to_get(self, data_dir: Path) -> str:
        """A sentence for those who do not have it."""
        if self.package:
            return f"Install it: {self.source}."
        *some, last = self.files or (self.copy,)
        what = f"{', '.join(some)} and {last}" if some else last
        source = f"from {self.source}" if self.files else f"(made from {self.source})"
        return f"Put {what} {source} into {data_dir / self.name}."

    def present(self, data_dir: Path) -> str:
        """Which form of the data is present: "parquet", "original", "package", "generated", or "" for none."""
        folder = data_dir / self.name
        if not self.source:
            return "generated"
        if self.package:
            return "package" if importlib.util.find_spec(self.package) else ""
        if (folder / PARQUET).exists():
            return "parquet"
        return "original" if self.files and all((folder / name).exists() for name in self.files) else ""


class Dataset(NamedTuple):
    """A long frame, what is constant per series, and the description."""

    df: pd.DataFrame
    static_df: pd.DataFrame | None
    description: Description


def default_dir() -> Path:
    """ARU_DATA, else `../shared/data`."""
    return Path(os.environ.get("ARU_DATA", "../shared/data"))


def find(about: Description, data_dir: Path) -> Path:
    """The folder of a dataset, or an error that says what to download and where to put it."""
    folder = data_dir / about.name
    if about.present(data_dir):
        return folder
    missing = [name for name in about.files if not (folder / name).exists()]
    have = f" ({', '.join(missing)} missing)" if 0 < len(missing) < len(about.files) else ""
    raise StorageError(
        f"{about.title}: the files are not in {verbatim(folder)}{have}",
        f"{about.how_to_get(data_dir)} Or name another folder with data_dir or ARU_DATA.",
    )


def read_parquet(path: Path) -> pd.DataFrame:
    """One of the Parquet copies."""
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{verbatim(path)} cannot be read: {verbatim(error)}", "Copy or download it again."
        ) from error


def read_csv(
    path: Path,
    columns: Sequence[str] = (),
    text: Sequence[str] = (),
    sep: str = ",",
    decimal: str = ".",
    index_col: int | None = None,
) -> pd.DataFrame:
    """Read a published file. All `columns` must be there; those in `text` stay text."""
    try:
        frame: pd.DataFrame = pd.read_csv(
            path, dtype=dict.fromkeys(text, str), sep=sep, decimal=decimal, index_col=index_col
        )
    except (OSError, ValueError) as error:
        raise StorageError(f"{verbatim(path)} cannot be read: {verbatim(error)}", "Download it again.") from error
    lost = [c for c in columns if c not in frame.columns]
    if lost:
        raise StorageError(
            f"{verbatim(path)} has no column {', '.join(lost)}: it has {listing(list(frame.columns), 12)}",
            "Is it the published file?",
            columns=lost,
        )
    return frame


def check(df: pd.DataFrame, about: Description, folder: Path) -> None:
    """Refuse incomplete files, or files other than the published ones."""
    y = df["y"].astype(np.float64)
    check_facts(Facts(int(y.notna().sum()), df["unique_id"].nunique(), float(y.sum())), about, folder)


def check_facts(found: Facts, about: Description, folder: Path) -> None:
    """Compare what a file holds with what the complete one holds."""
    assert about.facts is not None
    for name, is_, expected in zip(("rows with a value", "series", "as the sum of y"), found, about.facts, strict=True):
        # Copies in single precision differ in the eighth digit.
        if is_ is not None and expected is not None and abs(is_ - expected) > 1e-6 * abs(expected):
            raise StorageError(
                f"{verbatim(folder)} holds {is_:,.10g} {name} instead of {expected:,.10g}: the files are incomplete or "
                "not the published ones",
                f"Download them again from {about.source}, or pass check=False for a part of them.",
            )
