"""Training batches: shuffled series, cropped at random, with random phase, some of them as cold starts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from aru.data.rows import Rows, Static
from aru.errors import ConfigError
from aru.settings import Settings

MAX_WINDOWS = 256  # windows per series in a training step; longer series are cropped at random
LONG = 5  # times the withheld rows: the length from which on a series can spare them


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Encoded rows of all series. The last `val_size` rows of each are for validation."""

    names: list[str]
    rows: Rows
    static: Static
    starts: Tensor
    lengths: Tensor
    val_size: int
    withheld: int = 0  # see `Source`

    def to(self, device: torch.device) -> TrainingData:
        """The same on another device."""
        return dataclasses.replace(
            self,
            rows=Rows._make(v.to(device) for v in self.rows),
            static=Static._make(v.to(device) for v in self.static),
            starts=self.starts.to(device),
            lengths=self.lengths.to(device),
        )

    @property
    def part_lengths(self) -> list[Tensor]:
        """All series are in one part."""
        return [self.lengths]

    def part(self, _: int) -> TrainingData:
        """The only part."""
        return self


@runtime_checkable
class Source(Protocol):
    """Series in one or several parts, which are loaded one at a time."""

    @property
    def val_size(self) -> int:
        """Number of rows at the end of each series that are for validation."""

    @property
    def withheld(self) -> int:
        """Number of rows at the end of each long series that only the last steps train on (`trained_lengths`)."""

    @property
    def part_lengths(self) -> Sequence[Tensor]:
        """Rows of each series, by part."""

    def part(self, index: int, /) -> TrainingData:
        """The rows of a part."""


def trained_lengths(lengths: Tensor, val_size: int, withheld: int) -> Tensor:
    """Rows of each series to train on. A series of few horizons needs all of them: nothing is withheld from it."""
    return lengths - val_size - withheld * is_long(lengths, withheld)


def is_long(lengths: Tensor, withheld: int) -> Tensor:
    """Whether a series can spare this many rows."""
    return lengths >= LONG * withheld


class Batch(NamedTuple):
    """Series, the row at which each begins (later for cold starts), its first row in the batch, rows and phase."""

    series: Tensor
    cold_start_row: Tensor
    begin: Tensor
    rows: int
    phase: int
    part: int = 0


class Batches(IterableDataset[Batch]):
    """Endless shuffled batches of series with random phase, and random crops of long series.

    Parts come in random order. A batch has series of one part; with several processes each takes its share of them.
    """

    def __init__(self, source: Source, settings: Settings, seed: int) -> None:
        self.source = source
        self.withhold(source.withheld)
        self.usable = [(lengths > 1).nonzero().squeeze(-1) for lengths in self.lengths]
        self.size = settings.batch_size
        self.stride = settings.window_stride
        self.horizon = settings.h
        self.cold_starts = settings.training.cold_starts
        self.longest = MAX_WINDOWS * self.stride
        # Not seeded in `__iter__`: every epoch creates a new iterator, which must not repeat the same batches.
        self.generator = torch.Generator().manual_seed(seed)

    def withhold(self, withheld: int) -> None:
        """Keep this many rows of long series out of the batches to come."""
        self.lengths = [
            trained_lengths(lengths, self.source.val_size, withheld).cpu() for lengths in self.source.part_lengths
        ]

    @property
    def epoch(self) -> int:
        """Number of batches in which every series occurs about once."""
        return max(sum(math.ceil(len(usable) / self.size) for usable in self.usable), 1)

    def __iter__(self) -> Iterator[Batch]:
        rank, processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        while True:
            several = len(self.usable) > 1
            for part in torch.randperm(len(self.usable), generator=self.generator).tolist() if several else [0]:
                for batch in self._pass(part):
                    if len(batch.series) < processes:
                        raise ConfigError(
                            f"A batch has {len(batch.series)} series for {processes} processes",
                            "Raise batch_size, or use fewer processes.",
                        )
                    mine = slice(rank, None, processes)
                    yield batch._replace(
                        series=batch.series[mine],
                        cold_start_row=batch.cold_start_row[mine],
                        begin=batch.begin[mine],
                        part=part,
                    )

    def _pass(self, part: int) -> Iterator[Batch]:
        """Batches with every series of a part once. An incomplete last batch is dropped."""
        usable = self.usable[part]
        size = min(self.size, len(usable))
        order = usable[torch.randperm(len(usable), generator=self.generator)]
        for i in range(0, len(order) - size + 1, max(size, 1)):
            if size:
                yield self._batch(order[i : i + size], self.lengths[part])

    def _batch(self, series: Tensor, all_lengths: Tensor) -> Batch:
        generator = self.generator
        lengths, cold_start_row = self._cold_start(all_lengths[series])
        n = min(int(lengths.max()), self.longest)
        spare = (lengths - n).clamp(min=0)
        # Series end with the block. Series longer than the block are cropped at a random row.
        begin = torch.where(spare > 0, (torch.rand(len(series), generator=generator) * (spare + 1)).long(), lengths - n)
        phase = int(torch.randint(self.stride, (), generator=generator))
        return Batch(series, cold_start_row, begin, n, min(phase, max(0, n - 1)))

    def _cold_start(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Let some series begin later than they did, to train cold starts."""
        chosen = torch.rand(len(lengths), generator=self.generator) < self.cold_starts
        latest = (lengths - self.horizon).clamp(min=0)
        row = (torch.rand(len(lengths), generator=self.generator) * (latest + 1)).long()
        row = torch.where(chosen, row.minimum(latest), 0)
        return lengths - row, row


class SeriesOfPart(NamedTuple):
    """Some series of a part."""

    part: int
    series: Tensor


class Everything(Dataset[SeriesOfPart]):
    """Every series once, in order."""

    def __init__(self, source: Source, size: int) -> None:
        self._all = [
            SeriesOfPart(part, series)
            for part, lengths in enumerate(source.part_lengths)
            for series in torch.arange(len(lengths)).split(size)
        ]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> SeriesOfPart:
        return self._all[index]
