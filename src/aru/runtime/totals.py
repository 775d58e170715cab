"""Sample paths of a forecast, and the distribution of their sums: demand over a lead time, a month from days.

Each step of a path has the distribution that `predict` forecasts for it. A Gaussian copula joins the steps, with the
correlations of `aru.runtime.dependence`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from aru.data.clock import Times
from aru.data.frames import forecast_names, quantiles_of
from aru.data.panel import Panel
from aru.nn.tree import tree_map
from aru.runtime import calibration
from aru.runtime.dependence import KNOTS
from aru.runtime.explaining import Found
from aru.runtime.forecasting import ForecastRuntime, warn_failed
from aru.runtime.state import SeriesState

SUMMED_PATHS = 2000
DRAWN_AT_ONCE = 2**21  # steps of paths

Correlate = Callable[[Found], Tensor]


class Sampler:
    """Draws sample paths of the next steps of series."""

    def __init__(self, runtime: ForecastRuntime, correlate: Correlate, futr: Panel | None, steps: int) -> None:
        self._runtime, self._correlate, self._futr, self._steps = runtime, correlate, futr, steps

    def totals(self, names: pd.Index[Any], state: SeriesState, level: Sequence[float] | None) -> dict[str, Any]:
        """Columns of the sums over the steps: one row for each series, at the time of the last step."""
        noise = torch.randn(SUMMED_PATHS, self._steps, dtype=torch.float64, generator=_generator(0))
        shares = torch.tensor(quantiles_of(level), dtype=torch.float64)
        parts = []
        for here, some in _portions(names, state, SUMMED_PATHS * self._steps):
            ds, mean, paths = self._draw(here, some, noise.expand(len(here), *noise.shape), for_sums=True)
            sums = paths.sum(-1)
            ends = torch.quantile(sums, shares, dim=1) if len(sums) else sums.new_zeros(len(shares), 0)
            parts.append((ds[:, -1], [mean.sum(1), *ends]))
        values = [torch.cat(column).numpy() for column in zip(*(part for _, part in parts), strict=True)]
        columns = {"unique_id": names.to_numpy(), "ds": np.concatenate([ds for ds, _ in parts])}
        return columns | dict(zip(forecast_names(self._runtime.settings.name, level), values, strict=True))

    def paths(self, names: pd.Index[Any], state: SeriesState, n_paths: int, random_seed: int) -> dict[str, Any]:
        """Columns of paths: series by series, path by path, step by step.

        A series' draws are its own, and those of fewer steps are the first ones of a whole horizon.
        """
        parts = []
        for here, some in _portions(names, state, n_paths * self._steps):
            noise = [
                torch.randn(n_paths, self._runtime.h, dtype=torch.float64, generator=_generator(random_seed, name))
                for name in here
            ]
            none = torch.zeros(0, n_paths, self._steps, dtype=torch.float64)
            ds, _, paths = self._draw(here, some, torch.stack(noise)[..., : self._steps] if noise else none)
            parts.append((np.repeat(ds[:, None], n_paths, 1).ravel(), paths.numpy().ravel()))
        ds, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        each = np.repeat(np.arange(n_paths), self._steps)
        return {
            "unique_id": np.repeat(names.to_numpy(), n_paths * self._steps),
            "ds": ds,
            "path": np.tile(each, len(names)),
            self._runtime.settings.name: values,
        }

    def _draw(
        self, names: pd.Index[Any], state: SeriesState, noise: Float[Tensor, "series path step"], for_sums: bool = False
    ) -> tuple[Times, Float[Tensor, "series step"], Float[Tensor, "series path step"]]:
        """Times and means of the steps, and paths made of independent normal deviates; `for_sums` see `_spread_out`."""
        runtime, steps = self._runtime, self._steps
        ds, rows = runtime.future(names, state, self._futr, steps)
        forecast = runtime.forecast(state, rows, KNOTS).first(steps)
        warn_failed(forecast, names)
        z = torch.special.ndtri(torch.tensor(KNOTS, dtype=torch.float64))
        knots = calibration.tidy(forecast.quantiles.double().movedim(0, -1), z).contiguous()
        correlation = self._correlate((names, state))[:, :steps, :steps]
        factor = torch.linalg.cholesky(correlation + 1e-9 * torch.eye(steps, dtype=torch.float64))
        if for_sums:
            noise = _spread_out(noise, (knots[..., -1:] - knots[..., :1]).transpose(1, 2) @ factor)
        deviates = factor @ noise.transpose(1, 2)  # (series, step, path)
        paths = self._possible(state, calibration.value_at(knots, z, deviates).movedim(-1, 0)).movedim(0, 1)
        return ds[:, :steps], forecast.mean.double(), paths

    def _possible(self, state: SeriesState, paths: Float[Tensor, "path series step"]) -> Tensor:
        """The nearest values that y can have."""
        schema, model = self._runtime.schema, self._runtime.engine.models[0]
        paths = model.possible(state.context, paths.to(state.context.total.device), True).cpu()
        paths = paths.clamp(min=0) if schema.nonnegative else paths
        return paths.round() if schema.integer else paths


def _spread_out(
    noise: Float[Tensor, "series path step"], along: Float[Tensor, "series 1 step"]
) -> Float[Tensor, "series path step"]:
    """The same draws, but evenly spread in one direction: that in which the sum of a path grows.

    Quantiles of sums would be exact, were all forecasts normal; at random, 2000 draws miss by .05 standard deviations.
    """
    size = along.norm(dim=-1, keepdim=True)
    along = torch.where(size > 0, along / size, torch.eye(1, along.shape[-1], dtype=along.dtype))
    paths = noise.shape[1]
    even = torch.special.ndtri((torch.arange(paths, dtype=noise.dtype) + 0.5) / paths).unsqueeze(-1)
    spread: Tensor = noise + (even - noise @ along.transpose(1, 2)) * along
    return spread


def _portions(names: pd.Index[Any], state: SeriesState, each: int) -> list[Found]:
    """Series in portions whose paths fit into memory; one of no series if there are none."""
    size = max(DRAWN_AT_ONCE // each, 1)
    return [
        (names[lo : lo + size], tree_map(lambda v, lo=lo: v[lo : lo + size], state))
        for lo in range(0, max(len(names), 1), size)
    ]


def _generator(seed: int, name: Any = "") -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode("utf-8", "surrogatepass")))  # of 32 bits
