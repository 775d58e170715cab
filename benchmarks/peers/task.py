"""A dataset as every peer gets it: the rows, covariates and cutoffs that our own backtest uses."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aru.data.clock import to_index
from aru.data.columns import read_static
from aru.data.frequency import Frequency
from aru.data.learning import learn_schema
from aru.data.panel import Panel, read_panel
from aru.data.schema import CategoryColumn, NumberColumn, Schema
from aru.errors import AruWarning, ConfigError, TooLittleDataError, listing
from aru.runtime.backtest import cutoff_rows
from aru.runtime.update import begin_with_values
from aru.settings import Settings, nested
from benchmarks.peers.worker.interface import Spec


@dataclasses.dataclass(frozen=True)
class Task:
    """Rows of gap-free series, and where each window of each series begins.

    In `rows` and `static` a series is its number in `ids`. `cutoffs` is (series, window): the last step that a
    forecast may know.
    """

    ids: pd.Index[Any]
    rows: pd.DataFrame
    static: pd.DataFrame
    cutoffs: pd.DataFrame
    h: int
    freq: str | int | None
    season: int
    input_size: int
    numbers: list[str]
    codes: dict[str, int]
    calendar: list[str]
    static_numbers: list[str]
    static_codes: dict[str, int]

    def spec(self, entry: str, seed: int, steps: int, accelerator: str, intervals: bool = True) -> Spec:
        """The task in words, for one peer."""
        return Spec(
            entry=entry,
            h=self.h,
            freq=self.freq,
            season=self.season,
            input_size=self.input_size,
            seed=seed,
            steps=steps,
            accelerator=accelerator,
            numbers=self.numbers,
            codes=self.codes,
            calendar=self.calendar,
            static_numbers=self.static_numbers,
            static_codes=self.static_codes,
            intervals=intervals,
        )

    def without_covariates(self) -> Task:
        """The same windows of y alone."""
        none: dict[str, Any] = {"numbers": [], "codes": {}, "calendar": [], "static_numbers": [], "static_codes": {}}
        rows = self.rows[["unique_id", "step", "ds", "y"]]
        return dataclasses.replace(self, rows=rows, static=self.static[["unique_id"]], **none)

    def write(self, folder: Path) -> None:
        """The frames, as files."""
        self.rows.to_parquet(folder / "panel.parquet")
        self.static.to_parquet(folder / "static.parquet")
        self.cutoffs.to_parquet(folder / "cutoffs.parquet")

    def backtest(self, forecasts: pd.DataFrame, name: str) -> pd.DataFrame:
        """A peer's forecasts as a frame of `Forecaster.cross_validation`: every row of every window."""
        steps = self.cutoffs.to_numpy()[:, :, None] + 1 + np.arange(self.h)
        series, window, _ = np.indices(steps.shape)
        grid = pd.DataFrame({"unique_id": series.ravel(), "window": window.ravel(), "step": steps.ravel()})
        keys = ["unique_id", "window", "step"]
        out = grid.merge(forecasts, on=keys, how="left", validate="one_to_one")
        at = self.rows.set_index(["unique_id", "step"])[["ds", "y"]]
        out = out.join(at, on=["unique_id", "step"])
        cutoff = self.cutoffs.to_numpy()[out.unique_id, out.window]
        out["cutoff"] = at.ds.loc[pd.MultiIndex.from_arrays([out.unique_id, cutoff])].to_numpy()
        out["unique_id"] = self.ids[out.unique_id].to_numpy()
        renamed = {"mean": name, "median": f"{name}-median", "low": f"{name}-lo-90", "high": f"{name}-hi-90"}
        renamed = {k: v for k, v in renamed.items() if k in out}
        return out.rename(columns=renamed)[["unique_id", "ds", "cutoff", "y", *renamed.values()]]


