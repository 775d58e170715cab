"""A folder of RocksDB, through the package rocksdict. One process at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aru.errors import StorageError
from aru.store.base import About, Key
from aru.store.staged import StagedStore

ABOUT = b"about"
TEXT, NUMBER = b"t:", b"n:"  # before the id in the key of a record


class RocksStore(StagedStore):
    """Records in a folder that RocksDB manages, created on first use; every change is synced to disk."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        self._opening = threading.Lock()
        self._opened: Any = None

    def load(self, keys: Sequence[Key]) -> list[bytes | None]:
        """The record of each series."""
        found: list[bytes | None] = self._database().get([_key(key) for key in keys]) if keys else []
        return found

    def all_keys(self) -> Iterable[Key]:
        """All series."""
        for key in self._database().keys():  # noqa: SIM118 - a database is no dictionary
            if key != ABOUT:
                yield key[2:].decode() if key.startswith(TEXT) else int(key[2:])

    def description(self) -> About | None:
        """What the records are."""
        text = self._database().get(ABOUT)
        return None if text is None else About.from_json(text)

    def apply(self, changed: Mapping[Key, bytes | None], about: About | None) -> None:
        """One batch, synced."""
        from rocksdict import WriteBatch, WriteOptions

        batch = WriteBatch(raw_mode=True)
        if about is not None:
            batch.put(ABOUT, about.to_json().encode())
        for key, record in changed.items():
            if record is None:
                batch.delete(_key(key))
            else:
                batch.put(_key(key), record)
        options = WriteOptions()
        options.sync = True
        self._database().write(batch, options)

    def __str__(self) -> str:
        return str(self.path)

    def close(self) -> None:
        """Release the folder."""
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _database(self) -> Any:
        with self._opening:
            if self._opened is None:
                self._opened = _open(self.path)
            return self._opened


def _open(path: Path) -> Any:
    try:
        from rocksdict import Options, Rdict
    except ImportError as error:
        raise StorageError("RocksStore needs the package rocksdict: pip install 'aru-forecast[rocksdb]'.") from error
    try:
        return Rdict(str(path), Options(raw_mode=True))
    except Exception as error:  # rocksdict raises plain exceptions
        raise StorageError(
            f"{path} cannot be used as a store: {error}. Give a folder that no other process has open."
        ) from error


def _key(key: Key) -> bytes:
    return TEXT + key.encode() if isinstance(key, str) else NUMBER + str(key).encode()
