"""Training on synthetic series, in pieces that resume from half-precision weights alone.

Networks of one command learn from the same batches, so that the generator is paid for once, and the first may teach
the others. A piece covers a stretch of the schedule: `--begin 0 --end 0.5`, then `--resume OUT --begin 0.5 --end 1`.

    python -m pretraining.train --sizes base mini nano --seconds 540 --out weights/
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from aru.nn.tree import flatten, tree_map
from aru.pretrained.patches import LEVELS, SHAPES, PatchNetwork, seasonal_difference
from aru.pretrained.robust import credible, robust_scale
from pretraining.dice import Dice, constant
from pretraining.episodes import Effects, Episode, Rules, draw_episode, taken_out
from pretraining.evaluate import KINDS, PANELS, evaluate, say, short
from pretraining.forecast import forecaster
from pretraining.generator import Batch, generate
from pretraining.optimizer import Both

QUIET = 0.03
"""Change from season to season below which a series gains no more weight."""


@dataclass(frozen=True)
class Plan:
    """What a piece of training does.

    Attributes:
        sizes: Networks that learn side by side, by name of their size.
        changes: Other settings of a network: name -> field of `PatchShape` -> value; a new name copies "mini".
        seconds: Of training, at most.
        steps: Of training; 0 stands for as many as the seconds allow.
        begin: Where on the schedule the piece begins, between 0 and 1.
        end: Where it ends; the learning rate falls to zero at 1.
        rate: Largest learning rate.
        batch: Series of up to 256 rows and of up to 1,024 rows in a step.
        chunk: Steps whose series are generated at once.
        steady: Share of the schedule before the learning rate begins to fall.
        teach: Weight of the first network's quantiles in the loss of the others while it teaches.
        lesson: Where on the schedule teaching begins and ends. After it the others learn how far they are off
            themselves: taught to the end, their intervals are too narrow.
        even: Power with which series that are easy to forecast gain weight.
        muon: Whether matrices inside the blocks are trained by Muon.
        recipe: Other weights of some families.
        episodes: Panels with covariates of up to 256 rows and of up to 1,024 rows in a step (`pretraining.episodes`).
        rule_rate: Learning rate of the rules of the solve; 0 leaves them as the package has them.
        record: What a GPU replays as one recorded graph instead of launching every operation: "step", "series".
        seed: Of weights and series.
        save_every: Seconds between two files.
    """

    sizes: tuple[str, ...] = ("mini",)
    changes: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: float = 60.0
    steps: int = 0
    begin: float = 0.0
    end: float = 1.0
    rate: float = 2e-3
    batch: tuple[int, int] = (2048, 1024)
    chunk: int = 4
    steady: float = 0.3
    teach: float = 0.0
    lesson: tuple[float, float] = (0.3, 0.7)
    even: float = 0.5
    muon: bool = True
    recipe: dict[str, float] = field(default_factory=dict)
    episodes: tuple[int, int] = (0, 0)
    rule_rate: float = 3e-3
    record: tuple[str, ...] = ("step",)
    seed: int = 0
    save_every: float = 100.0


def series(plan: Plan, dice: Dice, record: bool = False) -> Iterator[list[Batch | Episode]]:
    """Batches of a step without end: one of short and one of long series, and of panels likewise."""
    sources = (*((generate, n) for n in plan.batch), *((draw_episode, n) for n in plan.episodes))
    sizes = [(make, n, context) for (make, n), context in zip(sources, 2 * (256, 1024), strict=True) if n]
    makers = [recorded(partial(make, dice, n * plan.chunk, context, plan.recipe), record) for make, n, context in sizes]
    while True:
        pools = [make() for make in makers]
        for i in range(plan.chunk):
            yield [pool.part(i, plan.chunk) for pool in pools]


def prepared(batch: Batch, even: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Scaled history, its mask, periods, scaled future, and the weight of each step."""
    scale = robust_scale(batch.values, batch.mask)
    mask = credible(batch.values, batch.mask, scale, batch.periods).float()
    z = scale.squash(batch.values) * mask
    future = scale.squash(batch.future)
    count = mask.sum(1, keepdim=True)
    usable = (future.abs().amax(1, keepdim=True) < 14) & (count > 2)
    change = seasonal_difference(z, mask, batch.periods.clamp(min=1)).abs().sum(1, keepdim=True) / count.clamp(min=1)
    weight = batch.weight * usable * (change + QUIET) ** -even
    return z, mask, batch.periods, future.clamp(-14, 14), weight


