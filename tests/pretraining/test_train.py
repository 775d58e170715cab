"""Training: no leak into the inputs, pieces that resume from half-precision weights, a teacher that is followed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aru.pretrained.patches import SHAPES, PatchNetwork
from pretraining.dice import Dice
from pretraining.generator import generate
from pretraining.optimizer import BETAS, Both, orthogonal
from pretraining.train import Learner, Plan, pinball, prepared, rate_at, train, write

TINY = Plan(
    sizes=("tiny",),
    changes={"tiny": {"width": 32, "encoder": 1, "decoder": 1, "heads": 2, "step": 4}},
    steps=3,
    batch=(24, 8),
    chunk=1,
)


def test_nothing_after_the_origin_enters_the_network() -> None:
    batch = generate(Dice(0), 64, 256)
    changed = batch._replace(future=batch.future * 3 + 1)
    for one, two in zip(prepared(batch, 0.5)[:3], prepared(changed, 0.5)[:3], strict=True):
        assert torch.equal(one, two)


def test_an_empty_history_has_no_weight() -> None:
    batch = generate(Dice(0), 16, 256)
    batch.mask[3] = False
    weight = prepared(batch, 0.5)[-1]
    assert torch.isfinite(weight).all()
    assert (weight[3] == 0).all()


def test_pinball_is_least_at_the_quantiles() -> None:
    draws = torch.randn(20_000, 1)
    best = torch.distributions.Normal(0, 1).icdf(torch.tensor([0.01, 0.5, 0.99]))
    answer = torch.zeros(15)
    answer[[0, 7, 14]] = best
    loss = pinball(answer.expand(len(draws), 1, 15), draws).mean()
    for i in (0, 7, 14):
        for shift in (-0.3, 0.3):
            other = answer.clone()
            other[i] += shift
            assert pinball(other.expand(len(draws), 1, 15), draws).mean() > loss


def test_steps_of_muon_are_orthogonal() -> None:
    values = torch.linalg.svdvals(orthogonal(torch.randn(4, 16, 40)))
    assert values.min() > 0.6
    assert values.max() < 1.4


def test_adam_is_adam() -> None:
    ours, theirs = (torch.nn.Linear(5, 3) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    optimizer = Both(ours, weight_decay=0.1)
    optimizer.rate.fill_(0.01)
    reference = torch.optim.AdamW(theirs.parameters(), 0.01, BETAS, weight_decay=0.1)
    for i in range(5):
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(i))
        for network in (ours, theirs):
            (0.01 * network(x).square().mean()).backward()
        optimizer.step()
        reference.step()
        reference.zero_grad()
    torch.testing.assert_close(ours.weight, theirs.weight)


def test_gradients_that_are_not_finite_change_nothing() -> None:
    layer = torch.nn.Linear(4, 4)
    before = layer.weight.clone()
    optimizer = Both(layer)
    optimizer.rate.fill_(0.1)
    (layer(torch.randn(2, 4)).sum() * torch.inf).backward()
    optimizer.step()
    assert torch.equal(layer.weight, before)


def test_the_learning_rate_warms_up_and_falls_to_zero() -> None:
    plan = Plan(rate=1.0, steady=0.3)
    assert rate_at(0.0, 0, plan) == pytest.approx(1 / 200)
    assert rate_at(0.2, 1000, plan) == 1
    assert rate_at(1.0, 1000, plan) == pytest.approx(0)


def test_a_piece_resumes_from_half_precision_weights_alone(tmp_path: Path) -> None:
    first = train(replace(TINY, end=0.5), "cpu", tmp_path / "one")
    write(first, TINY, tmp_path / "one", {})
    (tmp_path / "one" / "tiny.json").unlink()
    idle = train(replace(TINY, steps=0, seconds=0.0, begin=0.5), "cpu", tmp_path / "two", tmp_path / "one")
    for name, value in first[0].network.state_dict().items():
        assert torch.equal(idle[0].network.state_dict()[name], value.half().float())
    second = train(replace(TINY, begin=0.5), "cpu", tmp_path / "two", tmp_path / "one")
    write(second, TINY, tmp_path / "two", {})
    facts = json.loads((tmp_path / "two" / "tiny.json").read_text())
    assert [piece["steps"] for piece in facts["pieces"]] == [3]
    assert isinstance(PatchNetwork.load(tmp_path / "two" / "tiny.safetensors"), PatchNetwork)


def test_the_same_seed_trains_the_same_network(tmp_path: Path) -> None:
    one, two = (train(TINY, "cpu", tmp_path)[0].network.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_teacher_is_followed() -> None:
    """With full weight on the lesson the answers come closer to it."""
    learner = Learner("tiny", PatchNetwork(replace(SHAPES["mini"], **TINY.changes["tiny"])), TINY, "cpu")
    learner.teach.fill_(1.0)
    learner.optimizer.rate.fill_(3e-3)
    inputs = [prepared(generate(Dice(0), 32, 256), 0.5)]
    lesson = [torch.linspace(-1, 1, 15).expand(len(inputs[0][0]), 64, 15)]
    gaps = [(learner.learn(inputs, lesson)[0] - lesson[0]).abs().mean().item() for _ in range(60)]
    assert gaps[-1] < 0.5 * gaps[0]


def test_teaching_ends_before_the_schedule_does(tmp_path: Path) -> None:
    """At the end the students follow the series alone."""
    plan = replace(TINY, sizes=("tiny", "small"), changes=TINY.changes | {"small": TINY.changes["tiny"]}, teach=0.5)
    during, after = (train(replace(plan, lesson=lesson), "cpu", tmp_path) for lesson in ((0.0, 1.0), (0.0, 0.5)))
    assert [learner.teach.item() for learner in during] == [0.5, 0.5]
    assert [learner.teach.item() for learner in after] == [0.0, 0.0]
