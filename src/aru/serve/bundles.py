"""Saved models as tar archives: how they travel to a service, and how it keeps those of its versions."""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path
from typing import cast

from aru.errors import AruError, ConfigError, verbatim
from aru.forecaster import Forecaster
from aru.settings import AcceleratorName
from aru.store import Store
from aru.store.folder import is_part

ARCHIVE_REMEDY = "Send the files of a saved model: tar -C MODEL -c ."


def pack(model: Forecaster) -> bytes:
    """A model as the bytes of a tar archive."""
    with tempfile.TemporaryDirectory() as name:
        model.save(Path(name) / "model")
        return pack_folder(Path(name) / "model")


def pack_folder(folder: Path) -> bytes:
    """The files of a saved model as the bytes of a tar archive."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name, recursive=False)
    return sink.getvalue()


def unpack(bundle: bytes, accelerator: str) -> Forecaster:
    """The model of an archive. Nothing but the files of a saved model is taken from it."""
    with tempfile.TemporaryDirectory() as name:
        try:
            with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:") as archive:
                for member in archive:
                    if member.size < 0 or member.issparse():  # holes: a few bytes would become any number of them
                        raise ValueError(f"{member.name!r} is no plain file")
                    plain, content = Path(member.name).name, archive.extractfile(member) if member.isreg() else None
                    if content is not None and is_part(plain):
                        (Path(name) / plain).write_bytes(content.read())
        except (tarfile.TarError, OSError, ValueError) as error:
            raise ConfigError(
                f"The body is no tar archive of a model ({verbatim(error)})",
                ARCHIVE_REMEDY,
            ) from error
        try:
            return Forecaster.load(name, cast("AcceleratorName", accelerator))
        except AruError as error:
            raise ConfigError(
                f"The archive holds no model: {error.problem.replace(name, 'the archive')}",
                ARCHIVE_REMEDY,
            ) from error


def bundle_of(store: Store, number: int) -> bytes | None:
    """The files of a version, None if they are not kept."""
    with store.reading() as view:
        (record,) = view.get([number], "service")
    return record
