"""The report's pictures, each drawn from the cells of a `Replay`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import pandas as pd

from aru.demo.outcome import METHODS, Replay, by_novelty, nd_by, saved, score
from aru.demo.svg import Chart, Margins, Scale, day_numbers, responsive

# Lower edges of the bins of days observed in the cold-start picture: fine at first, then by weeks.
_COLD_START_BINS = np.array([1, 2, 3, 4, 6, 8, 11, 15, 22, 29, 43, 64])


def weeks(replay: Replay) -> str:
    """ND of each week of the stream, known and unseen routes apart."""
    return "".join(f"<h3>{title}</h3>{_weeks(replay, title, cells)}" for title, cells in _parts(replay))


def _parts(replay: Replay) -> list[tuple[str, pd.DataFrame]]:
    return list(by_novelty(replay.cells).items())


def _weeks(replay: Replay, title: str, cells: pd.DataFrame) -> str:
    nd = nd_by(cells, cells["ds"] - pd.to_timedelta(cells["ds"].dt.day_of_week, unit="D"))
    span = _stream(replay, before=1)
    x = np.clip(day_numbers(nd.index) + 3, span.low + 1, span.high - 1)
    tips = _nd_tips(nd, [f"week of {monday.day} {monday:%B}" for monday in nd.index])

    def draw(width: int) -> str:
        chart = Chart((width, 240), span, _from_zero(nd), f"ND by week, {title}")
        _shade_seasons(chart, replay)
        chart.y_axis(".2f", "ND")
        chart.month_axis()
        for method in METHODS:
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
            adapting, baseline = score(one, "adapting").nd, score(one, "baseline").nd
            cards.append(
                f"<figure>{_fan(replay, one)}<figcaption><b>{escape(route)}</b>, {title[:-1].lower()}, "
                f"{why}. ND {adapting:.3f}, baseline {baseline:.3f}</figcaption></figure>"
            )
    return f'<div class="gallery">{"".join(cards)}</div>'


def _picks(cells: pd.DataFrame) -> dict[str, str]:
    """The busiest route, and of the others with departures those that adapting helped and hurt most."""
    flown = cells.groupby("unique_id")["y"].sum()
    busiest = str(flown.idxmax())
    others = saved(cells)[flown > 0].drop(busiest).sort_values()
    picks = {busiest: "the busiest"}
    if len(others) > 1:
        picks |= {str(others.index[-1]): "helped most", str(others.index[0]): "hurt most"}
    return picks


def _fan(replay: Replay, cells: pd.DataFrame) -> str:
    """One route over the whole stream: the forecasts of every seventh day, each for its own week."""
    route, start = cells["unique_id"].iloc[0], cells["cutoff"].min()
    weekly = cells[(cells["cutoff"] - start).dt.days % 7 == 0].sort_values("ds")
    truth = cells.drop_duplicates("ds").sort_values("ds")
    past = replay.history[replay.history["unique_id"] == route]
    past = past[past["ds"] > start - pd.Timedelta(weeks=3)]
    highest = float(np.nanmax([weekly["adapting-hi-90"].max(), truth["y"].max(), past["y"].max(), 1.0]))
    chart = Chart(
        (450, 220),
        _stream(replay, before=21),
        Scale(0.0, 1.05 * highest),
        f"forecasts for {route}",
        Margins(left=30),
    )
    _shade_seasons(chart, replay)
    chart.y_axis("g")
    chart.month_axis()
    for _, fan in weekly.groupby("cutoff"):
        x = day_numbers(fan["ds"])
        low, high = (np.pad(fan[f"adapting-{side}-90"].to_numpy(), 1, mode="edge") for side in ("lo", "hi"))
        chart.band(np.concatenate([x[:1] - 0.5, x, x[-1:] + 0.5]), low, high, "area")
        chart.line(x, fan["baseline-median"].to_numpy(), "line thin baseline")
        chart.line(x, fan["adapting-median"].to_numpy(), "line adapting")
    chart.dots(day_numbers(past["ds"]), past["y"].to_numpy(), "past", 1.6)
    chart.dots(day_numbers(truth["ds"]), truth["y"].to_numpy(), "dot", 1.9)
    chart.hover(day_numbers(weekly["ds"]), _fan_tips(weekly))
    return chart.render()


def _fan_tips(weekly: pd.DataFrame) -> list[str]:
    columns = ["ds", "y", "adapting-median", "adapting-lo-90", "adapting-hi-90", "baseline-median"]
    return [
        f"{ds.day} {ds:%B}\ndepartures: {y:.0f}\n"
        f"{METHODS['adapting']}: {median:.1f} ({low:.1f} to {high:.1f})\n"
        f"{METHODS['baseline']}: {baseline:.1f}"
        for ds, y, median, low, high, baseline in weekly[columns].itertuples(index=False, name=None)
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
    tips = _nd_tips(nd, [f"days observed: {name}" for name in names])

    def draw(width: int) -> str:
        days = Scale(0.9, float(x.max()) * 1.15, log=True)
        chart = Chart((width, 290), days, _from_zero(nd), "ND by days observed", Margins(bottom=36))
        chart.x_axis("g", "days observed when the forecast was made")
        chart.y_axis(".2f", "ND")
        for method in METHODS:
            chart.line(x, nd[method].to_numpy(), f"line {method}")
            chart.dots(x, nd[method].to_numpy(), f"point {method}", 2.6)
        chart.hover(x, tips)
        return chart.render()

    return responsive(draw)


def scatter(replay: Replay) -> str:
    """ND of every route, frozen against adapting."""
    cells = replay.cells
    nd = nd_by(cells, cells["unique_id"])[["frozen", "adapting"]]
    unseen = cells.groupby("unique_id")["unseen"].first().loc[nd.index].to_numpy()
    # A route with few departures can have an ND near zero or far above one. It is drawn on the edge.
    limits = float(nd.min().min()), float(nd.max().max())
    axis = Scale(max(limits[0] / 1.1, 0.01), min(limits[1] * 1.1, 5.0), log=True)

    def draw(width: int) -> str:
        side = min(width, 540)
        chart = Chart((side, side), axis, axis, "ND per route, frozen against adapting", Margins(bottom=36))
        chart.x_axis("g", "ND, frozen")
        chart.y_axis("g", "ND, adapting")
        chart.line(np.array([axis.low, axis.high]), np.array([axis.low, axis.high]), "diagonal")
        for css, chosen in (("known", nd[~unseen]), ("unseen", nd[unseen])):
            tips = [
                f"{route}\nfrozen: {frozen:.3f}\nadapting: {adapting:.3f}"
                for route, frozen, adapting in chosen.itertuples(name=None)
            ]
            x = np.clip(chosen["frozen"].to_numpy(), axis.low, axis.high)
            chart.dots(x, chosen["adapting"].to_numpy(), css, 3.6, tips)
        return chart.render()

    return responsive(draw)


def _stream(replay: Replay, before: int) -> Scale:
    """The time axis: the days forecast, and some days before."""
    ends = day_numbers([replay.cells["ds"].min(), replay.cells["ds"].max()])
    return Scale(float(ends[0]) - before, float(ends[1]) + 1)


def _from_zero(nd: pd.DataFrame) -> Scale:
    return Scale(0.0, 1.08 * float(nd.max().max()))


def _shade_seasons(chart: Chart, replay: Replay) -> None:
    for season in replay.seasons:
        start, end = day_numbers([season.start, season.end])
        chart.span(start - 0.5, end + 0.5, "season", season.name)


def _nd_tips(nd: pd.DataFrame, names: Sequence[str]) -> list[str]:
    return [
        "\n".join([name, *(f"{METHODS[method]}: {row[method]:.3f}" for method in METHODS)])
        for name, (_, row) in zip(names, nd.iterrows(), strict=True)
    ]
