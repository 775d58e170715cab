"""Gradient steps of a pretrained network, or of a head, on the forecasts that the user's series would have asked for.

The loss is that of pretraining: the pinball loss of all quantiles, in the units of the network. A network that is tuned
lies between the weights that it began with and a moving average of the tuned ones: half-way, which gains most of what
is to be gained and forgets little. Around a head the network stays as it is: tuned together they forget more than they
learn.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from aru.nn.threads import in_parallel
from aru.pretrained.covariate_head import CovariateHead
from aru.pretrained.patches import HORIZON, LEVELS, MEDIAN, PatchNetwork, seasonal_difference
from aru.pretrained.problems import Problems, Reading
from aru.pretrained.robust import RobustScale, credible, robust_scale
from aru.pretrained.seasons import found

BATCH, THREAD_PART = 64, 16  # problems of a step, and of each that one thread computes
TUNING_RATE, HEAD_RATE, HEAD_DECAY = 1e-4, 2e-3, 0.3
TUNING_WARM_UP = 20  # steps
AVERAGE = 0.98  # decay of the moving average of the weights
SHORTENED = 0.25  # share of the histories that are cut to begin later, so that young series are practised, too
SHORTEST = 4  # values of those
GRADIENT_NORM = 1.0
KEPT_HALF = 0.5  # how far the result is from the weights that it began with to the tuned ones, without a head
LARGEST_TARGET = 14.0  # in the network's units
QUIET, EVEN = 0.03, 0.5  # change from season to season below which a series gains no more weight, and by what power


class TuningInputs(NamedTuple):
    """What a network reads of a batch."""

    z: Tensor
    mask: Tensor
    periods: Tensor
    scale: RobustScale

    def part(self, lo: int, hi: int) -> TuningInputs:
        """Some of them."""
        told = self.periods if len(self.periods) == 1 else self.periods[lo:hi]
        return TuningInputs(self.z[lo:hi], self.mask[lo:hi], told, self.scale)


class Tuned(NamedTuple):
    """A network, and a head if there is one."""

    network: PatchNetwork
    head: CovariateHead | None

    def __call__(self, inputs: TuningInputs, x: Tensor) -> Float[Tensor, "batch 64 level"]:
        """Quantiles in the network's units."""
        if self.head is None:
            out: Tensor = self.network(inputs.z, inputs.mask, inputs.periods)
            return out
        head = self.head
        return head.widened(self.network(inputs.z, inputs.mask, inputs.periods, lambda *known: head(x, *known)))

    def members(self, inputs: TuningInputs, x: Tensor) -> Float[Tensor, "*member batch 64 level"]:
        """The same, of each member of the head by itself, as they learn."""
        head = self.head
        shift = None if head is None else lambda step, token: head.members(x, step, token)
        out: Tensor = self.network(inputs.z, inputs.mask, inputs.periods, shift)
        return out

    def parameters(self) -> list[nn.Parameter]:
        """What is tuned: the network, or the head if there is one."""
        return list((self.network if self.head is None else self.head).parameters())


def pinball(quantiles: Tensor, came: Tensor) -> Tensor:
    """Mean pinball loss over the levels, (..., batch, steps)."""
    gap = came.unsqueeze(-1) - quantiles
    levels = torch.tensor(LEVELS, device=gap.device, dtype=gap.dtype)
    return torch.maximum(levels * gap, (levels - 1) * gap).mean(-1)


def evenly(z: Tensor, mask: Tensor, periods: Tensor) -> Tensor:
    """Weights of series, (batch, 1): those that are easy to forecast gain by it."""
    change = seasonal_difference(z, mask, periods.clamp(min=1)).abs().sum(1, keepdim=True)
    return (change / mask.sum(1, keepdim=True).clamp(min=1) + QUIET) ** -EVEN


def read(reading: Reading, network: PatchNetwork, periods: tuple[int, int] | None) -> TuningInputs:
    """Past values in the network's units, padded to whole patches."""
    known = reading.past.isfinite()
    rows = network.size.rows(int((known.shape[1] - known.to(torch.int8).argmax(1)).max()))
    missing = max(rows - known.shape[1], 0)
    known = F.pad(known[:, -rows:], (missing, 0))
    values = torch.where(known, F.pad(reading.past[:, -rows:], (missing, 0)), 0.0)
    scale = robust_scale(values, known)
    told = None if periods is None else torch.tensor([periods], device=values.device)
    mask = credible(values, known, scale, told)
    z = torch.where(mask, scale.squash(values), 0.0)
    told = found(z, mask.float()) if told is None else told
    return TuningInputs(z, mask.float(), told, scale)


def shortened(reading: Reading, generator: torch.Generator) -> Reading:
    """Some of the histories begin later."""
    known = reading.past.isfinite()
    rows = known.shape[1]
    length = (rows - known.to(torch.int8).argmax(1)).double()
    chance, where = (torch.rand(len(length), generator=generator, dtype=torch.float64) for _ in range(2))
    short = torch.exp(math.log(SHORTEST) + where * (length.clamp(min=SHORTEST) / SHORTEST).log())
    keep = torch.arange(rows, 0, -1) <= torch.where(chance < SHORTENED, short, length).unsqueeze(1)
    keep |= ~(known & keep).any(1, keepdim=True)  # a stretch without any value teaches nothing
    return reading._replace(past=torch.where(keep, reading.past, torch.nan))


