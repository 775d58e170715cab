"""Quantiles, as other libraries ask for them, in the columns of aru's frames."""

from __future__ import annotations

from collections.abc import Sequence


def levels_of(quantiles: Sequence[float]) -> list[float] | None:
    """The central intervals whose ends are these quantiles."""
    return sorted({_level(q) for q in quantiles} - {0.0}) or None


def columns_of(quantiles: Sequence[float], name: str) -> list[str]:
    """The columns of these quantiles."""
    return [f"{name}-{'lo' if q < 0.5 else 'hi'}-{_level(q):g}" if _level(q) else f"{name}-median" for q in quantiles]


def _level(quantile: float) -> float:
    return round(abs(1 - 2 * quantile) * 100, 10)
