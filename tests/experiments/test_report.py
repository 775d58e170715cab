"""What is generated is up to date, and says what the result files say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments import defaults_tables, report, tables, targets

ROOT = Path(__file__).resolve().parents[2]


def runs(rows: list[tuple[str, str, str, str, int, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["dataset", "protocol", "method", "variant", "seed", "nd"])
    return frame.assign(rmse=900.0, crps=0.1, coverage90=0.9, width90=0.3, mase=1.0)


def test_committed_pages_are_those_of_the_result_files() -> None:
    """`python -m experiments.report` after every change of a result file."""
    current = tables.read_runs()
    by_default = defaults_tables.read()
    assert defaults_tables.readme(by_default) in (ROOT / "README.md").read_text()
    assert defaults_tables.start(by_default) in (ROOT / "docs" / "index.md").read_text()
    assert defaults_tables.limits(by_default) in (ROOT / "docs" / "explain" / "limits.md").read_text()
    assert defaults_tables.results(by_default) in (ROOT / "docs" / "choosing.md").read_text()
    page = (ROOT / "docs" / "reproduction.md").read_text()
    assert targets.target_table(current) in page
    assert tables.protocol_table(current, "streaming", ("rossmann", "walmart"))[:400] in page
    assert report.deepar_table() in page


def test_a_goal_needs_three_seeds() -> None:
    one = runs([("rossmann", "fixed", "aru", "", 0, 0.076)])
    three = runs([("rossmann", "fixed", "aru", "", s, 0.084) for s in range(3)])
    assert "| 0.0760 (-5.0 %) | met, 1 of 3 seeds so far |" in targets.target_table(one)
    assert "| 0.0840 (+5.0 %) | **missed** |" in targets.target_table(three)


def test_the_control_must_not_be_better_beyond_noise() -> None:
    rows = [("walmart", "fixed", "aru", "", s, 0.09 + 0.001 * s) for s in range(3)]
    close = [("walmart", "fixed", "aru-control", "", s, 0.0905 + 0.001 * s) for s in range(3)]
    far = [("walmart", "fixed", "aru-control", "", s, 0.08 + 0.001 * s) for s in range(3)]
    assert targets.control_row(runs(rows + close))[-1] == "met"
    assert targets.control_row(runs(rows + far))[-1] == "**missed**"


def test_a_line_has_the_papers_figures_beside_ours() -> None:
    three = runs([("rossmann", "fixed", "aru", "", s, 0.075 + 0.001 * s) for s in range(3)])
    table = tables.protocol_table(three, "fixed", ("rossmann", "walmart"))
    assert "| **ARU** | 0.0851 | 908.6 | 0.0760 ± 0.0010 | 900 ± 0 | 0.1000 | 0.900 | 0.300 | 1.000 | 3 |" in table
    assert "| SNAIL | 0.1082 | 3465 |  |" in table  # the paper's alone


def test_rows_of_superseded_configurations_are_left_out(tmp_path: Path) -> None:
    recorded = pd.read_csv(tables.RESULTS / "runs.csv", dtype=str, keep_default_na=False)
    ours = recorded[(recorded.method == "aru") & (recorded.variant == "")].head(2).copy()
    ours["settings"] = ['{"size": "huge"}'] * len(ours)
    ours.to_csv(tmp_path / "runs.csv", index=False)
    assert len(tables.read_runs(tmp_path / "runs.csv")) == 0
    kept = pd.concat([ours.assign(variant="alphas=7"), ours.assign(method="another library")])  # in no grid
    kept.to_csv(tmp_path / "runs.csv", index=False)
    assert set(tables.read_runs(tmp_path / "runs.csv").method) == {"another library"}


def test_rows_that_do_not_count_are_removed(tmp_path: Path) -> None:
    recorded = pd.read_csv(tables.RESULTS / "runs.csv", dtype=str, keep_default_na=False)
    first = recorded[(recorded.method == "aru") & (recorded.variant == "")].head(1)
    former, repeated = first.assign(settings='{"size": "huge"}'), first.assign(nd="0.5")
    path = tmp_path / "runs.csv"
    pd.concat([former, first, repeated]).to_csv(path, index=False)
    assert tables.prune(path) == 2
    assert pd.read_csv(path, dtype=str, keep_default_na=False).equals(repeated.reset_index(drop=True))
    assert tables.prune(path) == 0


def test_the_committed_rows_are_those_of_the_grid() -> None:
    recorded = pd.read_csv(tables.RESULTS / "runs.csv", dtype=str, keep_default_na=False)
    assert tables.current(recorded).all()
