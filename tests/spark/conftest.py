"""One Spark session for all tests here, on two local cores and this machine's own address."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aru import Forecaster
from tests.making import make
from tests.shops import BASE, COVARIATES, STATIC, TRAINED, both

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1"
IDS = "abcdefghij"
# PySpark 4.3 works with pandas 3, and says that it might not.
MARKS = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def needs_spark() -> None:
    """Skip where Spark cannot run."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install 'aru-forecast[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java: install a Java 17 runtime")


def environment() -> dict[str, str]:
    """Of processes that run Spark: workers import the tested code with the same interpreter."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ours = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": ADDRESS}
    return {**os.environ, **ours, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    needs_spark()
    os.environ.update(environment())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in {
        "spark.driver.bindAddress": ADDRESS,
        "spark.driver.host": ADDRESS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def trained() -> Forecaster:
    return make(**BASE).fit(both(range(TRAINED), IDS))


@pytest.fixture(scope="session")
def saved(trained: Forecaster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spark") / "model"
    trained.save(path)
    return path


@pytest.fixture(scope="session")
def rich() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC)
