"""`aru state`: inspect, move and rebuild the store of a stream."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aru.cli import shared_options, table_files
from aru.cli.saved_model import Beforehand, as_in_training, choose_model
from aru.cli.screen import facts, screen
from aru.cli.wording import ALLOW_JUMP, COLUMN_FLAGS, flags
from aru.errors import InputError, verbatim

if TYPE_CHECKING:
    from aru.data.clock import Clock
    from aru.store import About, Store
    from aru.store.exchange import Contents

StoreFile = Annotated[
    str,
    typer.Argument(metavar="STORE", show_default=False, help="SQLite file of a stream, or address of its database."),
]
ExportFile = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="Parquet file of an export.")]

app = typer.Typer(name="state", help="Look into the store of a stream, move it, rebuild it.", no_args_is_help=True)


def info(store: StoreFile, as_json: shared_options.Json = False, debug: shared_options.Debug = False) -> None:
    """Show what is in a store: series, bytes, format, the model that wrote it, latest times."""
    with screen(as_json, debug=debug) as show:
        import numpy as np

        from aru.data.columns import show_times
        from aru.serve.versions import champion_of
        from aru.store import exchange

        number = champion_of(store)
        with closing(_existing(store)) as opened:
            found = exchange.contents(opened)
            with opened.reading() as view:
                kept = view.journal_bytes() if view.last_entry() else 0
        about, ends = found.about, [f(found.last) for f in (np.min, np.max) if len(found.ids)]
        oldest, newest = show_times(np.array(ends), _clock(about)) or (None, None)
        values = {
            "series": len(found.ids),
            "observations": int(found.observations.sum()),
            "bytes_per_series": about.size,
            "format": about.format,
            "fingerprint": about.fingerprint,
            "correctable_steps": about.correctable_steps,
            "oldest_last_time": oldest,
            "newest_last_time": newest,
            "version": number,
            "kept_bytes": kept,
        }
        show.result({"store": _named(store), **values})
        shown = {"series": f"{values['series']:,}", "observations": f"{values['observations']:,}"}
        shown |= {"bytes a series": f"{about.size:,}", "format": str(about.format)}
        shown |= {"version": str(number)} if number > 1 else {}
        shown |= {"bytes of kept rows": f"{kept:,}"} if kept else {}
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
        name = _named(store)
        with show.working(f"Exporting {name}"), closing(_existing(store)) as opened:
            series = exchange.export(opened, file)
        show.result({"store": name, "file": file, "series": series})
        show.say(f"Wrote the states of {series:,} series to {file}.")


def import_(
    file: ExportFile, store: StoreFile, as_json: shared_options.Json = False, debug: shared_options.Debug = False
) -> None:
    """Read an export into a new store, or into a store of the same model, replacing the states of the same series."""
    with screen(as_json, debug=debug) as show:
        from aru.store import exchange, open_store

        _check_parquet(file)
        if not file.is_file():
            raise InputError(f"{verbatim(file)} does not exist")
        name = _named(store)
        with show.working(f"Importing {file}"), closing(open_store(store)) as opened:
            series = exchange.import_(opened, file)
        show.result({"store": name, "file": file, "series": series})
        show.say(f"{name} now has the states of {series:,} series from {file}.")


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
        from aru.serve.versions import note_forgotten
        from aru.store import exchange

        name = _named(store)
        with closing(_existing(store)) as opened:
            with opened.reading() as view:
                known = view.keys()
            chosen = shared_options.choose_ids(ids, known, name) or []
            removed = exchange.forget(opened, chosen, note_forgotten(store, chosen))
        show.result({"store": name, "forgotten": chosen, "series": len(known) - removed})
        show.say(f"Forgot {removed:,} series; {name} has {len(known) - removed:,} left.")


def migrate(
    store: StoreFile,
    new: Annotated[
        str,
        typer.Argument(metavar="NEW", show_default=False, help="SQLite file to create, or address of a new database."),
    ],
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="FILE", help=f"All observations of the series so far: {shared_options.TABLE_HELP}."
        ),
    ],
    model: Annotated[Path | None, typer.Option("--model", metavar="MODEL", help="Folder of the new model.")] = None,
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
    pretrained: shared_options.Pretrained = None,
    h: shared_options.Horizon = None,
    freq: shared_options.Freq = None,
    season_length: shared_options.SeasonLength = None,
    futr_exog: shared_options.FutrExog = None,
    hist_exog: shared_options.HistExog = None,
    stat_exog: shared_options.StatExog = None,
    country: shared_options.Country = None,
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

    States can be used only by the model that wrote them. The old store does not change. The history must reach as
    far as the old store does, for all of its series.
    """
    tables: dict[str, str | Path] = {"df": data, "static_df": static or "--static FILE"}
    with screen(
        as_json,
        debug=debug,
        names={**tables, **flags("correctable_steps", "accelerator"), **ALLOW_JUMP, **COLUMN_FLAGS},
    ) as show:
        from aru.cli.rebuilding import rebuild_store
        from aru.store import exchange

        told = Beforehand(h, freq, season_length, futr_exog, hist_exog, stat_exog, country)
        load = choose_model(model, pretrained, accelerator, told)
        with show.working(f"Replaying {data}"):
            with closing(_existing(store)) as opened:
                old = exchange.contents(opened)
            forecaster = load()
            form = as_in_training(forecaster, id_col, time_col, target_col, date_format)
            df = table_files.read_data(data, form)
            static_df = None if static is None else table_files.read_static(static, form)
            steps = old.about.correctable_steps if correctable_steps is None else correctable_steps
            done = rebuild_store(
                forecaster,
                new,
                df,
                static_df,
                steps,
                allow_jump,
                lambda made: _require_all(_named(store), old, made),
                form.names,
            )
        show.result({"store": _named(new), "series": len(done.new_series), "applied": done.applied})
        show.say(
            f"{_named(new)} has the states of {len(done.new_series):,} series after {done.applied:,} observations."
        )


