"""Networks in ONNX Runtime: the same answers as torch, the same bits in any batch, and at home in any process."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aru import Forecaster, Stream
from aru.data.columns import read_static
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.learning import learn_schema
from aru.data.panel import read_panel
from aru.data.rows import Ragged, Static
from aru.errors import StorageError
from aru.models import MODELS, build, resolve
from aru.models.network import Inputs
from aru.nn.sessions import PART, Sessions
from aru.nn.tree import leaves, take
from aru.runtime import ForecastRuntime
from aru.runtime.engine import Forecast, NetworkEngine
from aru.runtime.state import SeriesState
from tests.making import make, make_settings
from tests.shops import BASE, COVARIATES, STATIC, both

pytestmark = pytest.mark.usefixtures("as_users_run_it")
EXPORTED = [name for name, method in MODELS.items() if method.model.exported]
START = pd.Timestamp("2024-01-01")
FREQ = Frequency("D")
QUANTILES = [0.1, 0.5, 0.9]
SIZES = (1, 2, 3, 17, PART - 1, PART, PART + 1)
MANY = 2 * PART + 5


# Models with drawn settings


def options(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Settings of a model by name, of every kind that changes its network or what it reads."""
    return st.composite(_options)(name)  # type: ignore[call-arg]


def _options(draw: Callable[[st.SearchStrategy[Any]], Any], name: str) -> dict[str, Any]:
    model = MODELS[name].model
    h = draw(st.integers(1, 4))
    stride = draw(st.sampled_from([None, *range(1, h + 1)]))
    season = draw(st.sampled_from([None, 2, 5]))
    least = (season or 0) + (stride or h)
    distribution = draw(st.sampled_from(model.distributions))
    integration = draw(st.sampled_from(["residual", "skip", "paper"]))
    some = functools.partial(_some, draw)
    settings = {
        "model": name,
        "h": h,
        "freq": "D",
        "stride": stride,
        "season_length": season,
        "input_size": draw(st.integers(least, least + 5)),
        "lags": sorted(draw(st.sets(st.integers(h, h + 9), max_size=3))),
        "encoder": draw(st.sampled_from(model.encoders)),
        "encoder_layers": draw(st.integers(1, 2)),
        "size": draw(st.tuples(*[st.integers(1, 9)] * 4)),
        "alphas": draw(st.sampled_from([(1.0,), (1.0, 0.9), (0.99, 0.7, 0.3)])),
        "integration": integration,
        "robust": draw(st.booleans()),
        "scaler": draw(st.sampled_from(["auto", "mean", "level"])),
        "transform": None if distribution == "negative-binomial" else draw(st.sampled_from([None, "log1p", "asinh"])),
        "distribution": distribution,
        "series_id": draw(st.booleans()),
        "gate": model.adapts and name != "aru-direct" and draw(st.booleans()),
        "calibration": draw(st.sampled_from([None, "online"])),
        "futr_exog_list": some("promo", "price"),
        "hist_exog_list": some("temp", "weather"),
        "stat_exog_list": some("kind", "area"),
    }
    return {key: value for key, value in settings.items() if key not in model.ignores}


def _some(draw: Callable[[st.SearchStrategy[Any]], Any], *names: str) -> list[str]:
    return [name for name in names if draw(st.booleans())]


class Series(NamedTuple):
    """Rows of series with gaps, missing values and covariates, one row more of each, and those that follow."""

    past: pd.DataFrame
    next: pd.DataFrame
    future: pd.DataFrame
    static: pd.DataFrame


