"""LightGBM on the rows that our models see: past values relative to their mean, covariates, calendar, lead.

It is trained on histories of every length from one value on, so that it also forecasts series it has never seen from
their first values; without any value, from covariates alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

LATEST = 8  # values that are features of their own
SAMPLE, TREES, SHORT = 200_000, 400, 0.5  # rows of training, trees, share of them with a shortened history
CALENDAR = ("day_of_week", "day", "month", "hour")


class Boosted:
    """One model of the median for all series and leads, and one for series without any value."""

    def __init__(
        self, train: pd.DataFrame, static: pd.DataFrame | None, settings: dict[str, Any], season: int, seed: int
    ) -> None:
        self.h, self.season, self.static = settings["h"], season, static
        self.names = list(settings.get("futr_exog_list", ()))
        self.fixed = list(settings.get("stat_exog_list", ())) if static is not None else []
        self.reach = max(64, 2 * season if season < 52 else 52)
        self.codes: dict[str, Any] = {}
        table, rng = self._table(train), np.random.default_rng(seed)
        origins = np.concatenate([s + np.arange(n - 1) for s, n in zip(table.start, table.length, strict=True)])
        origins = rng.choice(origins, SAMPLE)
        ahead = table.end[origins] - 1 - origins
        lead = rng.integers(1, np.minimum(self.h, ahead) + 1)
        short = np.exp(rng.uniform(0, np.log(self.reach), SAMPLE)).astype(int)
        known = np.where(rng.random(SAMPLE) < SHORT, short, self.reach)
        target = table.y[origins + lead]
        ok = ~np.isnan(target)
        x, scale = self._features(table, origins[ok], lead[ok], known[ok])
        self.model = self._train(x, (target[ok] / scale).clip(-10, 10), seed)
        self.first = self._train(table.covariates[(origins + lead)[ok]], target[ok], seed)

    def predict(self, past: pd.DataFrame, ahead: pd.DataFrame) -> pd.DataFrame:
        """Forecasts of the rows ahead, from past rows of the same series; of other series, without any."""
        both = pd.concat([past.assign(ahead=False), ahead.assign(ahead=True)]).sort_values(["unique_id", "ds"])
        table, is_ahead = self._table(both), both.ahead.to_numpy()
        rows = np.flatnonzero(is_ahead)
        begun = np.cumsum(~is_ahead)
        before = begun[rows] - np.where(table.begin[rows] > 0, begun[table.begin[rows] - 1], 0)  # past rows
        origins = table.begin[rows] + before - 1
        values = np.empty(len(rows))
        has = before > 0
        if has.any():
            x, scale = self._features(table, origins[has], (rows - origins)[has], np.full(has.sum(), self.reach))
            values[has] = self.model.predict(x) * scale
        if not has.all():
            values[~has] = self.first.predict(table.covariates[rows[~has]])
        out = both.iloc[rows][["unique_id", "ds", "y"]]
        return out.assign(**{"aru": values, "aru-median": values})

    def cross_validation(self, df: pd.DataFrame, windows: int, step: int) -> pd.DataFrame:
        """Forecasts from rolling cutoffs."""
        left, frames = df.groupby("unique_id").cumcount(ascending=False), []
        for back in range((windows - 1) * step, -1, -step):
            ahead = (left >= back) & (left < back + self.h)
            past = (left >= back + self.h) & (left < back + self.h + self.reach)
            frames.append(self.predict(df[past], df[ahead]))
        return pd.concat(frames, ignore_index=True)

    def _train(self, x: np.ndarray, y: np.ndarray, seed: int) -> Any:
        import lightgbm

        options = {"objective": "l1", "num_leaves": 63, "learning_rate": 0.05, "verbose": -1, "num_threads": 1}
        return lightgbm.train({**options, "seed": seed}, lightgbm.Dataset(x, y), TREES)

    def _table(self, df: pd.DataFrame) -> _Table:
        df = df.sort_values(["unique_id", "ds"])
        columns = [self._numbers(df[name], name) for name in self.names]
        if hasattr(df.ds, "dt"):
            columns += [getattr(df.ds.dt, part).to_numpy(np.float64) for part in CALENDAR]
        if self.fixed:
            static = df[["unique_id"]].merge(self.static, how="left", on="unique_id")
            columns += [self._numbers(static[name], name) for name in self.fixed]
        return _Table(df, np.stack(columns, -1))

    def _numbers(self, column: pd.Series, name: str) -> np.ndarray:
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            return column.to_numpy(np.float64)
        known = self.codes.setdefault(name, {v: i for i, v in enumerate(sorted(column.astype(str).unique()))})
        return column.astype(str).map(known).fillna(-1).to_numpy(np.float64)

    def _features(
        self, table: _Table, origins: np.ndarray, lead: np.ndarray, known: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        begin = np.maximum(table.begin[origins], origins - known + 1)
        past = origins[:, None] - np.arange(self.reach)
        y = np.where(past >= begin[:, None], table.y[past.clip(0)], np.nan)
        scale = np.nan_to_num(np.nanmean(np.abs(y), 1)) + 1e-3
        same = origins + lead - self.season * -(-lead // self.season)
        seasonal = np.where(same >= begin, table.y[same.clip(0)], np.nan)
        week = np.nanmean(np.where(np.arange(self.reach) < self.season, y, np.nan), 1)
        count = (~np.isnan(y)).sum(1)
        parts = [y[:, :LATEST] / scale[:, None], np.stack([seasonal / scale, week / scale, count, lead], -1)]
        return np.hstack([*parts, table.covariates[origins + lead], table.covariates[origins]]), scale


class _Table:
    """Rows of all series one after the other, sorted."""

    def __init__(self, df: pd.DataFrame, covariates: np.ndarray) -> None:
        self.y, self.covariates = df.y.to_numpy(np.float64), covariates
        self.length = df.groupby("unique_id", sort=True, observed=True).size().to_numpy()
        self.start = np.cumsum(self.length) - self.length
        self.begin = np.repeat(self.start, self.length)  # first row of each row's series
        self.end = np.repeat(self.start + self.length, self.length)
