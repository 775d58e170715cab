"""What happens to series: rows in, states on, forecasts out. `Runtime` is the way in."""

from __future__ import annotations

from aru.runtime.runtime import Runtime

__all__ = ["Runtime"]
