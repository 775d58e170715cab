"""Gate and calibration on and off: backtests of one trained model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from aru.models.aru import ARU
from experiments.gated import LEVELS, VARIANTS, backtest, switched
from experiments.make import make

pytestmark = pytest.mark.usefixtures("in_torch")


@pytest.mark.usefixtures("as_users_run_it")
def test_backtests_are_those_of_cross_validation_and_differ_by_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ARU, "exported", {})  # torch computes: exporting takes longer than all the rest
    day = np.arange(60)
    ds = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    y = {name: 10.0 * i + 3 * np.sin(day * i) for i, name in enumerate("ab", 1)}
    df = pd.concat([pd.DataFrame({"unique_id": k, "ds": ds, "y": v}) for k, v in y.items()], ignore_index=True)
    small = {"input_size": 4, "size": (3, 4, 4, 3), "max_steps": 4, "lags": None, "accelerator": "cpu"}
    model = make(h=3, freq="D", **small).fit(df[df.ds < "2024-02-05"])
    found = {
        variant: backtest(model, df, 3, variant).sort_values(["unique_id", "y"], ignore_index=True)
        for variant in VARIANTS
    }
    expected = model.cross_validation(df, 3, level=LEVELS)
    columns = ["aru", "aru-median", "aru-lo-80", "aru-hi-80", "aru-lo-90", "aru-hi-90"]
    order = found["adapted"]
    same = expected.sort_values(["unique_id", "y"], ignore_index=True)
    np.testing.assert_allclose(order[columns], same[columns], rtol=1e-5)
    for one, other in (("frozen", "adapted"), ("frozen", "gate"), ("gate", "gate and calibration")):
        assert not found[one][columns].equals(found[other][columns]), (one, other)
    assert switched(model, "gate").settings.gate  # its weights may be 0 and 1 here
    assert found["adapted"].aru.equals(found["calibration"].aru)  # it moves the ends of intervals alone
