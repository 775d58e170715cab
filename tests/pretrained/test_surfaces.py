"""Pretrained models behind the service and in an Adapter, as trained ones are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from aru import Adapter, Forecaster, Stream
from aru.serve.options import Options
from tests.serve.conftest import Running
from tests.shops import H, both

PLAIN = ["unique_id", "ds", "y"]


def opened() -> Forecaster:
    return Forecaster.from_pretrained("nano", h=H, freq="D", accelerator="cpu")


def test_the_service_from_an_empty_store_on(tmp_path: Path) -> None:
    running = Running(Stream(opened(), tmp_path / "state.db", correctable_steps=3), Options(port=0))
    try:
        twin, days = opened(), both(range(40))[PLAIN]
        assert running.post(days).json()["applied"] == 80
        twin.update(days)
        assert running.post(days.tail(3)).json()["duplicates"] == 3
        late = days.tail(1).assign(y=1.0)
        assert running.post(late).status_code == 409
        assert running.post(late, late="correct").json()["corrected"] == 1
        found: Any = running.client.post("/v1/forecasts", json={"unique_ids": ["a"], "level": [80]}).json()
        assert len(found["forecasts"]) == H
        wanted = twin.predict(ids="a", level=[80])
        np.testing.assert_allclose([row["aru"] for row in found["forecasts"]], wanted["aru"], rtol=1e-5)
        for page in ("/", "/healthz", "/readyz", "/metrics", "/v1/series"):
            assert running.client.get(page).status_code == 200
    finally:
        running.stop()
        running.stream.close()


def test_an_adapter_around_its_forecasts() -> None:
    days = both(range(90))[PLAIN]
    rolled = opened().cross_validation(days, n_windows=12, step_size=H)
    adapted = Adapter(H, freq="D", gate=True).cross_validation(rolled, days)
    assert {"aru", "aru-median"} <= set(adapted.columns)
    assert adapted["aru"].notna().all()
    assert len(adapted) == len(rolled)
