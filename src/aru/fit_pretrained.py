"""`fit` of a pretrained network: it is tuned to the panel as far as rows that were held back tell.

The last rows of series decide how the network is tuned (`aru.training.choosing`), on forecasts of the rows before. Then
it is tuned in that way on all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from aru.checked import check_whole
from aru.data.columns import Ints, read_static
from aru.data.frames import FrameStyle
from aru.data.naming import Names
from aru.data.panel import Panel, refuse_split
from aru.data.rows import Ragged
from aru.data.scores import Scorecard
from aru.errors import ConfigError
from aru.fit_recurrent import FitResult, frames_of
from aru.nn.threads import torch_on_one_thread
from aru.nn.tree import concat
from aru.pretrained.problems import Problems
from aru.pretrained.zero_shot import ZeroShot
from aru.runtime import ForecastRuntime
from aru.runtime.engine import NetworkEngine
from aru.runtime.marks import HeldBack, judge_held
from aru.runtime.opening import open_pretrained, suit
from aru.runtime.posing import LearnedSeries, Series, last_origins, most_problems, pose, random_origins
from aru.runtime.table import StateTable
from aru.runtime.trained import Choice, Trained
from aru.settings import Settings

HELD_PROBLEMS, MOST_HELD = 1000, 3000  # forecasts of rows held back that are wanted, and that are made at most
HELD_SHARE = 0.15  # of the rows of a typical series that are held back at most, if that is more than a horizon
MANY_WINDOWS = 8  # of each series, however many series there are
JUDGING_SERIES = 4000  # that decide how a network is tuned, and that it is tuned on
FEWEST = 8  # problems, to learn from and to judge by
NO_ROWS = "no rows to spare that could decide"


def fit_pretrained(
    settings: Settings,
    df: Any,
    static_df: Any,
    val_size: int | None,
    allow_jump: bool,
    before: Trained | None,
    names: Names,
) -> FitResult:
    """Tune a pretrained network, or on from the weights that there were `before`."""
    frames = frames_of(df, settings, names)
    runtime = suit(open_pretrained(settings), frames[0], static_df) if before is None else before.runtime
    runtime = ForecastRuntime(runtime.engine.twin(), runtime.freq, runtime.style)
    parts = Parts(runtime, frames, static_df, allow_jump)
    made = Tuning(runtime, parts, held_back(settings.h, [part.series.lengths for part in parts], val_size)).run(
        final=val_size is None
    )
    engine = NetworkEngine(settings, runtime.schema, [made.model], runtime.engine.device)
    states, until, ids = [], [], []
    for panel, series in parts:
        states.append(engine.advance(engine.empty(series.static), series.rows))
        until.append(panel.ds[panel.starts + panel.lengths - 1])
        ids.append(panel.ids)
    everyone = ids[0].append(ids[1:])
    refuse_split(everyone)
    table = StateTable(everyone, concat(states))
    engine.learn_common(table.states, table.ids, now=True)
    fitted = ForecastRuntime(
        engine, runtime.freq, FrameStyle.of(frames[0], runtime.style).called(names).on(runtime.freq)
    )
    trained = Trained(fitted, table, everyone, np.concatenate(until), chosen=tuple(made.chosen))
    return FitResult(trained, settings, math.nan, made.scorecard)


class Part(NamedTuple):
    """Rows of some series, as they were read, and without outliers."""

    panel: Panel
    series: Series


class Parts(Sequence[Part]):
    """The frames of a history, read when they are needed; the last one is kept."""

    def __init__(self, runtime: ForecastRuntime, frames: Sequence[Any], static_df: Any, allow_jump: bool) -> None:
        self._runtime, self._frames, self._static_df, self._allow_jump = runtime, frames, static_df, allow_jump
        self._kept: tuple[int, Part] | None = None

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: Any) -> Any:
        if index >= len(self):
            raise IndexError(index)
        if self._kept is None or self._kept[0] != index:
            self._kept = None  # two need not fit into memory
            self._kept = (index, self._read(self._frames[index]))
        return self._kept[1]

    def _read(self, frame: Any) -> Part:
        engine = self._runtime.engine
        panel = self._runtime.read_history(frame, engine.h, self._allow_jump)
        static = engine.schema.encode_static(read_static(self._static_df, panel.ids, engine.static_columns), panel.ids)
        starts, lengths, skipped = (torch.from_numpy(a) for a in (panel.starts, panel.lengths, panel.skipped))
        rows = Ragged(engine.schema.encode(panel), starts, lengths, skipped)
        return Part(panel, Series(engine.screen(engine.empty(static), rows)[1], static))


class Held(NamedTuple):
    """Rows at the end of series that are held back."""

    windows: int  # of h rows each; 0: none
    h: int

    def of(self, lengths: Ints) -> Ints:
        """Rows held back of each series: none where too few would be left to learn from."""
        rows = self.windows * self.h
        return np.where(lengths >= rows + self.h + FEWEST, rows, 0)


def held_back(h: int, lengths: Sequence[Ints], val_size: int | None) -> Held:
    """How many rows of each series decide: as many as `val_size` says, or by their number."""
    if val_size is not None:
        rows = check_whole("val_size", val_size, 0)
        if 0 < rows < h:
            raise ConfigError(f"`val_size={rows}` is shorter than `h={h}`", "Use 0, or at least the horizon.")
        return Held(rows // h, h)
    everyone = np.concatenate(lengths)
    wanted = max(MANY_WINDOWS, HELD_PROBLEMS // len(everyone))
    return Held(max(1, min(wanted, int(HELD_SHARE * np.median(everyone) / h))), h)


class Made(NamedTuple):
    """The result of tuning."""

    model: ZeroShot
    scorecard: Scorecard | None
    chosen: list[Choice]


class _Spared(NamedTuple):
    """Some series of a part, and what the rows before those held back tell of them."""

    panel: Panel
    series: Series
    early: Series  # without the rows held back
    learned: LearnedSeries  # from the early rows
    origins: Ints  # (window, series) of the rows held back


class Tuning:
    """Chooses on rows held back, then tunes on all rows."""

    def __init__(self, runtime: ForecastRuntime, parts: Parts, held: Held) -> None:
        self._runtime, self._parts, self._held = runtime, parts, held
        self._settings = runtime.settings
        (model,) = runtime.engine.models
        assert isinstance(model, ZeroShot)
        self._model, quiet = model, model.without_hindsight()
        self._engine = NetworkEngine(quiet.settings, runtime.schema, [quiet], runtime.engine.device)
        self._rng = np.random.default_rng(self._settings.random_seed)

    def run(self, final: bool) -> Made:
        """With `final` the weights see all rows in the end; else those held back are never trained on."""
        from aru.training.choosing import Start, choose, explain, repeat
        from aru.training.progress import steps_bar

        model, settings = self._model, self._settings
        samples = list(self._samples()) if self._held.windows else []
        early = _all([self._pose(s.learned, s.early) for s in samples])
        held = _all([pose(s.learned, s.series, s.origins) for s in samples])
        if early is None or held is None or min(len(early.unit), len(held.unit)) < FEWEST:
            few = 0 if held is None else len(held.unit)
            short = f"too few forecasts of rows held back to decide: {few}, {FEWEST} are needed"
            why = short if 0 < few < FEWEST else NO_ROWS
            card = self._judge(self._engine, samples, retrained=False)
            return Made(model, card, [Choice("network", "as pretrained", why)])
        start = Start(model.patches, model.head, model.periods, settings.random_seed)
        show = (settings.training.trainer or {}).get("enable_progress_bar", True)
        total = settings.steps * (3 if model.covariates else 2)
        with torch_on_one_thread(), steps_bar(f"Fitting {settings.name}", total, show) as done:
            verdict = choose(start, early, held, settings.steps, done)
            chosen, weights = verdict.chosen, verdict.weights
            judged = model.without_hindsight().retuned(weights.network, weights.head, chosen.effects)
            if final and chosen.steps:
                whole = _all([self._pose(LearnedSeries.of(self._engine, s.series), s.series) for s in samples])
                assert whole is not None
                weights = repeat(start, whole, verdict, settings.steps, done)
        engine = NetworkEngine(judged.settings, self._engine.schema, [judged], self._engine.device)
        card = self._judge(engine, samples, retrained=final and chosen.steps > 0)
        model = model.retuned(weights.network, weights.head, chosen.effects)
        return Made(model, card, [Choice(*row) for row in explain(verdict, bool(model.covariates))])

    def _judge(self, engine: NetworkEngine, samples: Sequence[_Spared], retrained: bool) -> Scorecard | None:
        """The scorecard of a model that has not seen the rows held back."""
        cases = [HeldBack(s.panel, s.series, s.origins, s.learned) for s in samples]
        return judge_held(engine, self._runtime.freq, cases, retrained)

    def _samples(self) -> Iterator[_Spared]:
        """Some series of every part, with rows held back."""
        h, share = self._held.h, -(-JUDGING_SERIES // len(self._parts))
        for panel, series in self._parts:
            n = series.n
            some = np.sort(self._rng.choice(n, share, replace=False)) if n > share else np.arange(n)
            chosen = series.some(some)
            held = self._held.of(chosen.lengths)
            early = chosen.before(held)
            origins = last_origins(chosen.lengths, h, self._held.windows, held)
            most = max(1, MOST_HELD // len(self._parts))
            if (origins >= 0).sum() > most:
                which = self._rng.choice(len(some), -(-most // len(origins)), replace=False)
                origins[:, np.setdiff1d(np.arange(len(some)), which)] = -1
            names = panel.select(np.isin(panel.series, some)) if n > share else panel
            yield _Spared(names, chosen, early, LearnedSeries.of(self._engine, early), origins)

    def _pose(self, learned: LearnedSeries, series: Series) -> Problems | None:
        """Problems at origins anywhere in these rows."""
        most = max(1, most_problems(self._engine) // len(self._parts))
        return pose(learned, series, random_origins(series.lengths, self._held.h, most, self._rng))


def _all(parts: Sequence[Problems | None]) -> Problems | None:
    found = [part for part in parts if part is not None]
    return concat(found) if found else None
