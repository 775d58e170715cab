"""From nothing to the three weight files with their cards.

    python -m pretraining --out pretraining/weights --seconds 540 540

One number of seconds per piece. A piece can also run alone, where a machine is lent for minutes only: `--only 1`, then
`--only 2`, each from the files that the one before left in `--out`. `--cards` judges the weights and writes the cards,
on any machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from aru.pretrained.patches import SHAPES, PatchNetwork
from pretraining.evaluate import KINDS, data_folder, evaluate, say, short
from pretraining.forecast import forecaster
from pretraining.train import Plan, read_plan, train, write

PLAN = Plan(sizes=("base", "mini", "nano"), chunk=256, teach=0.5)
ABOUT = {
    "data": "Synthetic series alone, drawn by pretraining/generator.py; no real series entered training.",
    "intended use": "Zero-shot forecasts of single series: up to 1,024 past values in, 15 quantiles of the next 64 "
    "values out. The periods that the frequency implies are told (0: unknown; aru.pretrained.seasons finds some). One "
    "wild value in the past counts as missing.",
    "limits": "Univariate. Periods longer than the context are not seen. Calendar events are seen only where they "
    "recur within the context. Beyond 64 steps quantiles are fed forward.",
    "figures": "MASE and WQL (levels .1 to .9), rMASE and rWQL relative to seasonal naive; 'aim' is the geometric mean "
    "over the M1 panels and tourism (WQL: and car parts). coverNN is the share inside the central interval, by "
    "randomised PIT. Choices were made on 'validation', 'report' is the last h rows of each series, 'outlier' is "
    "validation with one value of each context moved by 50 standard deviations, 'origins' are more origins of fewer "
    "series.",
}


def commit() -> str:
    """Commit of the checkout, marked where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def write_card(path: Path) -> None:
    """Judge a weight file and write its card beside it; what its training left there stays in it."""
    card_path = path.with_suffix(".json")
    facts = json.loads(card_path.read_text()) if card_path.exists() else {}
    network = PatchNetwork.load(path)
    tables = {kind: evaluate(forecaster(network), kind) for kind in KINDS}
    for kind, table in tables.items():
        say(path.stem, kind, short(table))
    body = path.read_bytes()
    card = facts | {
        "name": path.stem,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "about": ABOUT,
        "figures": tables,
    }
    card_path.write_text(json.dumps(card, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train in pieces, then write the cards."""
    parser = argparse.ArgumentParser(prog="python -m pretraining", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "weights")
    parser.add_argument("--only", type=int, help="run this piece alone, counted from 1")
    parser.add_argument("--resume", type=Path, help="folder of weights to go on from")
    parser.add_argument("--seconds", type=float, nargs="+", default=[540.0, 540.0], help="of each piece")
    parser.add_argument("--plan", type=partial(read_plan, PLAN), default=PLAN, help="other fields of Plan, as JSON")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cards", action="store_true", help="train nothing; judge the weights and write the cards")
    options = parser.parse_args(arguments)
    pieces = [] if options.cards else [options.only] if options.only else range(1, len(options.seconds) + 1)
    for piece in pieces:
        begin, end = (sum(options.seconds[:k]) / sum(options.seconds) for k in (piece - 1, piece))
        plan = replace(options.plan, seconds=options.seconds[piece - 1], begin=begin, end=end)
        before = options.resume or (options.out if piece > 1 else None)
        learners = train(plan, options.device, options.out, before)
        write(learners, plan, options.out, {"commit": commit()})
    if not options.only and data_folder().exists():
        for name in SHAPES:
            write_card(options.out / f"{name}.safetensors")


if __name__ == "__main__":
    main()
