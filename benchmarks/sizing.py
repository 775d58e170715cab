"""What a service of so many series needs: `python -m benchmarks.sizing` writes `benchmarks/results/sizing.json`.

Every series gets 24 rows, 10,000 series in a request, with monitoring on and rows kept: memory of the process, files,
and rows a second. The model is that of `benchmarks/stream.py`, with 7 correctable steps, as `aru serve` has them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from benchmarks.recording import machine, write_json
from benchmarks.service import Service, encode
from benchmarks.soak import MB, memory_of
from benchmarks.stream import frame, trained
from tests import postgres

SIZES = (1_000, 10_000, 100_000)
ROWS, BATCH_ROWS = 24, 10_000
ARROW = "application/vnd.apache.arrow.stream"


def measure(folder: Path, state: str | Path, series: int) -> dict[str, Any]:
    """Fill a service."""
    ids = np.array([f"series-{i:06}" for i in range(series)])
    service = Service(folder / "model", state, "--keep", "400d")
    idle, seconds = memory_of(service.child.pid), list[float]()
    with httpx.Client(base_url=service.url, timeout=600) as client:
        for day in range(ROWS):
            for begin in range(0, series, BATCH_ROWS):
                some = ids[begin : begin + BATCH_ROWS]
                body = encode(frame(some, day), ARROW)
                began = time.perf_counter()
                answer = client.post("/v1/observations", content=body, headers={"content-type": ARROW})
                assert answer.json()["applied"] == len(some), answer.text
                seconds.append((time.perf_counter() - began) / len(some))
        time.sleep(5)  # the monitor works on
        lines = [line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
        figures = {name: float(value) for name, value in lines}
        memory = memory_of(service.child.pid)
    service.stop()
    files = {path.name: path.stat().st_size for path in folder.glob(f"{Path(str(state)).name}*")}
    kept, store = figures['aru_kept_bytes{model="model"}'], figures['aru_store_bytes{model="model"}']
    if isinstance(state, Path):
        store = files[state.name]  # without its write-ahead log, which has a size of its own
    monitor = sum(size for name, size in files.items() if "monitor" in name)
    return {
        "store": "sqlite" if isinstance(state, Path) else "postgres",
        "series": series,
        "rows_per_second": round(1 / float(np.median(seconds[len(seconds) // 2 :]))),
        "idle_memory_mb": round(idle),
        "memory_mb": round(memory),
        "store_bytes_per_series": round((store - kept) / series),
        "kept_bytes_per_row": round(kept / series / ROWS, 1),
        "monitor_bytes_per_series": round(monitor / series),
        "store_mb": round(store / MB),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    largest = parser.parse_args().largest
    torch.set_num_threads(1)
    before, results = machine(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name, postgres.running() as server:
        folder = Path(name)
        trained().save(folder / "model")
        for series in (size for size in SIZES if size <= largest):
            for state in (folder / f"{series}.db", postgres.new_url(server)):
                results.append(measure(folder, state, series))
                print(results[-1], flush=True)
    write_json("sizing", {"sizing": results}, before)


if __name__ == "__main__":
    main()
