"""Attacks on files: damage, kills, several processes at once. Each returns how often it tried, and what went wrong.

    attempts, failures = damaged_stores(folder, 400)

A worker process does what may crash; a crash is a failure, and the next worker goes on behind it.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from aru import Forecaster, Stream
from aru.errors import AruError, StorageError
from aru.store import SQLiteStore
from aru.store.layout import Layout
from tests.making import make
from tests.shops import BASE, COVARIATES, STATIC, TRAINED, H, both, rows
from tests.torture import Attack, Outcome

ROOT = Path(__file__).resolve().parents[2]
SPAWN = multiprocessing.get_context("spawn")
IDS = [f"s{i:03}" for i in range(120)]
WAIT = 120.0  # seconds until a process counts as hanging


class Result(NamedTuple):
    """How often an attack was tried, and what went wrong."""

    attempts: int
    failures: list[str]


def prepare(folder: Path) -> Path:
    """A trained model in `folder`, and a store of many series beside it."""
    model = folder / "model"
    if not model.exists():
        make(**BASE, **COVARIATES).fit(both(range(TRAINED)), STATIC).save(model)
        static = pd.DataFrame({"unique_id": IDS, "kind": ["x", "y"] * (len(IDS) // 2)})
        with Stream(model, folder / "state.db", correctable_steps=2, accelerator="cpu") as stream:
            for day in range(4):
                stream.update(many(TRAINED + day), static)
            stream.export(folder / "states.parquet")
    return model


def many(day: int) -> pd.DataFrame:
    """A row of every series."""
    return pd.concat([rows(uid, [day]) for uid in IDS], ignore_index=True)


def future(stream: Stream) -> pd.DataFrame:
    """Covariates of the next h days of every series."""
    ends = stream.series()
    return pd.concat(
        [
            rows(uid, (ds - pd.Timestamp("2024-01-01")).days + np.arange(1, H + 1))
            for uid, ds in zip(ends["unique_id"], ends["ds"], strict=True)
        ]
    )


def use(stream: Stream) -> list[pd.DataFrame]:
    """List, forecast, take in a row of most series, forecast again."""
    out = [stream.series(), stream.predict(future(stream), [80])]
    stream.update(many(TRAINED + 4))
    return [*out, stream.series(), stream.predict(future(stream), [80])]


def same(one: list[pd.DataFrame], other: list[pd.DataFrame]) -> bool:
    return all(a.equals(b) for a, b in zip(one, other, strict=True))


def damage(data: bytes, chance: random.Random, page: int = 4096) -> bytes:
    """Flip a bit, write noise or zeros, cut off the end, or put a piece in place of another."""
    out, at = bytearray(data), chance.randrange(len(data))
    kind = chance.choice(("bit", "bytes", "bytes", "zeros", "sector", "cut", "copy", "swap"))
    if kind == "bit":
        out[at] ^= 1 << chance.randrange(8)
    elif kind == "bytes":
        n = chance.choice((1, 2, 8, 64))
        out[at : at + n] = chance.randbytes(n)
    elif kind == "zeros":
        out[at : at + 512] = bytes(512)
    elif kind == "sector":
        at -= at % 512
        out[at : at + 512] = chance.randbytes(512)
    elif kind == "cut":
        del out[at:]
    else:
        pages = max(1, len(data) // page)
        one, two = (page * chance.randrange(pages) for _ in range(2))
        first, second = data[one : one + page], data[two : two + page]
        if len(first) == len(second):
            out[one : one + page] = second
            if kind == "swap":
                out[two : two + page] = first
    return bytes(out[: len(data)])


# Damage


def damaged_stores(folder: Path, size: int) -> Result:
    """A damaged store gives an error, or the same answers as before."""
    return _survive(_damaged_store, folder, size)


def damaged_exports(folder: Path, size: int) -> Result:
    """A damaged export is refused whole."""
    return _survive(_damaged_export, folder, size)


def damaged_models(folder: Path, size: int) -> Result:
    """A model folder with a damaged file is refused."""
    return _survive(_damaged_model, folder, size)


def forged_records(folder: Path, size: int) -> Result:
    """Records that somebody has changed, checksum and all, crash nothing."""
    return _survive(_forged_record, folder, size)


@functools.cache
def _loaded(folder: Path) -> Forecaster:
    return Forecaster.load(prepare(folder), "cpu")


@functools.cache
def _expected(folder: Path) -> list[pd.DataFrame]:
    copy = folder / f"expected-{os.getpid()}.db"
    shutil.copy(folder / "state.db", copy)
    with Stream(_loaded(folder), copy) as stream:
        return use(stream)


def _damaged_store(folder: Path, case: int) -> str:
    whole = (folder / "state.db").read_bytes()
    path, expected = folder / f"damaged-{os.getpid()}.db", _expected(folder)
    path.write_bytes(damage(whole, random.Random(case), page=2**14))
    try:
        with Stream(_loaded(folder), path) as stream:
            found = use(stream)
        return "" if same(found, expected) else "other answers"
    except StorageError:
        return ""
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)


def _damaged_export(folder: Path, case: int) -> str:
    whole = (folder / "states.parquet").read_bytes()
    path, target = folder / f"damaged-{os.getpid()}.parquet", folder / f"import-{os.getpid()}.db"
    changed = damage(whole, random.Random(case), page=512)
    path.write_bytes(changed)
    try:
        with Stream(_loaded(folder).without_series(), target, correctable_steps=2) as stream:
            stream.import_(path)
            return "" if changed == whole else f"imported {len(stream.keys())} series"
    except StorageError:
        with Stream(_loaded(folder).without_series(), target) as stream:
            return f"{len(stream.keys())} series in spite of the error" if stream.keys() else ""
    finally:
        for file in (path, target):
            file.unlink(missing_ok=True)


def _damaged_model(folder: Path, case: int) -> str:
    chance = random.Random(case)
    copy = folder / f"damaged-{os.getpid()}"
    shutil.copytree(prepare(folder), copy)
    file = chance.choice(sorted(copy.iterdir()))
    whole = file.read_bytes()
    changed = damage(whole, chance)
    file.write_bytes(changed)
    try:
        Forecaster.load(copy, "cpu")
        return "" if changed == whole else f"loaded with a damaged {file.name}"
    except StorageError:
        return ""
    finally:
        shutil.rmtree(copy)


def _forged_record(folder: Path, case: int) -> str:
    chance = random.Random(case)
    path = folder / f"forged-{os.getpid()}.db"
    shutil.copy(folder / "state.db", path)
    store = SQLiteStore(path)
    with store.writing() as change:
        layout = Layout(change.require_about().layout)
        arrays = layout.unpack(change.get(IDS), IDS)
        for _ in range(chance.choice((1, 1, 3, 20))):
            field = arrays[chance.choice([f.name for f in layout.fields if f.size])]
            raw = field.reshape(len(IDS), -1).view(np.uint8).reshape(len(IDS), -1)
            at = chance.randrange(raw.shape[1])
            raw[chance.randrange(len(IDS)), at : at + 8] = list(chance.randbytes(len(raw[0, at : at + 8])))
        change.put(IDS, layout.pack(arrays, IDS))
    store.close()
    try:
        with Stream(_loaded(folder), path) as stream:
            use(stream)
    except AruError:
        pass
    finally:
        path.unlink()
    return ""


def _survive(work: Callable[[Path, int], str], folder: Path, size: int) -> Result:
    """Run cases 0 .. size in worker processes, the next one behind the case that killed the one before."""
    prepare(folder)
    failures, done = [], 0
    while done < size:
        ours, its = SPAWN.Pipe(duplex=False)
        worker = SPAWN.Process(target=_work, args=(its, work, folder, done, size))
        worker.start()
        its.close()
        try:
            while ours.poll(WAIT):
                problem = ours.recv()
                failures += [f"case {done}: {problem}"] if problem else []
                done += 1
            failures.append(f"case {done}: hangs")
            worker.kill()
            done += 1
        except EOFError:
            worker.join()
            if done < size:
                failures.append(f"case {done}: ended with {worker.exitcode}")
                done += 1
        worker.join()
    return Result(size, failures)


def _work(its: Any, work: Callable[[Path, int], str], folder: Path, begin: int, end: int) -> None:
    for case in range(begin, end):
        try:
            problem = work(folder, case)
        except Exception:  # noqa: BLE001 - whatever it is, it is a failure
            problem = traceback.format_exc()
        its.send(problem)


# Saves


def loads_during_saves(folder: Path, size: int) -> Result:
    """Whoever loads a model while others save it gets all of one of them."""
    model, versions = _two_versions(folder)
    begun, stop = SPAWN.Barrier(3), SPAWN.Event()
    turns = (versions, versions[::-1])
    savers = [SPAWN.Process(target=_save_until, args=(model, turn, begun, stop)) for turn in turns]
    for saver in savers:
        saver.start()
    failures = []
    try:
        loaded = [Forecaster.load(path, "cpu") for path in versions]
        expected = [one.predict(*_ahead_of(one)) for one in loaded]
        begun.wait(WAIT)
        for attempt in range(size):
            try:
                found = Forecaster.load(model, "cpu")
                forecast = found.predict(*_ahead_of(found))
                if not any(forecast.equals(one) for one in expected):
                    failures.append(f"load {attempt}: parts of two models")
            except Exception:  # noqa: BLE001 - whatever it is, it is a failure
                failures.append(f"load {attempt}: {traceback.format_exc()}")
    finally:
        stop.set()
        for saver in savers:
            saver.join(WAIT)
            saver.kill()
    failures += [f"a saver ended with {saver.exitcode}" for saver in savers if saver.exitcode]
    return Result(size, failures)


def killed_saves(folder: Path, size: int) -> Result:
    """A save that is killed at any moment leaves the old or the new model; the next save clears up."""
    model, versions = _two_versions(folder)
    loaded = [Forecaster.load(path, "cpu") for path in versions]
    expected = [one.predict(*_ahead_of(one)) for one in loaded]
    failures, chance = [], random.Random(0)
    for attempt in range(size):
        child = os.fork()
        if child == 0:
            _save_in_turn(model, loaded)
        time.sleep(chance.uniform(0.0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        try:
            found = Forecaster.load(model, "cpu")
            if not any(found.predict(*_ahead_of(found)).equals(one) for one in expected):
                failures.append(f"kill {attempt}: parts of two models")
        except Exception:  # noqa: BLE001 - whatever it is, it is a failure
            failures.append(f"kill {attempt}: {traceback.format_exc()}")
    loaded[0].save(model)
    if len(list(model.iterdir())) != len(list(versions[0].iterdir())):
        failures.append(f"left over: {sorted(os.listdir(model))}")
    return Result(size, failures)


def updates_at_once(folder: Path, size: int) -> Result:
    """Two `aru update` of one model at the same time: neither is lost."""
    model, _ = _two_versions(folder)
    failures = []
    for attempt in range(size):
        expected = Forecaster.load(model, "cpu").table.states.context.count + 1
        commands = []
        for uid in "ab":
            state = Forecaster.load(model, "cpu").table
            last = pd.Timestamp(int(state.find([uid])[1].last[0]), unit="us")
            file = folder / f"update-{uid}.csv"
            rows(uid, [(last - pd.Timestamp("2024-01-01")).days + 1]).to_csv(file, index=False)
            commands.append([sys.executable, "-m", "aru", "update", str(model), str(file), "--accelerator", "cpu"])
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
        running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) for command in commands]
        codes = [process.wait(WAIT) for process in running]
        found = Forecaster.load(model, "cpu").table.states.context.count
        if codes != [0, 0] or not (found == expected).all():
            failures.append(f"attempt {attempt}: exit codes {codes}, {found.tolist()} observations")
    return Result(size, failures)


def _two_versions(folder: Path) -> tuple[Path, list[Path]]:
    """A place to save to, and two models with different weights and states to save there."""
    one, two = prepare(folder), folder / "other"
    if not two.exists():
        other = make(**BASE, **COVARIATES, random_seed=1).fit(both(range(TRAINED)), STATIC)
        other.update(both([TRAINED]))
        other.save(two)
    target = folder / "target"
    shutil.rmtree(target, ignore_errors=True)
    Forecaster.load(one, "cpu").save(target)
    return target, [one, two]


def _save_until(target: Path, versions: list[Path], begun: Any, stop: Any) -> None:
    models = [Forecaster.load(path, "cpu") for path in versions]
    begun.wait(WAIT)
    while not stop.is_set():
        for model in models:
            model.save(target)


def _save_in_turn(target: Path, models: list[Forecaster]) -> NoReturn:
    while True:
        for model in models:
            model.save(target)


def _ahead_of(model: Forecaster) -> tuple[pd.DataFrame, list[int]]:
    (day,) = {
        (pd.Timestamp(int(last), unit="us") - pd.Timestamp("2024-01-01")).days for last in model.table.states.last
    }
    return both(range(day + 1, day + 1 + H)), [80]


# Stores of several processes


def stores_at_once(folder: Path, size: int, processes: int = 4) -> Result:
    """Several processes create one store at the same moment, and each writes to it."""
    folder.mkdir(exist_ok=True)
    rounds, failures = -(-size // processes), []
    barrier = SPAWN.Barrier(processes)
    answers = SPAWN.Queue()
    workers = [SPAWN.Process(target=_create, args=(folder, rounds, i, barrier, answers)) for i in range(processes)]
    for worker in workers:
        worker.start()
    for _ in range(rounds * processes):
        problem = answers.get(timeout=WAIT)
        failures += [problem] if problem else []
    for worker in workers:
        worker.join(WAIT)
    for turn in range(rounds):
        with SQLiteStore(folder / f"new-{turn}.db").reading() as view:
            found = view.keys()
        if found != sorted(f"w{i}" for i in range(processes)):
            failures.append(f"round {turn}: {found}")
    left = [name for name in os.listdir(folder) if ".part" in name]
    return Result(rounds * processes, failures + ([f"left over: {left}"] if left else []))


def _create(folder: Path, rounds: int, number: int, barrier: Any, answers: Any) -> None:
    for turn in range(rounds):
        barrier.wait(WAIT)
        problem = ""
        store = SQLiteStore(folder / f"new-{turn}.db")
        try:
            with store.writing() as change:
                change.put([f"w{number}"], [b"record"])
        except Exception:  # noqa: BLE001 - whatever it is, it is a failure
            problem = f"round {turn}: {traceback.format_exc()}"
        finally:
            store.close()
        answers.put(problem)


def copies_in_use(folder: Path, size: int) -> Result:
    """While others write: backups are complete and of one moment, copies of the main file alone are refused."""
    prepare(folder)
    path = folder / "in-use.db"
    shutil.copy(folder / "state.db", path)
    ours, its = SPAWN.Pipe(duplex=False)
    writer = SPAWN.Process(target=_write_days, args=(folder, path, its))
    writer.start()
    its.close()
    ours.recv()
    failures = []
    try:
        for attempt in range(size):
            copy = folder / f"copy-{attempt}.db"
            store = SQLiteStore(path)
            store.backup(copy)
            with Stream(_loaded(folder), copy) as stream:
                ends = stream.series().set_index("unique_id").loc[IDS, "ds"]
            if ends.nunique() != 1:
                failures.append(f"backup {attempt}: of several moments")
            copy.unlink()
            shutil.copy(path, copy)
            try:
                with Stream(_loaded(folder), copy):
                    failures.append(f"copy {attempt}: accepted without its log")
            except StorageError:
                pass
            store._idle.clear()  # close nothing: the writer goes on
            copy.unlink()
    finally:
        writer.kill()
        writer.join()
    with Stream(_loaded(folder), path) as stream:  # with its log all is well, also after the kill
        if stream.series().set_index("unique_id").loc[IDS, "ds"].nunique() != 1:
            failures.append("the store itself has several moments")
    with sqlite3.connect(path) as connection:
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            failures.append("the store itself is damaged")
    return Result(2 * size, failures)


def _write_days(folder: Path, path: Path, its: Any) -> None:
    with Stream(_loaded(folder), path) as stream:
        for day in range(TRAINED + 4, 10**6):
            stream.update(many(day))
            if day == TRAINED + 5:
                its.send("writing")


def forked_children(folder: Path, size: int) -> Result:
    """A child forked from a process that has used all threads of torch and the store takes in rows and forecasts."""
    prepare(folder)
    code = f"""
