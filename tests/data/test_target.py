"""What values y can have: learned, asked for, refused."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from aru import Forecaster, Stream
from aru.data.target import Support
from aru.errors import AruWarning, ConfigError, ValueRangeError
from aru.runtime.screening import IMPOSSIBLE
from tests.making import make

pytestmark = pytest.mark.usefixtures("in_torch")

BASE = {"h": 3, "freq": 1, "size": "small", "max_steps": 3, "accelerator": "cpu"}
COUNTS = np.random.default_rng(0).poisson(0.7, 40).astype(float)
GROUND = 5.0  # training's values lie above it


def frame(y: object, ds: object = None, name: str = "a") -> pd.DataFrame:
    y = np.asarray(y, float)
    return pd.DataFrame({"unique_id": name, "ds": np.arange(len(y)) if ds is None else ds, "y": y})


def warm(n: int = 40) -> pd.DataFrame:
    return frame(GROUND + np.random.default_rng(1).random(n))


def fit(df: pd.DataFrame, **settings: object) -> Forecaster:
    return make(**{**BASE, **settings}).fit(df)


def next_rows(y: object) -> pd.DataFrame:
    y = np.asarray(y, float)
    return frame(y, np.arange(40, 40 + len(y)))


def test_support_of_values() -> None:
    assert Support.of(np.array([0.0, 3.0])) == (True, True)
    assert Support.of(np.array([0.5, 3.0])) == (True, False)
    assert Support.of(np.array([-1.0, 3.0])) == (False, True)
    y = np.array([np.nan, -1.0, 0.5, 2.0])
    assert Support(True, True).outside(y).tolist() == [False, True, True, False]
    assert Support(True, False).outside(y).tolist() == [False, True, False, False]
    assert not Support(False, False).outside(y).any()


def test_auto_follows_training_and_says_so_when_values_leave_it() -> None:
    f = fit(warm())
    with pytest.warns(AruWarning, match=r"negative.*cut off at 0.*support='real'"):
        f.update(next_rows(np.linspace(1.0, -4.0, 12)))
    assert (f.predict(level=[80]).drop(columns=["unique_id", "ds"]) >= 0).all(axis=None)


def test_what_is_new_is_said_once() -> None:
    f = fit(warm())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(3):
            f.update(frame([1.0 - i], [40 + i]))
    assert [str(w.message)[:23] for w in caught] == ["New values are negative"]


@pytest.mark.parametrize("both", [False, True])
def test_a_value_that_is_hardly_of_its_series_is_named(both: bool) -> None:
    """One next row of every series, or rows of any kind; a value that others confirm is none."""
    df = pd.concat([warm(), frame(GROUND + np.arange(5), np.arange(35, 40), "b")])
    new = pd.concat([frame([999999], [40]), frame([999999], [40], "b")])
    f = fit(df)
    with pytest.warns(AruWarning, match=r"far outside the range of its series at \(a, 40\), \(b, 40\)\. It is held"):
        done = f.update(pd.concat([new, frame([7], [41])]) if both else new)
    assert done.held_back.to_dict("list") == {"unique_id": ["a", "b"], "ds": [40, 40], "y": [999999.0] * 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.update(frame([9], [50]))


def test_real_support_forecasts_below_zero() -> None:
    f = fit(warm(), support="real")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.update(next_rows(np.linspace(1.0, -4.0, 12)))
    assert (f.predict(level=[80])["aru-lo-80"] < 0).all()


def test_whole_numbers_are_rounded_unless_support_is_real() -> None:
    df = frame(50 + COUNTS)
    for support, rounded in (("auto", True), ("count", True), ("nonnegative", False), ("real", False)):
        quantiles = fit(df, support=support).predict(level=[80])[["aru-median", "aru-lo-80", "aru-hi-80"]]
        assert (quantiles == quantiles.round()).all(axis=None) == rounded, support
    f = fit(df)
    with pytest.warns(AruWarning, match=r"not whole numbers.*rounded"):
        f.update(next_rows([50.5]))


def test_real_support_leaves_counts_to_the_student_t() -> None:
    assert fit(frame(COUNTS)).runtime.engine.schema.distribution == "negative-binomial"
    assert fit(frame(COUNTS), support="real").runtime.engine.schema.distribution == "student-t"


@pytest.mark.parametrize(
    ("settings", "df", "bad", "message"),
    [
        ({"transform": "log1p"}, warm(), -3.0, r"log1p' needs y >= 0, but y is negative at \(a, 41\)"),
        ({"support": "nonnegative"}, warm(), -3.0, r"support='nonnegative' .* negative at \(a, 41\)"),
        ({"support": "count"}, frame(50 + COUNTS), 2.5, r"support='count' .* not a count at \(a, 41\)"),
        ({"distribution": "negative-binomial"}, frame(COUNTS), 2.5, r"negative binomial .* not a count at \(a, 41\)"),
        ({}, frame(COUNTS), -1.0, r"negative binomial .* not a count at \(a, 41\).*student-t"),  # chosen by itself
    ],
)
def test_values_that_a_model_cannot_take_are_refused_on_every_path(
    settings: dict[str, str], df: pd.DataFrame, bad: float, message: str
) -> None:
    f = fit(df, **settings)
    rows = next_rows([3.0, bad])
    before = f.predict()
    with pytest.raises(ValueRangeError, match=message):
        f.update(rows)
    pd.testing.assert_frame_equal(f.predict(), before)  # nothing was applied
    with pytest.raises(ValueRangeError, match=message):
        Stream(f).update(rows)
    with pytest.raises(ValueRangeError, match=message):
        f.cross_validation(pd.concat([df, rows]), n_windows=1)
    with pytest.raises(ValueRangeError, match=message):
        make(**{**BASE, **settings}).fit(pd.concat([df, rows]), val_size=3)
    left = Stream(f).apply(rows, late="skip", invalid="skip").result
    assert left.applied == 1
    assert left.left_out["reason"].tolist() == [IMPOSSIBLE]


def test_contradicting_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="log1p"):
        make(**BASE, transform="log1p", support="real")
    with pytest.raises(ConfigError, match="negative binomial"):
        make(**BASE, distribution="negative-binomial", support="nonnegative")


def test_a_refusal_names_the_rows_of_its_own_rule() -> None:
    f = fit(frame(50 + COUNTS), transform="log1p", support="count")
    with pytest.raises(ValueRangeError, match=r"negative at \(a, 42\)\. Use transform"):
        f.update(next_rows([3.0, 2.5, -1.0]))
