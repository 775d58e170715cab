"""Series with parameters of their own: y = theta_i . [x, 1] + noise, theta_i uniform in [-gamma, gamma].

x is the hour of the day and the day of the week, each rescaled to [0, 1]. The paper's text has noise of standard
deviation 1, under which no RMSE can be below 1; its figure, with errors below 0.1, fits the 0.05 of its code.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from aru.datasets.description import Dataset, Description

NOISE_IN_TEXT, NOISE_IN_CODE = 1.0, 0.05
SYNTHETIC = Description(
    name="synthetic",
    title="Synthetic, local parameters",
    h=24,
    freq="h",
    input_size=24,
    series=10,
    lengths=(1000, 1000),
    season=24,
    futr_exog_list=("hour", "weekday"),
    note="aru.datasets.synthetic.make has gamma, noise, length, series and seed.",
)


def make(
    gamma: float = 20.0, noise: float = NOISE_IN_TEXT, length: int = 1000, series: int = 10, seed: int = 0
) -> Dataset:
    """Hourly series; the same seed gives the same parameters whatever gamma, and the same draws of noise."""
    random = np.random.default_rng(seed)
    ds = pd.date_range("2018-06-01", periods=length, freq="h")
    x = np.stack([ds.hour / 23, ds.day_of_week / 6, np.ones(length)], 1)
    theta = gamma * random.uniform(-1.0, 1.0, (series, 3))
    y = theta @ x.T + noise * random.standard_normal((series, length))
    df = pd.DataFrame(
        {
            "unique_id": np.repeat([f"series-{i}" for i in range(series)], length),
            "ds": np.tile(ds.to_numpy(), series),
            "y": y.ravel(),
            "hour": np.tile(x[:, 0], series),
            "weekday": np.tile(x[:, 1], series),
        }
    )
    return Dataset(df, None, SYNTHETIC)
