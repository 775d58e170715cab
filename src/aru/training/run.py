"""A whole training: search over candidate settings, ensemble of seeds, checkpoints, final warnings."""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader

from aru.data.schema import Schema
from aru.errors import ConfigError, StorageError, listing, quoted, verbatim, warn
from aru.models import build, with_settings
from aru.models.interface import Model, TrainedModel
from aru.nn.device import choose_device
from aru.settings import Settings
from aru.training.batches import Batches, Everything, SeriesOfPart, Source
from aru.training.module import Provenance, Training
from aru.training.progress import TrainingBar

GRADIENT_CLIP = 1.0
MIN_EPOCH = 50  # steps; in shorter epochs the overhead between epochs dominates
VALIDATIONS = 20  # per training; with snapshots, one after every epoch


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
        """Resume from a checkpoint."""
        self.best = state_dict["best"]


class LastRows(Callback):
    """Keeps the weights before the last steps, which train on withheld rows, too."""

    def __init__(self, withhold: Callable[[int], None], step: int) -> None:
        self.withhold, self.step = withhold, step
        self.weights: dict[str, Tensor] | None = None

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Go on where a checkpoint was."""
        if self.weights is not None:
            self._train_on_all(module)

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        """Called before every step."""
        if self.weights is None and trainer.global_step >= self.step:
            assert isinstance(module, Training)
            self.weights = {k: v.detach().cpu().clone() for k, v in module.final_model().state_dict().items()}
            self._train_on_all(module)

    def _train_on_all(self, module: pl.LightningModule) -> None:
        assert isinstance(module, Training)
        self.withhold(0)
        module.train_on_all()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"weights": self.weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        self.weights = state_dict["weights"]


class Run(NamedTuple):
    """A finished training: its settings, the models to average, and the validation loss (NaN without validation).

    `before` are the same models before they trained on withheld rows; none if they never did.
    """

    settings: Settings
    models: list[TrainedModel]
    val_loss: float
    before: list[TrainedModel]


class Checkpoints(NamedTuple):
    """Folder of the checkpoints, and the fingerprint of the training rows."""

    folder: Path
    data: str


def train(
    source: Source,
    settings: Settings,
    schema: Schema,
    checkpoints: Checkpoints | None = None,
    begin: Sequence[Model] = (),
) -> Run:
    """Train by the settings: a search over candidates, an ensemble of seeds, or one model.

    With `begin`, each member goes on from the weights of one of these models.
    """
    search = settings.training.search
    if (search or settings.training.snapshots) and source.val_size == 0:
        raise ConfigError(
            "`search` and `snapshots` choose by validation loss", "Give fit a `val_size`, for instance h."
        )
    best = None
    if search:
        runs = []
        for i, values in enumerate(itertools.product(*search.values())):
            candidate = with_settings(settings, {"search": None, **dict(zip(search, values, strict=True))})
            runs.append(_train_one(source, candidate, schema, 0, _below(checkpoints, f"candidate-{i}")))
        best = min(runs, key=lambda run: (math.isnan(run.val_loss), run.val_loss))
    chosen = settings if best is None else best.settings
    members = [best] if best is not None else []
    for member in range(len(members), settings.ensemble):
        weights = begin[member % len(begin)].state_dict() if begin else None
        below = _below(checkpoints, f"member-{member}")
        members.append(_train_one(source, chosen, schema, member, below, weights))
    return Run(
        chosen,
        [model for run in members for model in run.models],
        sum(run.val_loss for run in members) / len(members),
        [model for run in members for model in run.before],
    )


def _train_one(
    source: Source,
    settings: Settings,
    schema: Schema,
    member: int,
    checkpoints: Checkpoints | None,
    begin: dict[str, Tensor] | None = None,
) -> Run:
    seed = (settings.random_seed * 1000 + member) % 2**63  # the range of seeds of generators
    origin = None if checkpoints is None else Provenance.of(settings, schema, checkpoints.data)
    resume = None if checkpoints is None or origin is None else _resume_point(checkpoints.folder, origin)
    with _seeded(seed), _quiet():
        model = build(settings, schema)
        if begin is not None:
            model.load_state_dict(begin)
        module = Training(model, source, settings, schema, origin)
        batches = Batches(source, settings, seed)
        epoch = batches.epoch
        if not settings.training.snapshots:
            epoch = max(epoch, min(MIN_EPOCH, settings.steps))
        snapshots = Snapshots(settings.training.snapshots)
        last_rows = LastRows(batches.withhold, settings.steps - last_steps(settings))
        callbacks: list[Callback] = [snapshots] if settings.training.snapshots else []
        if source.withheld:
            callbacks.append(last_rows)
        if checkpoints is not None:
            callbacks.append(
                ModelCheckpoint(
                    checkpoints.folder,
                    save_last=True,
                    save_top_k=0,
                    every_n_train_steps=epoch,
                    enable_version_counter=False,  # replaces the earlier checkpoint
                )
            )
        trainer = _trainer(settings, epoch, callbacks, member)
        every: DataLoader[SeriesOfPart] = DataLoader(Everything(source, 4 * settings.batch_size), batch_size=None)
        try:
            trainer.fit(
                module,
                DataLoader(batches, batch_size=None),
                every if source.val_size else None,
                ckpt_path=resume,
                weights_only=True,
            )
        except SystemExit as stop:  # raised by Lightning after an interrupt
            raise KeyboardInterrupt from stop
        if checkpoints is not None:
            trainer.save_checkpoint(checkpoints.folder / "last.ckpt")
        if source.val_size and not snapshots.best:
            trainer.validate(module, every, verbose=False)  # the loss of the weights that are kept
    _report(module)
    val_loss = float(trainer.callback_metrics.get("val_loss", math.nan))
    if snapshots.best:
        models = [_copied(model, weights) for _, weights in snapshots.best]
        return Run(settings, models, snapshots.best[0][0], [])
    before = [] if last_rows.weights is None else [_copied(model, last_rows.weights)]
    return Run(settings, [module.final_model().cpu().eval()], val_loss, before)


def last_steps(settings: Settings) -> int:
    """How many steps, at the end, also train on withheld rows: a tenth. By then the learning rate is a twentieth."""
    return max(1, settings.steps // 10)


def _copied(model: TrainedModel, weights: dict[str, Tensor]) -> TrainedModel:
    copied = copy.deepcopy(model)
    copied.load_state_dict(weights)
    return copied.cpu().eval()


def _trainer(settings: Settings, epoch: int, callbacks: list[Callback], member: int) -> pl.Trainer:
    """Lightning's Trainer for these settings. Options in `trainer` override the defaults."""
    options = dict(settings.training.trainer or {})
    if options.get("strategy") == "ddp":  # some settings leave parameters unused
        options["strategy"] = "ddp_find_unused_parameters_true"
    title = f"Training {settings.name}" + (f" {member + 1}/{settings.ensemble}" if settings.ensemble > 1 else "")
    show = [TrainingBar(title)] if options.pop("enable_progress_bar", True) else []
    epochs = math.ceil(settings.steps / epoch)
    ours: dict[str, Any] = {
        "max_steps": settings.steps,
        "accelerator": "gpu" if choose_device(settings.accelerator).type == "cuda" else "cpu",
        "devices": 1,
        "logger": False,
        "gradient_clip_val": GRADIENT_CLIP,
        "limit_train_batches": epoch,
        "check_val_every_n_epoch": 1 if settings.training.snapshots else max(1, epochs // VALIDATIONS),
        "num_sanity_val_steps": 0,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in callbacks),
    }
    callbacks = [*options.pop("callbacks", []), *callbacks, *show]
    try:
        return pl.Trainer(**{**ours, **options, "callbacks": callbacks})
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(f"Lightning's Trainer refuses these options of `trainer`: {verbatim(error)}") from error


