"""Two processes that train together: the result of one process with the same batches."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from aru import Forecaster
from tests.shops import BASE, TRAINED, both

ROOT = Path(__file__).resolve().parents[1]
IDS = "abcdefgh"
STEPS = 25
SCRIPT = """
import sys
import torch
from aru import Forecaster
from tests.shops import BASE, TRAINED, both
from tests.test_distributed import IDS, STEPS
torch.set_num_threads(1)
options = {"enable_progress_bar": False, "devices": 2, "num_nodes": 1, "strategy": "ddp"}
f = Forecaster(**{**BASE, "max_steps": STEPS, "batch_size": 4, "trainer_options": options})
f.fit(both(range(TRAINED), IDS), val_size=3)
assert torch.distributed.get_world_size() == 2
f.save(sys.argv[1] + str(torch.distributed.get_rank()))
"""


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
    df = both(range(TRAINED), IDS)
    alone = Forecaster(**{**BASE, "max_steps": STEPS, "batch_size": 4}).fit(df, val_size=3)
    untrained = Forecaster(**{**BASE, "max_steps": 1, "batch_size": 4}).fit(df, val_size=3)
    wanted = alone.predict(level=[80])
    for rank in range(2):
        found = Forecaster.load(tmp_path / f"rank-{rank}").predict(level=[80])
        pd.testing.assert_frame_equal(found, wanted, rtol=1e-4)
    assert (untrained.predict()["aru"] - wanted["aru"]).abs().max() > 1e-2  # steps do matter
