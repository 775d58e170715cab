"""Series and their forecasts as SVG: history, median, a fan of intervals. No plotting library is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aru.data.clock import Clock, Times, from_index, to_index
from aru.data.columns import Floats, Ints
from aru.data.frames import percentages, quantiles_of
from aru.data.naming import Names
from aru.data.panel import Panel
from aru.errors import ConfigError
from aru.nn.tree import tree_map
from aru.nn.windows import all_values
from aru.runtime.explaining import Found
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.forest_plot import COLOURS, INK, PALE, PANEL_BLUE, Picture, cut_text, nice_ticks, text_at
from aru.runtime.state import SeriesState

FAN_WIDTH, FAN_HEIGHT, FAN_HEAD = 620, 240, 40  # of one series, and of the legend
FAN_LEFT, FAN_RIGHT, FAN_TOP, FAN_FOOT = 70, 36, 30, 28  # margins of one series
FIRST_SERIES, MOST_SERIES = 8, 24  # that are drawn by default, and at most
LEAST_HISTORY, HORIZONS_BEFORE = 40, 4  # rows of the history, and horizons
GREY = "#6b7280"
DATE_STEPS = (
    *((f"{n}min", "%H:%M") for n in (1, 5, 15, 30)),
    *((f"{n}h", "%d %b %H:%M") for n in (1, 3, 6, 12)),
    *((f"{n}D", "%d %b") for n in (1, 2, 7, 14)),
    *((f"{n}MS", "%b %Y") for n in (1, 2, 3, 6)),
    *((f"{n}YS", "%Y") for n in (1, 2, 5, 10, 20, 50, 100)),
)  # steps between dates on the axis, and how these are written


class FanSeries(NamedTuple):
    """What is drawn of one series; x are microseconds as clocks show them, or integers."""

    name: str
    past: tuple[Times, Floats]
    later: tuple[Times, Floats]  # rows that came after the forecast was made
    ahead: Times
    median: Floats
    ends: Floats  # (level, 2, lead), the widest first
    unadapted: Floats | None  # medians of the network alone


def draw_fans(
    runtime: ForecastRuntime,
    portions: Iterator[Found],
    first: bool,
    futr: Panel | None,
    level: Sequence[float],
    steps: int,
    panel: Panel | None,
    shown: int | None,
    names: Names,
) -> Picture:
    """The picture of series: of the `first` few, or of all. `panel` has their history; None: what states remember."""
    level = sorted(percentages(level), reverse=True)
    rows = shown or max(HORIZONS_BEFORE * runtime.h, LEAST_HISTORY)
    drawn: list[FanSeries] = []
    for ids, state in portions:
        room = FIRST_SERIES - len(drawn) if first else len(ids)
        if len(ids) > MOST_SERIES and not first:
            raise ConfigError(f"A picture has room for {MOST_SERIES} series, not {len(ids)}", "Name fewer: `ids`.")
        some = tree_map(lambda v, room=room: v[:room], state)
        drawn += _collect(runtime, ids[:room], some, futr, level, steps, panel, rows)
        if first and len(drawn) >= FIRST_SERIES:
            break
    return _picture(drawn, level, runtime.schema.clock is not None, names, runtime.settings.name)


def _collect(
    runtime: ForecastRuntime,
    ids: pd.Index[Any],
    state: SeriesState,
    futr: Panel | None,
    level: Sequence[float],
    steps: int,
    panel: Panel | None,
    rows: int,
) -> Iterator[FanSeries]:
    """Forecasts of some series, and their rows."""
    if len(ids) == 0:
        return
    ds, future = runtime.future(ids, state, futr, steps)
    adapted, alone = runtime.both_forecasts(state, future, quantiles_of(level))
    adapts = alone is not adapted
    ds, adapted, alone, clock = ds[:, :steps], adapted.first(steps), alone.first(steps), runtime.schema.clock
    values = adapted.quantiles.numpy().astype(np.float64)
    last = state.last.cpu().numpy()
    for i, name in enumerate(ids):
        past = _remembered(runtime, state, i) if panel is None else _of_panel(panel, name)
        before = past[0] <= last[i]
        later = ~before & (past[0] <= ds[i, -1])
        yield FanSeries(
            str(name),
            (_local(past[0][before][-rows:], clock), past[1][before][-rows:]),
            (_local(past[0][later], clock), past[1][later]),
            _local(ds[i], clock),
            values[0, i],
            values[1:, i].reshape(len(level), 2, steps),
            alone.quantiles[0, i].numpy().astype(np.float64) if adapts else None,
        )


def _of_panel(panel: Panel, name: Any) -> tuple[Times, Floats]:
    """Times and values of a series in a panel; none if it is not there."""
    at = int(panel.ids.get_indexer(pd.Index([name]))[0])
    here = slice(panel.starts[at], panel.starts[at] + panel.lengths[at]) if at >= 0 else slice(0)
    return panel.ds[here], panel.y[here]


def _remembered(runtime: ForecastRuntime, state: SeriesState, i: int) -> tuple[Times, Floats]:
    """Times and values of the rows that the state of a series holds."""
    context = tree_map(lambda v: v[i : i + 1].cpu(), state.context)
    y, observed = (v[0].numpy() for v in all_values(context))
    ds = context.rows.ds[0].numpy()
    kept = min(int(state.steps[i]) + 1, len(y) if runtime.freq.freq is not None else len(ds))
    older: list[Ints] = [runtime.freq.shift(ds[:1], -k) for k in range(kept - len(ds), 0, -1)]
    return np.concatenate([*older, ds[-kept:]]), np.where(observed, y, np.nan)[-kept:]


def _local(ds: Times, clock: Clock | None) -> Times:
    """Times as clocks show them."""
    return ds if clock is None else clock.local(ds)


def _picture(drawn: Sequence[FanSeries], level: Sequence[float], dates: bool, names: Names, model: str) -> Picture:
    columns = 1 if len(drawn) <= 1 else 2
    width, height = columns * FAN_WIDTH, FAN_HEAD + -(-len(drawn) // columns) * FAN_HEIGHT
    body = [
        f'<g transform="translate({i % columns * FAN_WIDTH},{FAN_HEAD + i // columns * FAN_HEIGHT})">'
        f"{_fan(series, dates, names)}</g>"
        for i, series in enumerate(drawn)
    ]
    body += _fan_legend(drawn, level, names, model)
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="Series and their forecasts" font-family="system-ui, sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>'
    )


def _fan(series: FanSeries, dates: bool, names: Names) -> str:
    """One series."""
    times = np.concatenate([series.past[0], series.ahead])
    values = np.concatenate([series.past[1], series.later[1], series.median, series.ends.ravel()])
    values = values[np.isfinite(values)]
    first, last = float(times.min()), float(times.max())
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    room = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
    low, high = low - room, high + room
    right, bottom = FAN_WIDTH - FAN_RIGHT, FAN_HEIGHT - FAN_FOOT

    def x(time: Any) -> Any:
        return FAN_LEFT + (np.asarray(time, np.float64) - first) / max(last - first, 1.0) * (right - FAN_LEFT)

    def y(value: Any) -> Any:
        return bottom - (np.asarray(value, np.float64) - low) / (high - low) * (bottom - FAN_TOP)

    out = [text_at(FAN_LEFT, FAN_TOP - 10, cut_text(f"{names.unique_id} {series.name}"), "start", "600")]
    for tick in nice_ticks(low, high, 5):
        at = float(y(tick))
        out.append(f'<line x1="{FAN_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="{PALE}"/>')
        out.append(text_at(FAN_LEFT - 6, at + 4, f"{tick:,.10g}", "end", colour=GREY))
    for time, label in _date_ticks(first, last) if dates else _number_ticks(first, last):
        at = float(x(time))
        out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="{GREY}"/>')
        out.append(text_at(at, bottom + 18, label, "middle", colour=GREY))
    for i, (under, over) in enumerate(series.ends):
        points = _points(
            np.concatenate([x(series.ahead), x(series.ahead)[::-1]]), y(np.concatenate([over, under[::-1]]))
        )
        if points:
            opacity = _opacity(i, len(series.ends))
            out.append(f'<polygon points="{points}" fill="{PANEL_BLUE}" fill-opacity="{opacity:.2f}"/>')
    out.append(_line(x(series.past[0]), y(series.past[1]), INK, 1.3))
    out.append(_line(x(series.ahead), y(series.median), PANEL_BLUE, 2.0))
    if series.unadapted is not None:
        out.append(_line(x(series.ahead), y(series.unadapted), COLOURS[0], 1.6, "4 3"))
    for time, value in zip(x(series.later[0]), y(series.later[1]), strict=True):
        if np.isfinite(value):
            out.append(f'<circle cx="{time:.1f}" cy="{value:.1f}" r="2.5" fill="{INK}"/>')
    return "".join(out)


def _line(x: Floats, y: Floats, colour: str, width: float, dashes: str = "none") -> str:
    """A line with gaps where values are missing; a value alone is a dot."""
    known = np.isfinite(y)
    starts = np.flatnonzero(known & ~np.append(False, known[:-1]))
    ends = np.flatnonzero(known & ~np.append(known[1:], False)) + 1
    out = []
    for a, b in zip(starts, ends, strict=True):
        if b - a == 1:
            out.append(f'<circle cx="{x[a]:.1f}" cy="{y[a]:.1f}" r="{width:.1f}" fill="{colour}"/>')
        else:
            out.append(
                f'<polyline points="{_points(x[a:b], y[a:b])}" fill="none" stroke="{colour}" stroke-width="{width}" '
                f'stroke-dasharray="{dashes}" stroke-linejoin="round"/>'
            )
    return "".join(out)


def _points(x: Floats, y: Floats) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True) if np.isfinite(b))


def _opacity(i: int, count: int) -> float:
    """Of the i-th interval, the widest being the first; narrower ones lie upon it."""
    return 0.14 + 0.1 * i / (count - 1) if count > 1 else 0.25


def _fan_legend(drawn: Sequence[FanSeries], level: Sequence[float], names: Names, model: str) -> list[str]:
    entries = [(names.y, INK, 1.0), (f"{model}, median", PANEL_BLUE, 1.0)]
    for i, value in enumerate(level):
        entries.append((f"{value:g} %", PANEL_BLUE, sum(_opacity(j, len(level)) for j in range(i + 1))))
    if any(series.unadapted is not None for series in drawn):
        entries.append(("without adaptation", COLOURS[0], 1.0))
    out, at = [], 12.0
    for label, colour, opacity in entries:
        out.append(f'<rect x="{at:.0f}" y="14" width="14" height="8" fill="{colour}" fill-opacity="{opacity:.2f}"/>')
        out.append(text_at(at + 20, 22, cut_text(label), "start"))
        at += 40 + 6.6 * len(cut_text(label))
    return out


def _number_ticks(first: float, last: float) -> list[tuple[float, str]]:
    return [(tick, f"{tick:g}") for tick in nice_ticks(first, last, 6) if tick == round(tick)] if last > first else []


def _date_ticks(first: float, last: float) -> list[tuple[float, str]]:
    """Round dates between two times, at most six."""
    start, end = to_index(np.array([first, last], np.int64))
    for step, written in DATE_STEPS:
        if (last - first) / 1e6 > 7 * (pd.Timestamp(0) + pd.tseries.frequencies.to_offset(step)).timestamp():
            continue
        found = pd.date_range(start.normalize(), end, freq=step)
        found = found[found >= start]
        if len(found) <= 6:
            return list(zip(from_index(found).astype(float).tolist(), found.strftime(written), strict=True))
    return []
