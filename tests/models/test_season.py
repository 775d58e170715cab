"""`season`: which value of the past each lead reads."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster
from aru.errors import ConfigError
from aru.frequency import Frequency
from aru.models.network import Network
from aru.panel import read_panel
from aru.schema import Static
from aru.windows import Grid, gather_block, running_sums

H, E, M = 5, 9, 3
FRAME = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2024-01-01", periods=60), "y": np.arange(1.0, 61)})
FRAME.loc[20, "y"] = np.nan


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return Forecaster(
        h=H, freq="D", input_size=E, season=M, size="small", max_steps=1, stride=4, accelerator="cpu",
        trainer_options={"enable_progress_bar": False},
    ).fit(FRAME)  # fmt: skip


@pytest.mark.parametrize("passed", [0, 1, 2, 3])
def test_a_lead_reads_the_latest_value_of_its_phase_up_to_the_origin(forecaster: Forecaster, passed: int) -> None:
    """Row t holds the value t + 1, so the rows that were read can be told from what was read."""
    engine = forecaster._require_fit()
    network = engine.models[0].network
    assert isinstance(network, Network)
    n = len(FRAME)
    y, observed = FRAME["y"].to_numpy(), FRAME["y"].notna().to_numpy()
    rows = engine.schema.encode(read_panel(FRAME, Frequency("D"), []))
    start, now = torch.tensor([0]), torch.tensor([24])
    static = Static(torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.long))
    block = gather_block(rows, static, start, torch.tensor([n]), now, 20, E, (), running_sums(rows, start))
    leads = H - passed
    read = network._last_season(block, Grid(0, 1, 1), torch.ones(1, 1), leads, torch.tensor([passed]))
    origin = 24 - passed  # rows up to here were known
    for j in range(1, leads + 1):
        row = origin + passed + j - 1
        while row >= origin:
            row -= M
        value, seen = read[0, 0, j - 1].tolist()
        assert seen == float(observed[row])
        assert value == (float(y[row]) if observed[row] else 0.0)


def test_a_season_needs_a_context() -> None:
    with pytest.raises(ConfigError, match="season=7 needs a context of a season and a stride, 11 rows"):
        Forecaster(h=4, freq="D", input_size=8, season=7)
    with pytest.raises(ConfigError, match="season must be a whole number of at least 1"):
        Forecaster(h=4, freq="D", season=0)
