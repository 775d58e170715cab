"""Series that try the arithmetic: after every call, states and forecasts are finite."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from aru import Forecaster, Stream
from aru.nn.tree import leaves
from tests.making import make
from tests.torture import Attack, Outcome

ROWS = 2000  # of each series in one call
Pattern = Callable[[np.ndarray[Any, Any], np.random.Generator], Any]

PATTERNS: dict[str, Pattern] = {
    "zeros": lambda t, _: 0.0 * t,
    "a constant": lambda t, _: 0.0 * t + 7.5,
    "a constant with a tiny ripple": lambda t, _: 1e9 + 1e-6 * np.sin(t),
    "a season": lambda t, _: 10 + 5 * np.sin(2 * np.pi * t / 7),
    "noise": lambda t, g: g.normal(0, 1, len(t)),
    "heavy tails": lambda t, g: g.standard_cauchy(len(t)),
    "a random walk": lambda t, g: np.cumsum(g.normal(0, 1, len(t))),
    "a trend": lambda t, _: 0.01 * t,
    "a jump of nine decades": lambda t, _: np.where(t // 5000 % 2, 1e9, 1.0),
    "rare spikes": lambda t, _: np.where(t % 997 == 0, 1e12, 1.0),
    "tiny": lambda t, g: 1e-30 * g.normal(0, 1, len(t)),
    "huge": lambda t, g: 1e29 * g.normal(0, 1, len(t)),
    "rare counts": lambda t, g: g.poisson(0.01, len(t)).astype(float),
    "long gaps": lambda t, g: np.where(t % 700 < 600, np.nan, g.normal(5, 1, len(t))),
}


def model(**more: Any) -> Forecaster:
    """A small one that has seen nothing odd."""
    generator, t = np.random.default_rng(0), np.arange(80)
    frames = [
        pd.DataFrame({"unique_id": f"t{i}", "ds": t, "y": 5 + i + np.sin(t) + generator.normal(0, 0.3, 80)})
        for i in range(6)
    ]
    quiet = {"enable_progress_bar": False}
    f = make(h=4, freq=1, input_size=8, size="small", max_steps=20, accelerator="cpu", trainer=quiet, **more)
    return f.fit(pd.concat(frames)).without_series()


def plain(size: int) -> Outcome:
    """The default model."""
    return send(size, Stream(model()))


def followed(size: int) -> Outcome:
    """With a gate and calibration, which keep numbers of their own."""
    return send(size, Stream(model(gate=True, calibration="online")))


def send(size: int, stream: Stream) -> Outcome:
    """This many updates of every pattern."""
    wrong: set[str] = set()
    generator = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for begin in range(0, size, ROWS):
            t = np.arange(begin, min(begin + ROWS, size))
            # Shifted, since a series begins with a value.
            made = {name: np.asarray(pattern(t + 650, generator)) for name, pattern in PATTERNS.items()}
            stream.update(pd.concat([pd.DataFrame({"unique_id": name, "ds": t, "y": y}) for name, y in made.items()]))
            wrong |= not_finite(stream)
    note = f"{len(PATTERNS)} patterns, {size:,} updates of each" + (f"; not finite: {sorted(wrong)}" if wrong else "")
    return Outcome(len(PATTERNS) * size, len(wrong), note)


def not_finite(stream: Stream) -> set[str]:
    """The series with a state or a forecast that is not finite."""
    forecast = stream.predict(level=[90])
    bad = forecast.drop(columns=["unique_id", "ds"]).isin([np.inf, -np.inf]) | forecast.isna()
    found = set(forecast.unique_id[bad.any(axis=1)])
    ids = stream.series()["unique_id"].tolist()
    with stream.store.reading() as view:
        record = stream.runtime.decode([blob for blob in view.get(ids) if blob is not None], ids)
    for _, values in leaves(record.now):
        if values.is_floating_point():
            lost = ~values.isfinite().flatten(1).all(1) if values.dim() > 1 else ~values.isfinite()
            found |= {name for name, gone in zip(ids, lost.tolist(), strict=True) if gone}
    return found


ATTACKS = [
    Attack("patterns that try the arithmetic", plain, 2000, 200_000),
    Attack("the same with gate and calibration", followed, 2000, 100_000),
]
