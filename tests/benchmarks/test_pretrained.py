"""What a pretrained network costs: every figure is there, and the page has the committed ones."""

from __future__ import annotations

import json

from aru.pretrained.weights import full_name
from benchmarks import pretrained, report


def test_every_task_is_measured() -> None:
    work = pretrained.Work("nano", 3)
    clocks = {name: [task()] for name, task in work.tasks().items()}
    found = work.figures(clocks)
    assert all(value > 0 for value in found.values())
    assert found["state_bytes"] <= 5000
    assert len(work.many.predict()) == 3 * pretrained.H
    assert (
        work.many.predict().ds.min() == pretrained.START + (pretrained.CONTEXT + 1) * work.many.predict().ds.diff()[1]
    )


def test_the_page_is_that_of_the_result_file() -> None:
    """`python -m benchmarks.pretrained`, then `python -m benchmarks.report`, after every change of the weights."""
    assert report.pretrained() in (report.ROOT / "docs" / "pretrained.md").read_text()
    assert report.budget() in (report.ROOT / "docs" / "howto" / "cost.md").read_text()
    found = json.loads((report.RESULTS / "pretrained.json").read_text())
    assert [size["weights"] for size in found["sizes"]] == [full_name(name) for name in pretrained.SIZES]
