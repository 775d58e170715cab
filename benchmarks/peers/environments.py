"""An environment of its own for each group of peers, because their pins contradict each other and ours."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from aru.errors import AruError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OWN = "own"  # the parent's own interpreter: the peer needs nothing but pandas
NEEDS_TORCH = {"nixtla": True, "gluonts": True, "river": False}
TORCH = os.environ.get("ARU_PEERS_TORCH", "2.13.0")
STAMP = "ready.json"


class PeerError(AruError):
    """A peer's environment is missing, or its run failed."""


def cache() -> Path:
    """Folder of the environments: ARU_PEERS_CACHE, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aru-peers"
    return Path(os.environ.get("ARU_PEERS_CACHE", default)).absolute()


def requirements(group: str) -> Path:
    """The pinned versions of a group."""
    return HERE / f"requirements-{group}.txt"


def is_ready(group: str) -> bool:
    """Whether the group's environment was completed with the requirements as they are now."""
    if group == OWN:
        return True
    stamp = cache() / group / STAMP
    return stamp.exists() and json.loads(stamp.read_text())["requirements"] == _digest(group)


def interpreter(group: str) -> Path:
    """The Python of a group's environment."""
    if group == OWN:
        return Path(sys.executable)
    if not is_ready(group):
        raise PeerError(f"The environment {group!r} is not under {cache()}", "Run python -m benchmarks.peers setup.")
    return _python(group)


def setup(group: str, torch: str = TORCH) -> None:
    """Create a group's environment, or do nothing if it is there with this version of torch."""
    wanted = {"requirements": _digest(group), "torch": torch if NEEDS_TORCH[group] else None}
    folder = cache() / group
    stamp = folder / STAMP
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    packages = [f"torch=={torch}"] if NEEDS_TORCH[group] else []
    install = [str(_python(group)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    done = subprocess.run([*install, "-r", str(requirements(group))], check=False)
    if done.returncode:
        raise PeerError(f"pip could not install {requirements(group).name} with torch {torch}", "See its output above.")
    stamp.write_text(json.dumps(wanted))


def _digest(group: str) -> str:
    """A hash of the pins; comments may change."""
    lines = requirements(group).read_text().splitlines()
    return hashlib.sha256("\n".join(line for line in lines if not line.startswith("#")).encode()).hexdigest()


def _python(group: str) -> Path:
    folder = cache() / group
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
