"""`fit` of models that are trained from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aru.checked import check_whole
from aru.data.frames import FrameStyle
from aru.data.frequency import Frequency
from aru.data.naming import Names
from aru.data.scores import Scorecard
from aru.nn.device import choose_device
from aru.nn.tree import concat
from aru.runtime import ForecastRuntime
from aru.runtime.engine import NetworkEngine
from aru.runtime.marks import judge_ends
from aru.runtime.table import StateTable
from aru.runtime.trained import Choice, Trained
from aru.settings import Settings


class FitResult(NamedTuple):
    """What `fit` gives: model and states, the settings that were chosen, and how good it is."""

    trained: Trained
    settings: Settings
    val_loss: float  # NaN without validation
    scorecard: Scorecard | None


def frames_of(df: Any, settings: Settings, names: Names) -> Sequence[Any]:
    """A frame, or the files of a Parquet folder as frames; there columns have these names."""
    from aru.training.history import ParquetParts

    needed = [*settings.futr_exog_list, *settings.hist_exog_list]
    return ParquetParts(df, needed, names) if isinstance(df, (str, Path)) else [df]


def fit_recurrent(
    settings: Settings,
    df: Any,
    static_df: Any,
    val_size: int | None,
    checkpoint_dir: str | Path | None,
    allow_jump: bool,
    before: Trained | None,
    names: Names,
) -> FitResult:
    """Train a network from nothing, or on from the weights that there were `before`."""
    from aru.training.history import History
    from aru.training.run import Checkpoints, last_steps, train

    chooses = bool(settings.training.search or settings.training.snapshots)
    withheld = settings.h if val_size is None and not chooses else 0
    val_size = check_whole("val_size", val_size, 0) if val_size is not None else settings.h if chooses else 0
    frames = frames_of(df, settings, names)
    style = FrameStyle.of(frames[0]).called(names)
    freq = Frequency(settings.freq, style.zone)
    history = History(frames, freq, static_df, settings, val_size, withheld)
    schema = history.learn(checkpoint_dir is not None, allow_jump, None if before is None else before.runtime.schema)
    kept = None if checkpoint_dir is None else Checkpoints(Path(checkpoint_dir), history.fingerprint)
    run = train(history, settings, schema, kept, [] if before is None else before.runtime.engine.models)
    engine = NetworkEngine(run.settings, schema, run.models, choose_device(settings.accelerator))
    judged = engine
    if run.before:
        # In torch: these weights forecast once, which an export to ONNX would not pay for.
        judged = NetworkEngine(run.settings, schema, run.before, engine.device, [{} for _ in run.before])
    later = last_steps(settings) if run.before else 0
    card = judge_ends(judged, freq, history.whole, history.spared(), history.kept_apart, later)
    states = [engine.replay(history.whole(part)) for part in range(len(frames))]
    runtime = ForecastRuntime(engine, freq, style.on(freq))
    until = history.until if run.before else history.until_early
    trained = Trained(runtime, StateTable(history.ids, concat(states)), history.ids, until)
    chosen = [
        Choice("network", f"{settings.model}, {settings.steps:,} steps", "trained from nothing"),
        Choice("context", f"{schema.input_size:,} rows", "given" if settings.input_size else "the horizon or a season"),
        Choice(
            "lags", ", ".join(map(str, schema.lags)) or "none", "by frequency" if settings.lags == "auto" else "given"
        ),
        Choice("distribution", schema.distribution, "by the values" if settings.distribution == "auto" else "given"),
    ]
    return FitResult(trained._replace(chosen=tuple(chosen)), run.settings, run.val_loss, card)
