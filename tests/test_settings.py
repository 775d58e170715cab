"""Every refusal names the setting, the value and what is allowed; everything else is kept as given."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest

from aru import Adapter, Forecaster
from aru.adapter_settings import AdapterSettings
from aru.checked import documentation
from aru.errors import ConfigError
from aru.settings import (
    PAPER,
    SIZES,
    NetworkOptions,
    Settings,
    Size,
    TrainingOptions,
    fields_by_name,
    nested,
)
from tests.making import make_settings

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True)
def _as_users_run_it() -> Iterator[None]:
    """Nobody checks annotations outside of tests: settings must look after themselves."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def make(**options: Any) -> Settings:
    return make_settings(**{"h": 4, "freq": "D", **options})


COUNTS = ("h", "input_size", "stride", "encoder_layers", "ensemble", "max_steps", "batch_size", "season_length")


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_counts_must_be_whole_numbers_of_at_least_one(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a (whole )?number.*, got {value!r}"):
        make(**{name: value})


@pytest.mark.parametrize("name", [n for n in COUNTS if n not in ("input_size", "stride", "season_length", "max_steps")])
def test_counts_must_be_given(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        make(**{name: None})
    open_ = make(input_size=None, stride=None, season_length=None)
    assert (open_.input_size, open_.network.stride, open_.season_length) == (None, None, None)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"freq": True}, "freq must be text or a whole number, got True"),
        ({"freq": 1.0}, r"freq must be .* got 1\.0"),
        ({"freq": ["D"]}, "freq must be"),
        ({"freq": 0}, "integer freq must be at least 1, got 0"),
        ({"freq": -7}, "integer freq must be at least 1, got -7"),
        ({"stride": 5}, r"stride=5 is longer than h=4\. Choose a stride of at most h\."),
        (
            {"integration": "sum"},
            r"integration='sum' is not known\. Choose one of 'residual', 'skip', 'paper', 'direct'\.",
        ),
        ({"scaler": "max"}, r"scaler='max' is not known\. Choose one of 'auto', 'mean', 'level'\."),
        ({"transform": "log"}, r"transform='log' is not known\. Choose one of None, 'log1p', 'asinh'\."),
        ({"distribution": "normal"}, r"distribution='normal' is not known\. Choose one of 'auto', 'student-t'"),
        ({"encoder": "rnn"}, r"encoder='rnn' is not known\. Choose one of 'lstm'"),
        ({"schedule": "cosine"}, r"schedule='cosine' is not known\. Choose one of 'one-cycle', 'constant'\."),
        ({"size": "huge"}, r"size='huge' is not known\. Choose one of small, medium, large, xlarge, or four numbers"),
        ({"size": (8, 8, 8)}, r"size is four positive numbers .* got \(8, 8, 8\)"),
        ({"size": (8, 8, 0, 8)}, "size is four positive numbers"),
        ({"alphas": ()}, r"alphas must be one or more numbers in \(0, 1\]"),
        ({"alphas": (1.0, 0.0)}, r"alphas must be one or more numbers in \(0, 1\], got \(1\.0, 0\.0\)"),
        ({"alphas": (1.01,)}, "alphas must be"),
        ({"alphas": (NAN,)}, "alphas must be"),
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"ridge": NAN}, "ridge must be a finite number"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1\.0"),
        ({"dropout": -0.1}, "dropout must lie in"),
        ({"weight_average": 1.0}, "weight_average must lie in"),
        ({"weight_average": -0.5}, "weight_average must lie in"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"learning_rate": NAN}, "learning_rate must be a finite number"),
        ({"distribution": "negative-binomial", "transform": "log1p"}, r"counts as they are\. Use transform=None\."),
        ({"random_seed": -1}, "random_seed must be a whole number of at least 0, got -1"),
        ({"season_length": 5, "input_size": 8}, r"season and a stride, 9 rows, but input_size is 8\. Raise it"),
        ({"network": {"stride": 1}}, r"network must be NetworkOptions\(\.\.\.\), got \{'stride': 1\}"),
        ({"training": None}, r"training must be TrainingOptions\(\.\.\.\), got None"),
        ({"colour": 1}, r"There is no setting 'colour'\. Choose one of .*alphas.*weight_average"),
        ({"season": 7}, r"There is no setting 'season'\."),
        ({"trainer": 7}, "trainer must be a mapping of names to values, got 7"),
        ({"cold_starts": 1.5}, r"cold_starts must lie in \[0, 1\], got 1\.5"),
        ({"cold_starts": -0.1}, "cold_starts must lie in"),
        ({"size_weight": 2.5}, r"size_weight must lie in \[0, 2\], got 2\.5"),
        ({"accelerator": "mps"}, "'mps' has no float64"),
        (
            {"accelerator": "abacus"},
            r"accelerator='abacus' is not known\. Choose one of 'auto', 'cpu', 'gpu', 'cuda'\.",
        ),
        ({"learn_ridge": "no"}, "learn_ridge must be True or False, got 'no'"),
        ({"robust": 1}, "robust must be True or False, got 1"),
        ({"series_id": None}, "series_id must be True or False, got None"),
        ({"lags": "weekly"}, "lags must be a list of whole numbers or 'auto', got 'weekly'"),
        ({"lags": 7}, "lags must be a list of whole numbers or 'auto', got 7"),
        ({"alphas": 0.9}, r"alphas must be a list of numbers, got 0\.9"),
        ({"alphas": ["x"]}, "alphas must be a list of numbers"),
        ({"size": 12}, "size must be text or a list of whole numbers, got 12"),
        ({"ridge": "x"}, "ridge must be a finite number, got 'x'"),
        ({"learning_rate": None}, "learning_rate must be a finite number, got None"),
        ({"ensemble": 2, "snapshots": 5}, r"Both ensemble .* and snapshots .*\. Choose one\."),
        ({"futr_exog_list": "promo"}, "futr_exog_list must be a list of column names, got the string 'promo'"),
        ({"hist_exog_list": "promo"}, "hist_exog_list must be a list"),
        ({"stat_exog_list": "promo"}, "stat_exog_list must be a list"),
        ({"futr_exog_list": ["a", "y"]}, "'y' in futr_exog_list is reserved"),
        ({"hist_exog_list": ["ds"]}, "'ds' in hist_exog_list is reserved"),
        ({"stat_exog_list": ["unique_id"]}, "'unique_id' in stat_exog_list is reserved"),
        ({"futr_exog_list": ["a"], "stat_exog_list": ["a"]}, "'a' is listed in futr_exog_list and in stat_exog_list"),
        (
            {"hist_exog_list": ["a", "b", "a"]},
            r"'a' is listed in hist_exog_list and in hist_exog_list\. List it once\.",
        ),
        ({"lags": [7, 3, 1]}, r"Lags \[1, 3\] are shorter than h=4.*Use lags of at least 4"),
        ({"gate": 1}, "gate must be True or False, got 1"),
        ({"calibration": "offline"}, r"calibration='offline' is not known\. Choose one of None, 'online'\."),
        ({"calibration": True}, "calibration=True is not known"),
        (
            {"search": {"h": [1, 2]}},
            r"search cannot choose 'h'\. Give a list of candidate values for one or more of alphas, dropout",
        ),
        ({"search": {"ridge": []}}, "search has a setting without candidates"),
    ],
)
def test_what_cannot_work_is_refused_with_what_can(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"lags": [7.5]},
        {"size": (8, 8, 8, 8.5)},
        {"ridge": INF},
        {"learning_rate": INF},
        {"random_seed": 1.5},
        {"snapshots": -1},
        {"alias": "ds"},
        {"alias": "y"},
        {"alias": "cutoff"},
        {"search": {"ridge": 1.0}},
    ],
    ids=str,
)
def test_values_that_would_fail_later_are_refused_as_well(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        make(**options)


def test_defaults_are_valid_and_settings_cannot_be_changed() -> None:
    settings = make()
    network, training = settings.network, settings.training
    assert (network.integration, network.robust, settings.size, settings.ensemble) == ("residual", True, "medium", 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.h = 5  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        network.stride = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        training.snapshots = 1  # type: ignore[misc]


def test_sequences_become_tuples() -> None:
    settings = make(futr_exog_list=["b", "a"], stat_exog_list=None, alphas=[1, 0.5], lags=[9, 4, 9], size=[8, 8, 6, 6])
    assert settings.futr_exog_list == ("b", "a")
    assert settings.stat_exog_list == ()
    assert settings.network.alphas == (1.0, 0.5)
    assert settings.lags == (4, 9)
    assert settings.size == (8, 8, 6, 6)
    assert make(lags=[]).lags == ()
    assert make(lags="auto").lags == "auto"
    assert make(lags=[4]).lags == (4,)  # as long as the horizon is long enough


def test_sizes_are_those_of_the_paper() -> None:
    assert SIZES["small"] == Size(8, (8, 6, 6))
    assert SIZES["medium"] == Size(16, (16, 15, 10))
    assert SIZES["large"] == Size(50, (32, 20, 15))
    assert SIZES["xlarge"] == Size(64, (64, 64, 32))
    for name, size in SIZES.items():
        assert make(size=name).network_size == size
    assert make(size=(5, 4, 3, 2)).network_size == Size(5, (4, 3, 2))


def test_derived_values() -> None:
    assert make().window_stride == 4
    assert make(stride=1).window_stride == 1
    assert make().name == "aru"
    assert make(model="baseline").name == "baseline"
    assert make(model="baseline", alias="mine").name == "mine"


def test_the_papers_training_is_a_valid_preset_that_nobody_can_change() -> None:
    settings = make(**PAPER)
    assert settings.learning_rate == 1e-4
    assert settings.batch_size == 64
    training = settings.training
    assert (settings.distribution, settings.network.integration, training.snapshots) == ("gaussian", "paper", 5)
    assert training.search is not None
    assert set(training.search) == {"ridge", "alphas"}
    with pytest.raises(TypeError):
        PAPER["learning_rate"] = 1.0  # type: ignore[index]
    for change in (
        lambda search: search.update(ridge=()),
        lambda search: search.__setitem__("ridge", ()),
        lambda search: search.pop("ridge"),
        lambda search: search.clear(),
    ):
        with pytest.raises(TypeError, match="Settings cannot be changed"):
            change(PAPER["training"].search)
    for twin in (copy.deepcopy(settings), pickle.loads(pickle.dumps(settings))):
        assert twin == settings


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"freq": None, "input_size": 16, "lags": [4, 11], "size": (8, 8, 6, 6), "futr_exog_list": ["promo", "ü"]},
        {"freq": 3, "lags": "auto", "alphas": (0.9,), "transform": "asinh", "alias": "mine", "stride": 2},
    ],
)
def test_json_round_trip(options: dict[str, Any]) -> None:
    settings = make(**options)
    assert Settings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_json_of_a_search_and_of_what_belongs_to_the_machine() -> None:
    settings = make(**PAPER, trainer={"logger": object()})
    stored = json.loads(json.dumps(settings.to_json()))
    assert stored["training"]["trainer"] is None
    assert settings.training.trainer is not None
    restored = Settings.from_json(stored)
    assert restored.training.search == {"ridge": [0.01, 0.1, 1.0], "alphas": [[1.0], [1.0, 0.99], [1.0, 0.95, 0.9]]}
    for values, kind in (
        (stored, Settings),
        (stored["network"], NetworkOptions),
        (stored["training"], TrainingOptions),
    ):
        assert set(values) == {f.name for f in dataclasses.fields(kind)}


