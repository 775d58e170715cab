"""Training: one LightningModule, all windows of a series in one pass, validation with adaptation running.

A batch is a set of series. Their windows start at every `stride` steps from a phase drawn anew for each batch; encoder
and decoder run for all origins in parallel, the statistics are prefix sums over windows, and the loss is on every
window. Validation replays each series and scores the windows that start in its last `val_size` steps.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import itertools
import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader

from aru.batches import Batch, Batches, Everything, Some, Source
from aru.engine import choose_device
from aru.errors import AruWarning, ConfigError, NumericalError, StorageError, listing
from aru.faults import Faults
from aru.graphs import Recorder
from aru.models import build
from aru.models.base import Losses, Model
from aru.progress import Progress
from aru.schema import Schema, Static
from aru.settings import Settings
from aru.windows import Block, Grid, Sums, gather_block, running_sums

GRADIENT_CLIP = 1.0
CHECKPOINTS = 3  # the format of checkpoints
RECORDINGS = 8  # of a step, at most: for as many numbers of windows
MIN_EPOCH = 50  # steps: shorter epochs spend their time between epochs
DIVERGED = "The loss of every series of a batch is not finite: training diverged. Lower learning_rate."
VALIDATIONS = 20  # over a training, unless snapshots ask for one after every epoch


class Origin(NamedTuple):
    """What a checkpoint was made from. Only the same can go on from it."""

    settings: str
    data: str

    @classmethod
    def of(cls, settings: Settings, schema: Schema, data: str) -> Origin:
        """From settings, schema and the fingerprint of the rows."""
        wanted = json.dumps({**settings.to_json(), "checkpoints": CHECKPOINTS}, sort_keys=True)
        learned = json.dumps(schema.to_json(), sort_keys=True)  # holds vocabularies: may be long
        return cls(wanted, hashlib.sha256(f"{data} {learned}".encode()).hexdigest())


class Training(pl.LightningModule):
    """Optimises one model."""

    def __init__(
        self, model: Model, source: Source, settings: Settings, schema: Schema, origin: Origin | None = None
    ) -> None:
        super().__init__()
        self.origin = origin  # for checkpoints
        self.model = model
        # A running average of the weights is what is kept. Processes that train together wait for the gradients of all
        # parameters that have one: the average's have none.
        self.average = copy.deepcopy(model).requires_grad_(False) if settings.weight_average else None
        self.parameter_pairs = _by_type(model, self.average or model)
        self.settings = settings
        self.schema = schema
        self.source = source
        self._turn_to(0)
        self.careful = False  # looks at every step before the next one
        self.failed: set[str] = set()
        self.skipped_steps = 0

    def on_fit_start(self) -> None:
        """Keep the rows of a part on the training device: batches are gathered there."""
        self._turn_to(self.part)

    def transfer_batch_to_device(self, batch: Batch | Some, device: torch.device, dataloader_idx: int) -> Batch | Some:
        """A step sends what it needs in one piece."""
        return batch

    def _turn_to(self, part: int) -> None:
        self.part = part
        self.recorder: Recorder | None = None  # recordings stand on the memory of the rows
        self.faults: Faults | None = None
        for held in ("data", "sums"):  # goes before another part is read
            self.__dict__.pop(held, None)
        self.data = self.source.part(part).to(self.device)
        self.sums = Sums._make(v.to(self.device) for v in running_sums(self.data.rows, self.data.starts))
        self.weights = self._weights()
        longest = int(self.data.lengths.max()) - self.data.val_size
        self.most_windows = min(self.settings.max_windows, self._grid(0, longest).count)

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Mean loss of the values of all windows. A series whose loss is not finite is left out and reported.

        A GPU is not waited for: the first such step is dropped as a whole (`Faults`), later ones go without the series.
        """
        if batch.part != self.part:
            self._turn_to(batch.part)
        # Origin 0 of the block is the first of the grid, whatever the phase: shapes depend on the number of windows.
        windows = self._grid(batch.phase, batch.rows).count
        series = batch.series
        plan = torch.stack([series, batch.birth, batch.begin + batch.phase])
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
                raise NumericalError(DIVERGED)
            if not bool(finite.all()):
                plan = plan[:, finite.cpu()]
                series, losses = plan[0], self._planned(windows, plan.to(self.device))
        return self._mean(losses, series)

    def _mean(self, losses: Losses, series: Tensor) -> Tensor:
        weight = self.weights[series]
        # Gradients are averaged over processes: this is the mean over the values of all of them.
        values = _mean_over_processes((weight * losses.values).sum())
        loss = (weight * losses.total).sum() / torch.where(values > 0, values, 1)
        self.log("train_loss", loss.detach(), prog_bar=True)
        return loss

    def _planned(self, windows: int, plan: Tensor, skipped: Tensor | None = None) -> Losses:
        """Losses of the windows of some series: which, at which of their rows born, after which rows windows begin."""
        series, birth, begin = plan
        stride = self.settings.window_stride
        lengths = self.data.lengths[series] - self.data.val_size - birth
        block = self._block(series, birth, begin, lengths, windows * stride)
        return self.model.losses(block, Grid(0, stride, windows, skipped))

    def _recorded(self, plan: Tensor, windows: int) -> tuple[Losses, Tensor]:
        """The same on a GPU, recorded for a few numbers of windows: those in front that are too many are skipped.

        With them the numbers of the series, on the device. Both hold until the next call.
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
        """To the device, without waiting for it."""
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
        """How much each series of the part counts: its mean |y| to the power `size_weight`, 1 on average."""
        data = self.data
        n = data.lengths - data.val_size
        last = (data.starts + n - 1).clamp(min=0)
        total, count = torch.where((n > 0).unsqueeze(-1), self.sums.through[last], 0.0).unbind(-1)
        weight = (total / count.clamp(min=1)) ** self.settings.size_weight
        return (weight / weight.mean()).nan_to_num(1.0).float()

    def validation_step(self, batch: Some, _: int) -> None:
        """Loss of the windows whose origin lies in the validation part, statistics running on."""
        part, series = batch.part, batch.series.to(self.device)
        if part != self.part:
            self._turn_to(part)
        stride, val = self.settings.window_stride, self.data.val_size
        lengths = self.data.lengths[series]
        n = min(int(lengths.max()), max(self.settings.max_windows * stride, val + stride))
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
        fused = self.records or self.device.type == "cuda"  # on a CPU it is slower; steps nobody waits for need it
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.settings.learning_rate, fused=fused)
        if self.settings.schedule == "constant":
            return optimizer
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=self.settings.learning_rate, total_steps=self.settings.max_steps + 1
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        """Clip the norm; a gradient that is not finite is dropped, and counted, instead of poisoning the weights."""
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
        """Step, and let the moving average follow at once: a checkpoint may be written right after."""
        first = self.trainer.global_step == 0
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if self.average is not None:
            follow = 1.0 if first else 1 - self.settings.weight_average
            with torch.no_grad():
                for trained, averaged in self.parameter_pairs:
                    torch._foreach_lerp_(averaged, trained, follow)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Progress and what it was made from are one file: they cannot come apart."""
        checkpoint["origin"] = self.origin and tuple(self.origin)

    def on_train_end(self) -> None:
        """Nothing may go unreported."""
        if self.faults is not None:
            self._read_faults()

    def _read_faults(self) -> None:
        """Report what went wrong; if anything did, look at every step from now on."""
        assert self.faults is not None
        names, faults = self.data.names, self.faults
        self.faults = None
        for optimizer in self.trainer.optimizers:
            optimizer.found_inf = None  # type: ignore[attr-defined]
        if bool(faults.hopeless):
            raise NumericalError(DIVERGED)
        self.failed.update(names[i] for i in faults.series.nonzero().squeeze(-1).tolist())
        self.skipped_steps += int(faults.steps)
        self.careful = self.careful or bool(self.failed or self.skipped_steps)

    def final_model(self) -> Model:
        """The weights to forecast with."""
        return self.model if self.average is None else self.average

    def _grid(self, phase: int, n: int) -> Grid:
        stride = self.settings.window_stride
        return Grid(phase, stride, max(1, math.ceil((n - phase) / stride)))

    def _block(self, series: Tensor, birth: Tensor, begin: Tensor, lengths: Tensor, n: int) -> Block:
        data = self.data
        static = Static._make(v[series] for v in data.static)
        # Leads of the last windows reach past the end: padding.
        ahead = n + self.settings.h
        return gather_block(
            data.rows,
            static,
            data.starts[series] + birth,
            lengths,
            begin,
            ahead,
            self.schema.input_size,
            self.schema.lags,
            self.sums,
        )


