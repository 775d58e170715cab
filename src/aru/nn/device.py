"""Choice of the device to compute on."""

from __future__ import annotations

import torch

from aru.errors import ConfigError, quoted


def choose_device(accelerator: str) -> torch.device:
    """The device of an accelerator. "auto" is CUDA if there is a device, else the CPU; MPS has no float64."""
    if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise ConfigError(
            f"`accelerator={quoted(accelerator)}` needs a CUDA device, and there is none", "Use 'cpu' or 'auto'."
        )
    return torch.device("cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu")
