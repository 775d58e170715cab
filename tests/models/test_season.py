"""`season_length`: which value of the past each lead reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster
from aru.data.frequency import Frequency
from aru.data.panel import read_panel
from aru.data.rows import Rows, Static
from aru.errors import ConfigError
from aru.models.network import Network
from aru.models.windowed import WindowedModel
from aru.nn.tree import tree_map
from aru.nn.windows import Grid, gather_block, running_sums
from aru.runtime.state import move_on
from tests.making import make

H, E, M, LAG = 5, 9, 3, 7
FRAME = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2024-01-01", periods=60), "y": np.arange(1.0, 61)})
FRAME.loc[20, "y"] = np.nan
STATIC = Static(torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.int32))


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return make(
        h=H, freq="D", input_size=E, season_length=M, lags=[LAG], size="small", max_steps=1, stride=4,
        accelerator="cpu", trainer={"enable_progress_bar": False},
    ).fit(FRAME)  # fmt: skip


def value_of(row: int) -> tuple[float, bool]:
    """A value, and whether it was observed."""
    value = FRAME["y"].iloc[row]
    return (0.0, False) if np.isnan(value) else (float(value), True)


def expected(origin: int, lead: int) -> tuple[float, bool]:
    """The latest value up to the origin of the phase of the row `lead` after it, and whether it was observed."""
    row = origin + lead - 1
    while row >= origin:
        row -= M
    return value_of(row)


def both(origin: int, lead: int) -> list[tuple[float, bool]]:
    """What a row reads: its lag, and the value of its phase."""
    return [value_of(origin + lead - 1 - LAG), expected(origin, lead)]


def encoded(forecaster: Forecaster) -> Rows:
    return forecaster.runtime.engine.schema.encode(read_panel(FRAME, Frequency("D"), []))


def test_training_reads_the_latest_value_of_a_phase_up_to_each_origin(forecaster: Forecaster) -> None:
    """Row t holds the value t + 1, so the rows that were read can be told from what was read."""
    network = forecaster.runtime.engine.models[0].network
    assert isinstance(network, Network)
    rows, start = encoded(forecaster), torch.tensor([0])
    n, now = torch.tensor([len(FRAME)]), torch.tensor([12])
    block = gather_block(rows, STATIC, start, n, now, 30, E, (), running_sums(rows, start))
    grid = Grid(2, 4, 5)
    read = network._last_season(block, grid, torch.ones(1, grid.count))
    for window in range(grid.count):
        for lead in range(1, H + 1):
            value, seen = read[0, window, lead - 1].tolist()
            assert (value, seen) == expected(14 + 4 * window, lead)


@pytest.mark.parametrize("passed", [0, 1, 2, 3])
def test_rows_that_are_learned_from_read_what_their_origin_knew(
    forecaster: Forecaster, passed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the window that is open, whose origin lies `passed` rows before the present, and of those that follow."""
    engine = forecaster.runtime.engine
    model, stride = engine.models[0], 4
    assert isinstance(model, WindowedModel)
    rows = tree_map(lambda v: v.unsqueeze(0), encoded(forecaster))
    parts = [Rows(*(v[:, part] for v in rows)) for part in (slice(24), slice(24, 24 + 2 * stride))]
    context = move_on(engine.empty(STATIC).context, parts[0], torch.tensor([24]))
    read: list[list[tuple[float, bool]]] = []

    def spy(name: str, *arguments: Any) -> Any:
        if name == "decode":
            y, observed = (v.flatten(0, 1).tolist() for v in arguments[1])
            read.extend(list(zip(*pair, strict=True)) for pair in zip(y, observed, strict=True))
        return getattr(model, name)(*arguments)

    monkeypatch.setattr(model, "call", spy)
    steps = torch.tensor([2 * stride])
    with torch.no_grad():
        after = move_on(context, parts[1], steps)
        model.update(model.init_state(1), context, parts[1], torch.tensor([passed]), steps, after)
    first = [both(24 - passed, lead) for lead in range(passed + 1, stride + 1)]
    origins = [24 - passed + stride * window for window in range(1, 4)]
    later = [both(origin, lead) for origin in origins for lead in range(1, stride + 1)]
    exist = 2 * stride
    assert read[:exist] == [*first, *later][:exist]


@pytest.mark.parametrize("at", [22, 24, 37])
def test_leads_of_a_forecast_read_what_its_origin_knew(forecaster: Forecaster, at: int) -> None:
    engine = forecaster.runtime.engine
    network = engine.models[0].network
    assert isinstance(network, Network)
    rows = tree_map(lambda v: v.unsqueeze(0), encoded(forecaster))
    past, future = (Rows(*(v[:, part] for v in rows)) for part in (slice(at), slice(at, at + H)))
    context = move_on(engine.empty(STATIC).context, past, torch.tensor([at]))
    given: list[torch.Tensor] = []
    handle = network.decoder.register_forward_pre_hook(lambda _, inputs: given.append(inputs[2][0]))
    with torch.no_grad():
        scale = network.run_now(context, future.ahead()).origins.scale
    handle.remove()
    (read,) = given
    for lead in range(1, H + 1):
        pairs = read[0, lead - 1].reshape(2, 2).tolist()
        for (value, seen), wanted in zip(pairs, both(at, lead), strict=True):
            assert seen == wanted[1]
            assert value == pytest.approx(wanted[0] / float(scale))


def test_a_season_needs_a_context() -> None:
    with pytest.raises(ConfigError, match="season_length=7 needs a context of a season and a stride, 11 rows"):
        Forecaster(h=4, freq="D", input_size=8, season_length=7)
    with pytest.raises(ConfigError, match="season_length must be a whole number of at least 1"):
        Forecaster(h=4, freq="D", season_length=0)
