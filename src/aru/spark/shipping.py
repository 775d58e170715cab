"""Sends a model from the driver to the workers. Its files are sent once; every worker process loads them once."""

from __future__ import annotations

import atexit
import functools
import json
import math
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
    """The model, for the driver."""
    return model if isinstance(model, Forecaster) else Forecaster.load(model, "cpu")


def ship(spark: SparkSession, forecaster: Forecaster) -> str:
    """Distribute the model, without its series, by Spark's files. Returns its name for `received`."""
    context = spark.sparkContext
    # The fingerprint covers neither the names of the columns with forecasts nor what series have in common.
    more = f"{forecaster.settings.name}{json.dumps(forecaster.runtime.engine.common.to_json())}"
    name = f"aru-{forecaster.runtime.describe().fingerprint}-{zlib.crc32(more.encode()):08x}"
    if (context.applicationId, name) not in _shipped:
        folder = Path(tempfile.mkdtemp(prefix="aru-"))  # workers may fetch from it as long as the driver lives
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        context.addFile(str(pack(forecaster, folder / name)))
        _shipped.add((context.applicationId, name))
    return name


def pack(forecaster: Forecaster, folder: Path) -> Path:
    """Save the model without its series into a folder, and zip it beside. Returns the zip file.

    What series have in common stays as it is: no shard sees enough of them to learn it anew.
    """
    twin = forecaster.without_series()
    engine = twin.runtime.engine
    engine.common = engine.common._replace(observations=math.inf)
    twin.save(folder)
    return Path(shutil.make_archive(str(folder), "zip", folder))


def unpack(file: str | Path) -> Forecaster:
    """The model in a file that `pack` wrote."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(file, folder)
        return Forecaster.load(folder, "cpu")


@functools.lru_cache(maxsize=2)
def received(name: str) -> Forecaster:
    """The model in this worker process, on one thread, since a process works on one task at a time."""
    torch.set_num_threads(1)
    return unpack(SparkFiles.get(f"{name}.zip"))
