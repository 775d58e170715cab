"""Where to compute."""

from __future__ import annotations

import torch

from aru.errors import ConfigError


def choose_device(accelerator: str) -> torch.device:
    """A CUDA device if there is one, else the CPU, for "auto": MPS has no float64."""
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise ConfigError(
            f"`accelerator={accelerator!r}` needs a CUDA device, and there is none", "Use 'cpu' or 'auto'."
        )
    return torch.device("cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu")