def test_a_name_is_used_once_and_its_home_is_known() -> None:
    homes = fields_by_name()
    kinds = {None: Settings, "network": NetworkOptions, "training": TrainingOptions}
    names = [(home, f.name) for home, kind in kinds.items() for f in dataclasses.fields(kind)]
    assert len(homes) == len(names)
    assert all(homes[name] == home for home, name in names)


def test_settings_by_name_go_where_they_live() -> None:
    given = NetworkOptions(encoder="gru", stride=2)
    out = nested({"h": 3, "stride": 1, "snapshots": 2, "network": given})
    assert out == {
        "h": 3,
        "network": NetworkOptions(encoder="gru", stride=1),
        "training": TrainingOptions(snapshots=2),
    }
    assert nested({"h": 3}) == {"h": 3}


@pytest.mark.parametrize(
    ("kind", "where", "more"),
    [
        (Settings, Settings, []),
        (Settings, Forecaster, []),
        (NetworkOptions, NetworkOptions, []),
        (TrainingOptions, TrainingOptions, []),
        (AdapterSettings, Adapter, ["store"]),
    ],
)
def test_every_setting_is_documented_in_order(kind: type[Any], where: type[Any], more: list[str]) -> None:
    told = documentation(where)
    assert list(told) == [*(f.name for f in dataclasses.fields(kind)), *more]
    for name, text in told.items():
        assert text.endswith("."), name
        assert text[0].isupper() or text[0] == '"', name
