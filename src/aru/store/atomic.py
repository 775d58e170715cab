"""Files that appear complete or not at all, and locks on folders."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl

    CAN_LOCK = True
except ImportError:  # Windows, where writers of one folder do not wait for each other
    CAN_LOCK = False

ABANDONED = 3600.0  # seconds after which an unfinished file belongs to a process that was killed
_here = threading.local()  # held: folders that this thread has locked


@contextlib.contextmanager
def new_file(target: Path, replace: bool = False) -> Iterator[Path]:
    """A path beside the target to write to, which takes the target's place at the end. An error leaves nothing behind.

    Without `replace` a file that is there by then is a FileExistsError.
    """
    os.scandir(target.parent).close()  # a clear error where there is no such folder
    begin = f".{target.name}-"
    remove_abandoned(target.parent, f"{begin}*.part*")
    part = target.with_name(f"{begin}{uuid.uuid4().hex[:12]}.part")
    try:
        yield part
        sync(part)
        if replace:
            os.replace(part, target)
        else:
            _link(part, target)
        sync(target.parent)
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):  # the latter of a SQLite file
            part.with_name(part.name + suffix).unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """The same for a folder that is not there yet, of files that are on disk by the end."""
    part = target.with_name(f".{target.name}-{uuid.uuid4().hex[:12]}.part")
    part.mkdir()
    try:
        yield part
        sync(part)
        os.rename(part, target)
        sync(target.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _link(part: Path, target: Path) -> None:
    """Give a file its name, unless another file has it."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if target.exists():
            raise FileExistsError(target) from None
        os.rename(part, target)


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove files of this pattern that nobody has written to for long."""
    for old in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > ABANDONED:
                old.unlink()


def sync(path: Path) -> None:
    """Wait until a file, or the list of files of a folder, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():  # some systems cannot do it for folders
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one, among all threads and processes, who changes a folder. Nested uses of one thread are one."""
    folder = folder.resolve()
    held: set[Path] = _here.__dict__.setdefault("held", set())
    if not CAN_LOCK or folder in held:
        yield
        return
    handle = _lock(folder)
    held.add(folder)
    try:
        yield
    finally:
        held.discard(folder)
        os.close(handle)  # which ends the lock


def _lock(folder: Path) -> int:
    """The handle of the locked folder. A folder that was replaced while we waited is locked anew."""
    while True:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            now, ours = os.stat(folder), os.fstat(handle)
            if (now.st_dev, now.st_ino) == (ours.st_dev, ours.st_ino):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
