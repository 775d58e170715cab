"""How a pretrained model is tuned to a panel: decided by forecasts of rows that were held back.

Candidates are the weights as they are; weights tuned for a quarter, half and all of the steps; and, where there are
covariates, a head that reads them, and the network without their effects. A candidate is taken only if it is better by
more than the standard error of the difference, so that tiny panels stay as they are. A head learns from rows whose
effects were fitted to them, and so is too sure of itself: the rows held back also say by how much it is to be wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from aru.pretrained.covariate_head import CovariateHead
from aru.pretrained.patches import LEVELS, PatchNetwork
from aru.pretrained.problems import Problems
from aru.training.tuning import Tuned, Tuner, quantiles_of

JUDGED_AFTER = (4, 2, 1)  # of the steps, after which candidates are judged
WIDTHS = (1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)  # factors of the width of a head's intervals, never less than one
HOPELESS = 1.05  # how many times worse it may be without effects before nothing is tuned without them


class Start(NamedTuple):
    """What tuning begins with."""

    network: PatchNetwork
    head: CovariateHead | None  # None without covariates
    periods: tuple[int, int] | None
    seed: int


class Candidate(NamedTuple):
    """A way to forecast."""

    effects: bool  # whether effects of covariates are used
    head: bool  # whether a head reads covariates
    steps: int  # of tuning

    def __str__(self) -> str:
        if self.head:
            return "with a head for covariates, " + (f"tuned for {self.steps} steps" if self.steps else "as it was")
        return f"tuned for {self.steps} steps" if self.steps else "as pretrained"


class Judgement(NamedTuple):
    """A candidate on the rows that were held back."""

    candidate: Candidate
    loss: float  # mean pinball loss, in units of each series
    better: float  # than the first candidate, on average
    error: float  # standard error of that


class Verdict(NamedTuple):
    """All candidates, the best one first, and the weights of that one, which have not seen the rows held back."""

    judged: list[Judgement]
    weights: Tuned
    problems: int  # forecasts that decided

    @property
    def chosen(self) -> Candidate:
        """The best one."""
        return self.judged[0].candidate


def choose(start: Start, early: Problems, held: Problems, steps: int, done: Callable[[], None]) -> Verdict:
    """Tune on the early problems, and judge on those of the rows held back."""
    judge = _Judge(held, start.periods)
    as_is = Tuned(start.network, None)
    effects = start.head is not None
    judge.add(Candidate(effects, False, 0), as_is)
    if start.head is not None and not start.head.idle:
        judge.add(Candidate(effects, True, 0), Tuned(start.network, start.head))
    runs = [(effects, effects)]
    if effects:
        plain = judge.add(Candidate(False, False, 0), as_is)
        runs += [(False, False)] if plain.loss < HOPELESS * judge.first.loss else []
    for with_effects, with_head in runs:
        for made, tuned in tune(start, early, with_effects, with_head, steps, {steps // k for k in JUDGED_AFTER}, done):
            judge.add(Candidate(with_effects, with_head, made), tuned)
    return judge.verdict()


def tune(
    start: Start,
    problems: Problems,
    effects: bool,
    head: bool,
    steps: int,
    at: set[int],
    done: Callable[[], None],
) -> Iterator[tuple[int, Tuned]]:
    """The schedule is that of all steps, wherever it is stopped."""
    tuner = Tuner(start.network, start.head if head else None, problems, effects, start.periods, steps, start.seed)
    for made, tuned in tuner.run(at, done):
        yield made, tuned
        if made == max(at):
            return


def repeat(start: Start, problems: Problems, verdict: Verdict, steps: int, done: Callable[[], None]) -> Tuned:
    """What was chosen, learned from other problems."""
    chosen = verdict.chosen
    (_, tuned), *_ = tune(start, problems, chosen.effects, chosen.head, steps, {chosen.steps}, done)
    if tuned.head is not None and verdict.weights.head is not None:
        tuned.head.wider.copy_(verdict.weights.head.wider)
    return tuned


class _Judge:
    """Collects the losses of candidates."""

    def __init__(self, held: Problems, periods: tuple[int, int] | None) -> None:
        self._held, self._periods = held, periods
        self._found: list[tuple[Judgement, Tuned]] = []
        self._reference: Tensor | None = None

    @property
    def first(self) -> Judgement:
        return self._found[0][0]

    def add(self, candidate: Candidate, tuned: Tuned) -> Judgement:
        levels = torch.tensor(LEVELS, dtype=torch.float64)
        learned = candidate.head and candidate.steps > 0
        widths = WIDTHS if learned else (1.0,)
        found = quantiles_of(tuned, self._held, candidate.effects, self._periods, widths)
        each = torch.stack([self._held.errors(quantiles, candidate.effects, levels) for quantiles in found])
        best = int(each.nanmean(1).argmin())
        losses = each[best]
        if learned and tuned.head is not None:
            tuned.head.wider.fill_(widths[best])
        self._reference = losses if self._reference is None else self._reference
        known = losses.isfinite() & self._reference.isfinite()
        gain = (self._reference - losses)[known]
        error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
        judgement = Judgement(candidate, float(losses[known].mean()), float(gain.mean()), error)
        self._found.append((judgement, tuned))
        return judgement

    def verdict(self) -> Verdict:
        """The candidate whose gain, less its standard error, is largest; the first one if none gains."""
        sure = [0.0 if i == 0 else j.better - j.error for i, (j, _) in enumerate(self._found)]
        order = sorted(range(len(sure)), key=lambda i: -sure[i] if math.isfinite(sure[i]) else math.inf)
        known = int(self._reference.isfinite().sum()) if self._reference is not None else 0
        return Verdict([self._found[i][0] for i in order], self._found[order[0]][1], known)


def explain(verdict: Verdict, covariates: bool) -> list[tuple[str, str, str]]:
    """What was chosen, as people read it: its name, the choice, and why."""
    best, *others = verdict.judged
    first = next(j for j in verdict.judged if j.better == 0.0 and not j.candidate.steps)
    on = f"on {verdict.problems:,} forecasts of rows held back"

    def against(one: Judgement, other: Judgement) -> str:
        return f"loss {one.loss:.4g} {on}, {100 * (one.loss / other.loss - 1):+.1f} % against {other.loss:.4g}"

    rows = []
    if best.candidate.steps:
        rows.append(("network", str(best.candidate), f"{against(best, first)} as pretrained"))
    else:
        closest = min((j for j in others if j.candidate.steps), key=lambda j: j.loss, default=best)
        rows.append(("network", str(best.candidate), f"tuning did not help: {against(closest, best)}"))
    if covariates:
        used = best.candidate.effects
        rest = [j for j in others if j.candidate.effects != used]
        why = f"{against(best, min(rest, key=lambda j: j.loss))} {'without' if used else 'with'}" if rest else on
        rows.append(("covariates", "used" if used else "left out", why))
    return rows
