"""Series for the tests of hosts."""

from __future__ import annotations

import numpy as np
import pandas as pd

DAYS = pd.date_range("2024-01-01", periods=120)
PROMO = 6.0  # what it adds


def shops(n: int = 4) -> pd.DataFrame:
    """Daily sales with a weekly season. `promo` is known in advance, `temp` afterwards, `kind` never changes."""
    rng = np.random.default_rng(0)
    frames = []
    for i in range(n):
        promo, temp = rng.integers(0, 2, len(DAYS)).astype(float), rng.normal(0, 1, len(DAYS))
        y = 20 * (i + 1) + 5 * (DAYS.dayofweek > 4) + PROMO * promo + rng.normal(0, 0.5, len(DAYS))
        frame = {"unique_id": f"shop-{i}", "ds": DAYS, "y": y, "promo": promo, "temp": temp, "kind": float(i % 2)}
        frames.append(pd.DataFrame(frame))
    return pd.concat(frames, ignore_index=True)