class Snapshots(Callback):
    """Keeps the weights of the epochs with the lowest validation loss."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.best: list[tuple[float, dict[str, Tensor]]] = []

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Called after every epoch."""
        assert isinstance(module, Training)
        if trainer.sanity_checking or "val_loss" not in trainer.callback_metrics:
            return
        weights = {k: v.detach().cpu().clone() for k, v in module.final_model().state_dict().items()}
        self.best.append((float(trainer.callback_metrics["val_loss"]), weights))
        self.best = sorted(self.best, key=lambda item: item[0])[: self.count]

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the best epochs so far."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.best = state_dict["best"]


class Run(NamedTuple):
    """A finished training: its settings, the models to average, and the validation loss (NaN without validation)."""

    settings: Settings
    models: list[Model]
    val_loss: float


class Checkpoints(NamedTuple):
    """Where progress is kept, and the fingerprint of the rows it is made with."""

    folder: Path
    data: str


def train(source: Source, settings: Settings, schema: Schema, checkpoints: Checkpoints | None = None) -> Run:
    """Train what the settings ask for: a search over candidates, an ensemble of seeds, or one model."""
    if (settings.search or settings.snapshots) and source.val_size == 0:
        raise ConfigError("search and snapshots choose by validation loss: give fit a val_size, for instance h.")
    best = None
    if settings.search:
        names, runs = list(settings.search), []
        for i, values in enumerate(itertools.product(*settings.search.values())):
            candidate = dataclasses.replace(settings, search=None, **dict(zip(names, values, strict=True)))
            runs.append(_train_one(source, candidate, schema, 0, _below(checkpoints, f"candidate-{i}")))
        best = min(runs, key=lambda run: (math.isnan(run.val_loss), run.val_loss))
    chosen = settings if best is None else best.settings
    members = [best] if best is not None else []
    for member in range(len(members), settings.ensemble):
        members.append(_train_one(source, chosen, schema, member, _below(checkpoints, f"member-{member}")))
    models = [model for run in members for model in run.models]
    return Run(chosen, models, sum(run.val_loss for run in members) / len(members))


