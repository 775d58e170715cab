"""Several processes on one store, and processes that are killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aru import Stream
from tests.making import flat, make

ROOT = Path(__file__).resolve().parents[1]
START = pd.Timestamp("2024-01-01")
BATCH, BATCHES = 40, 60  # rows of a batch, batches of a writer

# Sends its batches in order, from a given one on, and acknowledges each on stdout.
WRITER = """
import json, sys
import pandas as pd, torch
from aru import Stream
torch.set_num_threads(1)
model, store, batches, begin, late = sys.argv[1:]
stream = Stream(model, store)
print("ready", flush=True)
for number, rows in enumerate(json.load(open(batches))):
    if number < int(begin):
        continue
    frame = pd.DataFrame(rows, columns=["unique_id", "ds", "y"])
    result = stream.update(frame.assign(ds=pd.to_datetime(frame["ds"])), late=late)
    print(number, result.applied, result.duplicates, flush=True)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "model")


def save_model(path: Path) -> Path:
    days = START + pd.to_timedelta(np.arange(30), unit="D")
    df = pd.concat([pd.DataFrame({"unique_id": f"s{i}", "ds": days, "y": i + np.arange(30) % 7.5}) for i in range(4)])
    options = {"enable_progress_bar": False}
    f = make(h=4, freq="D", input_size=6, size="small", max_steps=3, trainer=options).fit(df)
    f.save(path)
    return path


def date(day: int) -> str:
    return str((START + pd.Timedelta(days=day)).date())


def batches(series: list[str], seed: int, count: int = BATCHES) -> list[list[tuple[str, str, float]]]:
    """Rows of many series, with gaps; every batch has each of its series once."""
    random_state = np.random.default_rng(seed)
    day = dict.fromkeys(series, 30)
    out = []
    for _ in range(count):
        batch = []
        for name in random_state.choice(series, BATCH, replace=False):
            day[name] += int(random_state.integers(1, 3))
            batch.append(
                (str(name), str((START + pd.Timedelta(days=day[name])).date()), float(random_state.gamma(4, 5)))
            )
        out.append(batch)
    return out


def start(model: Path, store: str | Path, file: Path, begin: int = 0, late: str = "raise") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(model), str(store), str(file), str(begin), late]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def assert_equal(one: Stream, other: Stream) -> None:
    """Counts, times and contexts exactly; statistics and forecasts to rounding."""
    pd.testing.assert_frame_equal(one.series(), other.series(), check_exact=True)
    ids = one.series()["unique_id"].tolist()
    records = []
    for stream in (one, other):
        with stream.store.reading() as view:
            blobs = [blob for blob in view.get(ids) if blob is not None]
        records.append(flat(stream.runtime.decode(blobs, ids)))
    for name, value in records[0].items():
        if "members" in name or name.endswith("total"):
            np.testing.assert_allclose(value.numpy(), records[1][name].numpy(), rtol=1e-5, atol=1e-7, err_msg=name)
        else:
            np.testing.assert_array_equal(value.numpy(), records[1][name].numpy(), err_msg=name)
    pd.testing.assert_frame_equal(one.predict(level=[90]), other.predict(level=[90]), rtol=1e-5)


@pytest.mark.slow
def test_killed_writers_lose_nothing_and_count_nothing_twice(
    model: Path, tmp_path: Path, state: str | Path, kills: int
) -> None:
    """After every kill -9 the client sends again what was not acknowledged; the result is that of a quiet run."""
    assert kill_writers(model, tmp_path, state, kills) == 10 * kills * BATCH


def kill_writers(model: Path, tmp_path: Path, store: str | Path, kills: int, each: int = 10) -> int:
    """Kill one writer after the other, `each` batches a kill; return the number of rows that were sent and found."""
    count = each * kills
    all_batches = batches([f"s{i}" for i in range(100)], 0, count)
    file = tmp_path / "batches.json"
    file.write_text(json.dumps(all_batches))
    moments = random.Random(0)
    acknowledged, killed = 0, 0
    while acknowledged < count:
        writer = start(model, store, file, acknowledged)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        # Early enough to leave something for those that follow; the last one comes to its end.
        until = (
            acknowledged + moments.randint(0, (count - acknowledged) // (kills - killed + 1))
            if killed < kills
            else count
        )
        while acknowledged < until:
            number, applied, duplicates = map(int, writer.stdout.readline().split())
            assert number == acknowledged
            assert applied + duplicates == BATCH
            assert applied in (0, BATCH)  # all of a batch or nothing
            acknowledged += 1
        time.sleep(moments.uniform(0.0, 0.02))  # somewhere inside the next batch
        writer.send_signal(signal.SIGKILL)
        # What was on its way when the process died counts: the client may have read it.
        acknowledged += len(writer.stdout.read().splitlines())
        writer.stdout.close()
        writer.wait()
        killed += 1
    assert killed > kills
    with Stream(model, store) as survivor:
        quiet = Stream(model)
        for rows in all_batches:
            frame = pd.DataFrame(rows, columns=["unique_id", "ds", "y"])
            quiet.update(frame.assign(ds=pd.to_datetime(frame["ds"])))
        assert_equal(survivor, quiet)
    return count * BATCH


@pytest.mark.slow
def test_processes_on_one_store_equal_one(model: Path, tmp_path: Path, state: str | Path) -> None:
    """Four processes create the store at the same time, write to series of their own, and all send one series."""
    store, files = state, []
    shared = [[("shared", date(40 + i), float(i))] for i in range(BATCHES)]
    for worker in range(4):
        own = batches([f"w{worker}-{i}" for i in range(50)], seed=worker)
        files.append(tmp_path / f"{worker}.json")
        files[-1].write_text(json.dumps([rows + extra for rows, extra in zip(own, shared, strict=True)]))
    writers = [start(model, store, file, late="skip") for file in files]
    applied = 0
    for writer in writers:
        output, _ = writer.communicate(timeout=300)
        assert writer.returncode == 0
        applied += sum(int(line.split()[1]) for line in output.splitlines()[1:])
    alone = Stream(model)
    for file in files:
        for rows in json.loads(file.read_text()):
            frame = pd.DataFrame(rows, columns=["unique_id", "ds", "y"])
            alone.update(frame.assign(ds=pd.to_datetime(frame["ds"])), late="skip")
    # A worker that is behind finds steps of the shared series taken already, one ahead leaves gaps that stay.
    with Stream(model, store) as together:
        own = [i for i in together.series()["unique_id"] if i != "shared"]
        for stream in (together, alone):
            assert stream.series().set_index("unique_id").loc["shared", "ds"] == START + pd.Timedelta(
                days=40 + BATCHES - 1
            )
        together.forget(["shared"])
        alone.forget(["shared"])
        assert together.series()["unique_id"].tolist() == own
        assert_equal(together, alone)
        assert applied >= 4 * BATCHES * BATCH
