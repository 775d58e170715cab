"""`CorrectionRuntime`: a `Runtime` that corrects the forecasts of other models."""

from __future__ import annotations

import numpy as np
import torch

from aru.data.clock import Times
from aru.data.columns import Ints
from aru.data.model_columns import Issued
from aru.data.panel import Panel
from aru.data.rows import Ragged
from aru.runtime.correction import AdapterState, CorrectionEngine, arrange, grow
from aru.runtime.runtime import Runtime


class CorrectionRuntime(Runtime[CorrectionEngine]):
    """Updates records of series, which hold pending forecasts, and corrects new forecasts."""

    def empty(self, n: int) -> AdapterState:
        """States of `n` series without observations."""
        return arrange(self.engine, np.zeros(0, np.int64), self.no_records().now, n)

    def issue(self, at: Ints, state: AdapterState, cutoff: Times, given: Issued) -> tuple[AdapterState, Issued]:
        """The states with the forecasts as pending, and the corrected forecasts. State i is for forecasts at[i]."""
        ready = arrange(self.engine, at, state, len(cutoff))
        return self.engine.issue(self.engine.begin(ready, torch.from_numpy(cutoff)), given)

    def replay(self, panel: Panel, given: Issued, origin: Ints) -> tuple[AdapterState, Issued]:
        """The states after a whole history, and its forecasts, each corrected at its origin."""
        starts, lengths, skipped = (torch.from_numpy(v) for v in (panel.starts, panel.lengths, panel.skipped))
        data = Ragged(self.schema.encode(panel), starts, lengths, skipped)
        state, adapted = self.engine.replay(self.empty(len(panel.ids)), data, given, origin)
        assert adapted is not None
        return state, adapted

    def grow(self, state: AdapterState) -> AdapterState:
        """States of a runtime with fewer models or levels, extended by empty ones for those of this runtime."""
        return grow(state, self.empty(len(state.last)))
