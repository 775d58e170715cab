"""What users call the columns of series, time and target.

Inside they are `unique_id`, `ds` and `y`. A frame is renamed where it comes in and where it goes out, and meanwhile
messages speak of the user's columns (`aru.errors.speaking_of`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aru.data.columns import as_frame
from aru.errors import ColumnError, ConfigError, listing, quoted, speaking_of
from aru.settings import Settings

ARGUMENTS = {"unique_id": "id_col", "ds": "time_col", "y": "target_col"}  # that name the columns


class Names(NamedTuple):
    """A user's names of the three columns."""

    unique_id: str = "unique_id"
    ds: str = "ds"
    y: str = "y"

    def given(self, id_col: str | None, time_col: str | None, target_col: str | None) -> Names:
        """These names, or those that are given instead."""
        told: tuple[object, ...] = id_col, time_col, target_col
        for argument, name in zip(ARGUMENTS.values(), told, strict=True):
            if name is not None and (not isinstance(name, str) or not name):
                raise ConfigError(f"`{argument}` must be the name of a column, got {quoted(name)}")
        names = Names(id_col or self.unique_id, time_col or self.ds, target_col or self.y)
        if len(set(names)) < len(names):
            raise ConfigError("`id_col`, `time_col` and `target_col` must name three different columns")
        return names

    def check(self, settings: Settings) -> None:
        """Refuse names that covariates or columns of forecasts have."""
        covariates = {*settings.futr_exog_list, *settings.hist_exog_list, *settings.stat_exog_list}
        for argument, name in zip(ARGUMENTS.values(), self, strict=True):
            if name in covariates:
                raise ConfigError(f"`{argument}={quoted(name)}` is a covariate, too", "Name another column.")
            if name in ("cutoff", settings.name) or name.startswith(f"{settings.name}-"):
                raise ConfigError(
                    f"`{argument}={quoted(name)}` is the name of another column of forecasts",
                    "Rename yours, or choose another `alias`.",
                )

    def spoken(self) -> contextlib.AbstractContextManager[None]:
        """Meanwhile errors and warnings have these names."""
        return speaking_of(self._asdict() if self != Names() else {})

    def read(self, df: Any, table: str = "df") -> Any:
        """A frame of observations with the columns named as inside. The folder of a training stays as it is."""
        return df if isinstance(df, (str, Path)) else self._inside(df, table, ("unique_id", "ds", "y"))

    def read_futr(self, futr_df: Any) -> Any:
        """The same for known-future covariates, if they are given."""
        return None if futr_df is None else self._inside(futr_df, "futr_df", ("unique_id", "ds"))

    def read_static(self, static_df: Any) -> Any:
        """The same for static covariates, if they are given."""
        return None if static_df is None else self._inside(static_df, "static_df", ("unique_id",))

    def _inside(self, df: Any, table: str, roles: Sequence[str]) -> Any:
        mine = {getattr(self, role): role for role in roles}
        have = df if isinstance(df, dict) else getattr(df, "columns", None)
        if have is None:
            return df  # reading it will say what is wrong
        missing = [name for name in mine if name not in have]
        if missing:
            arguments = ", ".join(f"`{ARGUMENTS[mine[name]]}`" for name in missing)
            lacks, has = listing([repr(name) for name in missing]), listing(list(have), 20)
            raise ColumnError(
                f"`{table}` has no column {lacks}; it has {has}",
                f"Add the columns, or name the right ones with {arguments}.",
                columns=[mine[name] for name in missing],
            )
        renamed = {name: role for name, role in mine.items() if name != role}
        if not renamed:
            return df
        hidden = [role for role in roles if role in have and role not in mine]  # other columns of these names
        if isinstance(df, dict):
            return {renamed.get(name, name): values for name, values in df.items() if name not in hidden}
        return as_frame(df, table).drop(hidden).rename(renamed).to_native()
