"""Recorded training steps: windows that only fill up the shape change nothing, and replays equal plain steps."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from aru.errors import AruWarning, NumericalError
from aru.models import MODELS
from aru.models.interface import Losses
from aru.training.faults import Faults
from aru.training.module import Training
from tests.making import make
from tests.training.test_run import H, Poison, break_all, break_b, fit, frame, listening, prepare, weights

pytestmark = pytest.mark.usefixtures("in_torch")

METHODS = sorted(MODELS)
LENGTHS = {"a": 40, "b": 31, "c": 26}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")


def plan(skipped: int = 0) -> torch.Tensor:
    """Series a whole, b with a cold start, c before its first row."""
    return torch.tensor([[0, 1, 2], [0, 6, 0], [2, -7, -14]]) - torch.tensor([[0], [0], [H * skipped]])


def gradients(module: Training, losses: Losses) -> list[torch.Tensor]:
    parameters = [p for p in module.model.parameters() if p.requires_grad]
    found = torch.autograd.grad(losses.total.sum(), parameters, allow_unused=True)
    return [torch.zeros(()) if g is None else g for g in found]


def module_of(method: str) -> Training:
    """Without categories or dropout: no random numbers."""
    module, _ = prepare(frame(LENGTHS), model=method, size=(8, 5, 4, 3), dropout=0.0)
    return module


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("skipped", [1, 3])
def test_skipped_windows_change_nothing(method: str, skipped: int) -> None:
    module = module_of(method)
    plain = module._planned(8, plan())
    padded = module._planned(8 + skipped, plan(skipped), torch.tensor(skipped))
    assert torch.equal(plain.values, padded.values)
    assert plain.values.min() > 0
    torch.testing.assert_close(plain.total, padded.total)
    for one, other in zip(gradients(module, plain), gradients(module, padded), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_the_same_windows_would_count_if_they_were_not_skipped() -> None:
    module = module_of("baseline")
    padded = module._planned(9, plan(1), torch.tensor(1))
    assert not torch.equal(module._planned(9, plan(1)).values, padded.values)


@needs_gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_recorded_step_equals_a_plain_one(method: str) -> None:
    module = module_of(method).cuda()
    module._turn_to(0)
    for windows in (8, 5, 8, 6):  # recorded for two shapes, replayed for others
        found = []
        for way in ("recorded", "plain"):
            recorded_now = way == "recorded"
            here = module._recorded(plan(), windows)[0] if recorded_now else module._planned(windows, plan().cuda())
            slopes = [g.clone() for g in gradients(module, here)]
            found.append((here.total.detach().clone(), here.values.clone(), slopes))
            del here  # or the nodes of one way would stay for the other
        recorded, plain = found
        assert torch.equal(plain[1], recorded[1])
        torch.testing.assert_close(plain[0], recorded[0])
        for one, other in zip(plain[2], recorded[2], strict=True):
            torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
        with torch.no_grad():  # later replays see new weights
            for parameter in module.model.parameters():
                parameter.mul_(0.99)


@needs_gpu
def test_training_with_and_without_graphs_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"h": H, "freq": 1, "input_size": 5, "futr_exog_list": ["price"], "max_steps": 60}
    options = {"enable_progress_bar": False}
    found = []
    for graphs in ("0", "1"):
        monkeypatch.setenv("ARU_CUDA_GRAPHS", graphs)
        forecaster = make(**settings, accelerator="gpu", random_seed=1, trainer=options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forecaster.fit(frame(LENGTHS), val_size=2 * H)
        found.append(forecaster.val_loss)
    assert found[0] == pytest.approx(found[1], rel=0.02)


class Plain:
    """A recorder that runs what it is given."""

    def __init__(self, model: Any) -> None:
        pass

    def run(self, key: Any, step: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return step(*inputs)


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps as they are taken on a GPU, where nobody waits for their outcome, but on the CPU."""
    monkeypatch.setattr(Training, "records", property(lambda module: True))
    monkeypatch.setattr("aru.training.module.Recorder", Plain)


def test_nobody_waiting_changes_nothing(request: pytest.FixtureRequest) -> None:
    one = weights(fit(frame(), max_steps=20))
    request.getfixturevalue("unwatched")
    other = weights(fit(frame(), max_steps=20))
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], atol=1e-3, rtol=1e-3)


@pytest.mark.usefixtures("unwatched")
def test_a_series_that_fails_unwatched_costs_a_step_and_is_then_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = break_b(monkeypatch)
    with pytest.warns(AruWarning) as caught:
        f = fit(frame(), max_steps=3, cold_starts=0.0)
    messages = [str(w.message) for w in caught]
    assert any("series b;" in text for text in messages)
    assert any("1 training step" in text for text in messages)
    assert calls == [3, 3, 2, 3, 2]
    assert all(torch.isfinite(v).all() for v in weights(f).values())


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("step", [2, 9], ids=["on the way", "at the end"])
def test_a_gradient_that_fails_unwatched_is_dropped_and_counted(step: int) -> None:
    with pytest.warns(AruWarning, match="1 training step"):
        f = fit(frame(), max_steps=10, **listening(Poison(step)))
    assert all(torch.isfinite(v).all() for v in weights(f).values())


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("late", [False, True])
def test_training_that_diverges_unwatched_says_so(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the host learns of it after the last step."""
    break_all(monkeypatch)
    if late:
        monkeypatch.setattr(Faults, "note_step", lambda faults, dropped: None)
    with pytest.raises(NumericalError, match="learning_rate"):
        fit(frame(), max_steps=4)


@needs_gpu
def test_a_gradient_that_fails_on_a_gpu_is_dropped_and_counted() -> None:
    with pytest.warns(AruWarning, match="1 training step"):
        f = fit(frame(), max_steps=40, accelerator="gpu", **listening(Poison(2)))
    assert all(torch.isfinite(v).all() for v in weights(f).values())


@pytest.mark.usefixtures("unwatched")
def test_a_dropped_step_leaves_the_weights_as_they_were() -> None:
    with pytest.warns(AruWarning, match="1 training step"):
        dropped = weights(fit(frame(), max_steps=1, weight_average=0.0, **listening(Poison(0))))
    moved = weights(fit(frame(), max_steps=1, weight_average=0.0))
    first = weights(fit(frame(), max_steps=1, weight_average=0.0, learning_rate=1e-30))
    for name, value in first.items():
        torch.testing.assert_close(value, dropped[name], atol=1e-20, rtol=0)
    assert any(not torch.equal(moved[name], dropped[name]) for name in moved)