def _resume_point(folder: Path, origin: Provenance) -> str | None:
    """The latest checkpoint of the same training; None if there is none. Warns about one of other data.

    Nothing is written here, so that all processes find the same.
    """
    last = folder / "last.ckpt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not last.exists():
            return None
        found = torch.load(last, map_location="cpu", weights_only=True).get("origin")
    except OSError as error:
        raise StorageError(
            f"{verbatim(folder)} cannot hold checkpoints ({verbatim(error)})", "Choose another `checkpoint_dir`."
        ) from error
    except Exception as error:  # unpickling can raise anything
        raise StorageError(
            f"{verbatim(last)} is no checkpoint ({quoted(error)})", "Choose another `checkpoint_dir`."
        ) from error
    if found is None or found[0] != origin.settings:
        raise ConfigError(
            f"{verbatim(folder)} holds checkpoints of other settings or of another version",
            "Choose another `checkpoint_dir`.",
        )
    if Provenance(*found) == origin:
        return str(last)
    warn(
        f"{verbatim(folder)} holds a checkpoint of other training data: training begins anew and replaces it.",
    )
    return None


def _below(checkpoints: Checkpoints | None, name: str) -> Checkpoints | None:
    return None if checkpoints is None else checkpoints._replace(folder=checkpoints.folder / name)


def _report(module: Training) -> None:
    if module.failed:
        warn(
            f"Training had numerical failures in the series {listing(sorted(module.failed))}; in those steps they were "
            "left out or forecast without adaptation, or the step was skipped. Check their values.",
        )
    if module.skipped_steps:
        warn(
            f"{module.skipped_steps} training steps had a gradient that was not finite and were skipped.",
        )


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed random numbers inside the block, and restore the caller's afterwards."""
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide Lightning's remarks on data loaders, logging and devices, which do not concern users of a forecaster."""
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
