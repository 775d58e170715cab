"""Champion and shadow, scored on the same rows.

Two monitors watch the same series, each with the states of one version after the same rows. So their windows begin and
end at the same rows, and what they score are the same values, forecast equally many steps ahead.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from aru.data.clock import Clock
from aru.nn.tree import take
from aru.runtime.update import Update
from aru.serve import summaries
from aru.serve.monitor import Monitor, largest_window
from aru.stream import Stream

ENDINGS = (".first", ".second")  # of the files of champion and shadow, beside the shadow's monitor


class Contest:
    """Compares two streams of which one follows the other.

    Args:
        champion: The stream that is followed.
        shadow: The stream that follows.
        file: The monitor's file of the shadow, beside which there are two more; None: they are deleted in the end.
    """

    def __init__(self, champion: Stream, shadow: Stream, file: Path | None) -> None:
        self._streams = champion, shadow
        self._window = min(largest_window(stream.runtime) for stream in self._streams)
        self._files = contest_files(file)
        self._monitors = [
            Monitor(stream.runtime, path, self._window) for stream, path in zip(self._streams, self._files, strict=True)
        ]

    def observe(self, updates: Sequence[Update]) -> None:
        """Score the series of updates of the shadow, where the champion has come as far and no further."""
        champion, _ = self._streams
        for update in updates:
            if update.record is None:
                continue
            found, first = champion.states(update.ids.tolist())
            at = torch.from_numpy(update.ids.get_indexer(found))
            second = take(update.record.now, at)
            same = (first.last == second.last).nonzero().squeeze(-1)
            names = found[same.numpy()].tolist()
            for monitor, state in zip(self._monitors, (first, second), strict=True):
                monitor.observe(names, take(state, same))

    def summary(self, datetime: Clock | None) -> dict[str, Any]:
        """What is known so far, as answers have it."""
        first, second = self._monitors
        lines = [summaries.rolling(monitor.timeline(), self._window, datetime) for monitor in self._monitors]
        later = {row["ds"]: row["nd"] for row in lines[1]}
        errors = [monitor.errors() for monitor in self._monitors]
        both = errors[0].keys() & errors[1].keys()
        return {
            "window": self._window,
            "champion": summaries.accuracy(first.fleet()),
            "shadow": summaries.accuracy(second.fleet()),
            "series": len(both),
            "series_better": sum(errors[1][key] < errors[0][key] for key in both),
            "series_worse": sum(errors[1][key] > errors[0][key] for key in both),
            "timeline": [
                {"ds": row["ds"], "champion": row["nd"], "shadow": later[row["ds"]]}
                for row in lines[0]
                if row["ds"] in later
            ],
        }

    def close(self) -> None:
        """Close the files."""
        for monitor in self._monitors:
            with contextlib.suppress(sqlite3.Error):
                monitor.close()


def contest_files(file: Path | None) -> list[Path | None]:
    """The files of a contest."""
    return [None if file is None else file.with_name(file.name + ending) for ending in ENDINGS]
