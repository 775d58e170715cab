"""The stream on Spark: `python -m benchmarks.spark` writes `benchmarks/results/spark.json`.

Medium size, h = 16, as in `benchmarks/stream.py`; Spark on two local cores, Parquet in and out. Dense traffic is one
observation of every series a batch, sparse traffic of one series in a hundred. Times are those that Spark reports for
a batch, of the median batch. Layouts are compared with records of random bytes and no model at all.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pickle
import shutil
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyspark
import torch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from aru import Forecaster, Stream
from aru.spark import forecast_stream, read_export
from aru.spark.dataframes import shard_of
from aru.spark.state_store import CONFIGURATION
from benchmarks.recording import machine, write_json
from benchmarks.stream import frame, trained

ADDRESS = "127.0.0.1"
BUCKETS = 32  # of a shard, in the layout of that name
SPARSE = 100  # series of which one is observed
SEEN = 20  # days that states have seen: more than h, so that they have learned


class Layout(StatefulProcessor):
    """Reads and writes the records of the series that a batch names, in one of several layouts."""

    def __init__(self, name: str, record: int) -> None:
        self.name, self.record = name, record  # record: bytes of a series

    def init(self, handle: Any) -> None:
        if self.name == "one blob per shard":
            self.state = handle.getValueState("s", "record binary")
        else:
            key = "k string" if self.name == "one entry per series" else "k int"
            self.state = handle.getMapState("s", key, "record binary")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        ids = pd.concat(list(rows))["unique_id"].tolist()
        begin = time.perf_counter()
        new = {uid: os.urandom(self.record) for uid in ids}
        if self.name == "one entry per series":
            for uid, record in new.items():
                self.state.getValue((uid,))
                self.state.updateValue((uid,), (record,))
        elif self.name == "one blob per shard":
            found = self.state.get()
            self.state.update((merged(found, new),))
        else:
            buckets: dict[int, dict[str, bytes]] = {}
            for uid, record in new.items():
                buckets.setdefault(zlib.crc32(uid.encode()) // 4096 % BUCKETS, {})[uid] = record
            for bucket, some in buckets.items():
                found = self.state.getValue((bucket,))
                self.state.updateValue(
                    (bucket,), (pickle.dumps({**(pickle.loads(found[0]) if found else {}), **some}),)
                )
        yield pd.DataFrame({"rows": [len(ids)], "seconds": [time.perf_counter() - begin]})

    def close(self) -> None:
        """Nothing is open."""


def merged(found: Any, new: dict[str, bytes]) -> bytes:
    return pickle.dumps({**(pickle.loads(found[0]) if found else {}), **new})


def session(folder: Path, partitions: int) -> SparkSession:
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP=ADDRESS)
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for name, value in {
        **CONFIGURATION,
        "spark.driver.memory": "4g",
        "spark.driver.bindAddress": ADDRESS,
        "spark.driver.host": ADDRESS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write(folder: Path, batches: Sequence[pd.DataFrame]) -> None:
    """One file a batch, in the order of their times."""
    folder.mkdir(parents=True)
    for number, batch in enumerate(batches):
        batch.to_parquet(folder / f"{number:03}.parquet")
        os.utime(folder / f"{number:03}.parquet", (1e9 + number, 1e9 + number))


def read(spark: SparkSession, folder: Path, columns: str) -> DataFrame:
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(rows: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Take in all batches. Of each: rows, seconds, and the bytes that the checkpoint took for its changes."""
    paths = {"path": str(folder / "output"), "checkpointLocation": str(folder / "checkpoint")}
    query = rows.writeStream.format("parquet").options(**paths).trigger(availableNow=True).start()
    query.awaitTermination()
    out = []
    for progress in query.recentProgress:
        version = progress["batchId"] + 1
        logs = (folder / "checkpoint" / "state" / "0").glob(f"*/{version}*.changelog")
        out.append(
            {
                "rows": progress["numInputRows"],
                "seconds": progress["durationMs"]["addBatch"] / 1e3,
                "bytes": sum(log.stat().st_size for log in logs),
            }
        )
    return out


