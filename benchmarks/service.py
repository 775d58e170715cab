"""How fast the service is: `python -m benchmarks.service` writes `benchmarks/results/service.json`.

The service runs as a process of its own, with the model of `benchmarks/stream.py`; clients keep their connections and
wait for each answer before they send the next observation. "cpu" beside a figure is what the service's process used:
on a machine that does other work, too, wall-clock figures are lower bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import torch

from benchmarks.recording import machine, write_json
from benchmarks.stream import RANDOM, frame, trained

TICK = os.sysconf("SC_CLK_TCK")


def family(parent: int) -> list[int]:
    """A process and all that it has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [parent, *(process for child in children for process in family(int(child)))]


def cpu_of(parent: int) -> float:
    """Seconds of CPU of a process and all that it has started."""
    total = 0.0
    for process in family(parent):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICK
    return total


class Service:
    """`aru serve` on a free port."""

    def __init__(self, model: Path, state: str | Path, *options: str) -> None:
        command = [sys.executable, "-m", "aru.cli", "serve", model, "--state", state, "--port", "0", "--json", *options]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert self.child.stdout is not None
        self.url = json.loads(self.child.stdout.readline())["address"]
        self.port = int(self.url.rpartition(":")[2])

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return cpu_of(self.child.pid)

    def stop(self) -> None:
        self.child.send_signal(signal.SIGTERM)
        self.child.wait()


def post(path: str, body: bytes, content: str) -> bytes:
    """A request as it goes over the wire."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> float:
    """Send one request, read its answer, and return the seconds that took."""
    began = time.perf_counter()
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    return time.perf_counter() - began


async def crowd(service: Service, requests: list[list[bytes]]) -> list[float]:
    """As many clients as there are lists, each with a connection of its own."""

    async def client(mine: list[bytes]) -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        seconds = [await ask(reader, writer, request) for request in mine]
        writer.close()
        return seconds

    return [second for seconds in await asyncio.gather(*map(client, requests)) for second in seconds]


def single(service: Service, clients: int, rounds: int, turn: int = 0) -> dict[str, Any]:
    """Every client sends one observation of a series of its own after the other, all of which began at other times."""

    def observations(number: int, days: range) -> bytes:
        names = {"unique_id": f"{clients}-{turn}-{number:06}"}
        rows = [
            {**names, "ds": str(np.datetime64("2024-01-01") + day), "y": 100.0 + (number * 7 + day * 3) % 50}
            for day in days
        ]
        return post("/v1/observations", json.dumps({"observations": rows}).encode(), "application/json")

    begins = [RANDOM.integers(20) for _ in range(clients)]
    asyncio.run(crowd(service, [[observations(c, range(begin, 40))] for c, begin in enumerate(begins)]))
    requests = [[observations(c, range(day, day + 1)) for day in range(40, 40 + rounds)] for c in range(clients)]
    wall, cpu = time.perf_counter(), service.cpu()
    seconds = 1e3 * np.array(asyncio.run(crowd(service, requests)))
    wall, cpu = time.perf_counter() - wall, service.cpu() - cpu
    return {
        "clients": clients,
        "updates_per_second": round(len(seconds) / wall),
        "updates_per_cpu_second": round(len(seconds) / cpu),
        "p50_ms": round(float(np.percentile(seconds, 50)), 1),
        "p99_ms": round(float(np.percentile(seconds, 99)), 1),
    }


def bulk(service: Service, content: str, rows: int, rounds: int = 4) -> dict[str, Any]:
    """One observation of each of many series in a request."""
    ids = [f"{content}-{i:06}" for i in range(rows)]
    clocks = []
    with httpx.Client(base_url=service.url, timeout=600) as client:
        for day in range(rounds):
            body = encode(frame(ids, day), content)
            wall, cpu = time.perf_counter(), service.cpu()
            answer = client.post("/v1/observations", content=body, headers={"content-type": content})
            assert answer.json()["applied"] == rows, answer.text
            clocks.append((time.perf_counter() - wall, service.cpu() - cpu))
    wall, cpu = np.median(np.array(clocks[1:]), 0)
    return {
        "content_type": content,
        "rows_per_request": rows,
        "rows_per_second": round(rows / wall),
        "rows_per_cpu_second": round(rows / cpu),
    }


def encode(table: Any, content: str) -> bytes:
    if content == "text/csv":
        return table.to_csv(index=False).encode()
    if content == "application/json":
        rows = table.assign(ds=table["ds"].dt.strftime("%Y-%m-%d")).to_dict("records")
        return json.dumps({"observations": rows}).encode()
    arrow, sink = pa.Table.from_pandas(table, preserve_index=False), io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return sink.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=64)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    before, results = machine(), {"single": [], "bulk": []}  # type: ignore[var-annotated]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained().save(folder / "model")
        for options in ((), ("--no-monitor",)):
            service = Service(folder / "model", folder / f"state{len(options)}.db", *options)
            single(service, 4, 50)
            for clients in (1, 16, 64, 256):
                found = single(service, clients, rounds)
                results["single"].append({"monitor": not options, **found})
                print(results["single"][-1], flush=True)
            for content in ("application/json", "text/csv", "application/vnd.apache.arrow.stream"):
                results["bulk"].append({"monitor": not options, **bulk(service, content, 10_000)})
                print(results["bulk"][-1], flush=True)
            service.stop()
    write_json("service", results, before)


if __name__ == "__main__":
    main()
