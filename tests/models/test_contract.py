"""What every model promises, whatever its settings: nothing here knows how a model works inside."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jaxtyping
import numpy as np
import pandas as pd
import pytest
import torch

from aru import Forecaster
from aru.data.panel import read_panel
from aru.data.rows import Ragged
from aru.errors import FutureError, LateError, ValueRangeError
from aru.models import MODELS
from aru.nn.tree import rebuild
from aru.nn.windows import Block, Grid, gather_block, running_sums
from aru.pretrained.hindsight import HindsightSums
from aru.pretrained.problems import Problems
from aru.pretrained.zero_shot import ZeroShot
from aru.runtime.engine import NetworkEngine
from aru.runtime.epochs import Common
from aru.runtime.state import SeriesState
from aru.settings import PRETRAINED, TrainingOptions
from aru.training import choosing
from aru.training.choosing import Candidate, Judgement, Start, Verdict, tune
from tests.making import flat, make

H, E = 4, 6
BASE: dict[str, Any] = {
    "h": H,
    "freq": "D",
    "input_size": E,
    "size": (4, 5, 4, 3),
    "max_steps": 20,
    "learning_rate": 0.02,
    "weight_average": 0.0,
    "accelerator": "cpu",
    "trainer": {"enable_progress_bar": False},
    "futr_exog_list": ["promo", "price"],
    "hist_exog_list": ["temp", "weather"],
    "stat_exog_list": ["kind", "area"],
}
PAPERS: dict[str, Any] = {"lags": None, "scaler": "mean"}
VARIANTS: dict[str, dict[str, Any]] = {
    **{f"model-{name}": {"model": name} for name in MODELS},
    "finetuned-stride-3": {"model": "baseline-finetuned", "stride": 3, "lags": (4, 9)},
    "skip-not-robust": {"integration": "skip", "robust": False},
    "direct-not-robust": {"model": "aru-direct", "robust": False},
    "generated-paper": {"model": "aru-generated", "integration": "paper", "robust": False, **PAPERS},
    "deepar-many": {"model": "deepar", "encoder": "gru", "encoder_layers": 2, "lags": (4, 9), "transform": "asinh"},
    "deepar-counts": {"model": "deepar", "distribution": "negative-binomial"},
    "residual-not-robust": {"integration": "residual", "robust": False, "stride": 1},
    "paper": {"integration": "paper", "robust": False, "distribution": "gaussian", **PAPERS},
    "level": {"scaler": "level", "series_id": True},
    "asinh": {"transform": "asinh"},
    "log1p": {"transform": "log1p"},
    "stride-3": {"stride": 3},
    "lags-stride-1": {"lags": (4, 9), "stride": 1},
    "season": {"season_length": 2},
    "pretrained": {"model": PRETRAINED},
    "pretrained-calibration": {"model": PRETRAINED, "calibration": "online"},
    "pretrained-covariates": {"model": PRETRAINED, "futr_exog_list": ["promo", "price"]},
    "tuned": {"model": PRETRAINED, "max_steps": 4},
    "tuned-covariates": {"model": PRETRAINED, "max_steps": 4, "futr_exog_list": ["promo", "price"]},
    "season-stride-3": {"season_length": 3, "stride": 3, "lags": (5,)},
    "season-baseline": {"model": "baseline", "season_length": 2},
    "negative-binomial": {"distribution": "negative-binomial"},
    "ensemble": {"ensemble": 2},
    "gru": {"encoder": "gru", "encoder_layers": 2, "learn_alphas": True},
    "sru": {"encoder": "sru", "encoder_layers": 2},
    "fru": {"encoder": "fru", "stride": 3},
    "snail-lags": {"model": "snail", "lags": (4, 9), "scaler": "level"},
    "dropout": {"dropout": 0.1},
    "gate-calibration-stride-3": {"gate": True, "calibration": "online", "stride": 3},
    "baseline-calibration-counts": {
        "model": "baseline",
        "calibration": "online",
        "distribution": "negative-binomial",
    },
    "many": {
        "integration": "residual",
        "stride": 3,
        "lags": (4, 7),
        "scaler": "level",
        "transform": "asinh",
    },
}
LEVEL = [50, 90]
# Of the state, what must not depend on how rows were delivered, not even in the last bit: all but sums and models.
EXACT = ("last", "steps", "context.rows", "context.older", "context.static", "context.count")
START = pd.Timestamp("2024-01-01")

pytestmark = pytest.mark.filterwarnings("ignore:Covariates are unlike those of training")


def rows(uid: str, first: int, y: Any) -> pd.DataFrame:
    """Rows of one series from day `first` on; covariates depend on series and day alone."""
    y = np.asarray(y, dtype=float)
    day = first + np.arange(len(y))
    shift = sum(map(ord, uid))
    return pd.DataFrame(
        {
            "unique_id": uid,
            "ds": START + pd.to_timedelta(day, unit="D"),
            "y": y,
            "promo": np.where((day + shift) % 3 == 0, "yes", "no"),
            "price": 1 + 0.3 * np.sin(0.7 * day + shift),
            "temp": np.cos(0.3 * day + shift),
            "weather": np.where((day * 5 + shift) % 7 < 4, "sun", "rain"),
        }
    )


def values(uid: str, n: int) -> np.ndarray[Any, Any]:
    """A weekly pattern of whole numbers, which every distribution can take, with a few missing."""
    random = np.random.default_rng(sum(map(ord, uid)))
    level = {"a": 20.0, "b": 6.0, "c": 90.0}.get(uid[0], 30.0)
    y = random.gamma(4, level * (1.5 + np.sin(2 * np.pi * np.arange(n) / 7)) / 4).round()
    y[5::11] = np.nan
    return y


class Data(NamedTuple):
    """All rows, and those before and after the end of training. One series has gaps on both sides."""

    full: pd.DataFrame
    train: pd.DataFrame
    new: pd.DataFrame

    @classmethod
    def build(cls, whole: bool) -> Data:
        series = [rows(uid, first, values(uid, 56 - first)) for uid, first in {"a": 0, "b": 5, "c": 20}.items()]
        full = pd.concat(series, ignore_index=True)
        full["y"] += 0 if whole else 0.25
        full = full[~((full["unique_id"] == "b") & full["ds"].isin(GAPS))]
        in_tail = full["ds"] > LAST - pd.Timedelta(days=TAIL)
        return cls(full, full[~in_tail].reset_index(drop=True), full[in_tail].reset_index(drop=True))


TAIL = 3 * H + 2
LAST = START + pd.Timedelta(days=55)
GAPS = START + pd.to_timedelta([15, 16, 46], unit="D")
NUMBERS, COUNTS = Data.build(whole=False), Data.build(whole=True)
STATIC = pd.DataFrame({"unique_id": ["a", "b", "c"], "kind": ["x", "y", "x"], "area": [1.0, 2.0, np.nan]})


def data_for(settings: dict[str, Any]) -> Data:
    return COUNTS if settings.get("distribution") == "negative-binomial" else NUMBERS


def longest(start: Start, early: Problems, held: Problems, steps: int, done: Any) -> Verdict:
    """Tuned for all steps, whether it helps or not."""
    covariates = start.head is not None
    tuned = [weights for _, weights in tune(start, early, covariates, covariates, steps, {steps}, done)][-1]
    judged = [Judgement(Candidate(covariates, covariates, made), 1.0, 0.0, 0.0) for made in (steps, 0)]
    return Verdict(judged, tuned, len(held.unit))


def fit(**changed: Any) -> Forecaster:
    if changed.get("model") == PRETRAINED and "max_steps" in changed:
        training = TrainingOptions(trainer={"enable_progress_bar": False})
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(choosing, "choose", longest)
            f = Forecaster(h=H, freq="D", size="nano", accelerator="cpu", training=training, **changed)
            f.fit(NUMBERS.train, val_size=4 * H)
        (model,) = f.runtime.engine.models
        assert isinstance(model, ZeroShot)
        assert model.headed == bool(model.covariates)
        return f
    if changed.get("model") == PRETRAINED:
        options = {k: v for k, v in changed.items() if k != "model"}
        f = Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu", **options)
        f.update(NUMBERS.train)
        return f
    return make(**{**BASE, **changed}).fit(data_for(changed).train, STATIC)


@pytest.fixture(scope="module", params=list(VARIANTS))
def trained(request: pytest.FixtureRequest) -> Forecaster:
    return fit(**VARIANTS[request.param])


@pytest.fixture
def data(trained: Forecaster) -> Data:
    return data_for(trained.settings.to_json())


@pytest.fixture(autouse=True)
def _as_users_run_it(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Annotations are checked for every model; its settings are tried without, in half the time."""
    variant = request.node.callspec.params.get("trained", "model-")
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", not variant.startswith("model-"))


