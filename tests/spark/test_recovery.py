"""Jobs that are killed, and jobs that move to another number of partitions: the result stays the same."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aru import Stream
from tests.shops import TRAINED, both
from tests.spark.conftest import ADDRESS, IDS, MARKS, environment
from tests.spark.runs import assert_states, expected, read_stream, result, run, write_batches

pytestmark = MARKS
PLAIN = ["unique_id", "ds", "y"]
SHARDS = 4
BATCHES = 14
SUBMIT = (
    f"--master local[2,4] --driver-memory 1g --conf spark.driver.host={ADDRESS} --conf spark.ui.enabled=false "
    "--conf spark.sql.shuffle.partitions=2 pyspark-shell"
)


def days() -> list[pd.DataFrame]:
    """Every series once a batch, but for one that pauses, and one that begins late."""
    batches = [both([TRAINED + day], IDS)[PLAIN] for day in range(BATCHES)]
    batches[3] = batches[3][batches[3]["unique_id"] != "c"]
    batches[5] = pd.concat([batches[5], both([TRAINED + 5], "n")[PLAIN], batches[2].iloc[:2]])
    return batches


def start(saved: Path, folder: Path) -> subprocess.Popen[bytes]:
    options = {name: str(folder / name) for name in ("input", "output", "checkpoint")} | {"model": str(saved)}
    command = [sys.executable, "-m", "aru.spark", "--once", "--files", "1", "--shards", str(SHARDS), "--level", "80"]
    command += [word for name, value in options.items() for word in (f"--{name}", value)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, env={**environment(), "PYSPARK_SUBMIT_ARGS": SUBMIT}, stdout=log, stderr=log)


def descendants(process: int) -> dict[int, str]:
    """All processes below one, with their command lines."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # gone by now
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [process]
    while todo:
        todo = [child for parent in todo for child in parents.get(parent, [])]
        found += todo
    return {pid: command(pid) for pid in found}


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def commits(folder: Path) -> int:
    return len([p for p in (folder / "checkpoint" / "commits").glob("*") if p.name.isdigit()])


def wait_for_commit(job: subprocess.Popen[bytes], folder: Path, than: int) -> None:
    until = time.monotonic() + 300
    while commits(folder) <= than:
        assert job.poll() is None, (folder / "log").read_text()[-3000:]
        assert time.monotonic() < until, "no batch was committed within five minutes"
        time.sleep(0.02)


def wait_for_workers(job: subprocess.Popen[bytes]) -> list[int]:
    """Python workers of a job. A batch whose result was complete when it was killed is committed without any."""
    until = time.monotonic() + 300
    while not (found := [pid for pid, line in descendants(job.pid).items() if "pyspark.daemon" in line]):
        assert job.poll() is None, "the job ended without workers"
        assert time.monotonic() < until, "no workers within five minutes"
        time.sleep(0.02)
    return found


def as_delivered(folder: Path, batches: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """The batches as Spark formed them: a file listed just before a kill joins the next one."""
    offsets = sorted(
        (p for p in (folder / "checkpoint" / "offsets").glob("*") if p.name.isdigit()), key=lambda p: int(p.name)
    )
    ends = [json.loads(path.read_text().splitlines()[-1])["logOffset"] + 1 for path in offsets]
    assert ends[-1] == len(batches)
    return [pd.concat(batches[begin:end]) for begin, end in itertools.pairwise([0, *ends])]


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_killed_three_times_and_resumed(spark: Any, saved: Path, tmp_path: Path) -> None:
    from aru.spark import read_checkpoint

    write_batches(tmp_path / "input", days())
    moments = np.random.default_rng(0)
    killed = 0
    for who in ("everything", "workers", "everything"):
        before = commits(tmp_path)
        job = start(saved, tmp_path)
        try:
            wait_for_commit(job, tmp_path, before)
            time.sleep(float(moments.uniform(0, 1)))  # in the middle of the next batch
            below = descendants(job.pid)
            if who == "workers":
                kill(wait_for_workers(job))  # Spark repeats the tasks
                wait_for_commit(job, tmp_path, commits(tmp_path))
                below = descendants(job.pid)
            killed += job.poll() is None
        finally:
            kill([job.pid, *descendants(job.pid)])
            kill(list(below))
            job.wait()
    assert killed == 3
    assert commits(tmp_path) < BATCHES
    assert start(saved, tmp_path).wait() == 0, (tmp_path / "log").read_text()[-3000:]
    stream = Stream(saved)
    wanted = expected(stream, as_delivered(tmp_path, days()), [80])
    found = result(spark, tmp_path, "forecast")
    pd.testing.assert_frame_equal(found[wanted.columns], wanted, rtol=1e-5, atol=1e-5, check_dtype=False)
    assert result(spark, tmp_path, "left_out")["reason"].tolist() == ["duplicate"] * 2
    assert_states(stream, read_checkpoint(spark, tmp_path / "checkpoint", saved).toPandas())


def test_the_same_shards_on_more_partitions(spark: Any, saved: Path, tmp_path: Path) -> None:
    from aru.spark import forecast_stream, read_checkpoint

    first, second = days()[:2], days()[2:4]
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, batches in ((old, first), (new, second)):
        folder.mkdir()
        write_batches(folder / "input", batches)
    run(forecast_stream(read_stream(spark, old / "input"), saved, SHARDS), old)
    states = read_checkpoint(spark, old / "checkpoint", saved)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        query = run(forecast_stream(read_stream(spark, new / "input"), saved, SHARDS, states_df=states), new)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert query.lastProgress["stateOperators"][0]["numShufflePartitions"] == 3
    stream = Stream(saved)
    expected(stream, first, [])
    wanted = expected(stream, second, [])
    found = result(spark, new, "forecast")
    pd.testing.assert_frame_equal(found[wanted.columns], wanted, rtol=1e-5, atol=1e-5, check_dtype=False)
    assert_states(stream, read_checkpoint(spark, new / "checkpoint", saved).toPandas())
