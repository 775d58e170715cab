"""`Outlook`: what forecasters and streams can be asked about the future of their series. No answer changes a state."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aru.checked import check_whole
from aru.data.naming import Names
from aru.runtime.dependence import POOLED, learn_dependence
from aru.runtime.ended import Ended, judge_ended
from aru.runtime.explaining import Found, draw_effects, effects_of
from aru.runtime.fan_plot import draw_fans
from aru.runtime.forecasting import ForecastRuntime, Predicted
from aru.runtime.forest_plot import Picture
from aru.runtime.future_frames import future_columns, missing_columns
from aru.runtime.totals import Sampler
from aru.settings import Settings

Ids = Iterable[Any] | str | int | None


class AtHand(NamedTuple):
    """Series that are asked about: their model, and names and states in portions, of which there is one at least."""

    runtime: ForecastRuntime
    portions: Iterator[Found]
    newest: int | None = None  # time of all series, if it matters

    def judged(self, ended: Ended) -> Iterator[Found]:
        """The portions. Series that ended are left out, or named; neither if the newest time does not matter."""
        for found in self.portions:
            yield judge_ended(self.runtime, *found, self.newest, ended)


class Outlook(abc.ABC):
    """The future of series. Frames have the columns that the model was first told of: see `names`."""

    settings: Settings

    @abc.abstractmethod
    def at_hand(self, ids: Ids, newest: bool = False) -> AtHand:
        """Some series, or all with None; unknown ones are an error. `newest`: whether the newest time matters."""

    @abc.abstractmethod
    def sampled(self, most: int | None = None) -> tuple[ForecastRuntime, Found]:
        """A sample of all series, always the same (`aru.runtime.epochs.sample_of`): its first ones, or all of it."""

    @property
    @abc.abstractmethod
    def names(self) -> Names:
        """What the model was told the columns of series, time and target are called."""

    def called(self, id_col: str | None, time_col: str | None, target_col: str | None) -> Names:
        """The names of these columns in a call: those that are given, else those that are known."""
        names = self.names.given(id_col, time_col, target_col)
        names.check(self.settings)
        return names

    def predict(
        self,
        futr_df: Any = None,
        level: Sequence[float] | None = None,
        ids: Ids = None,
        h: int | None = None,
        ended: Ended = "keep",
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
    ) -> Any:
        """Forecast the next h steps of every known series, or of `ids`. States do not change.

        Args:
            futr_df: The known-future covariates of these steps; without a frequency also their timestamps.
            level: Central intervals to give beside mean and median, in percent.
            ids: The series to forecast.
            h: Number of steps, at most the horizon of the model, which is the default.
            ended: Series have ended if they lie more than the horizon, and more than 5 steps, behind the newest time of
                all series. They are forecast, and a warning names them once unless `ids` does ("keep"), or left out
                ("skip").
            id_col: Column that names the series, in `futr_df` and in the result. Default: as the model was first told.
            time_col: Column of the time.
            target_col: Column of the target, which neither has; taken so that all calls can have the same arguments.
        """
        names = self.called(id_col, time_col, target_col)
        with names.spoken():
            hand = self._living(ids, ended)
            made = _forecast(hand, names.read_futr(futr_df), level, h, ended)
            return hand.runtime.build(made, futr_df, names, hand.runtime.steps(h))

    def _living(self, ids: Ids, ended: Ended) -> AtHand:
        """Series for which it matters whether they ended, unless they are asked for by name."""
        return self.at_hand(ids, newest=ids is None or ended != "keep")

    def predict_columns(
        self,
        futr_df: Any = None,
        level: Sequence[float] | None = None,
        ids: Ids = None,
        h: int | None = None,
    ) -> Predicted:
        """The columns of `predict`, h rows for each series in the order of `ids`, named and timed as inside.

        Series that ended are forecast, and not named.
        """
        return _forecast(self.at_hand(ids), futr_df, level, h, "keep")

    def predict_total(
        self,
        futr_df: Any = None,
        level: Sequence[float] | None = None,
        ids: Ids = None,
        h: int | None = None,
        df: Any = None,
        static_df: Any = None,
        ended: Ended = "keep",
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
    ) -> Any:
        """Forecast the sum over the next h steps of each series: demand over a lead time, a month from days.

        The result has a row for each series, at the time of the last step that is summed: mean, median and intervals of
        the sum. Steps are not taken as independent: how their errors hang together is learned from forecasts of the
        same series from past origins. A pretrained model makes these from the rows that it remembers, for about 16
        times the cost of `predict`. Others need `df`, the history of the series (and `static_df` if they have static
        covariates); rows after the latest known one of a series are not read.

        Args:
            futr_df: As of `predict`.
            level: As of `predict`.
            ids: As of `predict`.
            h: Number of steps to sum, at most the horizon of the model, which is the default.
            df: Rows to learn from how errors hang together.
            static_df: Static covariates of the series in `df`.
            ended: As of `predict`.
            id_col: As of `predict`.
            time_col: As of `predict`.
            target_col: Column of the target in `df`.
        """
        if h is not None and check_whole("h", h, 1) == 1:
            return self.predict(futr_df, level, ids, h, ended, id_col, time_col, target_col)
        names = self.called(id_col, time_col, target_col)
        with names.spoken():
            hand, sampler = self._sampler(names, futr_df, ids, h, df, static_df, ended)
            parts = [sampler.totals(*found, level) for found in hand.judged(ended)]
            return hand.runtime.build(Predicted(_joined(parts), hand.runtime.epoch), futr_df, names)

    def predict_paths(
        self,
        n_paths: int = 100,
        futr_df: Any = None,
        ids: Ids = None,
        h: int | None = None,
        df: Any = None,
        static_df: Any = None,
        random_seed: int = 0,
        ended: Ended = "keep",
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
    ) -> Any:
        """Sample paths of the next h steps: equally likely futures of each series, from which sums of any kind follow.

        Steps hang together as in `predict_total`. The result has a row for each series, path and step; `path` counts
        from 0. Paths of different series are drawn independently of each other. Those of a series do not depend on
        which others are asked for.

        Args:
            n_paths: Number of paths of each series.
            futr_df: As of `predict`.
            ids: As of `predict`.
            h: As of `predict`.
            df: As of `predict_total`.
            static_df: As of `predict_total`.
            random_seed: Another one gives other paths.
            ended: As of `predict`.
            id_col: As of `predict`.
            time_col: As of `predict`.
            target_col: As of `predict_total`.
        """
        n_paths, seed = check_whole("n_paths", n_paths, 1), check_whole("random_seed", random_seed, 0)
        names = self.called(id_col, time_col, target_col)
        with names.spoken():
            hand, sampler = self._sampler(names, futr_df, ids, h, df, static_df, ended)
            parts = [sampler.paths(*found, n_paths, seed) for found in hand.judged(ended)]
            return hand.runtime.build(Predicted(_joined(parts), hand.runtime.epoch), futr_df, names)

    def _sampler(
        self, names: Names, futr_df: Any, ids: Ids, h: int | None, df: Any, static_df: Any, ended: Ended
    ) -> tuple[AtHand, Sampler]:
        runtime, pool = self.sampled(POOLED)
        steps = runtime.steps(h)
        panel = None if df is None else runtime.read_history(names.read(df), allow_jump=True)
        correlate = learn_dependence(runtime, pool, panel, names.read_static(static_df))
        hand = self._living(ids, ended)
        futr = hand.runtime.read_futr(names.read_futr(futr_df), h)
        return hand, Sampler(hand.runtime, correlate, futr, steps)

    def make_future_dataframe(
        self,
        h: int | None = None,
        ids: Ids = None,
        ended: Ended = "keep",
        id_col: str | None = None,
        time_col: str | None = None,
    ) -> Any:
        """The series and times of the next h steps of every known series, or of `ids`: to be filled with covariates.

        The arguments are those of `predict`.
        """
        names = self.called(id_col, time_col, None)
        with names.spoken():
            hand = self._living(ids, ended)
            steps = hand.runtime.steps(h)
            parts = [future_columns(hand.runtime, *found, steps) for found in hand.judged(ended)]
            return hand.runtime.build(Predicted(_joined(parts), None), None, names, steps)

    def get_missing_future(
        self,
        futr_df: Any,
        h: int | None = None,
        ids: Ids = None,
        ended: Ended = "keep",
        id_col: str | None = None,
        time_col: str | None = None,
    ) -> Any:
        """What `predict` would miss in `futr_df`: the series and times without a row; an empty frame: nothing.

        If `futr_df` lacks columns of covariates, all series and times are listed, with these columns to be filled. The
        arguments are those of `predict`.
        """
        names = self.called(id_col, time_col, None)
        with names.spoken():
            hand = self._living(ids, ended)
            inside, steps = names.read_futr(futr_df), hand.runtime.steps(h)
            parts = [missing_columns(hand.runtime, *found, inside, steps) for found in hand.judged(ended)]
            return hand.runtime.build(Predicted(_joined(parts), None), futr_df, names)

    def plot(
        self,
        ids: Ids = None,
        futr_df: Any = None,
        level: Sequence[float] = (50, 80, 95),
        h: int | None = None,
        df: Any = None,
        n_history: int | None = None,
        path: str | Path | None = None,
        id_col: str | None = None,
        time_col: str | None = None,
        target_col: str | None = None,
    ) -> Picture:
        """A picture of series and their forecasts, as SVG: history, median and intervals.

        Where a model adapts, the forecast of the network alone is drawn beside it.

        Args:
            ids: The series; by default the first eight that have not ended.
            futr_df: As of `predict`.
            level: Central intervals, in percent.
            h: As of `predict`.
            df: Rows of the history. Default: what the model remembers, which may be little. Rows after the latest known
                one are drawn beside the forecast.
            n_history: Rows of the history that are drawn; by default four horizons, and 40 at least.
            path: File to write.
            id_col: As of `predict`.
            time_col: As of `predict`.
            target_col: Column of the target in `df`.
        """
        names = self.called(id_col, time_col, target_col)
        with names.spoken():
            hand = self.at_hand(ids, newest=ids is None)
            futr = hand.runtime.read_futr(names.read_futr(futr_df), h)
            panel = None if df is None else hand.runtime.read_history(names.read(df), allow_jump=True)
            shown = None if n_history is None else check_whole("n_history", n_history, 1)
            parts = hand.judged("skip")
            steps = hand.runtime.steps(h)
            picture = draw_fans(hand.runtime, parts, ids is None, futr, level, steps, panel, shown, names)
        if path is not None:
            picture.save(path)
        return picture

    def effects(self, ids: Ids = None) -> Any:
        """What each covariate of a pretrained model is worth: a frame for the panel, or for the series in `ids`.

        A row compares one value of a covariate with another: `effect` is the change of y, in percent where effects
        multiply, in units of y where they add (`unit`). In a series like this (a new one, for the panel) it lies
        between `low` and `high` with a probability of 80 %. `typical` is the size of what the covariate changes in a
        row, `share` its part of the variance of y around its local level, in percent.
        """
        runtime, sample = self.sampled()
        portions = [sample] if ids is None else self.at_hand(ids).portions
        columns = [effects_of(runtime, *found, ids is None) for found in portions]
        return runtime.style.build_plain(_joined(columns))

    def plot_effects(self, ids: Ids = None, path: str | Path | None = None) -> Picture:
        """A picture of `effects`, as SVG: of the panel, and of the series in `ids`. `path` is a file to write."""
        runtime, sample = self.sampled()
        return draw_effects(runtime, sample, None if ids is None else next(self.at_hand(ids).portions), path)


def _forecast(hand: AtHand, futr_df: Any, level: Sequence[float] | None, h: int | None, ended: Ended) -> Predicted:
    futr = hand.runtime.read_futr(futr_df, h)
    parts = [hand.runtime.predict(*found, futr, level, h).columns for found in hand.judged(ended)]
    return Predicted(_joined(parts), hand.runtime.epoch)


def _joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The columns of portions as one; there is one portion at least."""
    return parts[0] if len(parts) == 1 else {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