def quantiles_of(
    tuned: Tuned, problems: Problems, effects: bool, periods: tuple[int, int] | None, widths: Sequence[float] = (1.0,)
) -> Float[Tensor, "width problem steps level"]:
    """Forecasts of at most 64 steps in the units of the problems' reading, also widened. Nothing is learned."""
    device, reading = tuned.network.place.device, problems.reading(effects)
    steps = min(reading.came.shape[1], HORIZON)
    length = reading.past.shape[1] - reading.past.isfinite().to(torch.int8).argmax(1)
    out = torch.empty(len(widths), len(length), steps, len(LEVELS), dtype=torch.float64)
    with torch.no_grad():
        for index in length.argsort(stable=True).split(8 * BATCH):  # series of similar length share a batch
            part = Reading(*(v[index].to(device) for v in reading))
            inputs = read(part, tuned.network, periods)
            found_ = tuned(inputs, problems.x[index, :steps].to(device))[:, :steps].double()
            median = found_[..., MEDIAN, None]
            for width, values in zip(widths, out, strict=True):
                values[index] = inputs.scale.restore(median + width * (found_ - median)).cpu()
    return out


class Tuner:
    """A network that learns from problems, step by step."""

    def __init__(
        self,
        network: PatchNetwork,
        head: CovariateHead | None,
        problems: Problems,
        effects: bool,
        periods: tuple[int, int] | None,
        steps: int,
        seed: int,
    ) -> None:
        """`head` is None, or the one to learn; `effects` says which reading of the problems is learned from."""
        self._steps, self._periods = steps, periods
        self._generator = torch.Generator().manual_seed(seed)
        self._begin = network
        self._now = Tuned(copy.deepcopy(network), copy.deepcopy(head))
        if self._now.head is not None and self._now.head.idle:
            self._now.head.begin(torch.Generator().manual_seed(seed))
        for parameter in self._now.parameters():
            parameter.requires_grad_(True)
        self._average = copy.deepcopy(self._now)
        reading = problems.reading(effects)
        enough = (reading.past.isfinite().sum(1) > 2) & reading.came.isfinite().any(1)
        self._reading, self._x, self._which = reading, problems.x, enough.nonzero().squeeze(1)
        self._rate, decay = (TUNING_RATE, 0.0) if head is None else (HEAD_RATE, HEAD_DECAY)
        self._optimizer = torch.optim.AdamW(self._now.parameters(), self._rate, (0.9, 0.98), weight_decay=decay)

    def run(self, at: set[int], done: Callable[[], None]) -> Iterator[tuple[int, Tuned]]:
        """Make all steps; yields the result after those in `at`. `done` is called after each step."""
        for step, index in enumerate(self._batches()):
            factor = min(1.0, (step + 1) / TUNING_WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / self._steps))
            self._optimizer.param_groups[0]["lr"] = self._rate * factor
            self._step(index)
            decay = min(AVERAGE, (1 + step) / (10 + step))
            with torch.no_grad():
                for mean, now in zip(self._average.parameters(), self._now.parameters(), strict=True):
                    mean.lerp_(now, 1 - decay)
            done()
            if step + 1 in at:
                yield step + 1, self.result()

    def result(self) -> Tuned:
        """What was learned so far; without a head half of it."""
        network, head = copy.deepcopy(self._average)
        if head is None:
            with torch.no_grad():
                for tuned, begin in zip(network.parameters(), self._begin.parameters(), strict=True):
                    tuned.lerp_(begin, 1 - KEPT_HALF)
        return Tuned(network.requires_grad_(False), None if head is None else head.requires_grad_(False))

    def _batches(self) -> Iterator[Tensor]:
        """Problems of each step, all of them in turn."""
        left = self._which[:0]
        for _ in range(self._steps if len(self._which) else 0):
            while len(left) < BATCH:
                left = torch.cat([left, self._which[torch.randperm(len(self._which), generator=self._generator)]])
            yield left[:BATCH]
            left = left[BATCH:]

    def _step(self, index: Tensor) -> None:
        device, steps = self._now.network.place.device, min(self._reading.came.shape[1], HORIZON)
        part = shortened(Reading(*(v[index] for v in self._reading)), self._generator)
        part = Reading(*(v.to(device) for v in part))
        inputs = read(part, self._now.network, self._periods)
        known = part.came[:, :steps].isfinite()
        came = inputs.scale.squash(torch.where(known, part.came[:, :steps], 0.0))
        came = came.clamp(-LARGEST_TARGET, LARGEST_TARGET)
        weight = known * evenly(inputs.z, inputs.mask, inputs.periods)
        weight, x = weight / weight.sum(), self._x[index, :steps].to(device)
        parameters = self._now.parameters()

        def gradient(lo: int, hi: int) -> tuple[Tensor, ...]:
            found_ = self._now.members(inputs.part(lo, hi), x[lo:hi])[..., :steps, :]
            loss = (pinball(found_, came[lo:hi]) * weight[lo:hi]).sum()
            return torch.autograd.grad(loss, parameters)

        # In parts, each on one thread, and summed in their order: the same on every machine.
        parts = in_parallel(gradient, len(index), BATCH if device.type != "cpu" else THREAD_PART)
        for parameter, gradients in zip(parameters, zip(*parts, strict=True), strict=True):
            parameter.grad = functools.reduce(torch.add, gradients)
        nn.utils.clip_grad_norm_(parameters, GRADIENT_NORM)
        self._optimizer.step()