def forecast_panels(
    network: PatchNetwork, episode: Episode, effects: Effects, even: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Quantiles of panels with covariates, their future, both in units of the values, and the weight of each step.

    The network reads what the regression leaves over. Errors are measured in units of the values as they came, so that
    nothing is gained by a regression that widens them.
    """
    batch, (past, ahead) = episode.batch, effects
    left = torch.where(batch.mask, batch.values - past, 0.0)
    z, mask, periods, _, weight = prepared(batch._replace(values=left, future=batch.future - ahead), even)
    quantiles = robust_scale(left, batch.mask).restore(forward(network, z, mask, periods)) + ahead.unsqueeze(-1)
    scale = robust_scale(batch.values, batch.mask)
    flat = scale.squash(quantiles.flatten(1)).view_as(quantiles)
    return flat, scale.squash(batch.future).clamp(-14, 14), weight.detach()


def pinball(quantiles: Tensor, future: Tensor) -> Tensor:
    """Mean pinball loss over the levels, (batch, steps)."""
    gap = future.unsqueeze(-1) - quantiles
    levels = constant(LEVELS, gap.device)
    return torch.maximum(levels * gap, (levels - 1) * gap).mean(-1)


def forward(network: PatchNetwork, z: Tensor, mask: Tensor, periods: Tensor) -> Tensor:
    """The network, with its blocks in half precision on a GPU."""
    tokens, future, steps, known = network.inputs(z, mask, periods)
    with torch.autocast(z.device.type, torch.bfloat16, enabled=z.is_cuda, cache_enabled=False):
        future = network.mix(tokens, future, known)
    return network.outputs(future.float(), steps)


class Learner:
    """A network with its optimizer.

    Attributes:
        rules: Those of the solve, if it learns from panels with covariates.
        teach: Weight of the lessons in the loss, a tensor that may be filled.
        steps: How many were made.
    """

    def __init__(self, name: str, network: PatchNetwork, plan: Plan, device: str):
        self.name, self.network = name, network.to(device)
        self.optimizer = Both(self.network, muon=plan.muon)
        self.rules: Rules | None = None
        self.steps, self.teach = 0, torch.zeros((), device=device)
        self.average, self.covariates = torch.zeros((), device=device), torch.zeros((), device=device)
        self.before: list[dict[str, object]] = []

    @property
    def loss(self) -> float:
        """Mean over the last hundred steps or so."""
        return self.average.item() / (1 - 0.99 ** max(1, self.steps))

    def learn(
        self,
        inputs: list[tuple[Tensor, ...]],
        lessons: list[Tensor] | None = None,
        episodes: Sequence[tuple[Episode, Effects]] = (),
        even: float = 0.0,
    ) -> list[Tensor]:
        """One step; returns the quantiles of every batch of single series."""
        answers, total = [], torch.zeros((), device=self.average.device)
        for i, (z, mask, periods, future, weight) in enumerate(inputs):
            quantiles = forward(self.network, z, mask, periods)
            loss = pinball(quantiles, future)
            if lessons:
                taught = F.smooth_l1_loss(quantiles, lessons[i], reduction="none", beta=0.1).mean(-1)
                loss = loss + self.teach * (taught - loss)
            total = total + (loss * weight).sum() / weight.sum() / len(inputs)
            answers.append(quantiles.detach())
        self.average.lerp_(total.detach().nan_to_num(0.0), 0.01)
        for episode, effects in episodes:
            quantiles, future, weight = forecast_panels(self.network, episode, effects, even)
            loss = (pinball(quantiles, future) * weight).sum() / weight.sum() / len(episodes)
            self.covariates.lerp_(loss.detach().nan_to_num(0.0), 0.01)
            total = total + loss
        total.backward()
        self.optimizer.step()
        return answers


class Solve:
    """The rules of the solve with their optimizer. All networks see the same effects; the first one's errors teach."""

    def __init__(self, plan: Plan, device: str):
        self.rules, self.learns = Rules().to(device), plan.rule_rate > 0
        self.optimizer = torch.optim.Adam(self.rules.parameters(), lr=plan.rule_rate, capturable=device == "cuda")

    def __call__(self, panels: Sequence[Episode]) -> list[tuple[Episode, Effects]]:
        """The panels with their effects."""
        with torch.set_grad_enabled(self.learns):
            return [(panel, taken_out(self.rules, panel)) for panel in panels]

    def learn(self) -> None:
        """One step with the gradient that a network left."""
        if self.learns:
            for parameter in self.rules.parameters():
                parameter.grad.nan_to_num_(0, 0, 0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


def recorded(function: Callable[[], Any], wanted: bool) -> Callable[[], Any]:
    """The function as a CUDA graph, which launches at once what it does; its results lie where they lay before.

    Falls back to the function itself where it cannot be recorded.
    """
    if not wanted:
        return function
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            results = function()
    except RuntimeError as error:
        say("not recorded:", str(error)[:300])
        torch.cuda.synchronize()
        return function

    def replay() -> Any:
        graph.replay()
        return results

    return replay


def rate_at(progress: float, step: int, plan: Plan) -> float:
    """Learning rate: a short warm-up at the start of a piece, then steady, then straight down to zero."""
    fall = max(0.0, progress - plan.steady) / (1 - plan.steady)
    return plan.rate * min(1.0, (step + 1) / 200) * max(0.0, 1 - fall)


def learners_of(plan: Plan, device: str, resume: Path | None) -> list[Learner]:
    """Fresh networks, or those of a folder with the pieces that they have behind them."""
    learners = []
    for name in plan.sizes:
        size = replace(SHAPES.get(name, SHAPES["mini"]), **plan.changes.get(name, {}))
        network = PatchNetwork.load(resume / f"{name}.safetensors") if resume else PatchNetwork(size)
        learners.append(Learner(name, network, plan, device))
        if resume and (card := resume / f"{name}.json").exists():
            learners[-1].before = json.loads(card.read_text()).get("pieces", [])
    return learners


def train(plan: Plan, device: str, out: Path, resume: Path | None = None) -> list[Learner]:
    """Train all networks of the plan for its seconds; weights are written to `out` now and then and at the end."""
    begun = saved = time.monotonic()
    torch.manual_seed(plan.seed)
    torch.set_float32_matmul_precision("high")
    out.mkdir(parents=True, exist_ok=True)
    learners, record = learners_of(plan, device, resume), plan.record if device == "cuda" else ()
    source = series(plan, Dice(plan.seed * 1000 + round(plan.begin * 100) + 1, device), "series" in record)
    place = tree_map(torch.clone, tuple(next(source)))
    single, panels = ([batch for batch in place if isinstance(batch, kind)] for kind in (Batch, Episode))
    solve = Solve(plan, device)
    for learner in learners if panels else []:
        learner.rules = solve.rules

    def step() -> None:
        inputs, episodes = [prepared(batch, plan.even) for batch in single], solve(panels)
        lessons = learners[0].learn(inputs, None, episodes, plan.even)
        if episodes:
            solve.learn()
        for learner in learners[1:]:
            fixed = [(panel, (past.detach(), ahead.detach())) for panel, (past, ahead) in episodes]
            learner.learn(inputs, lessons if plan.teach else None, fixed, plan.even)

    step = recorded(step, "step" in record)
    say(f"{time.monotonic() - begun:6.0f}s ready")
    while (spent := time.monotonic() - begun) < plan.seconds and (not plan.steps or learners[0].steps < plan.steps):
        done = learners[0].steps / plan.steps if plan.steps else spent / plan.seconds
        progress = plan.begin + (plan.end - plan.begin) * done
        rate = rate_at(progress, learners[0].steps, plan)
        for here, there in zip(flatten(place), flatten(next(source)), strict=True):
            here.copy_(there)
        for learner in learners:
            learner.optimizer.rate.fill_(rate)
            learner.teach.fill_(plan.teach * (plan.lesson[0] <= progress < plan.lesson[1]))
            learner.steps += 1
        step()
        if device == "cuda" and learners[0].steps % 8 == 0:
            torch.cuda.synchronize()  # keeps the clock honest
        if learners[0].steps in (10, 100) or learners[0].steps % 1000 == 0:
            losses = " ".join(f"{learner.name} {learner.loss:.4f}" for learner in learners)
            say(f"{spent:6.0f}s step {learners[0].steps} rate {rate:.5f} loss {losses}")
            for learner in learners if panels else []:
                say(f"{learner.name} with covariates {learner.covariates.item():.4f}")
            if panels:
                say(f"rules {solve.rules.values()}")
        if time.monotonic() - saved > plan.save_every:
            saved = time.monotonic()
            write(learners, plan, out, {})
    return learners


def write(learners: list[Learner], plan: Plan, out: Path, facts: dict[str, object]) -> None:
    """Weights in half precision, and beside them how they came about, piece by piece."""
    for learner in learners:
        learner.network.save(out / f"{learner.name}.safetensors")
        piece = facts | {
            "plan": asdict(plan),
            "steps": learner.steps,
            "series": learner.steps * sum(plan.batch),
            "loss": learner.loss,
            "rules": learner.rules.values() if learner.rules else {},
            "hardware": torch.cuda.get_device_name() if learner.average.is_cuda else "CPU",
            "torch": torch.__version__,
        }
        card = {
            "parameters": sum(p.numel() for p in learner.network.parameters()),
            "pieces": [*learner.before, piece],
        }
        (out / f"{learner.name}.json").write_text(json.dumps(card, indent=1) + "\n")


def read_plan(plan: Plan, text: str) -> Plan:
    """A plan with some fields changed as JSON says."""
    return replace(plan, **{k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(text).items()})


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, write weights, judge."""
    parser = argparse.ArgumentParser(prog="python -m pretraining.train", description=__doc__.split("\n")[0])
    parser.add_argument("--plan", type=partial(read_plan, Plan()), default=Plan(), help="fields of Plan as JSON")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", type=Path, help="folder of weights to go on from")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--panels", nargs="*", default=tuple(PANELS), help="judge on these")
    options = parser.parse_args(arguments)
    learners = train(options.plan, options.device, options.out, options.resume)
    write(learners, options.plan, options.out, {})
    for learner in learners if options.panels else []:
        for kind in KINDS:
            table = evaluate(forecaster(learner.network), kind, options.panels)
            say(learner.name, learner.steps, kind, short(table))


if __name__ == "__main__":
    main()