@functools.cache
def series(n: int, h: int) -> Series:
    """Series of one to ten rows, one of them with a gap that no forecast can see beyond, and an outlier."""
    random = np.random.default_rng(3)
    length = random.integers(1, 11, n)
    first = random.integers(0, 4, n)
    which = np.repeat(np.arange(n), length + 1 + h)
    order = np.arange(len(which)) - np.repeat(np.cumsum(length + 1 + h) - (length + 1 + h), length + 1 + h)
    day = first[which] + order + np.where((which == n // 2) & (order > length[which] // 2), 300, 0)
    level = 10.0 ** random.uniform(-1, 2, n)
    frame = pd.DataFrame(
        {
            "unique_id": np.char.add("s", np.char.zfill(which.astype(str), 5)),
            "ds": START + pd.to_timedelta(day, unit="D"),
            "y": level[which] * random.gamma(2, 1, len(which)),
            "promo": np.where(random.random(len(which)) < 0.3, "yes", "no"),
            "price": random.uniform(1, 2, len(which)),
            "temp": random.normal(size=len(which)),
            "weather": random.choice(["sun", "rain", "snow"], len(which)),
        }
    )
    for column, share in (("y", 0.15), ("price", 0.1), ("temp", 0.1)):
        frame.loc[(random.random(len(which)) < share) & (order > 0), column] = np.nan
    frame.loc[int(np.flatnonzero((which == n - 1) & (order == 0))[0]), "y"] = 1e6
    absent = (random.random(len(which)) < 0.1) & (order > 0) & (order < length[which])
    past, following = order < length[which], order == length[which]
    names = frame["unique_id"].drop_duplicates().to_numpy()
    static = pd.DataFrame({"unique_id": names, "kind": random.choice(["x", "y"], n), "area": random.normal(size=n)})
    static.loc[static.index % 5 == 3, "area"] = np.nan
    return Series(frame[past & ~absent], frame[following], frame[order > length[which]], static)


def counted(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(y=frame["y"].round())


class Case:
    """A model with random weights, and what it needs to take in and forecast the same series in any batch."""

    def __init__(self, n: int, **changed: Any) -> None:
        self.settings = resolve(make_settings(**changed))
        data = series(n, self.settings.h)
        if self.settings.distribution == "negative-binomial":
            data = Series(*map(counted, data[:3]), data.static)
        columns = [*self.settings.futr_exog_list, *self.settings.hist_exog_list]
        past, following = (read_panel(frame, FREQ, columns, max_gap=30) for frame in (data.past, data.next))
        names = self.settings.stat_exog_list
        static = read_static(data.static, past.ids, names)
        schema = learn_schema(past, static, self.settings, FREQ, np.ones(len(past.y), bool))
        torch.manual_seed(1)
        self.model = build(self.settings, schema).eval()
        with torch.no_grad():  # weights that start at zero would hide what they multiply
            for weight in self.model.parameters():
                weight += 0.2 * torch.randn_like(weight)
        self.export(schema)
        self.n, self.static = n, schema.encode_static(static, past.ids)
        self.parts = [
            Ragged(schema.encode(panel), *map(torch.from_numpy, (panel.starts, panel.lengths, panel.skipped)))
            for panel in (past, following)
        ]
        state = self.engine.empty(self.static)
        last = following.ds[following.starts]
        self.ahead = self.runtime.future(
            past.ids, state._replace(last=torch.from_numpy(last)), self.runtime.read_futr(data.future)
        )[1]

    def export(self, schema: Any) -> None:
        self.engine = NetworkEngine(self.settings, schema, [self.model], torch.device("cpu"))
        self.runtime = ForecastRuntime(self.engine, FREQ, FrameStyle.of(pd.DataFrame({"ds": [START]})))

    def answer(self, places: torch.Tensor | None = None) -> tuple[SeriesState, Forecast]:
        """The states of some series after all their rows, and their forecasts."""
        which = torch.arange(self.n) if places is None else places
        state = self.engine.empty(Static(*(v[which] for v in self.static)))
        for part in self.parts:
            state = self.engine.advance(state, part._replace(starts=part.starts[which], lengths=part.lengths[which]))
        return state, self.engine.forecast(state, take(self.ahead, which), QUANTILES)


def assert_close(one: tuple[SeriesState, Forecast], other: tuple[SeriesState, Forecast]) -> None:
    """To the rounding of float32."""
    for (path, value), (_, expected) in zip(leaves(one), leaves(other), strict=True):
        say = functools.partial("{}: {}".format, path)
        torch.testing.assert_close(value, expected, rtol=2e-4, atol=2e-4, equal_nan=True, msg=say)


def assert_equal(one: Any, other: Any, where: str = "") -> None:
    """To the last bit."""
    for (path, value), (_, expected) in zip(leaves(one), leaves(other), strict=True):
        same = (value == expected) | (value.isnan() & expected.isnan())
        assert same.all(), f"{where}: {path}, {int((~same).sum())} of {same.numel()}"


def picked(answer: tuple[SeriesState, Forecast], places: torch.Tensor) -> tuple[SeriesState, Forecast]:
    state, (mean, quantiles, failed) = answer
    return take(state, places), Forecast(mean[places], quantiles[:, places], failed[places])


# Two paths, one meaning


@pytest.mark.parametrize("name", EXPORTED)
@settings(max_examples=3)
@given(data=st.data())
def test_onnx_runtime_and_torch_agree(name: str, data: st.DataObject) -> None:
    case = Case(30, **data.draw(options(name)))
    sessions = case.model.sessions
    assert sessions is not None
    fast = case.answer()
    assert set(sessions._open) == set(sessions.graphs) == set(case.model.exported)  # all of them were called
    case.model.sessions = None
    assert_close(fast, case.answer())


@pytest.mark.parametrize("prior", [None, 1.0, 16.0])
def test_scales_of_every_prior(prior: float | None) -> None:
    case = Case(30, h=3, freq="D", input_size=5, size=(4, 5, 4, 3))
    inputs = [module for module in case.model.modules() if isinstance(module, Inputs)]
    assert inputs
    for module in inputs:
        module.scaling = module.scaling._replace(prior=prior)
    case.export(case.engine.schema)
    fast = case.answer()
    case.model.sessions = None
    assert_close(fast, case.answer())


def test_contexts_alone_move_on_without_adaptation() -> None:
    forecaster = make(**BASE).fit(both(range(20)))
    frames = [forecaster.cross_validation(both(range(30)), n_windows=2, step_size=3, adapt=False)]
    (model,) = forecaster.runtime.engine.models
    model.sessions = None
    frames.append(forecaster.cross_validation(both(range(30)), n_windows=2, step_size=3, adapt=False))
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-4)


def test_a_failed_fit_stands_back() -> None:
    case = Case(30, h=3, freq="D", input_size=5, size=(4, 5, 4, 3))
    state, _ = case.answer()
    (member,) = state.members
    broken = member._replace(local=member.local._replace(now=torch.full_like(member.local.now, torch.nan)))
    empty = member._replace(local=case.model.init_state(case.n).local)
    stats = empty._replace(local=empty.local._replace(stats=member.local.stats))
    failed, plain = (case.engine.forecast(state._replace(members=(m,)), case.ahead, [0.5]) for m in (broken, stats))
    assert failed.failed.all()
    assert not plain.failed.any()
    assert torch.equal(failed.mean, plain.mean)


@pytest.mark.slow
def test_no_kernel_reaches_beyond_its_arrays(tmp_path: Path) -> None:
    """A write past the end may go unnoticed: once more in a process whose compiled functions check their indices."""
    script = "from tests.nn.test_sessions import Case\n"
    for size, more in (((4, 5, 4, 3), {}), ((17, 33, 18, 20), {"stride": 1}), ((8, 8, 8, 16), {"model": "aru-direct"})):
        script += f"Case(300, h=3, freq='D', input_size=5, size={size}, **{more}).answer()\n"
    checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], env={**os.environ, **checked}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


# An answer does not depend on its neighbours


def assert_alone(case: Case) -> None:
    """In batches of every size and order, at every place, on one thread and on two."""
    whole = case.answer()
    random = np.random.default_rng(0)
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert_equal(case.answer(), whole, f"{MANY} series on {threads} threads")
            for size in SIZES:
                places = torch.from_numpy(random.permutation(MANY)[:size])
                assert_equal(case.answer(places), picked(whole, places), f"{size} series on {threads} threads")
            one = int(places[0])  # alone, first, last
            for batch in ([one], [one, 5, 9], [5, 9, one]):
                assert_equal(case.answer(torch.tensor(batch)), picked(whole, torch.tensor(batch)), str(batch))
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("name", EXPORTED)
@settings(max_examples=2)
@given(data=st.data())
def test_an_answer_does_not_depend_on_the_series_beside_it(name: str, data: st.DataObject) -> None:
    """Not by one bit."""
    assert_alone(Case(MANY, **data.draw(options(name))))


@pytest.mark.parametrize(
    "changed",
    [
        {"input_size": 7, "scaler": "level"},  # sums of rows that begin anywhere in memory
        {"transform": "asinh"},  # sinh of the last few numbers
        {"model": "baseline-finetuned", "h": 1},  # what torch computes itself, gradients included
        {"model": "baseline-finetuned", "distribution": "negative-binomial"},
        {"gate": True, "calibration": "online"},
    ],
    ids=str,
)
def test_not_even_where_libraries_round_by_place(changed: dict[str, Any]) -> None:
    """They take numbers in groups, and compute what is left over, or badly placed, in another order or way."""
    assert_alone(Case(MANY, **{"h": 3, "freq": "D", "input_size": 5, "size": (4, 5, 4, 3), **changed}))


# Processes, copies and files


@pytest.fixture(scope="module")
def trained() -> Forecaster:
    return make(**BASE, **COVARIATES).fit(both(range(20)), STATIC)


def forecast_of(forecaster: Forecaster) -> pd.DataFrame:
    """After a further row of each series, so that all functions are called."""
    twin = copy.copy(forecaster)
    twin.update(both([20, 21, 22, 23]))
    return twin.predict(both(range(24, 27)), level=[80])


@pytest.mark.parametrize("way", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))], ids=["deepcopy", "pickle"])
def test_sessions_are_made_anew_for_a_copy(way: Callable[[Any], Any], trained: Forecaster) -> None:
    expected = forecast_of(trained)  # with sessions that are open
    twin = way(trained)
    mine, theirs = (f.runtime.engine.models[0].sessions for f in (trained, twin))
    assert isinstance(theirs, Sessions)
    assert theirs is not mine
    assert theirs.graphs == mine.graphs
    assert not theirs._open
    pd.testing.assert_frame_equal(forecast_of(twin), expected, check_exact=True)
    assert set(theirs._open) == set(trained.runtime.engine.models[0].exported)


