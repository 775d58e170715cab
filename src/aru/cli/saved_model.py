"""A saved model, and the files that are read and written for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aru.cli.table_files import TableFormat
from aru.errors import StorageError, verbatim

if TYPE_CHECKING:
    import pandas as pd

    from aru.forecaster import Forecaster
    from aru.settings import AcceleratorName


def load_model(folder: Path, accelerator: str) -> Forecaster:
    """The model that `aru fit` saved."""
    from aru.forecaster import Forecaster

    if not folder.exists():
        raise StorageError(f"{verbatim(folder)} does not exist", "Give the folder that aru fit wrote.")
    return Forecaster.load(folder, cast("AcceleratorName", accelerator))  # which checks it


def as_in_training(
    forecaster: Forecaster,
    unique_id: str | None,
    ds: str | None,
    y: str | None = None,
    date_format: str | None = None,
) -> TableFormat:
    """Read files the way training did: columns of the same names, unless others are given, and of the same types."""
    schema, names = forecaster.runtime.schema, forecaster.runtime.style.names
    form = TableFormat(unique_id or names[0], ds or names[1], y or names[2], date_format)
    groups = (schema.futr, schema.hist, schema.stat)
    id_type = int if schema.integer_ids else str
    return form.like(id_type, [column.name for _, categories in groups for column in categories])


def to_pandas(frame: Any) -> pd.DataFrame:
    """Forecasts as a pandas frame, from which files are written. They come in the kind of frame of training."""
    import narwhals as nw

    converted: pd.DataFrame = nw.from_native(frame, eager_only=True).to_pandas()
    return converted
