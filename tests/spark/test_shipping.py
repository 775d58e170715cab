"""A model that travels: in another process it forecasts the same, through ONNX sessions of that process."""

from __future__ import annotations

import multiprocessing
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aru import Forecaster, Stream
from tests.shops import TRAINED, both
from tests.spark.conftest import IDS

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'aru-forecast[spark]'")


def forecast(model: Forecaster) -> pd.DataFrame:
    stream = Stream(model)
    stream.update(both(range(TRAINED), IDS)[["unique_id", "ds", "y"]])
    return stream.predict(level=[90])


def in_worker(file: Path, found: Any) -> None:
    from aru.spark.shipping import unpack

    model = unpack(file)
    assert model.ids == []
    assert all(each.sessions is not None for each in model.runtime.engine.models)
    found.put(forecast(model))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_process_loads_the_networks_anew(method: Any, trained: Forecaster, tmp_path: Path) -> None:
    from aru.spark.shipping import pack

    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    wanted = forecast(trained.without_series())  # the parent has sessions already
    file = pack(trained, tmp_path / "model")
    assert any(name.endswith(".onnx") for name in zipfile.ZipFile(file).namelist())
    context = multiprocessing.get_context(method)
    found = context.Queue()
    child = context.Process(target=in_worker, args=(file, found))
    child.start()
    try:
        pd.testing.assert_frame_equal(found.get(timeout=120), wanted, check_exact=True)
    finally:
        child.join(30)
    assert child.exitcode == 0


def test_a_damaged_file_is_refused(trained: Forecaster, tmp_path: Path) -> None:
    from aru.errors import StorageError
    from aru.spark.shipping import pack, unpack

    file = pack(trained, tmp_path / "model")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(tmp_path / "damaged.zip", "w") as new:
        for name in old.namelist():
            new.writestr(name, b"not a network" if name.endswith(".onnx") else old.read(name))
    with pytest.raises(StorageError, match="its checksum is wrong"):
        unpack(tmp_path / "damaged.zip")
