"""Progress bar of training."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

if TYPE_CHECKING:
    from rich.progress import Progress


def new_bar() -> Progress:
    """A bar with what is done and the time that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


@contextlib.contextmanager
def steps_bar(title: str, steps: int, show: bool) -> Iterator[Callable[[], None]]:
    """A bar of at most so many steps. Gives a function to call after each of them."""
    if not show:
        yield lambda: None
        return
    with new_bar() as bar:
        task = bar.add_task(title, total=steps, note="")
        yield lambda: bar.advance(task)
        bar.update(task, completed=steps)


class TrainingBar(Callback):
    """One bar for the whole training."""

    def __init__(self, title: str) -> None:
        self.title = title

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        """Open the bar."""
        self.bar = new_bar()
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
