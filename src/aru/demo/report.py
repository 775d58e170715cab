"""The demo's report: one HTML file with scores and pictures that opens offline."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files

import pandas as pd

from aru.demo import pictures
from aru.demo.outcome import METHODS, Replay, by_novelty, nd_by, parts, saved, score

_SCORES = (
    "ND is the absolute error of the median over the sum of actual values, RMSE the error of the mean in "
    "departures a day: lower is better. Coverage should be close to 90 %, with an interval as narrow as "
    "possible. Every method is scored on the same forecasts."
)
_WEEKS = "ND of all forecasts for the days of a week, made one to seven days ahead. Holidays are shaded."
_GALLERY = (
    "Once a week, the forecast made that evening for the next seven days, and what then happened. Chosen by "
    "rule among known and among unseen routes: the busiest, the one where adapting saved the most error "
    "against the frozen state, and the one where it cost the most."
)
_COLD_START = (
    "Routes that training never saw, by the number of days observed when the forecast was made. The first "
    "forecast knows a single day; the calendar moves on with the days observed, so the holidays lie at the "
    "right."
)
_SCATTER = (
    "Every point is a route: its ND with the state frozen where the stream began, against its ND with the "
    "state that keeps learning. Below the diagonal, adapting helped."
)


def render(replay: Replay) -> str:
    """The whole page."""
    assets = files("aru.demo")
    style, script = (assets.joinpath(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    sections = [
        _section("Scores", _SCORES, _score_table(replay)),
        _section("Week by week", _WEEKS, _legend(METHODS), pictures.weeks(replay)),
        _section("Some routes, day by day", _GALLERY, _gallery_legend(), pictures.gallery(replay)),
        _section("From the first day on", _COLD_START, _legend(METHODS), pictures.cold_start(replay)),
        _section("Where adapting helps and where it hurts", _SCATTER, _per_route(replay)),
        _section("How this was made", "", _facts(replay.facts)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>aru demo: New York departures</title>'
        f"<style>\n{style}</style></head>\n<body><main>{_header(replay)}\n{''.join(sections)}</main>"
        f'<div id="tip" hidden></div><script>\n{script}</script></body></html>\n'
    )


def _section(title: str, text: str, *content: str) -> str:
    intro = f"<p>{text}</p>" if text else ""
    return f"<section><h2>{title}</h2>{intro}{''.join(content)}</section>\n"


def _header(replay: Replay) -> str:
    cells = replay.cells
    first, last = cells["ds"].min(), cells["ds"].max()
    counts = [f"{part['unique_id'].nunique()} {title.lower()}" for title, part in by_novelty(cells).items()]
    tiles = "".join(_tile(title, part) for title, part in parts(replay).items())
    return (
        f"<header><h1>Forecasts that learn from every day</h1><p>Daily departures from New York on "
        f"{' and '.join(counts)}, {first.day} {first:%B} to {last.day} {last:%B %Y}. The networks were "
        "trained once, before that, on the known routes alone. Then the days came in one by one: forecast "
        "the next seven, see what happened, go on. The baseline reads each new day as context. ARU also "
        "folds it into the route's own small state, in closed form, without retraining.</p>"
        f'<div class="tiles">{tiles}</div></header>'
    )


def _tile(title: str, cells: pd.DataFrame) -> str:
    adapting, baseline = score(cells, "adapting").nd, score(cells, "baseline").nd
    percent = 100 * (adapting / baseline - 1)
    css, word = ("tile", "lower") if percent < 0 else ("tile worse", "higher")
    return (
        f'<div class="{css}"><b>{abs(percent):.0f} % {word}</b><span>error of adapting ARU than of the '
        f"baseline<br>{escape(title)}</span></div>"
    )


def _score_table(replay: Replay) -> str:
    rows = []
    for title, cells in parts(replay).items():
        scores = {method: score(cells, method) for method in METHODS}
        best_nd, best_rmse = min(s.nd for s in scores.values()), min(s.rmse for s in scores.values())
        rows.append(
            f'<tr class="part"><th colspan="5">{escape(title)} <small>{len(cells):,} forecasts</small></th></tr>'
        )
        rows += [
            f'<tr><th><i class="key {method}"></i>{METHODS[method]}</th>'
            f"{_number(s.nd, '.4f', s.nd == best_nd)}{_number(s.rmse, '.3f', s.rmse == best_rmse)}"
            f"{_number(100 * s.coverage, '.1f')}{_number(100 * s.width, '.0f')}</tr>"
            for method, s in scores.items()
        ]
    heads = "".join(f"<th>{name}</th>" for name in ("ND", "RMSE", "coverage, %", "width, % of mean"))
    return (
        f'<div class="scroll"><table><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _number(value: float, spec: str, best: bool = False) -> str:
    text = format(value, spec)
    return f"<td><b>{text}</b></td>" if best else f"<td>{text}</td>"


def _legend(entries: Mapping[str, str]) -> str:
    keys = "".join(f'<span><i class="key {css}"></i>{name}</span>' for css, name in entries.items())
    return f'<div class="legend">{keys}</div>'


def _gallery_legend() -> str:
    lines = {"adapting": "ARU, adapting: median", "area": "its 90 % interval", "baseline": "Baseline: median"}
    return _legend({"dot": "departures"} | lines)


def _per_route(replay: Replay) -> str:
    texts = []
    for title, cells in by_novelty(replay.cells).items():
        nd = nd_by(cells, cells["unique_id"])
        texts.append(f"{int((nd['adapting'] < nd['frozen']).sum())} of {len(nd)} {title.lower()}")
    return (
        f"<p>Adapting helped on {' and on '.join(texts)}.</p>"
        f"{_legend({'known': 'known', 'unseen': 'unseen'})}"
        f'<div class="beside"><div>{pictures.scatter(replay)}</div>{_extremes(replay)}</div>'
    )


def _extremes(replay: Replay) -> str:
    """The routes that adapting helped and hurt most, by error in flights a day."""
    gain = saved(replay.cells).sort_values()
    tables = []
    for title, part in (("Helped most", gain[::-1][:5]), ("Hurt most", gain[:5])):
        rows = "".join(f"<tr><th>{route}</th>{_number(-g, '+.2f')}</tr>" for route, g in part.items())
        tables.append(
            f"<table><thead><tr><th>{title}</th><th>change of error, flights a day</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )
    return f'<div class="extremes">{"".join(tables)}</div>'


def _facts(facts: Mapping[str, str]) -> str:
    return f"<dl>{''.join(f'<dt>{escape(k)}</dt><dd>{escape(v)}</dd>' for k, v in facts.items())}</dl>"
