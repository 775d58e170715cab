"""How the errors of a forecast hang together from lead to lead, learned from past forecasts of the same series.

An actual value has a normal deviate in its forecast (`aru.runtime.calibration`). Past origins give a vector z of h such
deviates each. Around zero, which is right for a forecast without bias, S = sum of z z' over the origins of a series, P
is the correlation over those of the panel, and a series has the correlation of

    S + w P      P = correlation of (sum of S over the panel + PRIOR_ORIGINS smooth correlations)

w says how many origins the panel is worth. It is chosen by how well the sum of z, at each origin of each series, would
have been foreseen by the others: large where series are alike. Nothing is kept for this: past origins are forecast
again from what the state of a series remembers (`Model.hindcast`), or from rows that are given. None of this is later
than the state itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aru.data.beginnings import leave_out_empty
from aru.data.columns import Ints
from aru.data.panel import Panel
from aru.errors import ConfigError, quoted
from aru.nn.windows import all_values
from aru.runtime import calibration
from aru.runtime.engine import NetworkEngine
from aru.runtime.explaining import Found
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.state import SeriesState

ORIGINS = 16  # of each series
POOLED = 64  # series of the panel
KNOTS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99)  # quantiles of a forecast
LEAST_VALUES = 4  # before an origin
CUT_DEVIATE = 3.0  # larger ones count as this
PRIOR_ORIGINS = 2.0  # that the smooth correlation is worth
LASTING, FADING = 0.2, 0.4  # correlation of all leads, and by step: of series that have shown nothing yet
PANEL_WEIGHTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # from which w is chosen

Deviates = Float[Tensor, "series origin lead"]  # NaN where nothing is known


class Dependence(NamedTuple):
    """What the series of a panel have in common."""

    pooled: Float[Tensor, "lead lead"]  # P
    weight: float  # w

    @classmethod
    def learn(cls, z: Deviates) -> Dependence:
        """From the deviates of a sample of series."""
        start = torch.eye(z.shape[-1], dtype=torch.float64)
        common = _products(z).sum(0)
        prior = _smooth(_correlation(common + PRIOR_ORIGINS * _decay(start, LASTING, FADING)))
        return cls(_correlation(common + PRIOR_ORIGINS * prior), _weight(z))

    def of(self, z: Deviates) -> Float[Tensor, "series lead lead"]:
        """The correlations of series with these deviates."""
        return _correlation(_products(z) + self.weight * self.pooled)


def deviates(knots: Float[Tensor, "*rows knot"], y: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """Of actual values in forecasts with these quantiles (KNOTS), cut off; NaN where either is missing."""
    z = torch.special.ndtri(torch.tensor(KNOTS, dtype=torch.float64))
    known = y.isfinite() & knots.isfinite().all(-1)
    values, tidy = torch.where(known, y, 0.0), calibration.tidy(torch.where(known.unsqueeze(-1), knots, 0.0), z)
    ends = [calibration.deviate(tidy.contiguous(), z, values, right) for right in (False, True)]
    middle = sum(end.clamp(-CUT_DEVIATE, CUT_DEVIATE) for end in ends) / 2  # where quantiles are equal
    return torch.where(known, middle, torch.nan)


def origins_back(known: Ints, h: int) -> Ints:
    """(origin, series): how many rows before the latest one past origins lie, of series with so many rows; or 0.

    They lie within the latter half of the rows, where that has room for a horizon, evenly and half a horizon to one
    horizon apart.
    """
    least = np.maximum(np.minimum(-(-known // 2), known - h), LEAST_VALUES)
    room = known - least - h  # below 0: not even one
    step = np.clip(room // ORIGINS, max(h // 2, 1), h)
    back = h + np.arange(ORIGINS)[:, None] * step
    return np.where(back - h <= room, back, 0)


def remembered_deviates(engine: NetworkEngine, state: SeriesState) -> Deviates | None:
    """Deviates at past origins, forecast again from the states alone; None if the model cannot do that."""
    model, context, n = engine.models[0], state.context, len(state.last)
    width = all_values(context).y.shape[1]
    known = (state.steps + 1).clamp(0, width).cpu().numpy()
    z = torch.full((n, ORIGINS, engine.h), torch.nan, dtype=torch.float64)
    with engine.threads(n):
        ready = model.meet(state.members[0], context, engine.common.effects)
        for i, back in enumerate(origins_back(known, engine.h)):
            which = torch.from_numpy(back > 0)
            if i > 0 and not which.any():
                break
            found = model.hindcast(ready, context, torch.from_numpy(back).to(context.count.device), engine.h, KNOTS)
            if found is None:
                return None
            z[which, i] = deviates(found.quantiles.cpu().double(), found.y.cpu().double())[which]
    return z


def replayed_deviates(runtime: ForecastRuntime, found: Found, panel: Panel, static_df: Any) -> Deviates:
    """Deviates of series at past origins, by a backtest over their rows in a panel, none later than their states."""
    names, state = found
    z = torch.full((len(names), ORIGINS, runtime.h), torch.nan, dtype=torch.float64)
    place = names.get_indexer(panel.ids)
    last = np.append(state.last.cpu().numpy(), np.iinfo(np.int64).min)[place]  # nothing of other series
    panel, _ = leave_out_empty(panel.select(panel.ds <= last[panel.series]))
    if len(panel.ids) == 0:
        return z
    place = names.get_indexer(panel.ids)
    back = origins_back(panel.lengths, runtime.h)[::-1]  # the oldest first
    rows = np.where(back > 0, panel.starts + panel.lengths - 1 - back, 0)
    begun = np.cumsum(panel.observed)[rows] > np.append(0, np.cumsum(panel.observed))[panel.starts]
    cutoffs = np.where((back > 0) & begun, rows, -1)
    if (cutoffs < 0).all():
        return z
    level = [100 * (2 * q - 1) for q in KNOTS if q > 0.5]
    count = np.zeros(len(names), np.int64)
    for fold in runtime.rolling(panel, cutoffs, level, True, static_df):
        by_level = fold.forecast.quantiles.double()  # the median, then both ends of each level
        knots = torch.cat([by_level[1::2].flip(0), by_level[:1], by_level[2::2]]).movedim(0, -1)
        at = place[fold.series]
        z[at, count[at]] = deviates(knots, torch.from_numpy(panel.y[fold.future]))
        count[at] += 1
    return z


def learn_dependence(
    runtime: ForecastRuntime, sample: Found, panel: Panel | None, static_df: Any
) -> Callable[[Found], Float[Tensor, "series lead lead"]]:
    """What gives the correlations of series. The panel's are learned from the sample.

    `panel` has rows to learn from; None: what the states remember.
    """

    def errors_of(found: Found) -> Deviates:
        if panel is not None:
            return replayed_deviates(runtime, found, panel, static_df)
        z = remembered_deviates(runtime.engine, found[1])
        if z is None:
            raise ConfigError(
                f"`model={quoted(runtime.settings.model)}` remembers too few rows of its series to learn how the "
                "errors of a forecast hang together",
                "Give the history of the series as `df`.",
            )
        return z

    common = Dependence.learn(errors_of(sample))
    return lambda found: common.of(errors_of(found))


def _products(z: Tensor) -> Tensor:
    """(series, lead, lead): sums of z z' over origins."""
    known = z.nan_to_num(nan=0.0)
    return known.transpose(-1, -2) @ known


