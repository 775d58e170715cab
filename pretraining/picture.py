"""A picture of samples of every family, history in dark and future in colour.

python -m pretraining.picture pretraining/families.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from pretraining.clocks import HORIZON, draw
from pretraining.dice import Dice
from pretraining.generator import RECIPE, wear

WIDE, HIGH, GAP, LEFT = 230, 96, 8, 92
SAMPLES = {256: 4, 1024: 3}
"""Samples of each family by the longest history."""


def curve(values: np.ndarray, left: float, top: float) -> list[tuple[float, float]]:
    """Points of a line inside one cell."""
    low, high = np.nanmin(values), np.nanmax(values)
    x = left + np.arange(len(values)) / max(1, len(values) - 1) * WIDE
    y = top + HIGH - 4 - (values - low) / max(high - low, 1e-9) * (HIGH - 8)
    return list(zip(x.tolist(), y.tolist(), strict=True))


def picture(seed: int = 0) -> Image.Image:
    """One row per family."""
    dice = Dice(seed)
    columns = sum(SAMPLES.values())
    image = Image.new("RGB", (LEFT + columns * (WIDE + GAP), len(RECIPE) * (HIGH + GAP)), "white")
    pen = ImageDraw.Draw(image)
    for row, (name, (_, _, kinds, family)) in enumerate(RECIPE.items()):
        top, column = row * (HIGH + GAP), 0
        pen.text((6, top + HIGH / 2 - 6), name, fill="black")
        for context, count in SAMPLES.items():
            clock = draw(dice, count, context, kinds)
            values = wear(dice, family(dice, clock), clock).numpy()
            for series, length, horizon in zip(
                values, clock.length[:, 0].int(), clock.horizon[:, 0].int(), strict=True
            ):
                ahead = min(HORIZON, int(horizon))
                points = curve(series[context - int(length) : context + ahead], LEFT + column * (WIDE + GAP), top)
                pen.line(points[: int(length)], fill=(40, 40, 60), width=1)
                pen.line(points[int(length) - 1 :], fill=(214, 80, 20), width=1)
                column += 1
    return image


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(prog="python -m pretraining.picture", description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    picture(options.seed).quantize(16).save(options.out, optimize=True)


if __name__ == "__main__":
    main()
