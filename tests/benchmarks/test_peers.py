"""Peers get our windows and nothing after them; what they give back arrives whole."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster
from aru.data.scores import scores
from aru.errors import AruWarning, ConfigError
from benchmarks.peers import __main__ as command
from benchmarks.peers import environments
from benchmarks.peers.environments import PeerError
from benchmarks.peers.exchange import run_peer
from benchmarks.peers.registry import PEERS, PeerInfo
from benchmarks.peers.results import FIELDS
from benchmarks.peers.task import Task, make_task, sample
from benchmarks.peers.worker.interface import one_hot
from experiments.data import Dataset

ECHO = PeerInfo("echo", "own", "tests.benchmarks.fake_peer:Echo", "shows what it was given")
SETTINGS = {"h": 3, "freq": "D", "input_size": 6, "futr_exog_list": ["promo", "kind"], "stat_exog_list": ["city"]}
LENGTHS = {"b": 40, "a": 33, "10": 61, "2": 50}


def long_frame() -> pd.DataFrame:
    """Four series with their own beginnings and ends, rows in disorder, missing days and missing values."""
    rng = np.random.default_rng(0)
    frames = []
    for i, (name, length) in enumerate(LENGTHS.items()):
        days = pd.date_range("2024-01-01", periods=length) + pd.Timedelta(days=5 * i)
        y = 10 * (i + 1) + rng.normal(size=length) + 3 * np.sin(np.arange(length) * 2 * np.pi / 7)
        frame = pd.DataFrame({"unique_id": name, "ds": days, "y": y, "promo": rng.integers(0, 2, length)})
        frames.append(frame.assign(kind=rng.choice(["x", "y"], length)))
    frame = pd.concat(frames, ignore_index=True)
    frame.loc[[7, 55, 130], "y"] = np.nan
    return frame.drop(index=[12, 60, 61]).sample(frac=1, random_state=0, ignore_index=True)


def cities() -> pd.DataFrame:
    return pd.DataFrame({"unique_id": list(LENGTHS), "city": ["Rome", "Oslo", "Rome", "Bonn"]})


def task_of(df: pd.DataFrame, n_windows: int = 3, step_size: int = 2) -> Task:
    return make_task(df, cities(), SETTINGS, n_windows, step_size)


def from_end(df: pd.DataFrame) -> pd.Series[int]:
    """Days from each row to the end of its series."""
    return (df.groupby("unique_id").ds.transform("max") - df.ds).dt.days


def test_windows_are_those_of_our_own_cross_validation() -> None:
    df = long_frame()
    ours = Forecaster(**SETTINGS, model="aru-rnn", alias="aru", max_steps=1, size="small", accelerator="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's, about the trainer
        ours.fit(df[from_end(df) >= 7], static_df=cities())
    expected = ours.cross_validation(df, n_windows=3, step_size=2, static_df=cities())
    frame = run_peer(ECHO, task_of(df)).frame
    columns = ["unique_id", "ds", "cutoff", "y"]
    pd.testing.assert_frame_equal(frame[columns], expected[columns], check_dtype=False)


def test_a_peer_learns_up_to_the_first_cutoff_and_knows_the_rest_up_to_each() -> None:
    df = long_frame()
    frame = run_peer(ECHO, task_of(df)).frame
    for row in frame.itertuples():
        mine = df[df.unique_id == row.unique_id]
        assert row.echo == pytest.approx(mine[mine.ds <= row.cutoff].y.sum())
        assert frame[frame.unique_id == row.unique_id]["echo-lo-90"].nunique() == 1
        assert row.ds > row.cutoff
    first = frame[frame.cutoff == frame.groupby("unique_id").cutoff.transform("min")]
    np.testing.assert_allclose(first["echo-lo-90"], first["echo"])
    assert scores(frame, "echo", 90)["values"] == frame.y.notna().sum()


@pytest.mark.parametrize("peer", [ECHO, PEERS["seasonal-naive"]], ids=lambda peer: peer.name)
def test_nothing_after_a_cutoff_matters(peer: PeerInfo) -> None:
    df = long_frame()
    age = from_end(df)
    before = run_peer(peer, task_of(df)).frame.drop(columns="y")
    window = before.groupby("unique_id").cutoff.rank(method="dense")
    for which, known in ((1, 7), (3, 3)):
        changed = df.assign(y=df.y.where(age >= known, 1e6 + 17 * df.y))
        after = run_peer(peer, task_of(changed)).frame.drop(columns="y")
        pd.testing.assert_frame_equal(after[window <= which], before[window <= which], check_exact=True)
        assert (which == 3) == after.equals(before)  # and what came before does matter


@pytest.mark.filterwarnings("ignore:Covariates are unlike those of training")
def test_covariates_are_scaled_and_coded_by_what_came_before_the_first_cutoff() -> None:
    df = long_frame()
    late = from_end(df) < 7
    df["promo"] = np.where(late, 3.0, df.promo)
    df.loc[late, "kind"] = "never seen"
    task = task_of(df)
    future = task.rows.step > task.cutoffs["0"].to_numpy()[task.rows.unique_id]
    observed = task.rows.missing_promo == 0 if "missing_promo" in task.rows else True
    assert set(task.rows[~future & observed].number_promo) == {0.0, 1.0}
    assert set(task.rows[future & observed].number_promo) == {2.0}  # kept within one range of training's
    assert task.codes["code_kind"] == 3
    assert (task.rows[future].code_kind == 0).all()
    assert set(task.rows[~future & observed].code_kind) == {1, 2}
    assert list(task.static.columns) == ["unique_id", "code_city"]
    assert task.ids.tolist() == ["10", "2", "a", "b"]
    assert task.static.code_city.tolist() == [3, 1, 2, 3]  # Bonn, Oslo, Rome


def test_consecutive_rows_count_from_zero_and_bring_their_calendar() -> None:
    df = long_frame().dropna()
    task = make_task(df, None, {"h": 3, "freq": None, "input_size": 6}, 2, 3, season=6)
    assert task.season == 6
    assert task.calendar == ["code_day_of_week", "code_day_of_month"]
    assert len(task.rows) == len(df)
    for _, rows in task.rows.groupby("unique_id"):
        assert rows.step.tolist() == list(range(len(rows)))
    monday = task.rows.code_day_of_week[task.rows.ds.dt.day_of_week == 0]
    assert monday.nunique() == 1


def test_series_without_a_past_are_left_out_and_named() -> None:
    df = long_frame()
    short = pd.DataFrame({"unique_id": "new", "ds": pd.date_range("2024-02-01", periods=5), "y": 1.0})
    settings = {"h": 3, "freq": "D", "input_size": 6}
    with pytest.warns(AruWarning, match="new"):
        task = make_task(pd.concat([df, short]), None, settings, 3, 2)
    assert "new" not in task.ids


def test_historic_covariates_are_refused() -> None:
    with pytest.raises(ConfigError, match="hist_exog_list"):
        make_task(long_frame(), None, {"h": 3, "freq": "D", "hist_exog_list": ["promo"]}, 1, 3)


def test_a_failing_peer_says_why() -> None:
    with pytest.raises(PeerError, match="no luck today"):
        run_peer(PeerInfo("broken", "own", "tests.benchmarks.fake_peer:Broken", ""), task_of(long_frame()))


def test_lost_forecasts_are_noticed() -> None:
    with pytest.raises(PeerError, match="no finite forecast for 9 of 36 rows"):
        run_peer(PeerInfo("lost", "own", "tests.benchmarks.fake_peer:Forgetful", ""), task_of(long_frame()))


def test_seasonal_naive_by_hand() -> None:
    y = [1.0, 2.0, 3.0, 4.0, np.nan, 6.0, 7.0, 8.0, 9.0]
    df = pd.DataFrame({"unique_id": "s", "ds": range(len(y)), "y": y})
    task = make_task(df, None, {"h": 3, "freq": 1, "input_size": 3}, 1, 3, season=2)
    frame = run_peer(PEERS["seasonal-naive"], task).frame
    assert frame["seasonal-naive"].tolist() == [3.0, 6.0, 3.0]  # the fifth value is missing, the third is known
    spread = np.sqrt((2.0**2 + 2.0**2 + 2.0**2) / 3)  # 3 - 1, 4 - 2, 6 - 4
    width = frame["seasonal-naive-hi-90"] - frame["seasonal-naive"]
    np.testing.assert_allclose(width, 1.6448536 * spread * np.sqrt([1, 1, 2]))
    assert frame.ds.tolist() == [6, 7, 8]
    assert frame.cutoff.tolist() == [5, 5, 5]


def test_one_hot_has_no_column_for_unknown() -> None:
    frame = pd.DataFrame({"code_kind": [0, 1, 2]}, index=[5, 6, 7])
    columns = one_hot(frame, {"code_kind": 3})
    assert columns.to_dict("list") == {"code_kind_1": [0, 1, 0], "code_kind_2": [0, 0, 1]}


def test_samples_are_fixed() -> None:
    df = long_frame()
    chosen = sample(df, 2)
    assert chosen.unique_id.nunique() == 2
    assert set(chosen.unique_id) == set(sample(df.sample(frac=1, random_state=1), 2).unique_id)
    assert sample(df, 4) is df
    assert sample(df, None) is df


def test_runs_are_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "results.csv"
    limited = PeerInfo("limited", "own", "tests.benchmarks.fake_peer:Echo", "", steps=10, max_series=3)
    broken = PeerInfo("broken", "own", "tests.benchmarks.fake_peer:Broken", "")
    data = Dataset(long_frame(), cities(), 6, SETTINGS)
    monkeypatch.setitem(command.DATASETS, "small", lambda: data)
    for peer in (ECHO, limited, broken):
        monkeypatch.setitem(command.PEERS, peer.name, peer)
    line = ["run", "--dataset", "small", "--out", str(out), "--frames", str(tmp_path), "--peers"]
    assert command.main([*line, "echo", "broken"]) == 1
    assert command.main([*line, "echo", "limited", "--steps", "7"]) == 0
    assert "echo, seed 0: already in" in capsys.readouterr().out
    rows = pd.read_csv(out)
    assert rows.columns.tolist() == FIELDS
    assert rows[["method", "seed", "steps", "windows", "step_size", "series"]].to_numpy().tolist() == [
        ["echo", 0, 0, 2, 3, 4],
        ["limited", 0, 7, 2, 3, 3],
    ]
    assert rows.version.str.startswith("pandas ").all()
    assert rows.command[0].endswith("--peers echo broken")
    saved = pd.read_parquet(tmp_path / "small-echo-0-0-2-3-4.parquet")
    assert scores(saved, "echo", 90)["nd"] == pytest.approx(rows.nd[0], abs=1e-5)


def test_environments_are_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARU_PEERS_CACHE", str(tmp_path))
    with pytest.raises(PeerError, match=r"benchmarks\.peers setup"):
        environments.interpreter("river")
    assert command.main(["setup", "prophet"]) == 2
    with pytest.raises(SystemExit):
        command.main(["run", "--dataset", "parts", "--out", "x.csv", "--windows", "0"])
    installs: list[list[str]] = []

    class Done:
        returncode = 0

    def run(arguments: list[str], check: bool) -> Done:
        installs.append(arguments)
        (tmp_path / "gluonts").mkdir(exist_ok=True)
        return Done()

    monkeypatch.setattr(environments.subprocess, "run", run)
    environments.setup("gluonts", "9.9")
    assert installs[0][1:4] == ["-m", "venv", "--clear"]
    assert "torch==9.9" in installs[1]
    assert environments.is_ready("gluonts")
    environments.setup("gluonts", "9.9")  # as it is
    assert len(installs) == 2
    environments.setup("gluonts", "9.8")  # another torch
    assert len(installs) == 4
    (tmp_path / "other.txt").write_text("gluonts==0.0")
    monkeypatch.setattr(environments, "requirements", lambda group: tmp_path / "other.txt")
    assert not environments.is_ready("gluonts")


def test_requirements_are_pinned() -> None:
    for group in {peer.group for peer in PEERS.values()} - {environments.OWN}:
        lines = environments.requirements(group).read_text().splitlines()
        pins = [line for line in lines if line and not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
        assert not any(pin.startswith("torch==") for pin in pins)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PEERS if PEERS[name].group != environments.OWN])
def test_a_real_peer(name: str) -> None:
    peer = PEERS[name]
    if not environments.is_ready(peer.group):
        pytest.skip(f"the environment of peers {peer.group!r} is not set up: python -m benchmarks.peers setup {name}")
    df = long_frame()
    steps = 20 if peer.steps else 0
    before = run_peer(peer, task_of(df), steps=steps, accelerator="cpu")
    changed = df.assign(y=df.y.where(from_end(df) >= 3, 1e6))
    after = run_peer(peer, task_of(changed), steps=steps, accelerator="cpu")
    columns = [c for c in before.frame if c.startswith(name)]
    pd.testing.assert_frame_equal(after.frame[columns], before.frame[columns], check_exact=True)
    assert scores(before.frame, name)["nd"] < 0.5