def backup(
    store: StoreFile,
    copy: Annotated[Path, typer.Argument(metavar="COPY", show_default=False, help="SQLite file or folder to create.")],
    without_log: Annotated[
        bool,
        typer.Option(
            "--without-log",
            help="STORE is a copy that lacks its write-ahead log, and with it perhaps the latest changes: take what it "
            "holds.",
        ),
    ] = False,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Make a complete copy of a store, also while a service or a stream uses it.

    To copy the file itself is not enough: the latest changes are in its write-ahead log. Every record of the copy is
    read and checked. Versions of a model that a service has are copied along, into files beside COPY. Of a folder of
    stores all are copied, into a new folder.
    """
    with screen(as_json, debug=debug) as show:
        from aru.serve.backups import backup_all

        name = _named(store)
        with show.working(f"Copying {name}"):
            files = backup_all(store, copy, without_log)
        show.result({"store": name, "copy": copy, "series": sum(files.values()), "files": list(files)})
        for file, series in files.items():
            show.say(f"{file} has the states of {series:,} series.")


def rewind(
    store: StoreFile,
    ids: Annotated[
        list[str],
        typer.Option("--ids", metavar="IDS", help="Series to rewind, separated by commas or by repeating the option."),
    ],
    before: Annotated[str, typer.Option("--before", metavar="TIME", help="Take back all rows at or after this time.")],
    model: Annotated[
        Path | None, typer.Option("--model", metavar="MODEL", help="Folder of the model of the store.")
    ] = None,
    pretrained: shared_options.Pretrained = None,
    h: shared_options.Horizon = None,
    freq: shared_options.Freq = None,
    season_length: shared_options.SeasonLength = None,
    futr_exog: shared_options.FutrExog = None,
    hist_exog: shared_options.HistExog = None,
    stat_exog: shared_options.StatExog = None,
    country: shared_options.Country = None,
    accelerator: shared_options.Accelerator = "auto",
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """Take back the latest rows of series, of all that are named or of none: the states are then those of before.

    That is possible within the latest steps that can be corrected, a number that is fixed when a store is created.
    """
    with screen(as_json, debug=debug, names=flags("before", "accelerator")) as show:
        from aru.stream import Stream

        told = Beforehand(h, freq, season_length, futr_exog, hist_exog, stat_exog, country)
        load = choose_model(model, pretrained, accelerator, told)
        with show.working(f"Rewinding {_named(store)}"), Stream(load(), _existing(store)) as stream:
            chosen = shared_options.choose_ids(ids, stream.keys(), _named(store)) or []
            integer = not stream.about.datetime and before.lstrip("-").isdigit()
            rows = stream.rewind(chosen, int(before) if integer else before)
        show.result({"store": _named(store), "rewound": chosen, "rows": rows})
        show.say(f"Took back {rows:,} rows of {len(chosen):,} series.")


for command, name, example in (
    (info, "info", "aru state info state.db"),
    (export, "export", "aru state export state.db states.parquet"),
    (import_, "import", "aru state import states.parquet state.db"),
    (backup, "backup", "aru state backup state.db copy.db"),
    (forget, "forget", "aru state forget state.db --ids shop-1,shop-2"),
    (rewind, "rewind", "aru state rewind state.db --ids shop-1 --before 2024-09-01 --model model"),
    (migrate, "migrate", "aru state migrate state.db new.db --model model-2 --data sales.csv"),
):
    app.command(name, help=shared_options.help_of(command), epilog=f"Example: {example}")(command)


def _clock(about: About) -> Clock | None:
    """How the store keeps timestamps; None for integers."""
    from aru.data.clock import Clock

    return Clock(about.zone, about.wall) if about.datetime else None


def _require_all(store: str, old: Contents, made: Contents) -> None:
    """Refuse a history that does not have all series of the old store, or ends earlier."""
    import numpy as np

    from aru.data.columns import name_rows

    at = made.ids.get_indexer(old.ids)
    until = np.append(made.last, np.iinfo(np.int64).min)[at]
    behind = (at < 0) | (until < old.last if made.about.datetime == old.about.datetime else False)
    if behind.any():
        rows = name_rows(old.ids[behind], old.last[behind], _clock(old.about))
        raise InputError(
            f"`df` ends before {verbatim(store)} does, for {len(rows)} series: {rows}",
            "Add the rows up to these times. Forget series that are no longer needed: aru state forget.",
            rows=rows,
        )


def _existing(store: str) -> Store:
    """An existing store, the champion's if a service has several versions: inspecting it must not create it."""
    from aru.serve.versions import open_champion

    return open_champion(store)


def _named(store: str) -> str:
    """A store in messages: without a password."""
    from aru.store.address import name_of

    return name_of(store)


def _check_parquet(path: Path) -> None:
    if not path.name.endswith(table_files.PARQUET_ENDINGS):
        raise InputError(f"{verbatim(path)} must end in .parquet")