def _train_one(source: Source, settings: Settings, schema: Schema, member: int, checkpoints: Checkpoints | None) -> Run:
    seed = (settings.random_seed * 1000 + member) % 2**63  # as large as generators take
    origin = None if checkpoints is None else Origin.of(settings, schema, checkpoints.data)
    resume = None if checkpoints is None or origin is None else _resume_point(checkpoints.folder, origin)
    with _seeded(seed), _quiet():
        model = build(settings, schema)
        module = Training(model, source, settings, schema, origin)
        batches = Batches(source, settings, seed)
        epoch = batches.epoch
        if not settings.snapshots:
            epoch = max(epoch, min(MIN_EPOCH, settings.max_steps))
        snapshots = Snapshots(settings.snapshots)
        callbacks: list[Callback] = [snapshots] if settings.snapshots else []
        if checkpoints is not None:
            callbacks.append(
                ModelCheckpoint(
                    checkpoints.folder,
                    save_last=True,
                    save_top_k=0,
                    every_n_train_steps=epoch,
                    enable_version_counter=False,  # over an earlier one
                )
            )
        trainer = _trainer(settings, epoch, callbacks, member)
        every: DataLoader[Some] = DataLoader(Everything(source, 4 * settings.batch_size), batch_size=None)
        try:
            trainer.fit(
                module,
                DataLoader(batches, batch_size=None),
                every if source.val_size else None,
                ckpt_path=resume,
                weights_only=False,
            )
        except SystemExit as stop:  # Lightning's answer to an interrupt
            raise KeyboardInterrupt from stop
        if checkpoints is not None:
            trainer.save_checkpoint(checkpoints.folder / "last.ckpt")
        if source.val_size and not snapshots.best:
            trainer.validate(module, every, verbose=False)  # the loss of the weights that are kept
    _report(module)
    val_loss = float(trainer.callback_metrics.get("val_loss", math.nan))
    if snapshots.best:
        models = [copy.deepcopy(model) for _ in snapshots.best]
        for copied, (_, weights) in zip(models, snapshots.best, strict=True):
            copied.load_state_dict(weights)
        return Run(settings, [m.cpu().eval() for m in models], snapshots.best[0][0])
    return Run(settings, [module.final_model().cpu().eval()], val_loss)


