"""The experiment of the defaults: which rows there are, and how they are scored."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments import choosing_figure
from experiments import defaults as module
from experiments.defaults import FINE, FITTED, FIXED, NAIVE, ZERO_SHOT, Default, coverage, defaults
from experiments.panels import Panel
from tests.experiments.test_zeroshot import toy

TOY = Panel(toy, 6, "MS", 12, 3, 6, 24)


def test_every_panel_has_every_method() -> None:
    jobs = defaults(range(3))
    places = {(job.dataset, job.protocol) for job in jobs}
    assert {d for d, _ in places} == {
        "rossmann", "walmart", "parts", "tourism_monthly", "gefcom2012", "electricity_10", "m4_hourly", "m1_monthly",
        "m1_quarterly", "m1_yearly", "etth1", "nyc_flights",
    }  # fmt: skip
    for method, seeds in ((NAIVE, 1), (ZERO_SHOT, 1), (FITTED, 3), ("aru-rnn", 3), ("baseline", 3)):
        assert sum(job.method == method for job in jobs) == seeds * len(places)


def test_a_row_is_what_a_user_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.PANELS, "toy", TOY)
    monkeypatch.setitem(module.PLAIN, "toy", {FIXED: (1, 0)})
    (naive,) = Default("toy", FIXED, NAIVE, 0).compute()
    (zero,) = Default("toy", FIXED, ZERO_SHOT, 0).compute()
    (fitted,) = Default("toy", FIXED, FITTED, 0, steps=4).compute()
    assert naive["series"] == zero["series"] == fitted["series"] == 2
    assert "coverage90" not in naive
    assert 0 < zero["nd"] < 1
    assert {"nd", "mase", "crps", "coverage80", "coverage90"} <= set(fitted)


def test_coverage_of_counts_is_that_of_ranks() -> None:
    """Poisson counts and their own quantiles: the ranks are uniform, while whole intervals cover more."""
    from scipy.stats import poisson

    y = np.random.default_rng(0).poisson(1.5, 20_000)
    ends = {}
    for level in sorted({*FINE, 80, 90}):
        ends[f"f-lo-{level}"], ends[f"f-hi-{level}"] = (
            poisson.ppf(0.5 - level / 200, 1.5),
            poisson.ppf(0.5 + level / 200, 1.5),
        )
    frame = pd.DataFrame({"y": y.astype(float), **ends})
    found = coverage(frame, "f", counts=True)
    assert found["coverage80"] == pytest.approx(0.8, abs=0.02)
    assert found["coverage90"] == pytest.approx(0.9, abs=0.02)
    assert coverage(frame, "f", counts=False)["coverage80"] > 0.85
    assert coverage(frame[["y"]], "f", counts=True) == {}


def test_the_picture_compares_methods_on_the_same_panels() -> None:
    keys = ["dataset", "protocol", "method", "nd", "seconds"]
    panels = [("rossmann", 0.2), ("walmart", 0.1), ("parts", 1.5)]
    rows = [(name, "fixed", "seasonal-naive", naive, 1.0) for name, naive in panels]
    rows += [(name, "fixed", "aru", naive / 2, 60.0) for name, naive in panels]
    rows += [(name, "fixed", "lightgbm", naive * 0.8, 90.0) for name, naive in panels[:2]]
    rows += [("rossmann", "fixed", "baseline", 0.01, 30.0)]  # on too few panels
    found, count = choosing_figure.points(pd.DataFrame(rows, columns=keys))
    assert count == 2
    assert found.nd.round(6).to_dict() == {"seasonal-naive": 1.0, "lightgbm": 0.8, "aru": 0.5}
    assert found.seconds.to_dict() == {"seasonal-naive": 1.0, "lightgbm": 90.0, "aru": 60.0}
