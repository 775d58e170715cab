"""A forest plot as SVG: one line for each effect, with its interval. No plotting library is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aru.data.columns import Floats
from aru.errors import ConfigError, StorageError, verbatim

WIDTH, TOP_SPACE, ROW_HEIGHT, FOOT = 760, 46, 26, 44
LEFT, RIGHT = 290, 130  # pixels for the names of effects, and for their sizes
TITLE_GAP = 10  # above the first effect of each covariate
LETTERS = 34  # of a name; longer ones are cut
INK, PALE, PANEL_BLUE = "#1f2430", "#d5d9e0", "#2f6db5"
COLOURS = ("#d1603d", "#2a9d62", "#8a5bb8", "#b8860b", "#c2417d", "#11828a")
NAMED = len(COLOURS)  # series with a colour and a name of their own; with more all have one colour


class ForestRow(NamedTuple):
    """One effect."""

    title: str  # of its group
    label: str
    share: float  # of the group, in percent


class Forest(NamedTuple):
    """What is drawn: (row, 3) middle and ends of the panel's effects, and the same of each series."""

    rows: Sequence[ForestRow]
    panel: Floats
    series: Mapping[str, Floats]
    axis: str
    unit: str


class Picture(str):
    """SVG text. A notebook shows it; `save` writes it to a file."""

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | Path) -> None:
        """Write an SVG file."""
        if Path(path).suffix.lower() not in ("", ".svg"):
            raise ConfigError(
                f"Pictures are SVG, which {verbatim(path)} does not say", "Name a file that ends in .svg."
            )
        try:
            Path(path).write_text(self, encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"{verbatim(path)} cannot be written ({verbatim(error)})", "Choose another file."
            ) from error


def draw(forest: Forest) -> Picture:
    """The picture."""
    low, high = _range(forest)
    body: list[str] = []
    many = len(forest.series) > NAMED
    digits = max(0, 2 - math.floor(math.log10((high - low) / 5)))  # of the sizes

    def x(value: float) -> float:
        inside = min(max(value, low), high)
        return LEFT + (inside - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    y, title, places = float(TOP_SPACE), "", []
    for row in forest.rows:
        if row.title != title:
            title = row.title
            y += TITLE_GAP + ROW_HEIGHT
            body.append(text_at(12, y - 8, cut_text(title), "start", "600"))
            body.append(text_at(WIDTH - 12, y - 8, f"{row.share:.0f} % of variance", "end", colour="#6b7280"))
        places.append(y + ROW_HEIGHT / 2)
        y += ROW_HEIGHT
    grid = [
        f'<line x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{TOP_SPACE}" y2="{y + 4:.0f}" stroke="{PALE}" '
        f'stroke-width="{2 if t == 0 else 1}"/>' + text_at(x(t), y + 20, f"{t:+,g}" if t else "0", "middle")
        for t in nice_ticks(low, high)
    ]
    for row, at, (middle, left, right) in zip(forest.rows, places, forest.panel.tolist(), strict=True):
        body.append(text_at(24, at + 4, cut_text(row.label), "start"))
        body.append(_line(x(left), x(right), at, PANEL_BLUE, 7, 0.25))
        body.append(f'<circle cx="{x(middle):.1f}" cy="{at:.1f}" r="5" fill="{PANEL_BLUE}"/>')
        body.append(
            text_at(
                WIDTH - 12,
                at + 4,
                f"{round(middle, digits) + 0.0:+,.{digits}f}{forest.unit and ' ' + forest.unit}",
                "end",
            )
        )
    for i, values in enumerate(forest.series.values()):
        colour = COLOURS[0] if many else COLOURS[i]
        for at, (middle, left, right) in zip(places, values.tolist(), strict=True):
            if many:
                mark = f'<circle cx="{x(middle):.1f}" cy="{at:.1f}" r="2" fill="{colour}" fill-opacity=".45"/>'
                body.append(mark)
            else:
                beside = at + 9 * ((i + 1) / (len(forest.series) + 1) - 0.5) * 2
                body.append(_line(x(left), x(right), beside, colour, 1.5, 0.9))
                body.append(f'<circle cx="{x(middle):.1f}" cy="{beside:.1f}" r="3" fill="{colour}"/>')
    height = int(y) + FOOT
    frame = [text_at((LEFT + WIDTH - RIGHT) / 2, height - 6, forest.axis, "middle"), *_legend(forest.series, many)]
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="Effects of covariates" font-family="system-ui, sans-serif" font-size="13">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join([*grid, *body, *frame])}</svg>'
    )


def _legend(series: Mapping[str, Floats], many: bool) -> list[str]:
    entries = [("a new series, and where 80 % of them lie", PANEL_BLUE)]
    entries += (
        [(f"{len(series)} series", COLOURS[0])] if many else list(zip(map(cut_text, series), COLOURS, strict=False))
    )
    out, at = [], 12.0
    for label, colour in entries:
        out.append(f'<circle cx="{at + 5:.0f}" cy="20" r="5" fill="{colour}"/>' + text_at(at + 16, 24, label, "start"))
        at += 30 + 7.2 * len(label)
    return out


def _range(forest: Forest) -> tuple[float, float]:
    """The ends of the axis: all middles, and intervals as far as they are not much longer than all else."""
    spans = [forest.panel, *forest.series.values()]
    middles = np.concatenate([span[:, 0] for span in spans]) if len(forest.rows) else np.zeros(1)
    ends = np.concatenate([span[:, 1:].ravel() for span in spans]) if len(forest.rows) else np.zeros(1)
    reach = 2 * float(np.abs(middles).max())
    inside = ends[np.abs(ends) <= reach] if reach else ends
    shown = np.concatenate([[0.0], middles, inside])
    low, high = float(shown.min()), float(shown.max())
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def nice_ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Round numbers between two others, at most so many and one."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)
    return [round(step * i, 12) + 0.0 for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def cut_text(text: str) -> str:
    """A name that has room in a picture."""
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"


def _line(x1: float, x2: float, y: float, colour: str, width: float, opacity: float) -> str:
    return (
        f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-width="{width}" '
        f'stroke-opacity="{opacity}" stroke-linecap="round"/>'
    )


def text_at(x: float, y: float, text: str, anchor: str, weight: str = "400", colour: str = INK) -> str:
    """A line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}">'
        f"{escape(text)}</text>"
    )
