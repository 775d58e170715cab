"""The shipped weights: their names, versions and checksums. They are read when first used."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from safetensors.torch import load
from torch import Tensor

from aru.errors import ConfigError, StorageError, quoted, verbatim
from aru.pretrained.patches import SHAPES

FOLDER = Path(__file__).parent
# SHA-256 of each file. A new version gets a new name, because states belong to the weights that wrote them.
VERSIONS = {
    "nano-1": "2b64d9d1221aec965cc2bb6cffc416734b159fbc524d64963467974ee247ba72",
    "mini-1": "bcde94e95050c89e230482b2f3a07fbcef38eaa8f5538a66c76082ef65e908ca",
    "base-1": "d1f0f18a97ecbd62a0e569a3ab77eeebd1ead60d33597794d62405bdbf95cbc3",
}


def full_name(name: str) -> str:
    """The version that a name stands for: "mini" is the latest "mini-N"."""
    if name in VERSIONS:
        return name
    versions = [known for known in VERSIONS if known.rpartition("-")[0] == name]
    if not versions:
        choice = ", ".join([*SHAPES, *VERSIONS])
        raise ConfigError(f"There are no pretrained weights {quoted(name)}", f"Choose one of {choice}.")
    return max(versions, key=lambda known: int(known.rpartition("-")[2]))


def shape_name(name: str) -> str:
    """The shape of the network with these weights: "mini" for "mini-1"."""
    return name.rpartition("-")[0]


@functools.cache
def read_weights(name: str) -> dict[str, Tensor]:
    """The weights of this version, in half precision, by the names of a network's parameters."""
    path = FOLDER / f"{name}.safetensors"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{verbatim(path)} cannot be read ({verbatim(error)})", "Install aru again.") from error
    if hashlib.sha256(data).hexdigest() != VERSIONS[name]:
        raise StorageError(f"{verbatim(path)} is damaged: its checksum is wrong", "Install aru again.")
    return load(data)
