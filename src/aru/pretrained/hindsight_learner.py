"""What a network's own errors teach about series without covariates (`aru.pretrained.hindsight`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aru.data.clock import Clock
from aru.data.columns import Ints
from aru.data.frequency import Frequency
from aru.data.rows import Rows
from aru.nn.tree import put, take
from aru.nn.windows import Context
from aru.pretrained.closed_form import ClosedForm, Network, PastValues, Seen
from aru.pretrained.hindsight import CommonHindsight, Hindsight, HindsightSums, LocalHindsight, Window
from aru.pretrained.rounds import rounds_due


class HindsightLearner(ClosedForm):
    """Records of forecasts that are made again. An update runs the network about every h rows."""

    shares = True

    def __init__(self, h: int, freq: Frequency, clock: Clock, periods: tuple[int, int] | None) -> None:
        self._freq, self._clock, self.steps = freq, clock, h
        self.equations = Hindsight(h, periods, freq.step is not None or len(freq.seasons()) > 0)

    def empty(self, n: int, device: torch.device) -> HindsightSums:
        """Records of series without rows."""
        return self.equations.empty(n, device)

    def update(
        self, state: HindsightSums, context: Context, rows: Rows, steps: Tensor, network: Network
    ) -> HindsightSums:
        """Forecast the latest rows again whenever a round is due, and learn from the errors."""
        equations, sums = self.equations, state
        h, stride, passed = equations.h, equations.stride, sums.passed + steps
        if len(passed) and int(passed.max()) >= stride:
            for part in rounds_due(context, rows, sums.passed, steps, stride):
                past, known = part.y[:, :-h], part.observed[:, :-h]
                truth = torch.where(part.observed[:, -h:], part.y[:, -h:], torch.nan)
                truth[known.sum(1) < stride] = torch.nan  # too little was known to be judged by it
                y, observed, quantiles, came = _on_cpu(past, known, network(past, past, known, h), truth)
                window, _ = equations.window(y, observed, quantiles, self._ticks(part.last) - h, came)
                for turn in part.turn.unique().tolist():
                    here = part.turn == turn
                    series, some = part.series[here], here.cpu().numpy()
                    learned = equations.learn(take(sums, series), Window(*(value[some] for value in window)))
                    sums = put(sums, series, learned)
        return sums._replace(passed=(passed % stride).to(sums.passed))

    def aged(self, state: HindsightSums, steps: Tensor) -> HindsightSums:
        """Older sums."""
        return self.equations.aged(state, steps)

    def learn_common(self, state: HindsightSums, context: Context, network: Network) -> CommonHindsight:
        """Coefficients of the panel, and how far they are to be believed."""
        return self.equations.learn_common(state)

    def meet(self, state: HindsightSums, context: Context, common: CommonHindsight | None) -> LocalHindsight | None:
        """Coefficients of each series. Without a panel nothing is said."""
        return None if common is None else self.equations.meet(state, common)

    def complete(
        self, values: Tensor, met: LocalHindsight | None, seen: Seen, context: Context, past: PastValues
    ) -> Tensor:
        """Forecasts are moved by what the records say about their errors."""
        if met is None or not met.weights.any():
            return values
        y, observed, quantiles = _on_cpu(past.y, past.observed, values)
        window, spread = self.equations.window(y, observed, quantiles, self._ticks(context.rows.ds[:, -1]))
        shift = torch.from_numpy(self.equations.correction(met, window, spread)).to(values)
        return values + shift.unsqueeze(-1)

    def _ticks(self, last: Tensor) -> Ints:
        """Steps since 1970 at times of the rows."""
        return self._freq.ticks(self._clock.local(last.cpu().numpy()))


def _on_cpu(*tensors: Tensor) -> list[Any]:
    return [tensor.cpu().numpy() for tensor in tensors]