def summary(batches: list[dict[str, Any]], series: int, record: int) -> dict[str, Any]:
    """The median batch of each kind of traffic; the first half of the dense ones warms up."""
    dense = [b for b in batches if b["rows"] == series]
    dense = dense[len(dense) // 2 :]
    sparse = [b for b in batches if 0 < b["rows"] < series]
    out = {}
    for name, some in (("dense", dense), ("sparse", sparse)):
        seconds = float(np.median([b["seconds"] for b in some]))
        out[name] = {
            "rows_per_batch": some[0]["rows"],
            "seconds_per_batch": round(seconds, 2),
            "events_per_second": round(some[0]["rows"] / seconds),
            "write_amplification": round(float(np.median([b["bytes"] / b["rows"] for b in some])) / record, 2),
        }
    return out


def days(series: int, dense: int, sparse: int) -> list[pd.DataFrame]:
    """Batches after the days that the states have seen."""
    ids = np.array([f"series-{i:07}" for i in range(series)])
    random = np.random.default_rng(1)
    batches = [frame(ids, SEEN + day) for day in range(dense)]
    some = [random.choice(ids, series // SPARSE, replace=False) for _ in range(sparse)]
    return batches + [frame(part, SEEN + dense + day) for day, part in enumerate(some)]


def layouts(spark: SparkSession, folder: Path, series: int, shards: int, record: int) -> list[dict[str, Any]]:
    out = []
    for name in ("one entry per series", "buckets", "one blob per shard"):
        here = folder / name.replace(" ", "-")
        write(here / "input", [batch[["unique_id"]] for batch in days(series, 6, 5)])
        rows = read(spark, here / "input", "unique_id string")
        rows = rows.withColumn("shard", shard_of(F.col("unique_id"), shards).cast("int"))
        grouped = rows.groupBy("shard").transformWithStateInPandas(
            Layout(name, record), "rows long, seconds double", "Append", "None"
        )
        found = summary(run(grouped, here), series, record)
        spent = spark.read.parquet(str(here / "output")).agg(F.sum("seconds"), F.sum("rows")).collect()[0]
        each = round(series / shards / (BUCKETS if name == "buckets" else 1), 1)
        size = {"one entry per series": 1, "buckets": each}.get(name, round(series / shards))
        result = {"layout": name, "series_per_entry": size, "state_us_per_event": round(1e6 * spent[0] / spent[1])}
        out.append({**result, "series": series, "shards": shards, **found})
        print(out[-1], flush=True)
    return out


def streams(
    spark: SparkSession, folder: Path, sizes: Sequence[int], choices: Sequence[int], model: Forecaster
) -> list[dict[str, Any]]:
    record, out = model.runtime.describe().size, []
    for series, shards in itertools.product(sizes, choices):
        here = folder / f"stream-{series}-{shards}"
        here.mkdir()
        with Stream(model) as stream:
            for part in np.array_split([f"series-{i:07}" for i in range(series)], max(1, series // 10_000)):
                stream.update(frame(np.repeat(part, SEEN), np.tile(np.arange(SEEN), len(part))))
            stream.export(here / "states.parquet")
        write(here / "input", days(series, 6 if series < 50_000 else 4, 5))
        rows = read(spark, here / "input", "unique_id string, ds timestamp_ntz, y double")
        states = read_export(spark, here / "states.parquet", model)
        found = run(forecast_stream(rows, model, shards, level=[90], states_df=states), here)
        checkpoint = sum(f.stat().st_size for f in (here / "checkpoint").rglob("*") if f.is_file())
        out.append(
            {"series": series, "shards": shards, **summary(found, series, record), "checkpoint_bytes": checkpoint}
        )
        print(out[-1], flush=True)
        shutil.rmtree(here)
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--shards", type=int, nargs="+", default=[16, 256])
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--layout-series", type=int, default=20_000)
    parser.add_argument("--layout-shards", type=int, default=64)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    model = trained()
    record = model.runtime.describe().size
    before = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session(folder / "local", chosen.partitions)
        layouts(spark, folder / "warm-up", 1_000, 8, record)
        results = {
            "layouts": layouts(spark, folder, chosen.layout_series, chosen.layout_shards, record),
            "streams": streams(spark, folder, chosen.series, chosen.shards, model),
        }
        spark.stop()
    settings = {"seeds": [0, 1], "partitions": chosen.partitions, "record_bytes": record}
    write_json("spark", {**settings, **results}, before, pyspark=pyspark.__version__)


if __name__ == "__main__":
    main()
