"""What `fit` takes: a panel is measured with the settings that its users would choose."""

from __future__ import annotations

import json

import pytest

from benchmarks import fitting, report
from experiments.data import DATA


def test_a_panel_is_measured() -> None:
    if not (DATA / "m1_yearly").exists():
        pytest.skip("the data of the experiments are not here (ARU_DATA)")
    row = fitting.measure("m1_yearly", series=12, steps=4)
    assert row["series"] == 12
    assert row["rows"] > 5
    assert row["seconds"] > 0
    assert row["chosen"].startswith(("tuned for", "as pretrained"))


def test_the_result_has_all_panels() -> None:
    found = json.loads((report.RESULTS / "fitting.json").read_text())
    assert [row["panel"] for row in found["panels"]] == list(fitting.PANELS)
