"""Training: one LightningModule, all windows of a series in one pass, validation with adaptation.

A batch is a set of series. Their windows start every `stride` steps, from a random phase per batch. Encoder and decoder
run for all origins in parallel, the statistics are prefix sums over windows, and the loss covers every window.
Validation replays each series and scores the windows that start in its last `val_size` steps.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import Tensor, nn

from aru.data.rows import Static
from aru.data.schema import Schema
from aru.errors import NumericalError
from aru.models.interface import Losses, TrainedModel
from aru.nn.windows import Block, Grid, Sums, gather_block, running_sums
from aru.settings import Settings
from aru.training.batches import MAX_WINDOWS, Batch, SeriesOfPart, Source, trained_lengths
from aru.training.cuda_graphs import Recorder
from aru.training.faults import Faults

CHECKPOINTS = 1  # the format of checkpoints
WARM_UP = 10  # steps until the average of the weights spans more than one of them
RECORDINGS = 8  # most recordings of a step, each for another number of windows
DIVERGED = ("The loss of every series of a batch is not finite: training diverged", "Lower `learning_rate`.")


class Provenance(NamedTuple):
    """Settings, schema and data of a checkpoint. Training resumes from it only if they are the same."""

    settings: str
    data: str

    @classmethod
    def of(cls, settings: Settings, schema: Schema, data: str) -> Provenance:
        """From settings, schema and the fingerprint of the rows."""
        wanted = json.dumps({**settings.to_json(), "checkpoints": CHECKPOINTS}, sort_keys=True)
        learned = json.dumps(schema.to_json(), sort_keys=True)  # hashed, since vocabularies may be long
        return cls(wanted, hashlib.sha256(f"{data} {learned}".encode()).hexdigest())


class Training(pl.LightningModule):
    """Optimises one model."""

    def __init__(
        self, model: TrainedModel, source: Source, settings: Settings, schema: Schema, origin: Provenance | None = None
    ) -> None:
        super().__init__()
        self.origin = origin  # for checkpoints
        self.model = model
        # The moving average of the weights. It needs no gradients: with several processes, each parameter with a
        # gradient would be waited for.
        self.average = copy.deepcopy(model).requires_grad_(False) if settings.training.weight_average else None
        self.parameter_pairs = _by_type(model, self.average or model)
        self.settings = settings
        self.schema = schema
        self.source = source
        self.withheld = source.withheld
        self._turn_to(0)
        self.careful = False  # whether to check every step before the next one
        self.failed: set[str] = set()
        self.skipped_steps = 0

    def on_fit_start(self) -> None:
        """Move the rows of a part to the training device, where batches are gathered."""
        self._turn_to(self.part)

    def transfer_batch_to_device(
        self, batch: Batch | SeriesOfPart, device: torch.device, dataloader_idx: int
    ) -> Batch | SeriesOfPart:
        """Leave the batch on the host: a step sends what it needs in one piece."""
        return batch

    def _turn_to(self, part: int) -> None:
        self.part = part
        self.recorder: Recorder | None = None  # recordings use the memory of the rows
        self.faults: Faults | None = None
        for held in ("data", "sums"):  # freed before another part is read
            self.__dict__.pop(held, None)
        self.data = self.source.part(part).to(self.device)
        self.sums = Sums._make(v.to(self.device) for v in running_sums(self.data.rows, self.data.starts))
        self.lengths = trained_lengths(self.data.lengths, self.data.val_size, self.withheld)
        self.weights = self._weights()
        longest = int(self.data.lengths.max()) - self.data.val_size
        self.most_windows = min(MAX_WINDOWS, self._grid(0, longest).count)

    def train_on_all(self) -> None:
        """Train on withheld rows, too, from now on."""
        self.withheld = 0
        # In place, since recorded steps read this memory.
        self.lengths.copy_(trained_lengths(self.data.lengths, self.data.val_size, 0))
        self.weights = self._weights()

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Mean loss over the values of all windows. A series whose loss is not finite is left out and reported.

        On a GPU the host does not wait: the first such step is dropped as a whole (`Faults`), later ones leave the
        series out.
        """
        if batch.part != self.part:
            self._turn_to(batch.part)
        # Origin 0 of the block is the first of the grid for any phase, so shapes depend only on the number of windows.
        windows = self._grid(batch.phase, batch.rows).count
        series = batch.series
        plan = torch.stack([series, batch.cold_start_row, batch.begin + batch.phase])
        if self.faults is not None and bool(self.faults.noticed):
            self._read_faults()
        if self.records and not self.careful:
            losses, series = self._recorded(plan, windows)
            self.faults = self.faults or Faults(len(self.data.names), self.device)
            self.faults.note_losses(losses, series)
            return self._mean(losses, series)
        losses = self._recorded(plan, windows)[0] if self.records else self._planned(windows, plan.to(self.device))
        finite = losses.total.isfinite()
        if not bool((finite & ~losses.failed).all()):
            self.failed.update(self.data.names[i] for i in series[(~finite | losses.failed).cpu()].tolist())
            if not bool(finite.any()):
                raise NumericalError(*DIVERGED)
            if not bool(finite.all()):
                plan = plan[:, finite.cpu()]
                series, losses = plan[0], self._planned(windows, plan.to(self.device))
        return self._mean(losses, series)

    def _mean(self, losses: Losses, series: Tensor) -> Tensor:
        weight = self.weights[series]
        # Since gradients are averaged over processes, this gives the mean over the values of all processes.
        values = _mean_over_processes((weight * losses.values).sum())
        loss = (weight * losses.total).sum() / torch.where(values > 0, values, 1)
        self.log("train_loss", loss.detach(), prog_bar=True)
        return loss

    def _planned(self, windows: int, plan: Tensor, skipped: Tensor | None = None) -> Losses:
        """Losses of the windows of a plan: for each series its number, cold-start row, and where its windows begin."""
        series, cold_start_row, begin = plan
        stride = self.settings.window_stride
        lengths = self.lengths[series] - cold_start_row
        block = self._block(series, cold_start_row, begin, lengths, windows * stride)
        return self.model.losses(block, Grid(0, stride, windows, skipped))

    def _recorded(self, plan: Tensor, windows: int) -> tuple[Losses, Tensor]:
        """The same on a GPU, recorded for a few numbers of windows. Surplus windows at the beginning are skipped.

        Also returns the numbers of the series, on the device. Both are valid until the next call.
        """
        if self.recorder is None:
            self.recorder = Recorder(self.model)
        step = math.ceil(self.most_windows / RECORDINGS)
        padded = self.most_windows - (self.most_windows - windows) // step * step
        skipped = padded - windows
        plan = plan - torch.tensor([0, 0, skipped * self.settings.window_stride]).unsqueeze(-1)
        inputs = self._send(torch.cat([plan.flatten(), torch.tensor([skipped])]))
        shape = plan.shape

        def losses(inputs: Tensor) -> Losses:
            return self._planned(padded, inputs[:-1].reshape(shape), inputs[-1])

        return Losses(*self.recorder.run((padded, shape), losses, inputs)), inputs[: shape[1]]

    def _send(self, values: Tensor) -> Tensor:
        """Copy to the device without waiting."""
        return values.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else values

    @property
    def records(self) -> bool:
        """Whether steps are recorded: on one GPU, with all rows on it and full precision. ARU_CUDA_GRAPHS=0: never."""
        return (
            self.device.type == "cuda"
            and os.environ.get("ARU_CUDA_GRAPHS") != "0"
            and len(self.source.part_lengths) == 1
            and self.trainer.world_size == 1
            and self.trainer.precision == "32-true"
        )

    def _weights(self) -> Tensor:
        """Weight of each series of the part in the loss: its mean |y| to the power `size_weight`, 1 on average."""
        data, n = self.data, self.lengths
        last = (data.starts + n - 1).clamp(min=0)
        total, count = torch.where((n > 0).unsqueeze(-1), self.sums.through[last], 0.0).unbind(-1)
        weight = (total / count.clamp(min=1)) ** self.settings.training.size_weight
        return (weight / weight.mean()).nan_to_num(1.0).float()

    def validation_step(self, batch: SeriesOfPart, _: int) -> None:
        """Loss of the windows whose origin lies in the validation rows, with adaptation."""
        part, series = batch.part, batch.series.to(self.device)
        if part != self.part:
            self._turn_to(part)
        stride, val = self.settings.window_stride, self.data.val_size
        lengths = self.data.lengths[series]
        n = min(int(lengths.max()), max(MAX_WINDOWS * stride, val + stride))
        grid = self._grid((n - val) % stride, n)
        first = (n - val) // stride
        losses = self.final_model().losses(
            self._block(series, torch.zeros_like(lengths), lengths - n, lengths, n), grid, slice(first, None)
        )
        finite = losses.total.isfinite()
        total, count = losses.total[finite].sum(), losses.values[finite].sum()
        self.log("val_loss", total / count.clamp(min=1), batch_size=int(count), prog_bar=True, sync_dist=True)

    def configure_optimizers(self) -> Any:
        """Adam, with a one-cycle schedule unless the rate is to stay constant."""
        fused = self.records or self.device.type == "cuda"  # slower on a CPU; needed by recorded steps
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.settings.learning_rate, fused=fused)
        if self.settings.training.schedule == "constant":
            return optimizer
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=self.settings.learning_rate, total_steps=self.settings.steps + 1
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        """Clip the norm of the gradient. A gradient that is not finite is dropped and counted."""
        trained = [p for pair in self.parameter_pairs for p in pair[0]]
        norm = torch.nn.utils.clip_grad_norm_(trained, gradient_clip_val or math.inf)
        if self.faults is not None:
            optimizer.found_inf = (~norm.isfinite()).float()  # fused Adam then does nothing
            self.faults.note_step(optimizer.found_inf)
        elif not bool(norm.isfinite()):
            self.skipped_steps += 1
            optimizer.zero_grad()

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """Step, then update the moving average at once, because a checkpoint may be written right after."""
        step = self.trainer.global_step
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if self.average is not None:
            # The average spans a tenth of the steps so far, at most: the weights that a short training began with are
            # no part of what it ends with.
            follow = max(1 - self.settings.training.weight_average, WARM_UP / (step + WARM_UP))
            with torch.no_grad():
                for trained, averaged in self.parameter_pairs:
                    torch._foreach_lerp_(averaged, trained, follow)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the provenance in the same file as the progress."""
        checkpoint["origin"] = self.origin and tuple(self.origin)

    def on_train_end(self) -> None:
        """Report the faults of the last steps."""
        if self.faults is not None:
            self._read_faults()

    def _read_faults(self) -> None:
        """Report faults; after any fault, check every step from now on."""
        assert self.faults is not None
        names, faults = self.data.names, self.faults
        self.faults = None
        for optimizer in self.trainer.optimizers:
            optimizer.found_inf = None  # type: ignore[attr-defined]
        if bool(faults.hopeless):
            raise NumericalError(*DIVERGED)
        self.failed.update(names[i] for i in faults.series.nonzero().squeeze(-1).tolist())
        self.skipped_steps += int(faults.steps)
        self.careful = self.careful or bool(self.failed or self.skipped_steps)

    def final_model(self) -> TrainedModel:
        """The weights to forecast with."""
        return self.model if self.average is None else self.average

    def _grid(self, phase: int, n: int) -> Grid:
        stride = self.settings.window_stride
        return Grid(phase, stride, max(1, math.ceil((n - phase) / stride)))

    def _block(self, series: Tensor, cold_start_row: Tensor, begin: Tensor, lengths: Tensor, n: int) -> Block:
        data = self.data
        static = Static._make(v[series] for v in data.static)
        # The leads of the last windows reach past the end of the series, into padding.
        ahead = n + self.settings.h
        return gather_block(
            data.rows,
            static,
            data.starts[series] + cold_start_row,
            lengths,
            begin,
            ahead,
            self.schema.input_size,
            self.schema.lags,
            self.sums,
        )


def _by_type(model: nn.Module, average: nn.Module) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Parameters and their averages, in lists of one type each, for fused operations."""
    pairs = list(zip(model.parameters(), average.parameters(), strict=True))
    types = dict.fromkeys(trained.dtype for trained, _ in pairs)
    return [([p for p, _ in pairs if p.dtype == t], [a for p, a in pairs if p.dtype == t]) for t in types]


def _mean_over_processes(value: Tensor) -> Tensor:
    if not dist.is_initialized():
        return value
    total = value.detach().clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()
