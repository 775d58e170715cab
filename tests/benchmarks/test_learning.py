"""What learning in closed form costs: every figure is there, and the page has the committed ones."""

from __future__ import annotations

from benchmarks import learning, report


def test_every_task_is_measured() -> None:
    none, some = learning.measure([(0, 100), (2, 100)], series=3, rounds=1)
    assert some["state_bytes"] > none["state_bytes"] <= 5000
    assert some["regressors"] > 2 > none["regressors"] == 0
    assert all(found[name] > 0 for found in (none, some) for name in ("update_us", "forecast_us", "network_us"))


def test_the_page_is_that_of_the_result_file() -> None:
    """`python -m benchmarks.learning`, then `python -m benchmarks.report`."""
    assert report.learning() in (report.ROOT / "docs" / "learning.md").read_text()
    by_rows = report.read("learning.json")["by_rows"]
    assert len({found["state_bytes"] for found in by_rows if found["rows"] > 1000}) == 1  # constant in history
