"""Two processes that train together: the result of one process with the same batches."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aru import Forecaster
from tests.making import make
from tests.shops import BASE, TRAINED, both

ROOT = Path(__file__).resolve().parents[2]
# Without categories, the calendar's among them: training hides some at random, and each process has its own luck.
SETTINGS: dict[str, Any] = {**BASE, "freq": 1, "max_steps": 25, "batch_size": 4}
SCRIPT = """
import sys
import torch
from tests.making import make
from tests.training.test_distributed import SETTINGS, data
torch.set_num_threads(1)
options = {"enable_progress_bar": False, "devices": 2, "num_nodes": 1, "strategy": "ddp"}
f = make(**{**SETTINGS, "trainer": options}).fit(data(), val_size=3)
assert torch.distributed.get_world_size() == 2
f.save(sys.argv[1] + str(torch.distributed.get_rank()))
"""


def data() -> pd.DataFrame:
    days = both(range(TRAINED), "abcdefgh")
    return days.assign(ds=days.groupby("unique_id").cumcount())


@pytest.mark.slow
def test_two_processes_are_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "rank-")],
            env={**os.environ, **shared, "LOCAL_RANK": str(rank), "PYTHONPATH": paths},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            _, error = process.communicate(timeout=300)
            assert process.returncode == 0, error[-3000:]
    finally:
        for process in processes:
            process.kill()
    alone = make(**SETTINGS).fit(data(), val_size=3)
    early = make(**{**SETTINGS, "max_steps": 1}).fit(data(), val_size=3)
    wanted = alone.predict(level=[80])
    for rank in range(2):
        found = Forecaster.load(tmp_path / f"rank-{rank}").predict(level=[80])
        pd.testing.assert_frame_equal(found, wanted, rtol=1e-4)
    assert (early.predict()["aru"] - wanted["aru"]).abs().max() > 1e-2  # steps do matter
