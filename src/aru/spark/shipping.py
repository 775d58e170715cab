"""A model on the driver and on the workers: its file travels once, and every worker process loads it once."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import zlib
from pathlib import Path

import torch
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from aru.forecaster import Forecaster

_shipped: set[tuple[str, str]] = set()  # application and file


def load(model: Forecaster | str | Path) -> Forecaster:
    """The model as the driver needs it."""
    return model if isinstance(model, Forecaster) else Forecaster.load(model, "cpu")


def ship(spark: SparkSession, forecaster: Forecaster) -> str:
    """Hand the model, without its series, to Spark's file distribution. Returns the name that workers know it by."""
    context = spark.sparkContext
    # Names of columns are no part of the fingerprint.
    name = f"aru-{forecaster._require_fit().fingerprint}-{zlib.crc32(forecaster.settings.name.encode()):08x}"
    if (context.applicationId, name) not in _shipped:
        folder = Path(tempfile.mkdtemp(prefix="aru-"))  # from which workers may fetch as long as the driver lives
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        forecaster.without_series().save(folder / name)
        context.addFile(shutil.make_archive(str(folder / name), "zip", folder / name))
        _shipped.add((context.applicationId, name))
    return name


@functools.lru_cache(maxsize=2)
def received(name: str) -> Forecaster:
    """The model in this worker process, which serves one task at a time, and so on one thread."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(SparkFiles.get(f"{name}.zip"), folder)
        return Forecaster.load(folder, "cpu")
