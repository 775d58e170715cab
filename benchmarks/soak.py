"""A service under steady load: `python -m benchmarks.soak [--minutes 10] [--postgres] [--workers 2]`.

First the capacity is measured: clients that wait for each answer before they send the next request. Then requests are
sent at 70 % of it, at fixed times, whether earlier ones were answered or not, and the time to an answer counts from
then. Four of five requests bring one observation of one of 2,000 series, the others ask for a forecast. Monitoring is
on, and rows are kept. Memory must stay flat and no request may fail: else the exit code is 1. Writes
`benchmarks/results/soak.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.recording import machine, write_json
from benchmarks.service import Service, cpu_of, family, post
from benchmarks.stream import trained
from tests import postgres

SERIES, CLIENTS = 2_000, 64
LOAD = 0.7  # of the capacity
ASKED = 5  # every fifth request is for a forecast
SAMPLE = 2.0  # seconds between two looks at the memory
GROWTH = 0.05  # of the memory, from the first quarter to the last, that is allowed
MB = 2**20


class Work:
    """Requests, one after the other: every series gets its days in order, whoever sends them."""

    def __init__(self) -> None:
        self._days = np.zeros(SERIES, int)
        self._busy: set[int] = set()  # series whose latest request was not answered yet
        self._count = 0

    def next(self) -> tuple[int, bytes]:
        """A series, and the request about it."""
        self._count += 1
        series = self._count * 7919 % SERIES
        while series in self._busy:
            series = (series + 1) % SERIES
        self._busy.add(series)
        name = f"series-{series:05}"
        if self._count % ASKED == 0:
            body = json.dumps({"unique_ids": [name], "level": [80]})
            return series, post("/v1/forecasts", body.encode(), "application/json")
        return series, self.rows([series])

    def rows(self, series: list[int]) -> bytes:
        """The next observation of each of these series."""
        rows = []
        for one in series:
            day = int(self._days[one])
            self._days[one] += 1
            ds = str(np.datetime64("1990-01-01") + day)
            rows.append({"unique_id": f"series-{one:05}", "ds": ds, "y": 100.0 + (one * 7 + day * 3) % 50})
        return post("/v1/observations", json.dumps({"observations": rows}).encode(), "application/json")

    def answered(self, series: int) -> None:
        self._busy.discard(series)


class Client:
    """A connection, which is opened again if the service closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> int:
        """The status of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def capacity(port: int, work: Work, seconds: float) -> float:
    """Requests a second of clients that wait for their answers."""
    done, end = 0, time.perf_counter() + seconds

    async def one() -> None:
        nonlocal done
        client = Client(port)
        while time.perf_counter() < end:
            series, request = work.next()
            assert await client.ask(request) == 200
            work.answered(series)
            done += 1
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(CLIENTS)))
    return done / (time.perf_counter() - began)


class Load:
    """Requests at fixed times."""

    def __init__(self, port: int, work: Work, rate: float) -> None:
        self._work, self._rate, self._port = work, rate, port
        self._free: asyncio.Queue[Client] = asyncio.Queue()
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        for _ in range(4 * CLIENTS):
            self._free.put_nowait(Client(self._port))
        began, tasks = time.perf_counter(), set()
        for number in range(int(seconds * self._rate)):
            due = began + number / self._rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(self._send(due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        while not self._free.empty():
            self._free.get_nowait().close()

    async def _send(self, due: float) -> None:
        client = await self._free.get()
        series, request = self._work.next()
        try:
            status = str(await client.ask(request))
        except (OSError, asyncio.IncompleteReadError) as error:
            status = type(error).__name__
            client.close()
        self._work.answered(series)
        self.seconds.append(time.perf_counter() - due)
        self.statuses[status] += 1
        self._free.put_nowait(client)


def memory_of(parent: int) -> float:
    """MB that a process and all that it has started hold, without what they share."""
    total = 0
    for process in family(parent):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty", "Private_Clean")))
    return total * 1024 / MB


async def watched(load: Load, seconds: float, pid: int) -> list[float]:
    """The memory of the service while it is under load."""
    found, done = list[float](), asyncio.create_task(load.run(seconds))
    while not done.done():
        found.append(await asyncio.to_thread(memory_of, pid))
        await asyncio.wait([done], timeout=SAMPLE)
    await done
    return found


def soak(service: Service, minutes: float, quick: float) -> dict[str, Any]:
    """Capacity, then load."""
    work = Work()
    for begin in range(0, SERIES, 500):  # every series has begun
        asyncio.run(_each(service.port, work, list(range(begin, begin + 500))))
    asyncio.run(capacity(service.port, work, quick))  # warm
    most = asyncio.run(capacity(service.port, work, 2 * quick))
    load, cpu, began = Load(service.port, work, LOAD * most), cpu_of(service.child.pid), time.perf_counter()
    memory = asyncio.run(watched(load, 60 * minutes, service.child.pid))
    wall = time.perf_counter() - began
    quarter = max(1, len(memory) // 4)
    first, last = (float(np.median(part)) for part in (memory[quarter // 2 : quarter + 1], memory[-quarter:]))
    tenths = [round(float(np.median(part))) for part in np.array_split(memory, 10)]
    ms = 1e3 * np.array(load.seconds)
    return {
        "minutes": minutes,
        "capacity_per_second": round(most),
        "sent_per_second": round(LOAD * most),
        "requests": len(ms),
        "failed": sum(count for status, count in load.statuses.items() if status != "200"),
        "statuses": dict(load.statuses),
        **{f"p{q}_ms": round(float(np.percentile(ms, q)), 1) for q in (50, 90, 99)},
        "longest_ms": round(float(ms.max()), 1),
        "cpu": round((cpu_of(service.child.pid) - cpu) / wall, 2),
        "memory_mb": {
            "first_quarter": round(first),
            "last_quarter": round(last),
            "most": round(max(memory)),
            "tenths": tenths,
        },
        "growth": round(last / first - 1, 4),
    }


async def _each(port: int, work: Work, series: list[int]) -> None:
    client = Client(port)
    for _ in range(3):
        assert await client.ask(work.rows(series)) == 200
    client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--capacity-seconds", type=float, default=20.0)
    parser.add_argument("--postgres", action="store_true", help="states in a PostgreSQL server of its own")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--no-file", action="store_true", help="print only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    before = machine()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        state: str | Path = folder / "state.db"
        if given.postgres:
            state = postgres.new_url(stack.enter_context(postgres.running()))
        trained().save(folder / "model")
        options = ["--keep", "1d", *(["--workers", str(given.workers)] if given.workers > 1 else [])]
        service = Service(folder / "model", state, *options)
        try:
            found = soak(service, given.minutes, given.capacity_seconds / 2)
        finally:
            service.stop()
    found = {"store": "postgres" if given.postgres else "sqlite", "workers": given.workers, **found}
    print(json.dumps(found, indent=1))
    if not given.no_file:
        write_json("soak", {"soak": found}, before)
    if found["failed"] or found["growth"] > GROWTH:
        sys.exit(f"failed: {found['failed']} requests, memory {found['growth']:+.1%}")


if __name__ == "__main__":
    main()
