"""Progress bar of training."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback


class TrainingBar(Callback):
    """One bar for the whole training."""

    def __init__(self, title: str) -> None:
        self.title = title

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        """Open the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.bar.start()
        self.task = self.bar.add_task(self.title, total=trainer.max_steps, completed=trainer.global_step, note="")

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Advance, and show the latest losses every few steps, since reading them waits for the GPU."""
        if trainer.global_step % 20 and trainer.global_step != trainer.max_steps:
            return
        note = "  ".join(
            f"{k.removesuffix('_loss')} {float(v):.4f}" for k, v in trainer.callback_metrics.items() if "_loss" in k
        )
        self.bar.update(self.task, completed=trainer.global_step, note=note)

    def on_train_end(self, *_: Any) -> None:
        """Close the bar."""
        self.bar.stop()

    def on_exception(self, *_: Any) -> None:
        """Close the bar after an error."""
        if hasattr(self, "bar"):
            self.bar.stop()
