"""A saved model, and the files that are read and written for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from aru.cli.setting_options import OPTIONS, split
from aru.cli.table_files import TableFormat, read_data, read_static
from aru.errors import ConfigError, StorageError, verbatim

MODEL_FILE = "model.json"  # by which the folder of a model is known
SQLITE_FILE = b"SQLite format 3\x00"  # with which such a file begins

if TYPE_CHECKING:
    import pandas as pd

    from aru.forecaster import Forecaster
    from aru.settings import AcceleratorName


def load_model(folder: Path, accelerator: str) -> Forecaster:
    """The model that `aru fit` saved."""
    from aru.forecaster import Forecaster

    if not folder.exists():
        raise StorageError(f"{verbatim(folder)} does not exist", "Give the folder that aru fit wrote.")
    if folder.is_file():
        raise StorageError(
            f"{verbatim(folder)} is a file, not the folder of a model",
            "Give the folder that aru fit wrote; or forecast without training: --pretrained mini --h 14 --freq D.",
        )
    return Forecaster.load(folder, cast("AcceleratorName", accelerator))  # which checks it


class Beforehand(NamedTuple):
    """What a pretrained model is told, as the command line has it."""

    h: int | None
    freq: str | None
    season_length: int | None
    futr_exog: Sequence[str] | None = None
    hist_exog: Sequence[str] | None = None
    stat_exog: Sequence[str] | None = None
    country: str | None = None


def open_pretrained(name: str, accelerator: str, told: Beforehand) -> Forecaster:
    """The model that --pretrained names."""
    from aru.forecaster import Forecaster

    if told.h is None or told.freq is None:
        raise ConfigError("--pretrained needs the horizon and the frequency", "Give --h and --freq.")
    return Forecaster.from_pretrained(
        name,
        h=told.h,
        freq=OPTIONS["freq"].read(told.freq),
        season_length=told.season_length,
        futr_exog_list=split(told.futr_exog or ()),
        hist_exog_list=split(told.hist_exog or ()),
        stat_exog_list=split(told.stat_exog or ()),
        country=told.country,
        accelerator=cast("AcceleratorName", accelerator),  # which checks it
    )


def is_store(data: str) -> bool:
    """Whether this is where a service keeps states: a database, or a SQLite file."""
    from aru.store.address import is_database

    if is_database(data):
        return True
    try:
        with Path(data).open("rb") as file:
            return file.read(len(SQLITE_FILE)) == SQLITE_FILE
    except OSError:
        return False


def choose_model(folder: Path | None, name: str | None, accelerator: str, told: Beforehand) -> Callable[[], Forecaster]:
    """What opens the model of a folder, or the one that --pretrained names. It can be sent to another process."""
    for option in ("futr_exog", "hist_exog", "stat_exog", "country"):
        if getattr(told, option) and name is None:
            flag = f"--{option.replace('_', '-')}"
            raise ConfigError(f"{flag} is for --pretrained", "A trained model knows its covariates: leave it out.")
    if folder is not None and name is None:
        return functools.partial(load_model, folder, accelerator)
    if folder is None and name is not None:
        return functools.partial(open_pretrained, name, accelerator, told)
    raise ConfigError("One model is needed", "Give the folder of a model, or --pretrained mini.")


def models_in(folder: Path | None) -> list[Path]:
    """The folders of models in a folder that is no model itself."""
    if folder is None or not folder.is_dir() or (folder / MODEL_FILE).is_file():
        return []
    return sorted(path for path in folder.iterdir() if (path / MODEL_FILE).is_file())


def choose_models(
    folder: Path | None, name: str | None, accelerator: str, told: Beforehand
) -> dict[str, Callable[[], Forecaster]]:
    """The same for all models of a folder, by name. The only model of a service is called as its folder is."""
    if name is None and (found := models_in(folder)):
        return {path.name: choose_model(path, None, accelerator, told) for path in found}
    load = choose_model(folder, name, accelerator, told)
    return {(folder.resolve().name if folder is not None else name) or "model": load}


def as_in_training(
    forecaster: Forecaster,
    id_col: str | None,
    time_col: str | None,
    target_col: str | None = None,
    date_format: str | None = None,
) -> TableFormat:
    """Read files the way training did: columns of the same names, unless others are given, and of the same types.

    A pretrained model without series takes what is there.
    """
    schema = forecaster.runtime.schema
    form = TableFormat(forecaster.called(id_col, time_col, target_col), date_format)
    if forecaster.trained is not None and forecaster.trained.open:
        return form
    groups = (schema.futr, schema.hist, schema.stat)
    id_type = int if schema.integer_ids else str
    return form.like(id_type, [c.name for _, categories in groups for c in categories if not c.levels])


def open_source(
    source: Path,
    pretrained: str | None,
    accelerator: str,
    told: Beforehand,
    columns: tuple[str | None, str | None, str | None],
    date_format: str | None,
    static: Path | None,
    allow_jump: bool,
) -> tuple[Forecaster, TableFormat]:
    """A model with its series, and how files are read for it: of a folder, or a pretrained one of a file."""
    forecaster = choose_model(None if pretrained else source, pretrained, accelerator, told)()
    form = as_in_training(forecaster, *columns, date_format)
    if pretrained:
        static_df = None if static is None else read_static(static, form)
        forecaster.apply(read_data(source, form), static_df, allow_jump=allow_jump, names=form.names)
        form = as_in_training(forecaster, *form.names, date_format)
    return forecaster, form


def request_of(path: Path, form: TableFormat, late: str) -> bytes:
    """What makes a file the same when it is given again: its bytes, and how it is read."""
    from aru.store.receipts import digest_of

    return digest_of(path.read_bytes(), repr((*form.names, form.date_format, late)).encode())


def to_pandas(frame: Any) -> pd.DataFrame:
    """Forecasts as a pandas frame, from which files are written. They come in the kind of frame of training."""
    import narwhals as nw

    converted: pd.DataFrame = nw.from_native(frame, eager_only=True).to_pandas()
    return converted