def test_a_forked_process_computes_the_same(trained: Forecaster) -> None:
    expected = forecast_of(trained)
    context = multiprocessing.get_context("fork")
    ours, its = context.Pipe()

    def work() -> None:
        sessions = trained.runtime.engine.models[0].sessions
        assert sessions is not None
        before = dict(sessions._open)
        found = forecast_of(trained)
        its.send((found, all(sessions._open[name] is not old for name, old in before.items())))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which nobody here waits for
        child = context.Process(target=work)
        child.start()
    assert ours.poll(120)
    found, anew = ours.recv()
    child.join(60)
    assert child.exitcode == 0
    assert anew
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    pd.testing.assert_frame_equal(forecast_of(trained), expected, check_exact=True)  # and here all is as it was


def test_a_folder_loads_and_forecasts_without_the_exporter(
    trained: Forecaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = forecast_of(trained)
    trained.save(tmp_path / "model")
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("exported again"))
    loaded = Forecaster.load(tmp_path / "model", "cpu")
    pd.testing.assert_frame_equal(forecast_of(loaded), expected, check_exact=True)
    loaded.save(tmp_path / "again")
    again = Forecaster.load(tmp_path / "again", "cpu")
    assert again.runtime.engine.networks == trained.runtime.engine.networks
    with Stream(tmp_path / "again", accelerator="cpu") as stream:
        stream.update(both([20, 21, 22, 23]))
        pd.testing.assert_frame_equal(stream.predict(both(range(24, 27)), [80]), expected, check_exact=True)


