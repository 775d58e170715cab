"""Series with local parameters: y = theta_i . [x, 1] + noise, theta_i uniform in [-gamma, gamma]."""

from __future__ import annotations

import numpy as np
import pandas as pd


def make_series(gamma: float, noise: float, length: int, series: int = 10, seed: int = 0) -> pd.DataFrame:
    """Hourly series; x = [hour of day, day of week], each rescaled to [0, 1]."""
    random = np.random.default_rng(seed)
    ds = pd.date_range("2018-06-01", periods=length, freq="h")
    x = np.stack([ds.hour / 23, ds.dayofweek / 6, np.ones(length)], 1)
    theta = random.uniform(-gamma, gamma, (series, 3))
    y = theta @ x.T + noise * random.standard_normal((series, length))
    return pd.DataFrame(
        {
            "unique_id": np.repeat([f"series-{i}" for i in range(series)], length),
            "ds": np.tile(ds, series),
            "y": y.ravel(),
            "hour": np.tile(x[:, 0], series),
            "weekday": np.tile(x[:, 1], series),
        }
    )