@pytest.fixture
def forecaster(trained: Forecaster) -> Iterator[Forecaster]:
    """The trained one, for a test to stream into: updates replace states, so a shallow copy protects the others."""
    before = {k: v.clone() for k, v in flat(trained.table.states).items()}
    yield copy.copy(trained)
    assert_equal(before, flat(trained.table.states))


@pytest.fixture
def each_for_itself(forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    """No series learns from another one. tests/pretrained/test_effects.py is about what they have in common."""
    monkeypatch.setattr(NetworkEngine, "learn_common", lambda *_: False)
    forecaster.runtime.engine.common = Common()


def future(f: Forecaster, extra: int = 0) -> pd.DataFrame:
    """Known covariates of the steps after the latest of each series."""
    parts = []
    for uid, last in zip(f.ids, f.table.states.last.tolist(), strict=True):
        first = (pd.Timestamp(last, unit="us") - START).days + 1
        parts.append(rows(uid, first, np.zeros(H + extra)))
    futr = pd.concat(parts)[["unique_id", "ds", "promo", "price"]]
    futr.loc[(futr["unique_id"] == "b") & futr["ds"].isin(GAPS), ["promo", "price"]] = None
    return futr


def predict(f: Forecaster) -> pd.DataFrame:
    out = f.predict(future(f), level=LEVEL)
    return out.sort_values(["unique_id", "ds"], ignore_index=True)


def by_id(f: Forecaster) -> dict[str, torch.Tensor]:
    order = torch.tensor(np.argsort(np.array(f.ids, dtype=object)))
    return {k: v[order] for k, v in flat(f.table.states).items()}


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert value.dtype == second[key].dtype, key
        assert torch.equal(value, second[key]), key


def assert_same(one: Forecaster, other: Forecaster, rtol: float = 1e-5) -> None:
    """Equal states and forecasts: contexts and clocks exactly, statistics but for rounding."""
    assert sorted(one.ids) == sorted(other.ids)
    first, second = by_id(one), by_id(other)
    assert first.keys() == second.keys()
    for key, value in first.items():
        if key.removeprefix("followed.origin.").startswith(EXACT) or not value.is_floating_point():
            assert torch.equal(value, second[key]), key
        else:
            if value.numel():
                size = value.abs().reshape(len(value), -1).amax(1)
                error = (value - second[key]).abs().reshape(len(value), -1).amax(1)
                assert (error <= rtol * size.clamp(min=1e-6)).all(), (key, error, size)
    if shares(one):  # what series have in common is learned from time to time, so when rows come matters
        other = copy.copy(other)
        other.runtime.engine.common = one.runtime.engine.common
    assert_close(predict(one), predict(other), rtol)


def shares(f: Forecaster) -> bool:
    """Whether forecasts of a series rest on others, too."""
    return f.runtime.engine.shares


def is_pretrained(f: Forecaster) -> bool:
    """It reads past values alone."""
    return f.settings.model == PRETRAINED


def forgotten(f: Forecaster, data: Data) -> pd.DataFrame:
    """A late row of series c: its first one, or the one before, if all are remembered."""
    return rows("c", 19, [1.0]) if is_pretrained(f) else data.train[data.train["unique_id"] == "c"].head(1)


def assert_close(first: pd.DataFrame, second: pd.DataFrame, rtol: float = 1e-5) -> None:
    assert list(first.columns) == list(second.columns)
    for column in first.columns:
        if first[column].dtype.kind == "f":
            scale = np.abs(first[column]).max()
            np.testing.assert_allclose(first[column], second[column], rtol=rtol, atol=rtol * scale, err_msg=column)
        else:
            assert list(first[column]) == list(second[column])


def test_forecasting_is_pure(forecaster: Forecaster) -> None:
    weights = [{k: v.clone() for k, v in m.state_dict().items()} for m in forecaster.runtime.engine.models]
    random = torch.random.get_rng_state()
    first, second = predict(forecaster), predict(forecaster)
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert np.isfinite(first.drop(columns=["unique_id", "ds"]).to_numpy()).all()
    assert torch.equal(random, torch.random.get_rng_state())
    for before, model in zip(weights, forecaster.runtime.engine.models, strict=True):
        assert_equal(before, model.state_dict())


def test_inputs_are_not_mutated(forecaster: Forecaster, data: Data) -> None:
    futr = future(forecaster)
    frames = [data.new.copy(), STATIC.copy(), futr.copy(), data.full.copy()]
    kept = [frame.copy(deep=True) for frame in frames]
    forecaster.predict(frames[2], level=LEVEL)
    forecaster.cross_validation(frames[3], n_windows=2, static_df=frames[1])
    forecaster.update(frames[0], static_df=frames[1])
    for frame, before in zip(frames, kept, strict=True):
        pd.testing.assert_frame_equal(frame, before, check_exact=True)


def altered(frame: pd.DataFrame, since: dict[str, pd.Timestamp], columns: list[str]) -> pd.DataFrame:
    """Other values everywhere from a date of each series on."""
    frame = frame.copy()
    late = frame["ds"] >= frame["unique_id"].map(since)
    changes: dict[str, Callable[[pd.Series], Any]] = {
        "y": lambda v: np.where(np.arange(len(v)) % 4 == 0, np.nan, 7 + 1000 * v.fillna(3)),
        "temp": lambda v: np.where(np.arange(len(v)) % 3 == 0, np.nan, -5 * v),
        "weather": lambda v: np.where(np.arange(len(v)) % 2 == 0, "snow", "rain"),
        "promo": lambda v: np.where(v == "yes", "no", "maybe"),
        "price": lambda v: 10 - v,
    }
    for column in columns:
        frame.loc[late, column] = changes[column](frame.loc[late, column])
    return frame


@pytest.mark.parametrize(("columns", "ahead"), [(["y", "temp", "weather"], 0), (["promo", "price"], H)])
def test_nothing_after_the_origin_matters(forecaster: Forecaster, data: Data, columns: list[str], ahead: int) -> None:
    """Of known covariates, nothing after the horizon does."""
    options: dict[str, Any] = {"n_windows": 3, "step_size": H, "level": LEVEL, "static_df": STATIC}
    truth = forecaster.cross_validation(data.full, **options)
    for window in (0, 2):
        cutoffs = truth.groupby("unique_id")["cutoff"].apply(lambda c, w=window: sorted(c.unique())[w])
        since = cutoffs + pd.Timedelta(days=1 + ahead)
        other = forecaster.cross_validation(altered(data.full, since, columns), **options)
        assert list(truth["ds"]) == list(other["ds"])
        early = (truth["cutoff"] <= truth["unique_id"].map(cutoffs)).to_numpy()
        name = forecaster.settings.name
        forecasts = [c for c in truth.columns if c.startswith(name)]
        pd.testing.assert_frame_equal(truth.loc[early, forecasts], other.loc[early, forecasts], check_exact=True)
        if not early.all() and ("y" in columns or not is_pretrained(forecaster)):  # what was altered is not ignored
            assert (truth.loc[~early, forecasts] != other.loc[~early, forecasts]).to_numpy().any()


def test_known_covariates_after_the_horizon_do_not_matter(forecaster: Forecaster) -> None:
    futr = future(forecaster, extra=3)
    since = {uid: futr.loc[futr["unique_id"] == uid, "ds"].iloc[H] for uid in forecaster.ids}
    other = altered(futr, since, ["promo", "price"])
    assert not futr.equals(other)
    pd.testing.assert_frame_equal(forecaster.predict(futr), forecaster.predict(other), check_exact=True)


@pytest.mark.parametrize("h", [1, H - 1])
def test_fewer_steps_are_the_first_ones_of_the_whole_forecast(forecaster: Forecaster, h: int) -> None:
    """Covariates of later steps are not needed, and would not matter."""
    futr = future(forecaster)
    whole = forecaster.predict(futr, LEVEL)
    since = {uid: futr.loc[futr["unique_id"] == uid, "ds"].iloc[h] for uid in forecaster.ids}
    expected = whole[whole.groupby("unique_id").cumcount() < h].reset_index(drop=True)
    for given in (futr, altered(futr, since, ["promo", "price"]), futr[futr["ds"] < futr["unique_id"].map(since)]):
        pd.testing.assert_frame_equal(forecaster.predict(given, LEVEL, h=h), expected, check_exact=True)
    if forecaster.settings.futr_exog_list:
        with pytest.raises(FutureError, match=f"the next {H} steps"):
            forecaster.predict(futr[futr["ds"] < futr["unique_id"].map(since)], LEVEL)


def training_block(f: Forecaster, frame: pd.DataFrame) -> Block:
    engine = f.runtime.engine
    panel = read_panel(frame, f.runtime.freq, engine.columns)
    encoded = engine.schema.encode(panel)
    n = len(panel.ids)
    lengths = torch.from_numpy(panel.lengths)
    return gather_block(
        encoded,
        engine.schema.encode_static({"kind": read_kind(n), "area": np.arange(n, dtype=float)}, panel.ids),
        torch.from_numpy(panel.starts),
        lengths,
        torch.zeros(n, dtype=torch.int64),
        int(lengths.max()) + H,
        engine.schema.input_size,
        engine.schema.lags,
        running_sums(encoded, torch.from_numpy(panel.starts)),
    )


def read_kind(n: int) -> Any:
    from aru.data.columns import Categories

    return Categories(np.arange(n) % 2, ("x", "y"))


@pytest.mark.parametrize("phase", [0, 1])
def test_training_looks_at_nothing_after_the_origin(forecaster: Forecaster, phase: int) -> None:
    """Losses of the windows whose targets end before the altered values are the same to the last bit."""
    if is_pretrained(forecaster):
        pytest.skip("it is not trained on the user's series")
    stride = forecaster.settings.window_stride
    frame = pd.concat([rows(uid, 0, values(uid, 40)) for uid in "abc"])
    grid = Grid(phase, stride, -(-(40 - phase) // stride))
    for at in (13, 24, 37):
        since = dict.fromkeys("abc", START + pd.Timedelta(days=at))
        other = altered(frame, since, ["y", "temp", "weather", "promo", "price"])
        windows = sum(phase + w * stride + H <= at for w in range(grid.count))
        blocks = training_block(forecaster, frame), training_block(forecaster, other)
        for model in forecaster.runtime.engine.models:
            model.eval()
            with torch.no_grad():
                early = [model.losses(block, grid, slice(0, windows)) for block in blocks]
                late = [model.losses(block, grid, slice(windows, None)) for block in blocks]
            assert early[0].values.sum() > 0
            assert torch.equal(early[0].total, early[1].total)
            assert not torch.equal(late[0].total, late[1].total)


def in_chunks(f: Forecaster, frame: pd.DataFrame) -> None:
    """Series by series, in pieces of random sizes."""
    random = np.random.default_rng(3)
    pieces = []
    for _, part in frame.groupby("unique_id"):
        at = 0
        while at < len(part):
            size = int(random.integers(1, 9))
            pieces.append((at + random.random(), part.iloc[at : at + size]))
            at += size
    for _, piece in sorted(pieces, key=lambda item: item[0]):
        f.update(piece)


def shuffled(f: Forecaster, frame: pd.DataFrame) -> None:
    f.update(frame.sample(frac=1, random_state=1))


@pytest.mark.parametrize("deliver", [in_chunks, shuffled])
def test_streaming_equals_batch(forecaster: Forecaster, data: Data, deliver: Callable[..., None]) -> None:
    other = copy.copy(forecaster)
    result = forecaster.update(data.new)
    assert result.applied == len(data.new)
    assert result.gaps_filled == 1
    deliver(other, data.new)
    assert_same(forecaster, other)


def test_row_by_row_equals_batch_from_the_first_value_on(forecaster: Forecaster) -> None:
    """Two new series, one row a call, and the same rows at once."""
    new = pd.concat([rows("d1", 30, values("d1", 13)), rows("e1", 33, values("e1", 6))])
    static = pd.DataFrame({"unique_id": ["d1", "e1"], "kind": ["y", "x"], "area": [1.5, 1.0]})
    other = copy.copy(forecaster)
    forecaster.update(new, static_df=static)
    for at in range(len(new)):
        other.update(new.iloc[at : at + 1], static_df=static)
    assert_same(forecaster, other)


@pytest.mark.usefixtures("each_for_itself")
def test_cross_validation_is_what_streaming_gives(forecaster: Forecaster, data: Data) -> None:
    level, name = LEVEL, forecaster.settings.name
    rolled = forecaster.cross_validation(data.full, n_windows=3, step_size=H, level=level, static_df=STATIC)
    for cutoff, expected in rolled.groupby("cutoff"):
        due = data.new[data.new["ds"] <= cutoff]
        forecaster.update(due)
        got = predict(forecaster)
        assert list(got["ds"]) == list(expected["ds"])
        columns = [c for c in expected.columns if c.startswith(name)]
        assert_close(got[columns], expected[columns].reset_index(drop=True))
    assert rolled["cutoff"].nunique() == 3


def test_interleaved_series_equal_isolated_ones(forecaster: Forecaster, data: Data) -> None:
    other = copy.copy(forecaster)
    extra = pd.concat([data.new, rows("A0", 40, values("A0", 12)), rows("b5", 40, values("b5", 9))])
    static = pd.DataFrame({"unique_id": ["A0", "b5"], "kind": ["y", "x"], "area": [1.5, 1.0]})
    forecaster.update(extra.sort_values("ds"), static_df=static)
    for _, part in extra.groupby("unique_id"):
        other.update(part, static_df=static)
    assert_same(forecaster, other)


@pytest.mark.usefixtures("each_for_itself")
def test_one_series_alone_equals_one_of_many(forecaster: Forecaster, data: Data) -> None:
    together = forecaster.cross_validation(data.full, n_windows=2, level=LEVEL, static_df=STATIC)
    for uid, part in together.groupby("unique_id"):
        alone = forecaster.cross_validation(
            data.full[data.full["unique_id"] == uid], n_windows=2, level=LEVEL, static_df=STATIC
        )
        assert_close(alone, part.reset_index(drop=True))
    one = forecaster.predict(future(forecaster), level=LEVEL, ids=["b"])
    many = forecaster.predict(future(forecaster), level=LEVEL)
    assert_close(one, many[many["unique_id"] == "b"].reset_index(drop=True))


def test_forecasts_from_the_first_value_on(forecaster: Forecaster) -> None:
    static = pd.DataFrame({"unique_id": ["new"], "kind": ["never seen"], "area": [np.nan]})
    for at, y in enumerate([12.0, np.nan, 15.0, 11.0]):
        result = forecaster.update(rows("new", 60 + at, [y]), static_df=static)
        assert result.new_series == (["new"] if at == 0 else [])
        out = predict(forecaster)
        new = out[out["unique_id"] == "new"].drop(columns=["unique_id", "ds"]).to_numpy()
        assert new.shape == (H, 2 + 2 * len(LEVEL))
        assert np.isfinite(new).all()


def test_forecasts_before_the_first_value(forecaster: Forecaster) -> None:
    """From static and known covariates alone, which matter; nothing is remembered."""
    futr = pd.concat([rows("n1", 60, np.zeros(H + 2)), rows("n2", 90, np.zeros(H))])
    static = pd.DataFrame({"unique_id": ["n2", "n1"], "kind": ["never seen", "x"], "area": [1.5, 2.0]})
    before, ids = flat(forecaster.table.states), forecaster.ids
    if is_pretrained(forecaster) and not forecaster.runtime.schema.regressors:
        with pytest.raises(FutureError, match="from past values"):
            forecaster.predict_new(futr, static, level=LEVEL)
        return
    out = forecaster.predict_new(futr, static, level=LEVEL)
    assert out["unique_id"].tolist() == ["n1"] * H + ["n2"] * H
    assert out["ds"].tolist() == futr.groupby("unique_id").head(H)["ds"].tolist()
    assert np.isfinite(out.drop(columns=["unique_id", "ds"]).to_numpy()).all()
    pd.testing.assert_frame_equal(out, forecaster.predict_new(futr, static, level=LEVEL), check_exact=True)
    other = forecaster.predict_new(futr.assign(price=2 * futr["price"]), static, level=LEVEL)
    local_only = forecaster.settings.model == "aru-direct"  # without a value it knows nothing
    assert (out != other).drop(columns=["unique_id", "ds"]).to_numpy().any() == (not local_only)
    assert forecaster.ids == ids
    assert_equal(before, flat(forecaster.table.states))


def test_missing_values_before_the_first_one_do_not_count(forecaster: Forecaster) -> None:
    static = pd.DataFrame({"unique_id": ["new"], "kind": ["x"], "area": [1.0]})
    other = copy.copy(forecaster)
    forecaster.update(rows("new", 60, [np.nan, np.nan, 5.0, 7.0]), static_df=static)
    other.update(rows("new", 62, [5.0, 7.0]), static_df=static)
    assert_same(forecaster, other, rtol=0.0)


def test_intervals_are_ordered(forecaster: Forecaster) -> None:
    name, out = forecaster.settings.name, predict(forecaster)
    ends = [f"{name}-lo-90", f"{name}-lo-50", f"{name}-median", f"{name}-hi-50", f"{name}-hi-90"]
    assert set(out.columns) == {"unique_id", "ds", name, *ends}
    assert (np.diff(out[ends].to_numpy(), axis=1) >= 0).all()
    assert (out[f"{name}-hi-90"] > out[f"{name}-lo-90"]).all()


def gap_rows(uid: str, first: int, n: int) -> pd.DataFrame:
    """A gap written out: rows without value and without covariates."""
    frame = rows(uid, first, np.full(n, np.nan))
    return frame.assign(promo=None, weather=None, price=None, temp=None)


@pytest.mark.parametrize("n", [2, 61])
def test_a_gap_equals_missing_rows(forecaster: Forecaster, n: int) -> None:
    """Also a gap so long that most of it is passed over at once."""
    other = copy.copy(forecaster)
    first = 56 - TAIL
    after = pd.concat([rows("a", first, [30.0]), rows("a", first + 1 + n, values("a", 9))])
    result = forecaster.update(after)
    assert result.gaps_filled == n
    for part in (rows("a", first, [30.0]), gap_rows("a", first + 1, n), rows("a", first + 1 + n, values("a", 9))):
        other.update(part)
    assert_same(forecaster, other)


def test_gaps_of_several_series_known_and_new(forecaster: Forecaster) -> None:
    """Many long gaps in one call, of series in any order, are those of each series alone."""
    other = copy.copy(forecaster)
    parts = [
        pd.concat([rows(uid, begin, values(uid, 3)), rows(uid, begin + gap, values(uid, 5)), rows(uid, 700, [8.0])])
        for uid, begin, gap in [("A9", 40, 90), ("a", 56 - TAIL, 70), ("b3", 41, 300), ("c", 80, 4), ("zz", 20, 200)]
    ]
    static = pd.DataFrame({"unique_id": ["A9", "b3", "zz"], "kind": ["x", "y", "z"], "area": [1.0, 2.0, 3.0]})
    forecaster.update(pd.concat(parts), static_df=static, allow_jump=True)
    for part in parts:
        other.update(part, static_df=static, allow_jump=True)
    assert_same(forecaster, other)


@pytest.mark.usefixtures("each_for_itself")
@pytest.mark.parametrize(("n_windows", "step_size"), [(5, 29), (2, H)])
def test_cross_validation_over_long_gaps(forecaster: Forecaster, data: Data, n_windows: int, step_size: int) -> None:
    """Rows after a gap are not consumed at a cutoff before it, and time in the gap has its own timestamps."""
    begin = 56 - TAIL
    before, after = rows("a", begin, [30.0, 31.0]), rows("a", 160, [33.0, 35.0, 29.0, 31.0])
    frame = pd.concat([data.train[data.train["unique_id"] == "a"], before, after])
    options: dict[str, Any] = {"n_windows": n_windows, "step_size": step_size, "level": LEVEL, "allow_jump": True}
    rolled = forecaster.cross_validation(frame, static_df=STATIC, **options)
    forecaster.update(before)
    assert rolled["cutoff"].nunique() == n_windows
    for cutoff, expected in rolled.groupby("cutoff"):
        here, passed = copy.copy(forecaster), (cutoff - START).days - begin - 1
        if passed:
            here.update(gap_rows("a", begin + 2, passed))
        # The covariates of rows that are not there are missing, too.
        known = after if cutoff == rolled["cutoff"].max() else gap_rows("a", begin + 2 + passed, H)
        got = here.predict(known, level=LEVEL, ids=["a"])
        assert_close(got, expected[got.columns].reset_index(drop=True))


@pytest.mark.usefixtures("each_for_itself")
def test_cross_validation_of_series_with_gaps_equals_each_alone(forecaster: Forecaster) -> None:
    gaps = {"p": (8, 90), "q": (3, 150), "r": (12, 60)}
    parts = [pd.concat([rows(u, 0, values(u, n)), rows(u, gap, values(u, 11))]) for u, (n, gap) in gaps.items()]
    static = pd.DataFrame({"unique_id": list(gaps), "kind": ["x", "y", "z"], "area": [1.0, 2.0, 3.0]})
    options: dict[str, Any] = {"n_windows": 3, "step_size": 2, "level": LEVEL, "static_df": static, "allow_jump": True}
    together = forecaster.cross_validation(pd.concat(parts), **options)
    for (uid, expected), part in zip(together.groupby("unique_id"), parts, strict=True):
        alone = forecaster.cross_validation(part, **options)
        assert list(alone["unique_id"].unique()) == [uid]
        assert_close(alone, expected.reset_index(drop=True))


def test_a_long_gap_costs_no_more_than_a_short_one(forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    take_in = NetworkEngine.take_in

    def counting(self: NetworkEngine, state: SeriesState, data: Any, adapt: bool = True) -> SeriesState:
        taken.append(len(data.rows.y))
        return take_in(self, state, data, adapt)

    monkeypatch.setattr(NetworkEngine, "take_in", counting)
    seen = forecaster.runtime.max_gap
    for gap in (2 * seen, 50_000):
        copy.copy(forecaster).update(rows("a", 56 - TAIL + gap, [3.0]), allow_jump=True)
    assert taken[0] == taken[1] <= seen + 1
    assert seen < 50 or is_pretrained(forecaster)


def test_the_state_does_not_grow(forecaster: Forecaster) -> None:
    def size() -> int:
        return sum(v.numel() * v.element_size() for v in flat(forecaster.table.states).values())

    before = size()
    forecaster.update(rows("a", 56 - TAIL, np.tile(values("a", 56), 20)))
    assert size() == before


def test_the_state_survives_a_dictionary_of_tensors(forecaster: Forecaster) -> None:
    like = forecaster.runtime.engine.empty(forecaster.runtime.engine.schema.no_static())
    assert_equal(flat(forecaster.table.states), flat(rebuild(like, flat(forecaster.table.states))))


def test_save_and_load_keep_every_bit(forecaster: Forecaster, data: Data, tmp_path: Path) -> None:
    forecaster.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model", accelerator="cpu")
    assert loaded.ids == forecaster.ids
    assert_equal(flat(forecaster.table.states), flat(loaded.table.states))
    pd.testing.assert_frame_equal(predict(forecaster), predict(loaded), check_exact=True)
    forecaster.update(data.new)
    loaded.update(data.new)
    assert_equal(flat(forecaster.table.states), flat(loaded.table.states))
    pd.testing.assert_frame_equal(predict(forecaster), predict(loaded), check_exact=True)


def test_a_replay_changes_nothing(forecaster: Forecaster, data: Data) -> None:
    forecaster.update(data.new)
    before = flat(forecaster.table.states)
    replay = data.new[data.new["ds"] > LAST - pd.Timedelta(days=E)]
    result = forecaster.update(replay)
    assert (result.applied, result.duplicates) == (0, len(replay))
    assert len(result.late) == 0
    assert_equal(before, flat(forecaster.table.states))
    again = pd.concat([replay, rows("a", 56, [3.0])])
    result = forecaster.update(again)
    assert (result.applied, result.duplicates) == (1, len(replay))


def test_late_rows_are_refused_and_nothing_is_applied(forecaster: Forecaster, data: Data) -> None:
    before, ids = flat(forecaster.table.states), forecaster.ids
    last = data.train["ds"].max()
    conflict = data.train[(data.train["unique_id"] == "a") & (data.train["ds"] == last)].assign(y=1e3)
    old = forgotten(forecaster, data)
    new = pd.concat([data.new, rows("new", 60, [1.0])])
    static = pd.DataFrame({"unique_id": ["new"], "kind": ["x"], "area": [1.0]})
    for bad in (conflict, old):
        row = rf"\({bad['unique_id'].iloc[0]}, {bad['ds'].iloc[0].date()}\)"
        with pytest.raises(LateError, match=rf"{row}.*Nothing was applied.*late='skip'"):
            forecaster.update(pd.concat([new, bad]), static_df=static)
    assert forecaster.ids == ids
    assert_equal(before, flat(forecaster.table.states))


def test_skipping_late_rows_applies_the_rest(forecaster: Forecaster, data: Data) -> None:
    other = copy.copy(forecaster)
    last = data.train["ds"].max()
    conflict = data.train[(data.train["unique_id"] == "a") & (data.train["ds"] == last)].assign(y=1e3)
    old = forgotten(forecaster, data)
    result = forecaster.update(pd.concat([old, data.new, conflict]), late="skip")
    other.update(data.new)
    assert result.applied == len(data.new)
    late = result.late.sort_values("unique_id", ignore_index=True)
    assert list(late.columns) == ["unique_id", "ds", "y", "reason"]
    assert late["unique_id"].tolist() == ["a", "c"]
    assert late["ds"].tolist() == [last, old["ds"].iloc[0]]
    assert late["y"].tolist() == [1e3, old["y"].iloc[0]]
    assert late["reason"].nunique() == 2
    assert_equal(by_id(forecaster), by_id(other))


def test_a_bad_call_applies_nothing(forecaster: Forecaster, data: Data) -> None:
    before, ids = flat(forecaster.table.states), forecaster.ids
    bad_calls = [
        data.new.assign(y=np.where(np.arange(len(data.new)) == 3, np.inf, data.new["y"])),
        pd.concat([data.new, rows("new", 60, [np.nan])]),
        pd.concat([data.new, data.new.tail(1)]),
        *([] if is_pretrained(forecaster) else [data.new.drop(columns="temp")]),
        data.new.assign(ds=data.new["ds"].where(np.arange(len(data.new)) != 4, data.new["ds"] + pd.Timedelta(hours=1))),
    ]
    for bad in bad_calls:
        with pytest.raises(ValueError, match="df"):
            forecaster.update(bad, static_df=STATIC)
    with pytest.raises(ValueRangeError, match="new"):
        forecaster.update(pd.concat([data.new, rows("new", 60, [np.nan])]))
    assert forecaster.ids == ids
    assert_equal(before, flat(forecaster.table.states))


def test_frozen_statistics_and_moving_context(forecaster: Forecaster, data: Data) -> None:
    """Without adaptation only the context moves: a model that does not adapt forecasts the same either way."""
    options: dict[str, Any] = {"n_windows": 3, "step_size": H, "static_df": STATIC, "level": [90]}
    name = f"{forecaster.settings.name}-hi-90"
    running = forecaster.cross_validation(data.full, **options)
    frozen = forecaster.cross_validation(data.full, adapt=False, **options)
    first = (running["cutoff"] == running["cutoff"].min()).to_numpy()
    assert (running.loc[first, name] == frozen.loc[first, name]).all()
    adapts = forecaster.runtime.engine.models[0].adapts or forecaster.settings.calibration is not None
    assert (running.loc[~first, name] != frozen.loc[~first, name]).any() == adapts
    # Frozen forecasts after the first cutoff still read the context: they depend on values after the first cutoff.
    since = dict.fromkeys("abc", running["cutoff"].min() + pd.Timedelta(days=1))
    other = forecaster.cross_validation(altered(data.full, since, ["y"]), adapt=False, **options)
    assert (other.loc[~first, name] != frozen.loc[~first, name]).any()
    # What the models keep about a series is what it was at the first cutoff.
    forecaster.update(data.new[data.new["ds"] <= running["cutoff"].min()])
    moved = advance_frozen(forecaster, data.new[data.new["ds"] > running["cutoff"].min()])
    kept, now = flat(forecaster.table.states), flat(moved.table.states)
    for key, value in kept.items():
        same = torch.equal(value, now[key])
        if key.startswith(("members", "followed.learned")):
            assert same, key
        elif key in ("context.rows.y", "last", "context.count", "context.rows.ds", "context.total", "steps"):
            assert not same, key


def advance_frozen(f: Forecaster, frame: pd.DataFrame) -> Forecaster:
    """The forecaster after these rows, without adaptation."""
    panel, engine = f.runtime.read_history(frame), f.runtime.engine
    bounds = (torch.from_numpy(v) for v in (panel.starts, panel.lengths, panel.skipped))
    moved = copy.copy(f)
    states = engine.advance(f.table.states, Ragged(engine.schema.encode(panel), *bounds), adapt=False)
    moved.table.put(f.ids, states)
    return moved


def test_every_observation_adapts_the_next_forecast(forecaster: Forecaster) -> None:
    """At once, wherever the grid of origins stands: the same context without adaptation forecasts something else.

    A pretrained model without covariates learns in rounds instead (tests/pretrained/test_hindsight.py).
    """
    name, adapts = forecaster.settings.name, forecaster.runtime.engine.models[0].adapts
    for day in range(56 - TAIL, 56 - TAIL + H):
        today = pd.concat([rows(uid, day, [y]) for uid, y in {"a": 33.0, "b": 11.0, "c": 99.0}.items()])
        frozen, before = advance_frozen(forecaster, today), forecaster.table.states.members[0]
        epoch = forecaster.runtime.epoch
        forecaster.update(today)
        one, other = predict(forecaster), predict(frozen)
        changed = (one != other).drop(columns=["unique_id", "ds"]).groupby(one["unique_id"]).any()
        if not isinstance(before, HindsightSums):
            assert changed[name].tolist() == [adapts] * 3
        elif forecaster.runtime.epoch == epoch:  # only a round teaches
            due = forecaster.table.states.members[0].passed < before.passed
            assert not changed[name].to_numpy()[~due.numpy()].any()


@pytest.mark.usefixtures("each_for_itself")
@pytest.mark.filterwarnings("ignore:1 of 4 series are too short for 3 windows")
def test_a_short_series_freezes_at_its_own_first_cutoff(forecaster: Forecaster, data: Data) -> None:
    """A series too short for the first window of the others still learns up to its own first cutoff."""
    static = pd.concat([STATIC, pd.DataFrame({"unique_id": ["s"], "kind": ["x"], "area": [1.0]})])
    frame = pd.concat([data.full, rows("s", 60, values("s", 2 * H + 3))])
    name = forecaster.settings.name
    with_others = forecaster.cross_validation(frame, n_windows=3, adapt=False, static_df=static)
    adapting = forecaster.cross_validation(frame, n_windows=3, adapt=True, static_df=static)
    own, same = (f[f["unique_id"] == "s"].reset_index(drop=True) for f in (with_others, adapting))
    assert own["cutoff"].nunique() == 2
    assert_close(own.loc[: H - 1, [name]], same.loc[: H - 1, [name]])


@pytest.mark.parametrize("stride", [1, 3, H])
@pytest.mark.parametrize("way", ["onnx", "torch"])
def test_forecasts_from_too_few_values_teach_nothing(stride: int, way: str) -> None:
    """Statistics begin with the window of the first origin that knew as many values as a window has rows."""
    f = fit(stride=stride, max_steps=2)
    if way == "torch":
        f.runtime.engine.models[0].sessions = None
    static = pd.DataFrame({"unique_id": ["new"], "kind": ["x"], "area": [1.0]})
    seen = []
    for day, y in enumerate(np.arange(10.0, 2 * stride + 13)):
        f.update(rows("new", 60 + day, [y]), static_df=static if day == 0 else None)
        seen.append(float(f.table.states.members[0].local.stats.sn[f.ids.index("new"), 0]))
    first = 1 + (0 if stride == 1 else stride)  # values that the first informed origin knows
    assert seen[:first] == [0.0] * first
    assert all(0 < one < other for one, other in itertools.pairwise(seen[first:]))


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("stride", [1, H])
def test_an_empty_state_is_the_global_forecast(robust: bool, stride: int) -> None:
    """integration="residual": after its first value a series' forecast is exactly the global head's."""
    f = fit(integration="residual", robust=robust, stride=stride, max_steps=20, scaler="mean")
    static = pd.DataFrame({"unique_id": ["new"], "kind": ["x"], "area": [1.0]})
    f.update(rows("new", 60, [12.0]), static_df=static)
    engine, model = f.runtime.engine, f.runtime.engine.models[0]
    heads = []
    global_head = model.joint.global_head

    def listen(_: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        heads.append(output)

    exported = f.predict(future(f), level=[80], ids=["new"])
    model.sessions = None  # to hear what the modules say
    handle = global_head.register_forward_hook(listen)
    out = f.predict(future(f), level=[80], ids=["new"])
    handle.remove()
    pd.testing.assert_frame_equal(exported, out, rtol=1e-5)
    (raw,) = heads
    scale = engine.schema.unit + 12.0
    mu = raw[0, :, 0].double() * scale
    np.testing.assert_array_equal(out["aru"], mu.clamp(min=0).numpy())
    sigma = (torch.nn.functional.softplus(raw[0, :, 1]) + 1e-3).double() * scale
    from scipy.stats import t

    high = mu.numpy() + sigma.numpy() * t(df=4).ppf(0.9)
    np.testing.assert_allclose(out["aru-hi-80"], high, rtol=1e-6)
