"""`aru models` and `aru datasets`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from aru.cli import shared_options
from aru.cli.screen import new_table, screen


def models(as_json: shared_options.Json = False, debug: shared_options.Debug = False) -> None:
    """List the forecasting methods."""
    with screen(as_json, debug=debug) as show:
        from aru.models import all_methods

        methods = all_methods()
        listed = [
            {"name": name, "adapts": m.adapts, "about": m.about, "cost": m.cost, "reference": m.reference}
            for name, m in methods.items()
        ]
        show.result({"models": listed})
        table = new_table()
        table.add_column("model", no_wrap=True)
        for head in ("adapts", "about", "cost", "reference"):
            table.add_column(head)
        for name, m in methods.items():
            table.add_row(Text(name), "yes" if m.adapts else "no", Text(m.about), Text(m.cost), Text(m.reference))
        show.show(table)
        show.say(
            "Take aru. Take aru-rnn where microseconds a series count, or for the paper's method; the others are for "
            "comparison. Cost and accuracy: docs/choosing.md. Choose one with: aru fit DATA MODEL --model NAME."
        )
        show.say("Forecasts without training: aru predict DATA --pretrained mini --h 14 --freq D.")
        show.say("Other libraries (ETS, ARIMA, LightGBM, NHITS, ...) run on the same windows: docs/peers.md.")


def datasets(
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="FOLDER", show_default="ARU_DATA", help="Folder of the data files."),
    ] = None,
    as_json: shared_options.Json = False,
    debug: shared_options.Debug = False,
) -> None:
    """List the datasets of the experiments, their statistics, and whether their files are there.

    The last columns are the statistics in the paper's Table 1: N series of T values.
    """
    with screen(as_json, debug=debug) as show:
        from aru.datasets import DESCRIPTIONS, default_dir

        folder = data_dir or default_dir()
        listed = [
            {
                "name": about.name,
                "title": about.title,
                "series": about.series,
                "shortest": about.lengths[0],
                "longest": about.lengths[1],
                "h": about.h,
                "input_size": about.input_size,
                "freq": about.freq,
                "covariates": len(about.futr_exog_list) + len(about.hist_exog_list) + len(about.stat_exog_list),
                "paper": None if about.paper is None else about.paper._asdict(),
                "note": about.note,
                "files": list(about.files),
                "source": about.source,
                "present": about.present(folder),
            }
            for about in DESCRIPTIONS.values()
        ]
        show.result({"data_dir": folder, "datasets": listed})
        table = new_table()
        table.add_column("dataset", no_wrap=True)
        table.add_column("files", no_wrap=True)
        for head in ("series", "length", "h", "input", "exog", "paper's N", "paper's T"):
            table.add_column(head, justify="right")
        for row, about in zip(listed, DESCRIPTIONS.values(), strict=True):
            shortest, longest = about.lengths
            length = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
            paper = [f"{n:,}" if n else "" for n in (about.paper or (None, None))[:2]]
            table.add_row(
                Text(about.name), Text(str(row["present"]) or "missing"), f"{about.series:,}", length, str(about.h),
                str(about.input_size), str(row["covariates"]), *paper,
            )  # fmt: skip
        show.show(table)
        absent = [about for row, about in zip(listed, DESCRIPTIONS.values(), strict=True) if not row["present"]]
        if absent:
            show.say("These datasets are missing:")
        for about in absent:
            show.say(f"- {about.title}: {about.how_to_get(folder)}")
        show.say("These differ from the paper's table:")
        for about in DESCRIPTIONS.values():
            if about.paper and about.note:
                show.say(f"- {about.title}: {about.note}")
