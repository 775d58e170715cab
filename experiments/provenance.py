"""Where a result comes from."""

from __future__ import annotations

import os
import platform
import subprocess


def commit() -> str:
    """The commit of the working tree, or ARU_COMMIT where there is no repository."""
    if "ARU_COMMIT" in os.environ:
        return os.environ["ARU_COMMIT"]
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def hardware() -> str:
    """What the run used."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else f"{platform.machine()} CPU"