def _correlation(products: Tensor) -> Tensor:
    size = products.diagonal(dim1=-2, dim2=-1).clamp(min=1e-12).sqrt()
    return products / (size.unsqueeze(-1) * size.unsqueeze(-2))


def _decay(like: Tensor, lasting: Tensor | float, fading: Tensor | float) -> Tensor:
    """(lead, lead) correlations: a part that lasts, and one that fades from step to step."""
    lead = torch.arange(like.shape[-1], dtype=torch.float64)
    return lasting + (1 - lasting) * fading ** (lead[:, None] - lead).abs()


def _smooth(r: Tensor) -> Tensor:
    """The correlations of that form which agree in those of neighbours and, on average, of distant leads."""
    h = r.shape[-1]
    if h < 3:
        return r
    lead = torch.arange(h)
    far = (lead[:, None] - lead).abs() > h // 2
    lasting = r[far].mean().clamp(0.0, 0.95)
    fading = ((r.diagonal(1).mean() - lasting) / (1 - lasting)).clamp(0.0, 0.98)
    return _decay(r, lasting, fading)


def _weight(z: Tensor) -> float:
    """w: how well the others foresee the size of each sum, by the likelihood of a normal one."""
    known = z.isfinite().any(-1)
    square = torch.where(known, z.nan_to_num(nan=0.0).sum(-1) ** 2, 0.0)
    usual = square.sum() / known.sum().clamp(min=1)
    others, count = square.sum(1, keepdim=True) - square, known.sum(1, keepdim=True) - 1

    def likelihood(w: float) -> float:
        variance = ((others + w * usual) / (count + w)).clamp(min=1e-12)
        return float(torch.where(known, variance.log() + square / variance, 0.0).sum())

    return min(PANEL_WEIGHTS, key=likelihood)
