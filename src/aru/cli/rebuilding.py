"""A new store from a history."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aru.data.naming import Names
from aru.errors import StorageError, verbatim
from aru.forecaster import Forecaster
from aru.runtime.update import UpdateResult
from aru.store import exchange, open_store
from aru.store.address import is_database
from aru.store.atomic import new_file
from aru.stream import Stream


def rebuild_store(
    model: Forecaster | str | Path,
    store: str | Path,
    df: Any,
    static_df: Any = None,
    correctable_steps: int = 0,
    allow_jump: bool = False,
    check: Callable[[exchange.Contents], None] = lambda contents: None,
    names: Names | None = None,
) -> UpdateResult:
    """Create a store by replaying a history from empty states. It appears when it is complete.

    `check` may refuse what the store would hold. `names` are those of the columns, if they are not the model's.
    """
    if is_database(store):
        with tempfile.TemporaryDirectory() as folder:
            made, states = Path(folder) / "state.db", Path(folder) / "states.parquet"
            result = rebuild_store(model, made, df, static_df, correctable_steps, allow_jump, check, names)
            with contextlib.closing(open_store(made)) as source, contextlib.closing(open_store(store)) as database:
                exchange.export(source, states)
                exchange.import_(database, states, new=True)
        return result
    target = Path(store)
    if target.exists():
        raise StorageError(f"{verbatim(target)} exists already", "Choose a new file.")
    forecaster = model if isinstance(model, Forecaster) else Forecaster.load(model)
    try:
        with new_file(target) as part, Stream(forecaster.without_series(), part, correctable_steps) as stream:
            result = stream.update(df, static_df, "raise", allow_jump, *(names or stream.names))
            check(exchange.contents(stream.store))
    except OSError as error:
        raise StorageError(
            f"{verbatim(target)} cannot be written ({verbatim(error)})", "Choose another file."
        ) from error
    return result