def make_task(
    df: pd.DataFrame,
    static: pd.DataFrame | None,
    settings: dict[str, Any],
    n_windows: int,
    step_size: int,
    season: int | None = None,
) -> Task:
    """Windows as in `Forecaster.cross_validation(df, n_windows, step_size)`; everything learned before the first.

    `settings` are those of a Forecaster, by name. `season` is asked for where the frequency has none. A series without
    a value before its first cutoff is left out, with a warning: few peers could forecast it.
    """
    wanted = Settings(**nested({"model": "aru-rnn", **settings}))
    if wanted.hist_exog_list:
        raise ConfigError("Peers are given known covariates only", "Leave `hist_exog_list` empty.")
    freq = Frequency(wanted.freq)
    columns = [*wanted.futr_exog_list]
    panel = read_panel(df, freq, columns)
    panel = begin_with_values(panel, np.ones(len(panel.ids), bool), "df")
    panel, cutoffs = _with_cutoffs(panel, wanted.h, n_windows, step_size)
    static_columns = read_static(static, panel.ids, wanted.stat_exog_list)
    steps = np.arange(len(panel.ds)) - np.repeat(panel.starts, panel.lengths)
    train = steps <= cutoffs[0][panel.series]
    schema = learn_schema(panel, static_columns, wanted, freq, train)
    rows, numbers, codes = _covariates(panel, schema, train)
    static_rows, static_numbers, static_codes = _static_covariates(panel, schema, static_columns)
    return Task(
        ids=panel.ids,
        rows=pd.DataFrame(
            {
                "unique_id": panel.series,
                "step": steps,
                "ds": panel.ds if panel.clock is None else to_index(panel.ds),
                "y": panel.y,
                **rows,
            }
        ),
        static=pd.DataFrame({"unique_id": np.arange(len(panel.ids)), **static_rows}),
        cutoffs=pd.DataFrame({str(i): c for i, c in enumerate(cutoffs)}),
        h=wanted.h,
        freq=wanted.freq,
        season=season or min(freq.seasons(), default=1),
        input_size=schema.input_size,
        numbers=numbers,
        codes=codes,
        calendar=[_code(c) for c in schema.calendar],
        static_numbers=static_numbers,
        static_codes=static_codes,
    )


def sample(df: pd.DataFrame, most: int | None, seed: int = 0) -> pd.DataFrame:
    """The rows of at most `most` series, always the same ones."""
    ids = np.sort(df.unique_id.unique())
    if most is None or len(ids) <= most:
        return df
    return df[df.unique_id.isin(np.random.default_rng(seed).choice(ids, most, replace=False))]


def _with_cutoffs(panel: Panel, h: int, n_windows: int, step_size: int) -> tuple[Panel, Any]:
    """The series that have a first cutoff, and (window, series) the step of each cutoff."""
    rows = cutoff_rows(panel, h, n_windows, step_size)
    usable = rows[0] >= 0
    if not usable.any():
        raise TooLittleDataError(f"No series reaches back over {n_windows} windows", "Use fewer of them.")
    if not usable.all():
        left = panel.ids[~usable].tolist()
        warnings.warn(AruWarning(f"Series without a value before the first cutoff: {listing(left)}."), stacklevel=3)
    cutoffs = (rows - panel.starts)[:, usable]
    return panel.select(usable[panel.series]), cutoffs


def _covariates(panel: Panel, schema: Schema, train: Any) -> tuple[dict[str, Any], list[str], dict[str, int]]:
    """Columns of known covariates: numbers that vary in training, codes, calendar codes."""
    encoded = schema.encode(panel)
    numbers, categories = schema.futr
    values = encoded.futr.numpy()
    columns = _number_columns(numbers, values, values[train])
    every = [*categories, *schema.calendar]
    codes = {_code(c): encoded.futr_cat.numpy()[:, i] for i, c in enumerate(every)}
    return columns | codes, list(columns), {_code(c): len(c.values) + 1 for c in every}


def _static_covariates(panel: Panel, schema: Schema, static: Any) -> tuple[dict[str, Any], list[str], dict[str, int]]:
    encoded = schema.encode_static(static, panel.ids)
    numbers, categories = schema.stat
    values = encoded.numbers.numpy()
    columns = _number_columns(numbers, values, values)
    codes = {_code(c): encoded.categories.numpy()[:, i] for i, c in enumerate(categories)}
    return columns | codes, list(columns), {_code(c): len(c.values) + 1 for c in categories}


def _number_columns(numbers: tuple[NumberColumn, ...], values: Any, train: Any) -> dict[str, Any]:
    """Rescaled values and indicators of missingness, without those that are constant in training."""
    names = [name for c in numbers for name in (f"number_{c.name}", f"missing_{c.name}")]
    return {name: values[:, i] for i, name in enumerate(names) if np.ptp(train[:, i])}


def _code(column: CategoryColumn) -> str:
    return f"code_{column.name}"
