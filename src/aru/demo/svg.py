"""Small charts as SVG, without a plotting library, which would add megabytes to the report.

A `Chart` maps data to pixels and collects marks. Colours and strokes are in the page's style sheet, for light and dark
mode. SVG text shrinks with the picture, so `responsive` draws a chart twice, for a desktop and a phone; the style sheet
shows the one that fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

WIDE, NARROW = 920, 360

Values = NDArray[np.float64]


class Margins(NamedTuple):
    """Pixels around the plotting area, where the labels stand."""

    top: int = 18
    right: int = 14
    bottom: int = 26
    left: int = 44


class Scale(NamedTuple):
    """One axis: data between `low` and `high`, linear or logarithmic."""

    low: float
    high: float
    log: bool = False

    def position(self, value: Values) -> Values:
        """Where values lie between the ends of the axis: 0 at `low`, 1 at `high`."""
        if self.log:
            return np.asarray((np.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low)))
        return np.asarray((value - self.low) / (self.high - self.low))

    def ticks(self, count: int) -> list[float]:
        """Round values on the axis, about `count` of them."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            digits = (1, 2, 5) if self.high < 1e3 * self.low else (1,)
            candidates = [digit * 10.0**power for power in decades for digit in digits]
        else:
            step = _round_step((self.high - self.low) / count)
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            candidates = [step * k for k in range(first, last + 1)]
        return [tick for tick in candidates if self.low <= tick <= self.high]


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5, 10 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= rough * (1 - 1e-9))


def day_numbers(dates: list[pd.Timestamp] | pd.Series[Any] | pd.Index[Any]) -> Values:
    """Dates as days since 1970, which is what a time axis counts."""
    return pd.DatetimeIndex(dates).to_numpy().astype("datetime64[D]").astype(np.float64)


class Chart:
    """One picture under construction: add marks from back to front, then `render`."""

    def __init__(self, size: tuple[int, int], x: Scale, y: Scale, label: str, margins: Margins | None = None) -> None:
        self.width, self.height = size
        self.x, self.y = x, y
        self.label = label  # for screen readers
        margins = margins or Margins()
        self.left, self.right = margins.left, self.width - margins.right
        self.top, self.bottom = margins.top, self.height - margins.bottom
        self._marks: list[str] = []

    def px(self, x: Values | float) -> Values:
        """Horizontal pixel of data."""
        return np.asarray(self.left + self.x.position(np.asarray(x, dtype=np.float64)) * (self.right - self.left))

    def py(self, y: Values | float) -> Values:
        """Vertical pixel of data. Values beyond the axis are drawn on its edge."""
        inside = np.asarray(np.clip(np.asarray(y, dtype=np.float64), self.y.low, self.y.high))
        return np.asarray(self.bottom - self.y.position(inside) * (self.bottom - self.top))

    def line(self, x: Values, y: Values, css: str) -> None:
        """A polyline, interrupted where y is missing."""
        for run in _runs(np.isfinite(y)):
            self._marks.append(f'<polyline class="{css}" points="{self._points(x[run], y[run])}"/>')

    def band(self, x: Values, low: Values, high: Values, css: str) -> None:
        """The area between two lines."""
        outline = self._points(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]))
        self._marks.append(f'<polygon class="{css}" points="{outline}"/>')

    def dots(self, x: Values, y: Values, css: str, radius: float, tips: Sequence[str] = ()) -> None:
        """Circles; `tips` are shown when the pointer rests on one."""
        for cx, cy, tip in zip(self.px(x), self.py(y), tips or [""] * len(x), strict=True):
            self._marks.append(f'<circle class="{css}" cx="{cx:.1f}" cy="{cy:.1f}" r="{radius}"{_tip(tip)}/>')

    def note(self, x: float, y: float, text: str, css: str) -> None:
        """A few words to the right of a point."""
        left, middle = float(self.px(x)) + 10, float(self.py(y)) + 4
        self._marks.append(f'<text class="{css}" x="{left:.1f}" y="{middle:.1f}">{escape(text)}</text>')

    def span(self, start: float, end: float, css: str, text: str = "") -> None:
        """A vertical stripe over the whole height, named at its top."""
        left, right = (float(self.px(edge)) for edge in (max(start, self.x.low), min(end, self.x.high)))
        self._rect(left, right, css)
        self._text((left + right) / 2, self.top - 5, text, "middle")

    def hover(self, x: Values, tips: Sequence[str]) -> None:
        """Invisible columns around each x that show a tip, so that the pointer need not hit a line."""
        centre = self.px(x)
        middles = (centre[1:] + centre[:-1]) / 2
        lefts, rights = np.append(centre[:1] - 4, middles), np.append(middles, centre[-1:] + 4)
        for at, left, right, tip in zip(centre, lefts, rights, tips, strict=True):
            self._rect(left, right, "hit", f' data-x="{at:.1f}"{_tip(tip)}')

    def x_axis(self, spec: str, title: str = "") -> None:
        """Rules and numbers along the bottom."""
        for tick in self.x.ticks(8 if self.width > (WIDE + NARROW) / 2 else 5):
            self._tick_x(float(self.px(tick)), format(tick, spec))
        self._text(self.right, self.height - 4, title, "end")

    def month_axis(self) -> None:
        """A rule and a name at the first of each month."""
        edges = math.ceil(self.x.low), math.floor(self.x.high)
        start, end = (pd.Timestamp(day * 86_400, unit="s") for day in edges)
        for first in pd.date_range(start, end, freq="MS"):
            at = float(self.px(day_numbers([first])[0]))
            self._tick_x(at, f"{first.day} {first:%b}")

    def y_axis(self, spec: str, title: str = "") -> None:
        """Rules and numbers along the left side."""
        for tick in self.y.ticks(4):
            at = float(self.py(tick))
            self._rule(self.left, at, self.right, at)
            self._text(self.left - 6, at + 4, format(tick, spec), "end")
        self._text(2, 11, title, "start")

    def render(self) -> str:
        """The finished SVG element."""
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(self.label)}" '
            f'data-top="{self.top}" data-bottom="{self.bottom}">{"".join(self._marks)}</svg>'
        )

    def _points(self, x: Values, y: Values) -> str:
        return " ".join(f"{px:.1f},{py:.1f}" for px, py in zip(self.px(x), self.py(y), strict=True))

    def _rect(self, left: float, right: float, css: str, more: str = "") -> None:
        self._marks.append(
            f'<rect class="{css}" x="{left:.1f}" y="{self.top}" width="{right - left:.1f}" '
            f'height="{self.bottom - self.top}"{more}/>'
        )

    def _rule(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self._marks.append(f'<line class="rule" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def _tick_x(self, at: float, text: str) -> None:
        self._rule(at, self.top, at, self.bottom)
        self._text(at, self.bottom + 15, text, "middle")

    def _text(self, x: float, y: float, text: str, anchor: str) -> None:
        if text:
            self._marks.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')


def responsive(draw: Callable[[int], str]) -> str:
    """The same chart for a desk and for a phone, given its width; the style sheet shows one of them."""
    return f'<div class="wide">{draw(WIDE)}</div><div class="narrow">{draw(NARROW)}</div>'


def _tip(text: str) -> str:
    return f' data-tip="{escape(text)}"' if text else ""


def _runs(keep: NDArray[np.bool_]) -> Iterator[slice]:
    """The stretches of consecutive True values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], keep, [False]]).astype(np.int8)))
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        yield slice(int(start), int(end))
