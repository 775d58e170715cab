"""Which series a training step sees: shuffled, cropped at random, at a random phase, some of them newly born."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from aru.schema import Rows, Static
from aru.settings import Settings


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Encoded rows of all series, and how many rows at the end of each are for validation."""

    names: list[str]
    rows: Rows
    static: Static
    starts: Tensor
    lengths: Tensor
    val_size: int

    def to(self, device: torch.device) -> TrainingData:
        """The same on another device."""
        return dataclasses.replace(
            self,
            rows=Rows._make(v.to(device) for v in self.rows),
            static=Static._make(v.to(device) for v in self.static),
            starts=self.starts.to(device),
            lengths=self.lengths.to(device),
        )


class Batch(NamedTuple):
    """Which series, at which of their rows they are born, from which row after that on, how many rows, which phase."""

    series: Tensor
    birth: Tensor
    begin: Tensor
    rows: int
    phase: int


class Batches(IterableDataset[Batch]):
    """Endless shuffled batches of series with random phase, and random crops of long series."""

    def __init__(self, data: TrainingData, settings: Settings, seed: int) -> None:
        self.lengths = (data.lengths - data.val_size).cpu()
        self.usable = (self.lengths > 1).nonzero().squeeze(-1)
        self.size = min(settings.batch_size, len(self.usable))
        self.stride = settings.window_stride
        self.horizon = settings.h
        self.births = settings.births
        self.longest = settings.max_windows * self.stride
        # Drawn from here on: every epoch asks for a new iterator and must not see the same batches again.
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[Batch]:
        while True:
            order = self.usable[torch.randperm(len(self.usable), generator=self.generator)]
            for i in range(0, len(order) - self.size + 1, self.size):
                yield self._batch(order[i : i + self.size])

    def _batch(self, series: Tensor) -> Batch:
        generator = self.generator
        lengths, birth = self._born(self.lengths[series])
        n = min(int(lengths.max()), self.longest)
        spare = (lengths - n).clamp(min=0)
        # Series end with the block, unless they are longer than it: then the crop falls anywhere.
        begin = torch.where(spare > 0, (torch.rand(len(series), generator=generator) * (spare + 1)).long(), lengths - n)
        phase = int(torch.randint(self.stride, (), generator=generator))
        return Batch(series, birth, begin, n, min(phase, max(0, n - 1)))

    def _born(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Let some series begin later than they did: states as young as those of new series are worth training."""
        chosen = torch.rand(len(lengths), generator=self.generator) < self.births
        latest = (lengths - self.horizon).clamp(min=0)
        birth = (torch.rand(len(lengths), generator=self.generator) * (latest + 1)).long()
        birth = torch.where(chosen, birth.minimum(latest), 0)
        return lengths - birth, birth


class Numbers(Dataset[int]):
    """0, 1, 2, ...: every series once."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index >= self.size:
            raise IndexError(index)
        return index
