"""A Spark job that reads Parquet files of observations and writes Parquet files of forecasts until it is stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.errors import AnalysisException, PySparkRuntimeError, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from aru.errors import ConfigError, StorageError, verbatim
from aru.spark import shipping
from aru.spark.state_frames import read_export
from aru.spark.streaming_query import forecast_stream


class Job(NamedTuple):
    """Inputs, outputs and options of a job."""

    input: str
    output: str
    checkpoint: str
    model: str
    level: Sequence[float] | None = None
    shards: int = 256
    partitions: int | None = None
    futr: str | None = None
    states: str | None = None
    correctable_steps: int = 0
    allow_jump: bool = False
    once: bool = False
    interval: float = 0.0
    files: int | None = None


class Done(NamedTuple):
    """What a job took in."""

    batches: int
    rows: int


def run(job: Job, started: Callable[[str], None] = lambda master: None) -> Done:
    """Run a job until it is interrupted, or with `once` until it has read all present files."""
    forecaster = shipping.load(job.model)
    spark = _session(job)
    started(str(spark.sparkContext.master))
    try:
        rows = forecast_stream(
            _observations(spark, job),
            forecaster,
            job.shards,
            job.level,
            futr_df=None if job.futr is None else spark.read.parquet(job.futr),
            states_df=None if job.states is None else read_export(spark, job.states, forecaster),
            correctable_steps=job.correctable_steps,
            allow_jump=job.allow_jump,
        )
        return _write(rows, job)
    except (AnalysisException, StreamingQueryException) as error:
        raise StorageError(f"Spark ended the job: {verbatim(str(error).splitlines()[0].rstrip('.'))}") from error


def _session(job: Job) -> SparkSession:
    """The session of spark-submit, or a local one that other machines cannot reach."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("aru")
    if job.partitions is not None:
        builder = builder.config("spark.sql.shuffle.partitions", job.partitions)
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigError(f"Spark does not start ({verbatim(error)})", "It needs Java 17: set JAVA_HOME.") from error
    return session


def _observations(spark: SparkSession, job: Job) -> DataFrame:
    reader = spark.readStream.schema(spark.read.parquet(job.input).schema)
    if job.files is not None:
        reader = reader.option("maxFilesPerTrigger", job.files)
    return reader.parquet(job.input)


def _write(rows: DataFrame, job: Job) -> Done:
    """Write one folder per kind of rows. Spark's file sink lists the files of finished batches: exactly once."""
    writer = rows.writeStream.format("parquet").partitionBy("kind").option("checkpointLocation", job.checkpoint)
    every = f"{job.interval} seconds"
    query = (writer.trigger(availableNow=True) if job.once else writer.trigger(processingTime=every)).start(job.output)
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    progress = query.recentProgress
    return Done(len(progress), sum(int(p["numInputRows"]) for p in progress))