def _trainer(settings: Settings, epoch: int, callbacks: list[Callback], member: int) -> pl.Trainer:
    """Lightning's Trainer for these settings; `trainer_options` have the last word."""
    options = dict(settings.trainer_options or {})
    if options.get("strategy") == "ddp":  # not every configuration has a use for every parameter
        options["strategy"] = "ddp_find_unused_parameters_true"
    title = f"Training {settings.name}" + (f" {member + 1}/{settings.ensemble}" if settings.ensemble > 1 else "")
    show = [Progress(title)] if options.pop("enable_progress_bar", True) else []
    epochs = math.ceil(settings.max_steps / epoch)
    ours: dict[str, Any] = {
        "max_steps": settings.max_steps,
        "accelerator": "gpu" if choose_device(settings.accelerator).type == "cuda" else "cpu",
        "devices": 1,
        "logger": False,
        "gradient_clip_val": GRADIENT_CLIP,
        "limit_train_batches": epoch,
        "check_val_every_n_epoch": 1 if settings.snapshots else max(1, epochs // VALIDATIONS),
        "num_sanity_val_steps": 0,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in callbacks),
    }
    callbacks = [*options.pop("callbacks", []), *callbacks, *show]
    try:
        return pl.Trainer(**{**ours, **options, "callbacks": callbacks})
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(f"Lightning's Trainer refuses these trainer_options: {error}") from error


def _resume_point(folder: Path, origin: Origin) -> str | None:
    """The latest checkpoint of the same training; None if there is none, or one of other data, which is reported.

    Nothing is written here: of several processes each finds the same.
    """
    last = folder / "last.ckpt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not last.exists():
            return None
        found = torch.load(last, map_location="cpu", weights_only=False).get("origin")
    except OSError as error:
        raise StorageError(f"{folder} cannot hold checkpoints ({error}): choose another checkpoint_dir.") from error
    except Exception as error:  # whatever unpickling makes of it
        raise StorageError(f"{last} is no checkpoint ({error!r}): choose another checkpoint_dir.") from error
    if found is None or found[0] != origin.settings:
        raise ConfigError(
            f"{folder} holds checkpoints of other settings or of an earlier version: choose another checkpoint_dir."
        )
    if Origin(*found) == origin:
        return str(last)
    warnings.warn(
        f"{folder} holds a checkpoint of other training data: training begins anew and replaces it.",
        AruWarning,
        stacklevel=5,
    )
    return None


def _by_type(model: Model, average: Model) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Parameters and their averages, in lists of one type each, for which there are fused operations."""
    pairs = list(zip(model.parameters(), average.parameters(), strict=True))
    types = dict.fromkeys(trained.dtype for trained, _ in pairs)
    return [([p for p, _ in pairs if p.dtype == t], [a for p, a in pairs if p.dtype == t]) for t in types]


def _mean_over_processes(value: Tensor) -> Tensor:
    if not dist.is_initialized():
        return value
    total = value.detach().clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def _below(checkpoints: Checkpoints | None, name: str) -> Checkpoints | None:
    return None if checkpoints is None else checkpoints._replace(folder=checkpoints.folder / name)


def _report(module: Training) -> None:
    if module.failed:
        warnings.warn(
            f"Training met numerical failures in the series {listing(sorted(module.failed))}; in those steps they were "
            "left out or forecast without adaptation, or the step was skipped. Check their values.",
            AruWarning,
            stacklevel=2,
        )
    if module.skipped_steps:
        warnings.warn(
            f"{module.skipped_steps} training steps had a gradient that was not finite and were skipped.",
            AruWarning,
            stacklevel=2,
        )


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Fix the random numbers inside, and leave the caller's as they were."""
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's remarks on data loaders, logging intervals and devices do not concern the user of a forecaster."""
    loggers = [
        logging.getLogger(name)
        for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        for text in (
            ".*does not have many workers.*",
            ".*IterableDataset.*",
            ".*validation_step.*val_dataloader.*",
            ".*GPU available but not used.*",
            ".*Checkpoint directory.*",
            ".*`isinstance.treespec.*",
            ".*LeafSpec.*",
        ):
            warnings.filterwarnings("ignore", message=text)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
