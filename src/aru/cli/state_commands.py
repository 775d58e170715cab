"""`aru state`: inspect, move and rebuild the store of a stream."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aru.cli import shared_options, table_files
from aru.cli.saved_model import as_in_training, load_model
from aru.cli.screen import facts, screen
from aru.cli.wording import ALLOW_JUMP, flags
from aru.errors import InputError, StorageError, listing, reword, verbatim

if TYPE_CHECKING:
    from aru.store import SQLiteStore

StoreFile = Annotated[Path, typer.Argument(metavar="STORE", show_default=False, help="SQLite file of a stream.")]
ExportFile = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="Parquet file of an export.")]

app = typer.Typer(name="state", help="Look into the store of a stream, move it, rebuild it.", no_args_is_help=True)


def info(store: StoreFile, as_json: shared_options.Json = False, debug: shared_options.Debug = False) -> None:
    """Show what is in a store: series, bytes, format, the model that wrote it, latest times."""
    with screen(as_json, debug=debug) as show:
        import numpy as np

        from aru.data.clock import Clock
        from aru.data.columns import show_times
        from aru.store import exchange

        with closing(_existing(store)) as opened:
            found = exchange.contents(opened)
        about, ends = found.about, [f(found.last) for f in (np.min, np.max) if len(found.ids)]
        oldest, newest = show_times(np.array(ends), Clock() if about.datetime else None) or (None, None)
        values = {
            "series": len(found.ids),
            "observations": int(found.observations.sum()),
            "bytes_per_series": about.size,
            "format": about.format,
            "fingerprint": about.fingerprint,
            "correctable_steps": about.correctable_steps,
            "oldest_last_time": oldest,
            "newest_last_time": newest,
        }
        show.result({"store": store, **values})
        shown = {"series": f"{values['series']:,}", "observations": f"{values['observations']:,}"}
        shown |= {"bytes a series": f"{about.size:,}", "format": str(about.format)}
        show.show(facts(shown | {"correctable steps": str(about.correctable_steps), "model": about.fingerprint}))
        if ends:
            show.say(f"Latest times of series: from {oldest} to {newest}.")


def export(
    store: StoreFile, file: ExportFile, as_json: shared_options.Json = False, debug: shared_options.Debug = False
) -> None:
    """Write the states of all series to a Parquet file."""
    with screen(as_json, debug=debug) as show:
        from aru.store import exchange

        _check_parquet(file)
        with show.working(f"Exporting {store}"), closing(_existing(store)) as opened:
            series = exchange.export(opened, file)
        show.result({"store": store, "file": file, "series": series})
        show.say(f"Wrote the states of {series:,} series to {file}.")


def import_(
    file: ExportFile, store: StoreFile, as_json: shared_options.Json = False, debug: shared_options.Debug = False
) -> None:
    """Read an export into a new store, or into a store of the same model, replacing the states of the same series."""
    with screen(as_json, debug=debug) as show:
        from aru.store import SQLiteStore, exchange

        _check_parquet(file)
        if not file.is_file():
            raise InputError(f"{verbatim(file)} does not exist")
        with show.working(f"Importing {file}"), closing(SQLiteStore(store)) as opened:
            series = exchange.import_(opened, file)
        show.result({"store": store, "file": file, "series": series})
        show.say(f"{store} now has the states of {series:,} series from {file}.")


def forget(
    store: StoreFile,
    ids: Annotated[
        list[str],
        typer.Option("--ids", metavar="IDS", help="Series to remove, separated by commas or by repeating the option."),
    ],
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Delete the states of series, all that are named or none."""
    with screen(as_json, debug=debug) as show:
        from aru.store import exchange

        with closing(_existing(store)) as opened:
            with opened.reading() as view:
                known = view.keys()
            chosen = shared_options.choose_ids(ids, known, store) or []
            removed = exchange.forget(opened, chosen)
        show.result({"store": store, "forgotten": chosen, "series": len(known) - removed})
        show.say(f"Forgot {removed:,} series; {store} has {len(known) - removed:,} left.")


def migrate(
    store: StoreFile,
    new: Annotated[Path, typer.Argument(metavar="NEW", show_default=False, help="SQLite file to create.")],
    model: Annotated[Path, typer.Option("--model", metavar="MODEL", help="Folder of the new model.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="FILE", help=f"All observations of the series so far: {shared_options.TABLE_HELP}."
        ),
    ],
    correctable_steps: Annotated[
        int | None,
        typer.Option(
            "--correctable-steps",
            metavar="STEPS",
            show_default="as in STORE",
            help="How many of the latest steps of a series can be corrected by late rows.",
        ),
    ] = None,
    allow_jump: shared_options.AllowJump = False,
    accelerator: shared_options.Accelerator = "auto",
    static: shared_options.StaticFile = None,
    id_col: shared_options.KnownIdColumn = None,
    time_col: shared_options.KnownTimeColumn = None,
    target_col: shared_options.KnownTargetColumn = None,
    date_format: shared_options.DateFormat = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Rebuild the states of a store for another model, from the history of its series, in a new store.

    States can be used only by the model that wrote them. The old store does not change.
    """
    tables: dict[str, str | Path] = {"df": data, "static_df": static or "--static FILE"}
    with screen(
        as_json, debug=debug, names={**tables, **flags("correctable_steps", "accelerator"), **ALLOW_JUMP}
    ) as show:
        from aru.store import exchange
        from aru.stream import rebuild_store

        with show.working(f"Replaying {data}"):
            with closing(_existing(store)) as opened:
                old = exchange.contents(opened)
            forecaster = load_model(model, accelerator)
            form = as_in_training(forecaster, id_col, time_col, target_col, date_format)
            df = table_files.read_data(data, form)
            static_df = None if static is None else table_files.read_static(static, form)
            steps = old.about.correctable_steps if correctable_steps is None else correctable_steps
            done = rebuild_store(forecaster, new, df, static_df, steps, allow_jump)
        missing = [i for i in old.ids if i not in set(done.new_series)]
        if missing:
            lost = f"{len(missing)} series of {verbatim(store)}: {listing(missing)}"
            show.note(reword(f"{verbatim(data)} has no rows of {lost}."))
        show.result({"store": new, "series": len(done.new_series), "applied": done.applied, "missing": missing})
        show.say(f"{new} has the states of {len(done.new_series):,} series after {done.applied:,} observations.")


for command, name, example in (
    (info, "info", "aru state info state.db"),
    (export, "export", "aru state export state.db states.parquet"),
    (import_, "import", "aru state import states.parquet state.db"),
    (forget, "forget", "aru state forget state.db --ids shop-1,shop-2"),
    (migrate, "migrate", "aru state migrate state.db new.db --model model-2 --data sales.csv"),
):
    app.command(name, help=shared_options.help_of(command), epilog=f"Example: {example}")(command)


def _existing(path: Path) -> SQLiteStore:
    """An existing store: inspecting it must not create it."""
    from aru.store import SQLiteStore

    if not path.is_file():
        raise StorageError(f"{verbatim(path)} does not exist", "Give the SQLite file of a stream.")
    return SQLiteStore(path)


def _check_parquet(path: Path) -> None:
    if not path.name.endswith(table_files.PARQUET_ENDINGS):
        raise InputError(f"{verbatim(path)} must end in .parquet")
