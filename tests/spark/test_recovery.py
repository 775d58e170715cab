"""Jobs that are killed, and jobs that move to another number of partitions: the result stays the same."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
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
PATIENCE = 600  # seconds; a busy machine takes minutes to start a job
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


class Job:
    """`aru spark` in a process of its own.

    Spark ends a query if a worker of Python takes more than ten seconds to start, which no setting changes. On a busy
    machine that happens; the job is then started again, as an operator would.
    """

    def __init__(self, saved: Path, folder: Path) -> None:
        self._saved, self._folder = saved, folder
        self._start()

    def _start(self) -> None:
        places = {name: self._folder / name for name in ("input", "output", "checkpoint")} | {"model": self._saved}
        command = [sys.executable, "-m", "aru.spark", "--once", "--files", "1", "--shards", SHARDS, "--level", "80"]
        command += [word for name, place in places.items() for word in (f"--{name}", place)]
        self._log = self._folder / f"log-{time.monotonic_ns()}"
        with self._log.open("wb") as log:
            environ = {**environment(), "PYSPARK_SUBMIT_ARGS": SUBMIT}
            self._process = subprocess.Popen(list(map(str, command)), env=environ, stdout=log, stderr=log)

    def ended(self) -> bool:
        """Whether it is done. Anything but success is an error."""
        code = self._process.poll()
        if code:
            said = self._log.read_text()
            assert "Python worker failed to connect back" in said, said[-3000:]
            self._start()
        return code == 0

    def below(self) -> dict[int, str]:
        """The processes that it started, with their command lines."""
        return descendants(self._process.pid)

    def wait(self, until: Callable[[], Any], what: str) -> Any:
        """What is waited for, while it runs."""
        end = time.monotonic() + PATIENCE
        while not (found := until()):
            assert not self.ended(), f"the job ended without {what}"
            assert time.monotonic() < end, f"no {what} within ten minutes"
            time.sleep(0.02)
        return found

    def wait_for_commit(self, than: int) -> None:
        self.wait(lambda: commits(self._folder) > than, "a commit")

    def workers(self) -> list[int]:
        """Workers of Python. A batch whose result was complete when it was killed is committed without any."""
        return list(self.wait(lambda: [p for p, line in self.below().items() if "pyspark.daemon" in line], "workers"))

    def kill(self, below: Iterable[int]) -> None:
        """End it with what it started, then or now."""
        kill([self._process.pid, *self.below()])
        kill(below)
        self._process.wait()


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


def as_delivered(folder: Path, batches: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """The batches as Spark formed them: a file listed just before a kill joins the next one."""
    offsets = sorted(
        (p for p in (folder / "checkpoint" / "offsets").glob("*") if p.name.isdigit()), key=lambda p: int(p.name)
    )
    ends = [json.loads(path.read_text().splitlines()[-1])["logOffset"] + 1 for path in offsets]
    assert ends[-1] == len(batches)
    return [pd.concat(batches[begin:end]) for begin, end in itertools.pairwise([0, *ends])]


def kill(pids: Iterable[int]) -> None:
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
        job = Job(saved, tmp_path)
        below: Iterable[int] = ()
        try:
            job.wait_for_commit(before)
            time.sleep(float(moments.uniform(0, 1)))  # in the middle of the next batch
            below = job.below()
            if who == "workers":
                kill(job.workers())  # Spark repeats the tasks
                job.wait_for_commit(commits(tmp_path))
                below = job.below()
            killed += not job.ended()
        finally:
            job.kill(below)
    assert killed == 3
    assert commits(tmp_path) < BATCHES
    last = Job(saved, tmp_path)
    try:
        last.wait(last.ended, "its end")
    finally:
        last.kill(())
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