NETWORKS = ["network-0-encode", "network-0-decode", "network-0-emit"]


@pytest.mark.parametrize("name", [*NETWORKS, "weights", "states", "series", "model.json"])
def test_a_damaged_file_is_named(name: str, trained: Forecaster, tmp_path: Path) -> None:
    trained.save(tmp_path / "model")
    (path,) = (tmp_path / "model").glob(f"{name}*")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (bytes(flipped), whole[:-1], whole + b"\0", b"", None):
        path.unlink(missing_ok=True)
        if damaged is not None:
            path.write_bytes(damaged)
        with pytest.raises(StorageError, match=name):
            Forecaster.load(tmp_path / "model")
    path.write_bytes(whole)
    Forecaster.load(tmp_path / "model")


def test_methods_that_stay_in_torch_say_so(tmp_path: Path) -> None:
    assert {name for name in MODELS if name not in EXPORTED} == {"deepar", "deepstate"}
    for name in ("deepar", "deepstate"):
        assert dict(MODELS[name].model.exported) == {}
        forecaster = make(**{**BASE, "model": name, "max_steps": 1}).fit(both(range(20)))
        assert forecaster.runtime.engine.networks == [{}]
        assert forecaster.runtime.engine.models[0].sessions is None
        forecaster.save(tmp_path / name)
        assert not list((tmp_path / name).glob("*.onnx"))
        assert Forecaster.load(tmp_path / name, "cpu").runtime.engine.models[0].sessions is None


def test_every_exported_function_has_its_graph() -> None:
    for name in EXPORTED:
        case = Case(3, model=name, h=2, freq="D", input_size=3, size=(2, 2, 2, 2))
        assert case.model.sessions is not None
        assert set(case.model.sessions.graphs) == set(MODELS[name].model.exported), name
