"""A model under its name: the champion that answers, and the versions that follow it.

restarted while    what happens
building           the challenger goes on after the last entry in its own journal
shadowing          the same
promoting          the rollout names the old champion or the new one; either has all that was acknowledged
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Collection, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from aru.errors import verbatim
from aru.runtime.kept import READ_ENTRIES, oldest_time
from aru.serve.asked import ForecastRequest, ForgetRequest, UpdateRequest
from aru.serve.batching import Batcher, Outcome
from aru.serve.journal import Journal
from aru.serve.logs import LOG
from aru.serve.metrics import Figure, Metrics
from aru.serve.options import Options
from aru.serve.rollout import CONTEST, Rollout, RolloutError, Superseded, read_rollout, superseded, write_rollout
from aru.serve.service import Service
from aru.serve.shadow import Shadow
from aru.serve.upkeep import Upkeep
from aru.serve.versions import Versions
from aru.store import Store
from aru.stream import Stream

COUNT_AGAIN = 60.0  # seconds


class Served:
    """One of the models of a service.

    Args:
        name: Its name.
        place: Where the store of its first version is; None: in memory.
        stream: The champion's stream.
        number: The number of its version.
        home: The store of the first version.
        options: Of the service.
        metrics: Of the service.
    """

    def __init__(
        self,
        name: str,
        place: str | Path | None,
        stream: Stream,
        number: int,
        home: Store,
        options: Options,
        metrics: Metrics,
    ) -> None:
        self.name, self._options, self._metrics = name, options, metrics
        self.versions = Versions(place, home, stream.model.runtime.engine.fingerprint, options)
        self.versions.keep_rows(options.keep)
        self._switching = threading.RLock()  # held while it changes who is the champion, or who follows
        self.shadows: dict[int, Shadow] = {}
        self._counted = -math.inf, 0  # when to count what is kept again, and its bytes
        self.number, self.service = number, self._serve(number, stream)
        self.keeps = self.versions.rollout().journals
        self.upkeep = Upkeep(self)
        rows = options.max_rows
        self.updates: Batcher[Any] = Batcher(self._update, rows, 10 * rows, self._after)
        self.forecasts: Batcher[Any] = Batcher(self._forecast, rows, 10 * rows)
        self.upkeep.start()

    def close(self) -> None:
        """Answer what was accepted, and close the stores."""
        for batcher in (self.updates, self.forecasts):
            batcher.close()
        self.upkeep.close()
        self.service.close()
        for stream in (self.service.stream, *(shadow.stream for shadow in self.shadows.values())):
            stream.close()
        self.versions.home.close()

    def status(self) -> str:
        """Whether requests can be answered: "ok", or why not. If a thread has died, requests would wait for ever."""
        if not (self.updates.running and self.forecasts.running):
            return "stopping"
        return "ok" if self.service.disk.writable() else "unwritable"

    def present(self) -> Service:
        """The champion's service, also just after a promotion by another process."""
        rollout = self.versions.rollout()
        if rollout.champion != self.number:
            self.match(rollout)
        return self.service

    # Requests

    def _update(self, requests: list[UpdateRequest | ForgetRequest]) -> list[Outcome]:
        outcomes = self.service.update(requests)
        if any(isinstance(outcome, Superseded) for outcome in outcomes):  # they will be read anew for the new champion
            self.match(self.versions.rollout())
        return outcomes

    def _after(self) -> None:
        self._metrics.waiting.labels(self.name, "updates").set(self.updates.waiting)
        self.service.watch()

    def _forecast(self, requests: list[ForecastRequest]) -> list[Outcome]:
        service = self.present()
        fit = [request.reader in (None, service) for request in requests]
        made = iter(service.forecast([request for request, fits in zip(requests, fit, strict=True) if fits]))
        return [next(made) if fits else superseded(self.number) for fits in fit]

    # Questions

    def figures(self) -> Iterator[Figure]:
        """What Prometheus is told about the model and its versions."""
        yield from self.service.figures()
        report, model = self.report(), {"model": self.name}
        yield "aru_kept_bytes", model, report["kept_bytes"]
        for version in report["versions"]:
            shown = {name: str(version[name]) for name in ("role", "status", "fingerprint")}
            settings = self.service.runtime.settings
            about = {"h": str(settings.h), "freq": str(settings.freq), "method": settings.name}
            here = {**model, "version": str(version["version"])}
            yield "aru_version_info", {**here, **shown, **(about if version["role"] == "champion" else {})}, 1.0
            yield "aru_shadow_behind_entries", here, version["behind"]
            yield "aru_shadow_refused_rows", here, version["refused_rows"]
        if report["contest"] is not None:
            for role in ("champion", "shadow"):
                yield "aru_contest_nd", {**model, "role": role}, report["contest"][role]["nd"]
            yield "aru_contest_rows", model, report["contest"]["champion"]["observations"]

    def report(self) -> dict[str, Any]:
        """The versions of the model, how champion and shadow compare, and the rows that are kept."""
        rollout = self.versions.rollout()
        with self.service.stream.store.reading() as view:
            last, since = view.last_entry(), oldest_time(view)
        with self.versions.home.reading() as view:
            (scores,) = view.get([CONTEST], "service")
        return {
            "model": self.name,
            "versions": [self._version(rollout, n, last) for n in (rollout.champion, *rollout.shadows)],
            "contest": None if scores is None else json.loads(scores),
            "keep_seconds": rollout.keep,
            "kept_bytes": self._kept_bytes() if rollout.journals else 0,
            "kept_since": None if since is None or rollout.keep is None else moment(since),
        }

    def _version(self, rollout: Rollout, number: int, last: int) -> dict[str, Any]:
        version, shadow = rollout.versions[number], self.shadows.get(number)
        follows = number != rollout.champion
        progress = shadow.progress() if shadow is not None and follows else None
        return {
            "version": number,
            "role": rollout.role(number),
            "status": version.status if follows else "serving",
            "fingerprint": version.fingerprint,
            "since": moment(version.since),
            "behind": None if progress is None else max(0, last - progress.position),
            "refused_rows": None if progress is None else progress.refused,
            "refused_reason": None if progress is None else progress.reason,
        }

    def _kept_bytes(self) -> int:
        """The size of what is kept, as it was at most a minute ago: to count it takes time."""
        if time.monotonic() >= self._counted[0]:
            with self.service.stream.store.reading() as view:
                self._counted = time.monotonic() + COUNT_AGAIN, view.journal_bytes()
        return self._counted[1]

    # What an operator does

    def challenge(self, bundle: bytes) -> Rollout:
        """Bring in a challenger, from an archive of its files."""
        with self._switching:
            return self.versions.add(bundle, self.service.stream)

    def promote(self, version: int, force: bool = False) -> Rollout:
        """Make the challenger the champion, once it has taken in all that the champion has."""
        return self._crown("challenger", version, force)

    def roll_back(self, version: int) -> Rollout:
        """Make the champion of before the champion again."""
        return self._crown("former", version, force=True)

    def drop(self, version: int) -> Rollout:
        """Remove a version that follows, with its states and files."""
        with self._switching:
            rollout = self.versions.rollout()
            if version not in rollout.shadows:
                raise RolloutError(f"Version {version} does not follow the champion", "Name one that does.")
            role: Literal["challenger", "former"] = "challenger" if version == rollout.challenger else "former"
            rollout = self.versions.change(lambda now: now.dropped(role), scores=False)
            self.match(rollout)
        self._remove([version])
        return rollout

    def _remove(self, gone: Collection[int]) -> None:
        """Delete versions that the rollout has no longer, once nobody here uses them."""
        if not gone:
            return
        with self.upkeep.between_looks():  # the look before may have loaded them again
            self.match(self.versions.rollout())
            self.upkeep.end_contest()
            for number in gone:
                self.versions.remove(number)

    def _crown(self, role: Literal["challenger", "former"], version: int, force: bool) -> Rollout:
        with self._switching:
            before = self.versions.rollout()
            self.match(before)
            self._require(before, role, version, force)
            heir, champion, home = self.shadows[version], self.service.stream.store, self.versions.home
            self.upkeep.catch_up(heir)  # most of it before anybody has to wait
            with self.upkeep.paused(), champion.writing() as change:
                # Nobody can write to the champion now. Who waits for it will find that it is the champion no longer.
                for _ in heir.take_in(lambda after: change.entries(after, READ_ENTRIES), change.last_entry()):
                    pass
                with contextlib.nullcontext(change) if champion is home else home.writing() as place:
                    now = read_rollout(place)
                    if now != before or now is None:
                        raise RolloutError("The versions have changed meanwhile", "Look at them again.")
                    after = now.promoted() if role == "challenger" else now.rolled_back()
                    write_rollout(place, after)
                    place.delete([CONTEST], "service")
            self.match(after)
        self._remove(set(before.versions) - set(after.versions))
        LOG.warning("version %s of %s is the champion now", after.champion, self.name)
        return after

    def _require(self, rollout: Rollout, role: Literal["challenger", "former"], version: int, force: bool) -> None:
        """Refuse a version that is not the one, or not ready."""
        heir = rollout.find(role)
        if heir.number != version:
            raise RolloutError(f"Version {heir.number} is the {role}, not {version}", "Look at it again.")
        if heir.status == "building":
            raise RolloutError(f"Version {version} still builds its states", "Wait until it shadows the champion.")
        if heir.status == "diverged":
            raise RolloutError(f"Version {version} has rows that the champion lacks", "Drop it, and bring it in again.")
        progress = self.shadows[version].progress()
        if progress.refused and not force:
            raise RolloutError(
                f"Version {version} could not take {progress.refused:,} rows that the champion took "
                f"({verbatim(progress.reason)})",
                "Bring in another model, or force it.",
            )

    # What is loaded

    def match(self, rollout: Rollout) -> None:
        """Have the champion and the followers that a rollout says."""
        with self._switching:
            if rollout.champion != self.number:
                self._switch(rollout.champion)
            for number in set(self.shadows) - set(rollout.shadows):
                self.upkeep.end_contest()
                self.shadows.pop(number).stream.close()
            for number in rollout.shadows:
                if number not in self.shadows:
                    stream = self.versions.load(number, self.service.stream.correctable_steps)
                    self.shadows[number] = Shadow(number, stream)
            self.keeps = rollout.journals

    def _switch(self, number: int) -> None:
        """Let another version answer. The one that did so far follows it."""
        old, steps = self.service, self.service.stream.correctable_steps
        heir = self.shadows.pop(number, None) or Shadow(number, self.versions.load(number, steps))
        self.upkeep.end_contest(heir)
        self.shadows[self.number] = Shadow(self.number, old.stream)
        self.service, self.number = self._serve(number, heir.stream), number
        old.close()

    def _serve(self, number: int, stream: Stream) -> Service:
        journal, file = Journal(self.versions.home, stream.store, number), self.versions.file(stream.store)
        return Service(stream, self._options.monitor, self.name, self._metrics, journal, file)


def moment(seconds: float) -> str:
    """A time since 1970 as ISO 8601."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
