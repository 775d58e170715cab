"""`effects` of forecasters and streams: what covariates are worth, as a frame and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aru.errors import NotFittedError
from aru.pretrained.effects import LOGS, CommonEffects
from aru.pretrained.traits import Traits
from aru.pretrained.worth import OTHER_DAYS, contrasts, worth_of_panel, worth_of_series
from aru.runtime.epochs import sampled
from aru.runtime.forecasting import ForecastRuntime
from aru.runtime.forest_plot import Forest, ForestRow, Picture, draw
from aru.runtime.state import SeriesState

Found = tuple["pd.Index[Any]", SeriesState]  # names and states of series
READ_AS = ("effect", "low", "high", "typical", "share")


def effects_of(runtime: ForecastRuntime, names: pd.Index[Any], state: SeriesState, panel: bool) -> dict[str, Any]:
    """The columns of `effects`: of each of these series, or of the panel that they are."""
    engine = runtime.engine
    if not engine.learned_late:
        raise NotFittedError(
            "There are no effects: this model has no covariates whose effects are learned in closed form",
            'Name some: Forecaster.from_pretrained("mini", ..., futr_exog_list=["promo"]).',
        )
    if not isinstance(engine.common.effects, CommonEffects):
        raise NotFittedError("No effect was learned yet", "Call update with the history of the series.")
    common, schema = engine.common.effects, runtime.schema
    listed, n = contrasts(schema), 1 if panel else len(names)
    if panel:
        state = sampled(state, names.tolist(), len(schema.regressors))
    traits = Traits(schema).of(state.context.static)
    found = (worth_of_panel if panel else worth_of_series)(state.members[0], traits, common, schema)
    columns: dict[str, Any] = {}
    if not panel:
        columns = {"unique_id": np.repeat(names.to_numpy(), len(listed))}
    columns |= {
        name: np.array([getattr(c, name) for c in listed] * n, dtype=object)
        for name in ("covariate", "value", "against")
    }
    columns |= {name: getattr(found, name) for name in READ_AS}
    unit, rows = "%" if common.way == LOGS else "y", len(listed) * n
    return {**columns, "unit": np.full(rows, unit, dtype=object), "epoch": np.full(rows, engine.common.epoch)}


def draw_effects(runtime: ForecastRuntime, all_: Found, some: Found | None, path: str | Path | None) -> Picture:
    """A picture of the effects of the panel, and of some series."""
    panel = effects_of(runtime, *all_, panel=True)
    series = None if some is None else effects_of(runtime, *some, panel=False)
    rows = [
        ForestRow(str(covariate), str(value) if against == OTHER_DAYS else f"{value} against {against}", share)
        for covariate, value, against, share in zip(
            panel["covariate"], panel["value"], panel["against"], panel["share"], strict=True
        )
    ]
    spans = np.stack([panel[name] for name in ("effect", "low", "high")], 1)
    own: dict[str, Any] = {}
    if series is not None and len(rows):
        values = np.stack([series[name] for name in ("effect", "low", "high")], 1).reshape(-1, len(rows), 3)
        own = {str(name): part for name, part in zip(series["unique_id"][:: len(rows)], values, strict=True)}
    percent = len(rows) > 0 and panel["unit"][0] == "%"
    picture = draw(Forest(rows, spans, own, "change of y, %" if percent else "change of y", "%" if percent else ""))
    if path is not None:
        picture.save(path)
    return picture
