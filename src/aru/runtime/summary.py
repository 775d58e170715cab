"""What was chosen for a model, and why, as people read it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from aru.pretrained.effects import LOGS, CommonEffects
from aru.pretrained.hindsight import CommonHindsight
from aru.pretrained.zero_shot import ZeroShot
from aru.runtime.trained import Choice, Trained
from aru.settings import PRETRAINED


class Summary(pd.DataFrame):
    """A row for each choice: what it is about, what was chosen, and why. It is printed in full on any screen."""

    def __repr__(self) -> str:
        table = [list(Choice._fields), *self.to_numpy().tolist()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        return self.to_html(index=False)


def summary_of(trained: Trained) -> Summary:
    """What was chosen for a model, and why."""
    return Summary(list(_choices(trained)), columns=list(Choice._fields))


def _choices(trained: Trained) -> Iterator[Choice]:
    settings, schema = trained.runtime.settings, trained.runtime.schema
    yield Choice("model", f"{settings.model}, {settings.size}", "see docs/choosing.md")
    yield from trained.chosen
    model, common = trained.runtime.engine.models[0], trained.runtime.engine.common.effects
    if isinstance(model, ZeroShot):
        known = model.periods is not None
        periods = " and ".join(f"{period:,}" for period in model.periods or () if period > 1) or "none"
        given = "given" if settings.season_length else "the natural seasons of the frequency"
        yield Choice("season", f"{periods} rows" if known else "found in each series", given if known else "unknown")
    if isinstance(common, CommonEffects):
        way = "multiply" if common.way == LOGS else "add"
        yield Choice("effects of covariates", f"they {way}", "what fits the records of the panel better")
        named = (*settings.futr_exog_list, *settings.hist_exog_list)
        made_of = f"{', '.join(named) or 'no column'}, and the calendar"
        yield Choice("regressors", f"{len(schema.regressors):,}", f"made of {made_of}; forecaster.effects() has them")
    if isinstance(common, CommonHindsight):
        weights = common.weights.tolist()
        shown = ", ".join(f"{w:.2f}" for w in weights)
        used = any(w > 0 for w in weights)
        why = "they would have made past forecasts better" if used else "no evidence that they help"
        yield Choice("errors of past forecasts", f"used, with weights {shown}" if used else "not used", why)
    if settings.model == PRETRAINED:
        kind = "each series by its values" if settings.support == "auto" else settings.support
        yield Choice("values", kind, "decides whether forecasts are nonnegative, and whole")
    why = "given" if settings.calibration else "the default"
    yield Choice("intervals", settings.calibration or "as the model gives them", why)
