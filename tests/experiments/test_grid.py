"""The grid: what it asks for, that it resumes, and its small version from end to end."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest

from aru.datasets import DESCRIPTIONS
from aru.models import MODELS
from aru.settings import Settings, nested
from experiments import candidates, tasks
from experiments.__main__ import main
from experiments.ablations import ABLATIONS
from experiments.candidates import CANDIDATES, choose, chosen, selection_jobs
from experiments.data import NAMES, Dataset
from experiments.evaluate import FIELDS, Job
from experiments.grid import VARIANTS, grid
from experiments.make import model_of
from experiments.runner import append, missing, run_all
from experiments.tasks import PROTOCOLS, VALIDATION

pytestmark = pytest.mark.usefixtures("in_torch")

ISSUED = [
    "dataset", "protocol", "method", "variant", "seed", "nd", "rmse", "crps", "coverage90", "mase", "seconds",
    "commit", "hardware",
]  # fmt: skip


def test_rows_begin_with_the_agreed_columns() -> None:
    assert list(FIELDS[: len(ISSUED)]) == ISSUED


def test_every_run_has_valid_settings_and_a_place() -> None:
    for job in [*grid(range(2)), *selection_jobs(range(1))]:
        assert job.protocol in PROTOCOLS[job.dataset]
        assert model_of(job.method) in MODELS
        assert job.settings.get("model", model_of(job.method)) in {**MODELS, **ABLATIONS}
        h = PROTOCOLS[job.dataset][job.protocol].settings.get("h", 24)
        context = {"input_size": 48 if job.dataset == "tourism_monthly" else None}
        lags = [lag for lag in job.settings.get("lags") or [] if isinstance(lag, int)]
        h = min([h, *lags])  # the dataset's own horizon is shorter where lags are
        Settings(**nested({"h": h, "freq": "D", **context, "model": model_of(job.method), **job.settings}))


def test_no_row_is_asked_for_twice() -> None:
    keys = [(j.dataset, j.protocol, j.method, j.variant, j.seed) for j in grid(range(3))]
    assert len(keys) == len(set(keys))
    assert {j.variant for j in grid(range(1))} <= set(VARIANTS)


def test_a_variant_differs_from_the_choice(choices: Path) -> None:
    choice = {"stride": 4, "learn_alphas": True}
    choices.write_text(json.dumps({"walmart": {"aru": {"settings": choice}}}))
    found = {
        j.variant: j.settings for j in grid([0]) if (j.dataset, j.protocol, j.method) == ("walmart", "fixed", "aru")
    }
    assert found[""] == choice
    assert not {"stride=4", "alphas=learned", "transform=none"} & set(found)  # as chosen
    assert found["stride=h"] == {"learn_alphas": True}
    assert found["alphas=1"] == {"stride": 4, "alphas": [1.0]}


def test_validation_ends_before_every_test() -> None:
    assert set(PROTOCOLS) == set(NAMES)
    for dataset, protocols in PROTOCOLS.items():
        h = DESCRIPTIONS[dataset].h
        tested = max(p.settings.get("h", h) * p.windows for name, p in protocols.items() if name != VALIDATION)
        assert protocols[VALIDATION].reserve >= tested, dataset


@pytest.fixture
def choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(candidates, "CHOICES", tmp_path / "choices.json")
    return tmp_path / "choices.json"


def selection(path: Path, rows: list[tuple[str, int, float]]) -> Path:
    frame = pd.DataFrame(rows, columns=["variant", "seed", "nd"])
    frame.assign(dataset="walmart", method="aru", rmse=1.0).to_csv(path, index=False)
    return path


def test_the_lowest_mean_over_the_seeds_that_all_have_is_chosen(tmp_path: Path, choices: Path) -> None:
    rows = [
        ("default", 0, 0.3),
        ("default", 1, 0.1),
        ("dropout", 0, 0.19),
        ("dropout", 1, 0.19),
        ("lags 51-53", 0, 0.25),
        ("lags 51-53", 1, 0.21),
        ("rate .005", 1, 0.01),
        ("a candidate of another time", 0, 0.01),
    ]
    part = [row for row in rows if row[0] != "rate .005"]
    candidates.write_choices(selection(tmp_path / "s.csv", part))
    assert json.loads(choices.read_text())["walmart"]["aru"]["candidate"] == "dropout"
    assert chosen("walmart", "aru") == CANDIDATES["aru"]["walmart"]["dropout"]
    # The control has ARU's settings, but its own, longer training.
    control = chosen("walmart", "aru-control")
    assert control["dropout"] == 0.1
    assert control["max_steps"] == 4000
    assert choose(tmp_path / "s.csv")["walmart"]["aru"]["seeds"] == 2
    found = choose(selection(tmp_path / "s.csv", rows))["walmart"]["aru"]
    assert (found["candidate"], found["seeds"]) == ("rate .005", 1)


def test_longer_training_has_to_be_better_by_more_than_the_noise(tmp_path: Path) -> None:
    short, long = "xlarge, batch 32, dropout", "xlarge, batch 32, dropout, 2000 steps"
    for gain, best in ((0.005, short), (0.05, long)):
        rows = [(short, 0, 0.20), (short, 1, 0.22), (long, 0, 0.20 - gain), (long, 1, 0.22 - gain)]
        path = selection(tmp_path / "s.csv", rows)
        frame = pd.read_csv(path).assign(dataset="rossmann")
        frame.to_csv(path, index=False)
        assert choose(path)["rossmann"]["aru"]["candidate"] == best


def test_without_a_choice_the_first_candidate_is_used(choices: Path) -> None:
    assert chosen("rossmann", "aru") == next(iter(CANDIDATES["aru"]["rossmann"].values()))


@dataclasses.dataclass(frozen=True)
class Sum:
    """A job that takes no time."""

    seed: int
    fails: bool = False

    KEY: ClassVar[tuple[str, ...]] = ("seed",)
    FIELDS: ClassVar[tuple[str, ...]] = ("seed", "nd", "commit")

    @property
    def expected_seconds(self) -> float:
        return 0.0

    def compute(self) -> list[dict[str, Any]]:
        if self.fails:
            raise ValueError("no")
        return [{"seed": self.seed, "nd": 2 * self.seed}]


def test_rows_are_appended_once_and_failures_are_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.csv"
    append(out, Sum.FIELDS, [{"seed": 1, "nd": 7, "commit": "old"}])
    jobs = [Sum(0), Sum(1), Sum(2, fails=True)]
    assert run_all(jobs, out, 2, 60) == 1
    with out.open() as file:
        rows = {row["seed"]: row["nd"] for row in csv.DictReader(file)}
    assert rows == {"1": "7", "0": "0"}
    assert "ValueError: no" in capsys.readouterr().out
    assert [job.seed for job in missing(jobs, out)] == [2]


def test_another_choice_asks_for_another_row(tmp_path: Path) -> None:
    out, job = tmp_path / "rows.csv", Job("parts", "fixed", "aru", "", 0, {"lags": [12], "dropout": 0.1})
    row = {"dataset": "parts", "protocol": "fixed", "method": "aru", "variant": "", "seed": 0}
    append(out, FIELDS, [{**row, "settings": '{"dropout": 0.1, "lags": [12]}'}])
    assert missing([job], out) == []
    assert missing([dataclasses.replace(job, options={})], out)


def test_nothing_begins_that_cannot_end_in_time(tmp_path: Path) -> None:
    job = Job("parts", "fixed", "aru", "", 0, {"max_steps": 10_000})
    assert run_all([job], tmp_path / "rows.csv", 1, 30) == 1
    assert not (tmp_path / "rows.csv").exists()


def shops(n: int = 6) -> Dataset:
    """Daily series with a weekly pattern, under the name of a real dataset."""
    ds = pd.date_range("2024-01-01", periods=120)
    parts = []
    for i in range(n):
        y = 10.0 * (i + 1) * (1 + (ds.day_of_week >= 5) * 0.1 * i)
        parts.append(pd.DataFrame({"unique_id": f"shop-{i}", "ds": ds, "y": y}))
    return Dataset(pd.concat(parts, ignore_index=True), None, 8, {"h": 8, "freq": "D", "input_size": 8})


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.DATASETS, "walmart", shops)


@pytest.mark.usefixtures("small")
def test_a_run_gives_one_row_and_on_a_stream_another_one_frozen() -> None:
    settings = {"max_steps": 3, "size": "small", "accelerator": "cpu"}
    (row,) = Job("walmart", "fixed", "aru", "alphas=1", 0, {**settings, "alphas": [1.0]}).compute()
    assert set(row) == set(FIELDS) - {"commit"}
    assert row["variant"] == "alphas=1"
    assert json.loads(row["settings"])["alphas"] == [1.0]
    adapting, frozen = Job("walmart", "streaming", "aru", "", 0, settings).compute()
    assert (adapting["variant"], frozen["variant"]) == ("", "adapt=off")
    assert adapting["nd"] != frozen["nd"]
    assert [r["variant"] for r in Job("walmart", "streaming", "baseline", "", 0, settings).compute()] == [""]


@pytest.mark.usefixtures("small")
def test_a_task_keeps_reserved_and_tested_rows_out_of_training() -> None:
    task = tasks.make_task("walmart", VALIDATION)
    whole = shops().df.groupby("unique_id").ds.max().iloc[0]
    day = pd.Timedelta(days=1)
    assert task.df.ds.max() == whole - 16 * day
    assert task.train.ds.max() == whole - 16 * day - 24 * day
    assert (task.windows, task.step) == (3, 8)


@pytest.mark.data
def test_the_small_version_of_the_grid(data_dir: Path, tmp_path: Path) -> None:
    """One dataset, one seed, a few series and steps: the command of the tables, in seconds."""
    out = tmp_path / "runs.csv"
    arguments = ["run", "--out", str(out), "--dataset", "tourism_monthly", "--method", "aru", "baseline"]
    main([*arguments, "--variant", "", "--seeds", "1", "--series", "12", "--steps", "30"])
    runs = pd.read_csv(out)
    assert sorted(runs.method) == ["aru", "baseline"]
    assert runs[["nd", "rmse", "crps", "coverage90", "mase"]].notna().all(axis=None)
    assert (runs[runs.method == "aru"].nd < 0.5).all()
