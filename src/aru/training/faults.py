"""Numerical faults of training steps on a GPU, collected without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor

from aru.models.interface import Losses


class Faults:
    """Faults of steps that the host did not wait for: noted on the device, read by the host later."""

    def __init__(self, series: int, device: torch.device) -> None:
        self.series = torch.zeros(series, dtype=torch.bool, device=device)  # whose loss or local fit failed
        self.hopeless = torch.zeros((), dtype=torch.bool, device=device)  # whether a whole batch failed
        self.steps = torch.zeros((), device=device)  # number of steps dropped for a gradient that was not finite
        self.noticed = torch.zeros((), dtype=torch.bool, pin_memory=device.type == "cuda")

    def note_losses(self, losses: Losses, series: Tensor) -> None:
        """Note series whose loss is not finite or whose local fit failed."""
        finite = losses.total.isfinite()
        self.series[series] |= losses.failed | ~finite
        self.hopeless |= ~finite.any()

    def note_step(self, dropped: Tensor) -> None:
        """Count a step that is dropped (1) or not (0), and tell the host whether there was any fault so far."""
        self.steps += dropped
        self.noticed.copy_((self.steps > 0) | self.series.any(), non_blocking=True)
