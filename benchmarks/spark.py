"""The stream on Spark: `python -m benchmarks.spark` writes `benchmarks/results/spark.json`.

Medium size, h = 16, as in `benchmarks/stream.py`; Spark on two local cores, Parquet in and out. Dense traffic is one
observation of every series a batch (doubled: two, as when rows come faster than batches end), sparse traffic of one
series in a hundred. Times are those that Spark reports for
a batch, of the median batch; the first half of the dense ones warms up, Java above all. Layouts are compared with
half random bytes in place of records and no model at all. Processor time is that of Spark and its workers: on a machine
that does other work, too, times are lower bounds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
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
from aru.spark import buckets, forecast_stream, read_export
from aru.spark.dataframes import shard_of
from aru.spark.state_store import CONFIGURATION
from benchmarks.recording import machine, write_json
from benchmarks.stream import frame, trained

ADDRESS = "127.0.0.1"
SINGLE, LOG, WHOLE, RECENT = "one entry per series", "a log per shard", "whole buckets", "buckets and recent changes"
MERGED_SHARE = buckets.MERGED_SHARE
SPARSE = 100  # series of which one is observed
SEEN = 20  # days that states have seen: more than h, so that they have learned


class Layout(StatefulProcessor):
    """Reads and writes the records of the series that a batch names, in one of several layouts."""

    def __init__(self, name: str, record: int, shards: int) -> None:
        self.name, self.record, self.shards = name, record, shards  # record: bytes of a series

    def init(self, handle: Any) -> None:
        if self.name == SINGLE:
            self.state = handle.getMapState("s", "k string", "record binary")
        elif self.name == LOG:
            self.state = handle.getListState("s", "records string")
        else:
            self.state = handle.getMapState("s", "k int", "records string")
            self.recent = handle.getMapState("r", "k int", "records string")
            self.counts = handle.getValueState("c", "buckets int, series bigint, bases int, recents int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        ids = pd.concat(list(rows))["unique_id"].tolist()
        half = self.record // 2  # records are compressed to about a half
        new = {uid: os.urandom(half) + bytes(self.record - half) for uid in ids}
        begin = time.perf_counter()
        {SINGLE: self.one_by_one, LOG: self.append}.get(self.name, self.in_buckets)(new)
        yield pd.DataFrame({"rows": [len(ids)], "seconds": [time.perf_counter() - begin]})

    def one_by_one(self, new: dict[str, bytes]) -> None:
        for uid in new:
            self.state.getValue((uid,))
        for uid, record in new.items():
            self.state.updateValue((uid,), (record,))

    def append(self, new: dict[str, bytes]) -> None:
        """The changes of a batch at the end of the shard's list. When half of it is outdated, it is written anew."""
        parts = [buckets.unpack(text) for (text,) in self.state.get()]
        found = {uid: record for part in (*parts, new) for uid, record in part.items()}
        if not parts or sum(map(len, parts)) + len(new) >= 2 * len(found):
            items, size = list(found.items()), buckets.SIZE
            self.state.put([(buckets.pack(dict(items[i : i + size])),) for i in range(0, len(items), size)])
        else:
            self.state.appendList([(buckets.pack(new),)])

    def in_buckets(self, new: dict[str, bytes]) -> None:
        """As `aru.spark` does, or with every change merged at once."""
        buckets.MERGED_SHARE = 10**9 if self.name == WHOLE else MERGED_SHARE
        shard = buckets.Buckets(self.state, self.recent, self.shards, buckets.Counts(*(self.counts.get() or ())))
        list(shard.load(new))
        shard.apply(new)
        self.counts.update(tuple(shard.counts()))

    def close(self) -> None:
        """Nothing is open."""


class ProcessorTime(threading.Thread):
    """Samples the processor time of all processes below this one: Spark's and its workers'."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float]] = []

    def run(self) -> None:
        while True:
            self.samples.append((time.time(), children_seconds()))
            time.sleep(0.2)

    def between(self, begin: float, end: float) -> float:
        times, seconds = zip(*self.samples, strict=True)
        return float(np.interp(end, times, seconds) - np.interp(begin, times, seconds))


def children_seconds() -> float:
    """Processor time of all processes below this one."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # gone by now
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            spent[int(entry.name)] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    total, todo = 0.0, [os.getpid()]
    while todo:
        todo = [child for parent in todo for child in parents.get(parent, [])]
        total += sum(spent[child] for child in todo)
    return total


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


def run(rows: DataFrame, folder: Path, clock: ProcessorTime) -> list[dict[str, Any]]:
    """Take in all batches. Of each: rows, seconds, and the bytes that the checkpoint took for its changes."""
    paths = {"path": str(folder / "output"), "checkpointLocation": str(folder / "checkpoint")}
    query = rows.writeStream.format("parquet").options(**paths).trigger(availableNow=True).start()
    query.awaitTermination()
    out = []
    for progress in query.recentProgress:
        version = progress["batchId"] + 1
        begin = pd.Timestamp(progress["timestamp"]).timestamp()
        logs = (folder / "checkpoint" / "state" / "0").glob(f"*/{version}*.changelog")
        out.append(
            {
                "rows": progress["numInputRows"],
                "seconds": progress["durationMs"]["addBatch"] / 1e3,
                "cpu": clock.between(begin, begin + progress["durationMs"]["triggerExecution"] / 1e3),
                "bytes": sum(log.stat().st_size for log in logs),
            }
        )
    return out


