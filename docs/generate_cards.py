"""Write docs/model-cards.md from the cards beside the shipped weights: `python docs/generate_cards.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aru.pretrained.weights import FOLDER, VERSIONS

PAGE = Path(__file__).parent / "model-cards.md"
TEXT = """\
# Model cards

What a user of the weights in the package should know. Each file has its own card beside it,
`src/aru/pretrained/<version>.json`, with every step of its training; `python docs/generate_cards.py` writes this page.

{facts}

- **What they are.** Patch networks for one series: {use}
- **Trained on.** {data} `pretraining/` has the generator and the training, with seeds. {hardware},
  {minutes:.0f} minutes for all three together.
- **Meant for.** Sales, loads, counts, arrivals, sensors: series whose past says something about the next steps.
  Covariates, holidays and what the panel has in common are added around it in closed form
  ([how](pretrained.md#covariates)).
- **Not meant for.** Causal questions, events without precedent, decisions about single people, horizons of several
  hundred steps ([when not to use it](explain/limits.md)).
- **Limits.** {limits}
- **Risks.** No personal data and no text entered training. Intervals are too narrow on some panels
  ([which](pretrained.md#accuracy)): look at the coverage of your own backtest.
- **Licence.** MIT, as the code.
- **Versions.** A file never changes; better weights get a new number ([what is stable](stability.md)).

## Figures

MASE relative to seasonal naive, below 1 is better, and in brackets the share of values inside the central 80 %
interval. The last h rows of each series; choices were made on the rows before. Counts are judged by randomised PIT.
These are of the network alone, when it was trained: [the library's figures](pretrained.md#accuracy) are newer, with
more panels.

{figures}
"""


def page() -> str:
    """The page that belongs to the present weights."""
    cards = {path.stem: json.loads(path.read_text()) for path in (FOLDER / f"{name}.json" for name in VERSIONS)}
    about = next(iter(cards.values()))["about"]
    facts = [["weights", "parameters", "file, MB", "steps", "series seen", "checksum (SHA-256)"]]
    for name, card in cards.items():
        steps, series = (sum(piece[key] for piece in card["pieces"]) for key in ("steps", "series"))
        size, checksum = f"{card['bytes'] / 1e6:.1f}", f"`{card['sha256'][:16]}...`"
        facts.append([name, f"{card['parameters']:,}", size, f"{steps:,}", f"{series:,}", checksum])
    figures = [["panel", *cards]]
    for panel in next(iter(cards.values()))["figures"]["report"]:
        found = [card["figures"]["report"][panel] for card in cards.values()]
        if "cover80" in found[0]:  # the others are means over panels
            figures.append([panel, *(f"{f['rMASE']:.3f} ({f['cover80']:.0%})" for f in found)])
    pieces = next(iter(cards.values()))["pieces"]
    return TEXT.format(
        facts=_table(facts),
        figures=_table(figures),
        use=about["intended use"].removeprefix("Zero-shot forecasts of single series: "),
        data=about["data"],
        limits=about["limits"],
        hardware=" and ".join(sorted({piece["hardware"] for piece in pieces})),
        minutes=sum(piece["plan"]["seconds"] for piece in pieces) / 60,
    )


def _table(rows: list[list[Any]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" + "|---:" * (len(rows[0]) - 1) + "|", *lines[1:]])


if __name__ == "__main__":
    PAGE.write_text(page())
