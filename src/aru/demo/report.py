"""The demo's report: one HTML file with scores and pictures that opens offline. Its words follow from the scores."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files

import numpy as np

from aru.demo import pictures
from aru.demo.outcome import (
    IN_WORDS,
    METHODS,
    RIVALS,
    Gap,
    Replay,
    best_of,
    best_rival,
    by_novelty,
    gap,
    methods,
    monday,
    nd_by,
    parts,
    saved,
    score,
)

COVERAGE_OFF = 0.03  # that is named
SMALL_CHANGE = 0.05  # changes whose intervals are given with a decimal
MINUS, NO_BREAK = "&minus;", "&nbsp;"

_SCORES = (
    "ND is the absolute error of the median over the sum of actual values: lower is better. Coverage should be close "
    "to 90 %, with an interval as narrow as possible; departures are whole numbers, so it is that of randomised ranks. "
    "Every method is scored on the same forecasts and knows the same: past departures and the calendar."
)
_ACCUMULATED = (
    "How many departures each method has misjudged less than seasonal naive since the stream began. A line that rises "
    "gains, one that falls loses. The shaded gap is what learning from its own errors gives the fitted network, in "
    "closed form, without training: its line against the same network without it."
)
_WEEKS = (
    "ND of all forecasts for the days of a week, made one to seven days ahead, on a scale where equal ratios are equal "
    "distances. Nobody told any method of the holidays."
)
_SHIFT = (
    "The same stream once more, for every fourth known route, on altered data: from {day} on {kept:.0f} % of its "
    "departures remain. Every evening's forecasts for the next seven days. Where the unadapted forecast lies on the "
    "adapting one, the network reads the new level from the latest days, and nothing has to be learned."
)
_GALLERY = (
    "Once a week, the forecast made that evening for the next seven days, and what then happened. Chosen by rule among "
    "known and among unseen routes: the busiest, the one where learning from errors saved the most, and the one where "
    "it cost the most."
)
_COLD_START = (
    "Routes that no training saw, by the number of days observed when the forecast was made. The first forecast knows "
    "a single day; the calendar moves on with the days observed, so the holidays lie at the right."
)
_SCATTER = (
    "Every point is a route: its ND without what was learned from errors, against its ND with it. Below the diagonal, "
    "adapting helped."
)


def headline(replay: Replay) -> str:
    """What the fitted model and the pretrained one gave on the known routes, against the best of the other methods."""
    known = by_novelty(replay.cells)["Known routes"]
    rival = best_rival(known)
    fitted, zero = (gap(known, method, rival) for method in ("aru", "zero"))
    link = "than" if fitted.clear else "from"
    text = f"{_phrase(fitted)} {link} {IN_WORDS[rival]} once fitted, {_phrase(zero)} before any training"
    return text[0].upper() + text[1:]


def _phrase(difference: Gap) -> str:
    return difference.words if difference.clear else "no clear difference"


def render(replay: Replay) -> str:
    """The whole page."""
    assets = files("aru.demo")
    style, script = (assets.joinpath(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    legend, start = _legend(replay.methods), replay.shift.start
    shift = _SHIFT.format(day=f"{start.day} {start:%B}", kept=100 * replay.shift.kept)
    fans = _gallery_legend()
    sections = [
        _section("What adds up", _ACCUMULATED, legend, pictures.accumulated(replay)),
        _section("Week by week", _WEEKS, legend, pictures.weeks(replay)),
        _section(
            "A level shift",
            shift,
            _legend(methods(replay.shift.cells)),
            pictures.level_shift(replay),
            fans,
            pictures.shifted_routes(replay),
        ),
        _section("Routes never seen, from the first day on", _COLD_START, legend, pictures.cold_start(replay)),
        _section("Where it costs", "", _costs(replay)),
        _section("Scores", _SCORES, _score_table(replay)),
        _section("Some routes, day by day", _GALLERY, fans, pictures.gallery(replay)),
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
    return (
        f"<header><h1>{headline(replay)}</h1><p>Daily departures from New York on {' and '.join(counts)}, "
        f"{first.day} {first:%B} to {last.day} {last:%B %Y}. Every evening: take in the day, forecast the next "
        "seven. Nothing was tuned by hand. Models were trained once, before that, on the known routes alone. "
        "All of them read each new day; ARU also learns from the errors of its forecasts. In brackets: 90 % interval "
        f"over weeks, over routes for the level shift.</p>{_tiles(replay)}</header>"
    )


def _tiles(replay: Replay) -> str:
    novelty = by_novelty(replay.cells)
    known, unseen = novelty["Known routes"], novelty.get("Unseen routes")
    rivals = [method for method in methods(known) if method in RIVALS]
    took = replay.seconds
    rows = {
        f"Zero-shot: first forecasts after {took['zero']:.0f} s, no training": [
            _tile(gap(known, "zero", rival), IN_WORDS[rival], "known routes") for rival in rivals
        ],
        f"Fitted: {took['aru']:.0f} s": [
            *(_tile(gap(known, "aru", rival), IN_WORDS[rival], "known routes") for rival in rivals),
            _tile(gap(known, "aru", "zero"), "zero-shot", "known routes"),
        ],
    }
    week = replay.shift.first_week()
    hard = [_tile(gap(known, "aru", "unadapted"), "the same, unadapted", "known routes")]
    hard += [
        _tile(gap(unseen, "aru", rival), IN_WORDS[rival], "unseen routes") for rival in rivals if unseen is not None
    ]
    hard += [
        _tile(gap(week, "aru", rival, week["unique_id"]), IN_WORDS[rival], "first week after the level shift")
        for rival in rivals
    ]
    rows["The stream: adapting, new routes, a level shift"] = hard
    return "".join(f'<h3>{title}</h3><div class="tiles">{"".join(tiles)}</div>' for title, tiles in rows.items())


def _tile(difference: Gap, other: str, where: str) -> str:
    css = "tile even" if not difference.clear else "tile" if difference.change < 0 else "tile worse"
    digits = 1 if abs(difference.change) < SMALL_CHANGE else 0
    low, high = (f"{100 * end:+.{digits}f}".replace("-", MINUS) for end in (difference.low, difference.high))
    link = "than" if "%" in difference.words else "as"
    interval = f"({low} to {high} %)".replace(" ", NO_BREAK)
    return (
        f'<div class="{css}"><b>{difference.words}</b><span>{link} {escape(other)} {interval}'
        f"<br>{escape(where)}</span></div>"
    )


def _costs(replay: Replay) -> str:
    """Everything where the fitted model is behind, counted."""
    lines, off = [], []
    for title, cells in by_novelty(replay.cells).items():
        weekly, by_route = nd_by(cells, monday(cells["ds"])), nd_by(cells, cells["unique_id"])
        found = []
        for other in weekly.columns.drop("aru"):
            days = ", ".join(f"{day.day} {day:%b}" for day in weekly.index[weekly["aru"] > weekly[other]])
            found += [f"{METHODS[other]} {days.count(',') + 1} ({days})"] if days else []
        lines.append((f"{title}: weeks of {len(weekly)} in which others had less error", found or ["none"]))
        worse = {other: int((by_route["aru"] > by_route[other]).sum()) for other in (best_rival(cells), "unadapted")}
        found = [f"{METHODS[other]} {count}" for other, count in worse.items()]
        lines.append((f"{title}: routes of {len(by_route)} on which others had less error", found))
    for title, cells in parts(replay).items():
        best, coverage = best_of(cells), score(cells, "aru").coverage
        if best != "aru":
            figures = [f"{METHODS[method]} {score(cells, method).nd:.4f}" for method in (best, "aru")]
            lines.append((f"{title}: another method has the lowest ND", figures))
        off += [f"{title} {100 * coverage:.1f} %"] if abs(coverage - 0.9) > COVERAGE_OFF else []
    lines += [("90 % intervals that cover more or less", off)] if off else []
    items = (f"<li><b>{escape(what)}</b>: {escape('; '.join(found))}</li>" for what, found in lines)
    return f"<ul>{''.join(items)}</ul>"


def _score_table(replay: Replay) -> str:
    rows = []
    for title, cells in parts(replay).items():
        scores = {method: score(cells, method) for method in methods(cells)}
        best = min(s.nd for s in scores.values())
        rows.append(
            f'<tr class="part"><th colspan="4">{escape(title)} <small>{len(cells):,} forecasts</small></th></tr>'
        )
        rows += [
            f'<tr><th><i class="key {method}"></i>{METHODS[method]}</th>{_number(s.nd, ".4f", s.nd == best)}'
            f"{_number(100 * s.coverage, '.1f')}{_number(100 * s.width, '.0f')}</tr>"
            for method, s in scores.items()
        ]
    heads = "".join(f"<th>{name}</th>" for name in ("ND", "coverage, %", "width, %"))
    return (
        f'<div class="scroll"><table><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _number(value: float, spec: str, best: bool = False) -> str:
    text = "" if np.isnan(value) else format(value, spec)
    return f"<td><b>{text}</b></td>" if best else f"<td>{text}</td>"


def _legend(entries: Mapping[str, str]) -> str:
    keys = "".join(f'<span><i class="key {css}"></i>{name}</span>' for css, name in entries.items())
    return f'<div class="legend">{keys}</div>'


def _gallery_legend() -> str:
    lines = {"aru": f"{METHODS['aru']}: median", "area": "its 90 % interval", "naive": f"{METHODS['naive']}"}
    return _legend({"dot": "departures"} | lines)


def _per_route(replay: Replay) -> str:
    texts = []
    for title, cells in by_novelty(replay.cells).items():
        nd = nd_by(cells, cells["unique_id"])
        texts.append(f"{int((nd['aru'] < nd['unadapted']).sum())} of {len(nd)} {title.lower()}")
    return (
        f"<p>Learning from errors helped on {' and on '.join(texts)}.</p>"
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
