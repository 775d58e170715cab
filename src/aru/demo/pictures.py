"""The report's pictures, each drawn from the cells of a `Replay`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import pandas as pd

from aru.demo.outcome import METHODS, Replay, by_novelty, lead_over_naive, monday, nd_by, saved, score
from aru.demo.svg import Chart, Margins, Scale, day_numbers, responsive

DEMO_LEAD = 7  # days: the evenings before whose forecasts reach into the shift
_LABELLED = Margins(bottom=36)

# Lower edges of the bins of days observed in the cold-start picture: fine at first, then by weeks.
_COLD_START_BINS = np.array([1, 2, 3, 4, 6, 8, 11, 15, 22, 29, 43, 64])


def accumulated(replay: Replay) -> str:
    """Error saved against seasonal naive since the stream began, known and unseen routes apart."""
    return "".join(f"<h3>{title}</h3>{_accumulated(replay, title, cells)}" for title, cells in _parts(replay))


def _accumulated(replay: Replay, title: str, cells: pd.DataFrame) -> str:
    lead = lead_over_naive(cells)
    x, span = day_numbers(lead.index), _stream(replay.cells, before=1)
    room = 0.06 * float(lead.max().max() - lead.min().min())
    y = Scale(float(lead.min().min()) - room, float(lead.max().max()) + room)
    tips = _tips(lead, [f"until {day.day} {day:%B}" for day in lead.index], "+,.0f")

    def draw(width: int) -> str:
        chart = Chart((width, 290), span, y, f"Error saved, {title}")
        _shade_seasons(chart, replay)
        chart.y_axis(",.0f", "departures")
        chart.month_axis()
        chart.band(x, lead["unadapted"].to_numpy(), lead["aru"].to_numpy(), "gap")
        for method in lead:
            chart.line(x, lead[method].to_numpy(), f"line {method}")
        chart.hover(x, tips)
        return chart.render()

    return responsive(draw)


def weeks(replay: Replay) -> str:
    """ND of each week of the stream, known and unseen routes apart."""
    return "".join(f"<h3>{title}</h3>{_weeks(replay, title, cells)}" for title, cells in _parts(replay))


def _parts(replay: Replay) -> list[tuple[str, pd.DataFrame]]:
    return list(by_novelty(replay.cells).items())


def _weeks(replay: Replay, title: str, cells: pd.DataFrame) -> str:
    nd = nd_by(cells, monday(cells["ds"]))
    span = _stream(replay.cells, before=1)
    x = np.clip(day_numbers(nd.index) + 3, span.low + 1, span.high - 1)
    tips = _tips(nd, [f"week of {day.day} {day:%B}" for day in nd.index])

    def draw(width: int) -> str:
        chart = Chart((width, 270), span, _proportional(nd), f"ND by week, {title}")
        _shade_seasons(chart, replay)
        chart.y_axis("g", "ND")
        chart.month_axis()
        for method in nd:
            chart.line(x, nd[method].to_numpy(), f"line {method}")
        chart.hover(x, tips)
        return chart.render()

    return responsive(draw)


def level_shift(replay: Replay) -> str:
    """ND of the routes with the level shift, by the number of evenings that knew of it."""
    cells, start = replay.shift.cells, replay.shift.start
    nd = nd_by(cells, (cells["cutoff"] - start).dt.days + 1)
    x = nd.index.to_numpy(dtype=np.float64)
    tips = _tips(nd, [f"days known since the shift: {max(int(day), 0)}" for day in x])

    def draw(width: int) -> str:
        chart = Chart((width, 290), Scale(x[0] - 0.5, x[-1] + 0.5), _from_zero(nd), "ND around the shift", _LABELLED)
        chart.span(-DEMO_LEAD + 0.5, 0.5, "season", "not yet known")
        chart.x_axis("g", "days with fewer flights that the forecast knew")
        chart.y_axis("g", "ND")
        for method in nd:
            chart.line(x, nd[method].to_numpy(), f"line {method}")
        chart.hover(x, tips)
        return chart.render()

    return responsive(draw)


def gallery(replay: Replay) -> str:
    """The forecasts of a few routes, chosen by rule."""
    cards = []
    for title, cells in _parts(replay):
        for route, why in _picks(cells).items():
            one = cells[cells["unique_id"] == route]
            figures = f"ND {score(one, 'aru').nd:.3f}, seasonal naive {score(one, 'naive').nd:.3f}"
            cards.append(_card(_fan(replay, one), route, f"{title[:-1].lower()}, {why}. {figures}"))
    return f'<div class="gallery">{"".join(cards)}</div>'


def shifted_routes(replay: Replay) -> str:
    """Forecasts of the busiest routes with the level shift: one from before it, the others since."""
    cells = replay.shift.cells
    flown = cells.groupby("unique_id")["y"].sum().sort_values(ascending=False)
    cards = [
        _card(
            _fan(replay, cells[cells["unique_id"] == route], shift=True), str(route), "every seventh evening's forecast"
        )
        for route in flown.index[:2]
    ]
    return f'<div class="gallery">{"".join(cards)}</div>'


def _card(picture: str, route: str, text: str) -> str:
    return f"<figure>{picture}<figcaption><b>{escape(route)}</b>, {text}</figcaption></figure>"


def _picks(cells: pd.DataFrame) -> dict[str, str]:
    """The busiest route, and of the others with departures those that learning from errors helped and hurt most."""
    flown = cells.groupby("unique_id")["y"].sum()
    busiest = str(flown.idxmax())
    others = saved(cells)[flown > 0].drop(busiest).sort_values()
    picks = {busiest: "the busiest"}
    if len(others) > 1:
        picks |= {str(others.index[-1]): "helped most", str(others.index[0]): "hurt most"}
    return picks


def _fan(replay: Replay, cells: pd.DataFrame, shift: bool = False) -> str:
    """One route over its stream: the forecasts of every seventh day, each for its own week."""
    route, start = cells["unique_id"].iloc[0], cells["cutoff"].min()
    weekly = cells[(cells["cutoff"] - start).dt.days % 7 == 0].sort_values("ds")
    truth = cells.drop_duplicates("ds").sort_values("ds")
    earlier = replay.cells[replay.cells["ds"] < cells["ds"].min()].drop_duplicates(["unique_id", "ds"])
    past = pd.concat([replay.history, earlier[["unique_id", "ds", "y"]]])
    past = past[past["unique_id"] == route]
    past = past[past["ds"] > start - pd.Timedelta(weeks=3)]
    highest = float(np.nanmax([weekly["aru-hi-90"].max(), truth["y"].max(), past["y"].max(), 1.0]))
    size, y = (450, 220), Scale(0.0, 1.05 * highest)
    chart = Chart(size, _stream(cells, before=21), y, f"forecasts for {route}", Margins(left=30))
    if shift:
        chart.span(float(day_numbers([replay.shift.start])[0]) - 0.5, chart.x.high, "season", "fewer flights")
    else:
        _shade_seasons(chart, replay)
    chart.y_axis("g")
    chart.month_axis()
    for _, fan in weekly.groupby("cutoff"):
        x = day_numbers(fan["ds"])
        low, high = (np.pad(fan[f"aru-{side}-90"].to_numpy(), 1, mode="edge") for side in ("lo", "hi"))
        chart.band(np.concatenate([x[:1] - 0.5, x, x[-1:] + 0.5]), low, high, "area")
        chart.line(x, fan["naive-median"].to_numpy(), "line thin naive")
        chart.line(x, fan["aru-median"].to_numpy(), "line aru")
    chart.dots(day_numbers(past["ds"]), past["y"].to_numpy(), "past", 1.6)
    chart.dots(day_numbers(truth["ds"]), truth["y"].to_numpy(), "dot", 1.9)
    chart.hover(day_numbers(weekly["ds"]), _fan_tips(weekly))
    return chart.render()


def _fan_tips(weekly: pd.DataFrame) -> list[str]:
    columns = ["ds", "y", "aru-median", "aru-lo-90", "aru-hi-90", "naive-median"]
    return [
        f"{ds.day} {ds:%B}\ndepartures: {y:.0f}\n"
        f"{METHODS['aru']}: {median:.1f} ({low:.1f} to {high:.1f})\n"
        f"{METHODS['naive']}: {naive:.1f}"
        for ds, y, median, low, high, naive in weekly[columns].itertuples(index=False, name=None)
    ]


def cold_start(replay: Replay) -> str:
    """ND of unseen routes against the number of days observed when the forecast was made."""
    cells = replay.cells[replay.cells["unseen"]]
    if cells.empty:
        return "<p>This run had no unseen routes.</p>"
    observed = (cells["cutoff"] - cells.groupby("unique_id")["cutoff"].transform("min")).dt.days + 1
    bins = pd.Series(np.searchsorted(_COLD_START_BINS, observed, side="right"), index=cells.index)
    nd = nd_by(cells, bins)
    in_bin = observed.groupby(bins).agg(["mean", "min", "max"]).loc[nd.index]
    x = in_bin["mean"].to_numpy(dtype=np.float64)
    ranges = zip(in_bin["min"], in_bin["max"], strict=True)
    names = [f"{a}" if a == b else f"{a} to {b}" for a, b in ranges]
    tips = _tips(nd, [f"days observed: {name}" for name in names])

    def draw(width: int) -> str:
        days = Scale(0.9, float(x.max()) * 1.15, log=True)
        chart = Chart((width, 290), days, _proportional(nd), "ND by days observed", _LABELLED)
        chart.x_axis("g", "days observed when the forecast was made")
        chart.y_axis("g", "ND")
        for method in nd:
            chart.line(x, nd[method].to_numpy(), f"line {method}")
            chart.dots(x, nd[method].to_numpy(), f"point {method}", 2.6)
        chart.hover(x, tips)
        return chart.render()

    return responsive(draw)


def scatter(replay: Replay) -> str:
    """ND of every route, unadapted against adapting."""
    cells = replay.cells
    nd = nd_by(cells, cells["unique_id"])[["unadapted", "aru"]]
    unseen = cells.groupby("unique_id")["unseen"].first().loc[nd.index].to_numpy()
    # A route with few departures can have an ND near zero or far above one. It is drawn on the edge.
    limits = float(nd.min().min()), float(nd.max().max())
    axis = Scale(max(limits[0] / 1.1, 0.01), min(limits[1] * 1.1, 5.0), log=True)

    def draw(width: int) -> str:
        side = min(width, 540)
        chart = Chart((side, side), axis, axis, "ND per route, unadapted against adapting", _LABELLED)
        chart.x_axis("g", "ND, unadapted")
        chart.y_axis("g", "ND, adapting")
        chart.line(np.array([axis.low, axis.high]), np.array([axis.low, axis.high]), "diagonal")
        for css, chosen in (("known", nd[~unseen]), ("unseen", nd[unseen])):
            tips = [
                f"{route}\nunadapted: {alone:.3f}\nadapting: {adapting:.3f}"
                for route, alone, adapting in chosen.itertuples(name=None)
            ]
            x = np.clip(chosen["unadapted"].to_numpy(), axis.low, axis.high)
            chart.dots(x, chosen["aru"].to_numpy(), css, 3.6, tips)
        return chart.render()

    return responsive(draw)


def _stream(cells: pd.DataFrame, before: int) -> Scale:
    """The time axis: the days forecast, and some days before."""
    ends = day_numbers([cells["ds"].min(), cells["ds"].max()])
    return Scale(float(ends[0]) - before, float(ends[1]) + 1)


def _from_zero(nd: pd.DataFrame) -> Scale:
    return Scale(0.0, 1.08 * float(nd.max().max()))


def _proportional(nd: pd.DataFrame) -> Scale:
    """Equal ratios are equal distances."""
    seen = nd.to_numpy()
    return Scale(float(seen[seen > 0].min()) / 1.1, float(seen.max()) * 1.1, log=True)


def _shade_seasons(chart: Chart, replay: Replay) -> None:
    for season in replay.seasons:
        start, end = day_numbers([season.start, season.end])
        chart.span(start - 0.5, end + 0.5, "season", season.name)


def _tips(values: pd.DataFrame, names: Sequence[str], spec: str = ".3f") -> list[str]:
    shown = [method for method in METHODS if method in values]
    return [
        "\n".join([name, *(f"{METHODS[method]}: {row[method]:{spec}}" for method in shown)])
        for name, (_, row) in zip(names, values.iterrows(), strict=True)
    ]