def summary(batches: list[dict[str, Any]], series: int, record: int) -> dict[str, Any]:
    """The median batch of each kind of traffic; the first half of the dense ones warms up."""
    dense = [b for b in batches if b["rows"] == series]
    dense = dense[len(dense) // 2 :]
    doubled = [b for b in batches if b["rows"] == 2 * series]
    sparse = [b for b in batches if 0 < b["rows"] < series]
    out = {}
    for name, some in (("dense", dense), *([("doubled", doubled)] if doubled else []), ("sparse", sparse)):
        seconds = float(np.median([b["seconds"] for b in some]))
        out[name] = {
            "rows_per_batch": some[0]["rows"],
            "seconds_per_batch": round(seconds, 2),
            "events_per_second": round(some[0]["rows"] / seconds),
            "cpu_us_per_event": round(1e6 * float(np.median([b["cpu"] for b in some])) / some[0]["rows"]),
            "write_amplification": round(float(np.median([b["bytes"] / b["rows"] for b in some])) / record, 2),
        }
    return out


def days(series: int, dense: int, doubled: int, sparse: int) -> list[pd.DataFrame]:
    """Batches after the days that the states have seen."""
    ids = np.array([f"series-{i:07}" for i in range(series)])
    random = np.random.default_rng(1)
    day = itertools.count(SEEN)
    batches = [frame(ids, next(day)) for _ in range(dense)]
    batches += [pd.concat([frame(ids, next(day)), frame(ids, next(day))]) for _ in range(doubled)]
    some = [random.choice(ids, series // SPARSE, replace=False) for _ in range(sparse)]
    return batches + [frame(part, next(day)) for part in some]


def layouts(
    spark: SparkSession, folder: Path, series: int, shards: int, record: int, clock: ProcessorTime
) -> list[dict[str, Any]]:
    out = []
    for name in (SINGLE, LOG, WHOLE, RECENT):
        here = folder / name.replace(" ", "-")
        write(here / "input", [batch[["unique_id"]] for batch in days(series, 6, 0, 5)])
        rows = read(spark, here / "input", "unique_id string")
        rows = rows.withColumn("shard", shard_of(F.col("unique_id"), shards))
        grouped = rows.groupBy("shard").transformWithStateInPandas(
            Layout(name, record, shards), "rows long, seconds double", "Append", "None"
        )
        found = summary(run(grouped, here, clock), series, record)
        spent = spark.read.parquet(str(here / "output")).agg(F.sum("seconds"), F.sum("rows")).collect()[0]
        result = {"layout": name, "state_us_per_event": round(1e6 * spent[0] / spent[1])}
        out.append({**result, "series": series, "shards": shards, **found})
        print(out[-1], flush=True)
    return out


def streams(
    spark: SparkSession,
    folder: Path,
    sizes: Sequence[int],
    choices: Sequence[int],
    model: Forecaster,
    clock: ProcessorTime,
) -> list[dict[str, Any]]:
    record, out = model.runtime.describe().size, []
    for series, shards in itertools.product(sizes, choices):
        here = folder / f"stream-{series}-{shards}"
        here.mkdir()
        with Stream(model) as stream:
            for part in np.array_split([f"series-{i:07}" for i in range(series)], max(1, series // 10_000)):
                stream.update(frame(np.repeat(part, SEEN), np.tile(np.arange(SEEN), len(part))))
            stream.export(here / "states.parquet")
        write(here / "input", days(series, 40 if series < 50_000 else 4, 8 if series < 50_000 else 2, 5))
        rows = read(spark, here / "input", "unique_id string, ds timestamp_ntz, y double")
        states = read_export(spark, here / "states.parquet", model)
        found = run(forecast_stream(rows, model, shards, level=[90], states_df=states), here, clock)
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
    parser.add_argument("--shards", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--layout-series", type=int, default=20_000)
    parser.add_argument("--layout-shards", type=int, default=16)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    model = trained()
    record = model.runtime.describe().size
    before = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session(folder / "local", chosen.partitions)
        clock = ProcessorTime()
        clock.start()
        layouts(spark, folder / "warm-up", 1_000, 8, record, clock)
        results = {
            "layouts": layouts(spark, folder, chosen.layout_series, chosen.layout_shards, record, clock),
            "streams": streams(spark, folder, chosen.series, chosen.shards, model, clock),
        }
        spark.stop()
    settings = {"seeds": [0, 1], "partitions": chosen.partitions, "record_bytes": record}
    write_json("spark", {**settings, **results}, before, pyspark=pyspark.__version__)


if __name__ == "__main__":
    main()
