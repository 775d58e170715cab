"""An environment for each library that aru stands behind: aru from this checkout, and the library as tried."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.environments import ROOT, TORCH, PeerError, cache

# What pip installs beside aru. The versions that docs/integrations.md tells of.
HOSTS = {
    "sktime": ["sktime==1.2.0"],
    "darts": ["darts==0.48.1", "pandas==2.3.3"],
    "gluonts": ["gluonts==0.17.0"],
    "mlflow": ["mlflow==3.17.2"],
    "fev": ["fev==0.10.0"],
    "nixtla": ["neuralforecast==3.3.0", "mlforecast==1.1.0", "lightgbm==4.7.0"],
}


def folder(host: str) -> Path:
    """Where the environment of a host is."""
    return cache() / f"host-{host}"


def interpreter(host: str) -> Path:
    """Its Python."""
    return folder(host) / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def is_ready(host: str) -> bool:
    """Whether the environment was completed for this checkout, with the versions as they are now."""
    stamp = folder(host) / "ready.json"
    return stamp.exists() and json.loads(stamp.read_text()) == _wanted(host)


def setup(host: str) -> None:
    """Create the environment of a host, unless it is ready."""
    if is_ready(host):
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder(host))], check=True)
    install = [str(interpreter(host)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*install, f"torch=={TORCH}", *HOSTS[host], "pytest", "-e", str(ROOT)], check=False)
    if done.returncode:
        raise PeerError(f"pip could not install {', '.join(HOSTS[host])} beside aru", "See its output above.")
    (folder(host) / "ready.json").write_text(json.dumps(_wanted(host)))


def command(host: str, *options: str) -> list[str]:
    """What runs the tests of a host in its environment."""
    hosts = Path(__file__).parent / "hosts"
    return [
        *(str(interpreter(host)), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(hosts / "pytest.ini")),
        *(str(hosts / f"check_{host}.py"), *options),
    ]


def _wanted(host: str) -> list[str]:
    return [str(ROOT), TORCH, *HOSTS[host]]