import os, shutil, signal, sys
import torch
from tests.torture import disk
torch.set_num_threads(2)
from pathlib import Path
folder = Path(sys.argv[1])
path = folder / "forked.db"
for attempt in range({size}):
    shutil.copy(folder / "state.db", path)
    stream = disk.Stream(disk._loaded(folder), path)
    (torch.randn(600, 600) @ torch.randn(600, 600)).sum()
    expected = stream.predict(disk.future(stream), [80])
    child = os.fork()
    if child == 0:
        signal.alarm({int(WAIT)})
        torch.randn(2000, 2000).exp().sum()
        found = stream.predict(disk.future(stream), [80])
        stream.update(disk.many(disk.TRAINED + 4))
        stream.close()
        os._exit(0 if found.equals(expected) else 3)
    _, status = os.waitpid(child, 0)
    after = stream.series()["ds"].max()
    stream.close()
    print(status, after.day, flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=2 * WAIT * size, check=False
    )
    lines = done.stdout.splitlines()
    day = (pd.Timestamp("2024-01-01") + pd.Timedelta(days=TRAINED + 4)).day
    failures = [f"child: {line}" for line in lines if line != f"0 {day}"]
    if len(lines) != size:
        failures.append(f"the parent ended with {done.returncode}: {done.stderr}")
    return Result(size, failures)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """One for all attacks, since the model and the store in it are made once."""
    return tempfile.TemporaryDirectory(prefix="torture")


def _on_files(attack: Callable[[Path, int], Result]) -> Callable[[int], Outcome]:
    def run(size: int) -> Outcome:
        attempts, failures = attack(Path(_folder().name), size)
        return Outcome(attempts, len(failures), "; ".join(failures[:3]) or "each was noticed, or harmless")

    return run


ATTACKS = [
    Attack("a damaged SQLite file", _on_files(damaged_stores), 25, 2000),
    Attack("a damaged export", _on_files(damaged_exports), 25, 2000),
    Attack("a damaged file of a model", _on_files(damaged_models), 10, 600),
    Attack("a forged record", _on_files(forged_records), 10, 1000),
    Attack("loads during saves", _on_files(loads_during_saves), 30, 2000, slow=True),
    Attack("killed saves", _on_files(killed_saves), 5, 200, slow=True),
    Attack("two updates of a model at once", _on_files(updates_at_once), 1, 10, slow=True),
    Attack("processes that create one store", _on_files(stores_at_once), 24, 600),
    Attack("copies of a store in use", _on_files(copies_in_use), 5, 200, slow=True),
    Attack("forked children", _on_files(forked_children), 1, 5, slow=True),
]
