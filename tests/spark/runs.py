"""Streams of files through Spark, and what they are compared with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from aru import Stream
from aru.nn.tree import leaves

COLUMNS = "unique_id string, ds timestamp_ntz, y double"


def write_batches(folder: Path, batches: Sequence[pd.DataFrame], begin: int = 0) -> None:
    """One file per batch; a stream reads them in the order of their times."""
    folder.mkdir(exist_ok=True)
    for number, batch in enumerate(batches, begin):
        part = folder / f".{number}.part"
        batch.assign(ds=batch["ds"].astype("datetime64[us]")).to_parquet(part)
        os.utime(part, (1e9 + number, 1e9 + number))
        part.rename(folder / f"{number:03}.parquet")


def read_stream(spark: Any, folder: Path, columns: str = COLUMNS) -> Any:
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(frame: Any, folder: Path) -> Any:
    """Take in all files there are; the result, sorted."""
    options = {"path": str(folder / "output"), "checkpointLocation": str(folder / "checkpoint")}
    query = frame.writeStream.format("parquet").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def result(spark: Any, folder: Path, kind: str) -> pd.DataFrame:
    """The rows of one kind, without the columns that others have."""
    found = spark.read.parquet(str(folder / "output")).where(f"kind = '{kind}'").toPandas()
    keys = [name for name in ("unique_id", "cutoff", "ds", "y") if found[name].notna().any()]
    return found.sort_values(keys, ignore_index=True).dropna(axis=1, how="all").drop(columns="kind")


def assert_states(stream: Stream, states: pd.DataFrame) -> None:
    """Counts, times and contexts equal exactly, statistics to rounding."""
    ids = stream.series()["unique_id"].tolist()
    assert sorted(states["unique_id"]) == ids
    with stream.store.reading() as view:
        ours = dict(leaves(stream.runtime.decode([b or b"" for b in view.get(ids)], ids)))
    blobs = states.set_index("unique_id")["record"].loc[ids].map(bytes).tolist()
    for name, value in leaves(stream.runtime.decode(blobs, ids)):
        if "members" in name or name.endswith("total"):
            torch.testing.assert_close(value, ours[name], rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
        else:
            assert torch.equal(value, ours[name]), name


def expected(stream: Stream, batches: Sequence[pd.DataFrame], level: list[int]) -> pd.DataFrame:
    """Forecasts after each batch of the series that it changed."""
    parts = []
    for batch in batches:
        update = stream.apply(batch, late="skip")
        if update.record is not None:
            last = stream.series().set_index("unique_id")["ds"]
            forecast = stream.predict(level=level, ids=list(update.ids))
            parts.append(forecast.assign(cutoff=last.loc[forecast["unique_id"]].to_numpy()))
    return pd.concat(parts).sort_values(["unique_id", "cutoff", "ds"], ignore_index=True)
