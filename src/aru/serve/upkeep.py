"""The thread beside a model that is served: it lets versions follow the champion, and removes rows that are too old.

Every process looks at the rollout every second and loads the versions that there are, so that a promotion needs no
loading. In one process of all that share the stores, the leader, the journal is taken in and scores are kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aru.errors import StorageError
from aru.runtime.kept import READ_ENTRIES, drop_older, oldest_time
from aru.runtime.update import Update
from aru.serve.contest import Contest, contest_files
from aru.serve.logs import LOG
from aru.serve.rollout import CONTEST, Rollout, Status, read_rollout
from aru.serve.shadow import Shadow, in_background

if TYPE_CHECKING:
    from aru.serve.served import Served

LOOK = 1.0  # seconds between looks at the rollout
REPORT = 5.0  # seconds between reports of scores
TRIM = 60.0  # seconds between removals of rows
FOLLOWING = "follow"  # the task of a leader


class Upkeep:
    """Of one model that is served."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._looking = threading.Lock()  # held while it looks; whoever holds it may then change who follows
        self._following = threading.Lock()  # held while a version takes in entries
        self._comparing = threading.Lock()  # held while two are compared
        self._contest: tuple[int, Contest] | None = None  # with the number of the shadow
        self._stop = threading.Event()
        self._trimmed = self._reported = 0.0
        self._thread = threading.Thread(target=self._run, name=f"aru-{served.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()
        self.end_contest()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is taken in meanwhile."""
        with self._following:
            yield

    @contextlib.contextmanager
    def between_looks(self) -> Iterator[None]:
        """It uses no version meanwhile. One that follows no longer is soon let go."""
        with self._looking:
            yield

    def catch_up(self, shadow: Shadow) -> None:
        """Take in all that the champion has by now."""
        store = self._served.service.stream.store
        for _ in self._steps(shadow, store.settled()):
            pass

    def end_contest(self, heir: Shadow | None = None) -> None:
        """Stop to compare. The heir, if it was compared, keeps its scores as champion."""
        with self._comparing:
            contest, self._contest = self._contest, None
            if contest is None:
                return
            number, compared = contest
            compared.close()
        if heir is not None and heir.number == number:
            file = self._served.versions.file(heir.stream.store)
            _, second = contest_files(file)
            if file is not None and second is not None and second.exists() and not file.exists():
                os.rename(second, file)

    def _run(self) -> None:
        said = ""
        while not self._stop.wait(LOOK):
            try:
                with self._looking:
                    self._look()
                said = ""
            except StorageError as error:
                if str(error) != said:  # once, as long as it lasts
                    said = str(error)
                    LOG.error("versions of %s: %s", self._served.name, said)
            except Exception:  # noqa: BLE001 - it must go on
                LOG.exception("versions of %s", self._served.name)

    def _look(self) -> None:
        rollout = self._served.versions.rollout()
        self._served.match(rollout)
        if rollout.journals and not self._served.versions.home.lead(FOLLOWING):
            return
        for number in rollout.shadows:
            shadow = self._served.shadows.get(number)
            if shadow is not None and not self._stop.is_set():
                try:
                    self._follow(rollout, shadow)
                except StorageError:
                    if number in self._served.versions.rollout().shadows:  # else it was dropped meanwhile
                        raise
        self._trim(rollout)

    def _follow(self, rollout: Rollout, shadow: Shadow) -> None:
        """Let a version take in what is new, and compare it with the champion once it has caught up."""
        number, status = shadow.number, rollout.versions[shadow.number].status
        until = self._served.service.stream.store.settled()
        if status == "diverged" or shadow.progress().position > until:
            if status != "diverged":
                LOG.error("version %s of %s is ahead of the champion, and follows no longer", number, self._served.name)
                self._served.versions.change(lambda now: _with_status(now, number, "diverged"))
            return
        compared = number == rollout.shadows[0] and status == "shadowing"
        contest = self._contest_of(shadow) if compared else None
        for updates in in_background(self._steps(shadow, until)):
            self._compare(contest, updates)
            follows = self._served.shadows.get(number) is shadow and self._served.number == rollout.champion
            if self._stop.is_set() or not follows:
                return
        if status == "building":
            self._served.versions.change(lambda now: _with_status(now, number, "shadowing"))
        if contest is not None and time.monotonic() - self._reported > REPORT:
            self._report(contest, rollout)

    def _compare(self, contest: Contest | None, updates: Sequence[Update]) -> None:
        with self._comparing:
            if contest is not None and self._contest is not None and self._contest[1] is contest:
                contest.observe(updates)

    def _steps(self, shadow: Shadow, until: int) -> Iterator[Any]:
        """Take in entries up to a number, some at a time."""
        store = self._served.service.stream.store

        def entries(after: int) -> list[tuple[int, bytes]]:
            with store.reading() as view:
                return view.entries(after, READ_ENTRIES)

        work = shadow.take_in(entries, until)
        while True:
            with self._following:
                done = next(work, None)
            if done is None:
                return
            yield done

    def _contest_of(self, shadow: Shadow) -> Contest:
        if self._contest is None or self._contest[0] != shadow.number:
            self.end_contest()
            file = self._served.versions.file(shadow.stream.store)
            self._contest = shadow.number, Contest(self._served.service.stream, shadow.stream, file)
        return self._contest[1]

    def _report(self, contest: Contest, rollout: Rollout) -> None:
        """Keep scores where every process can read them, unless the versions are others by now."""
        self._reported = time.monotonic()
        with self._comparing:
            if self._contest is None or self._contest[1] is not contest:
                return
            record = json.dumps(contest.summary(self._served.service.datetime)).encode()
        with self._served.versions.home.writing() as change:
            now = read_rollout(change)
            if now is not None and (now.champion, now.shadows) == (rollout.champion, rollout.shadows):
                change.put([CONTEST], [record], "service")

    def _trim(self, rollout: Rollout) -> None:
        """Remove rows that are older than they are kept and that every version has taken in."""
        if time.monotonic() - self._trimmed < TRIM:
            return
        self._trimmed, before = time.monotonic(), time.time() - (rollout.keep or 0.0)
        shadows = list(self._served.shadows.values())
        until = min((shadow.progress().position for shadow in shadows), default=sys.maxsize)
        for stream in (self._served.service.stream, *(shadow.stream for shadow in shadows)):
            with stream.store.reading() as view:
                oldest = oldest_time(view)
            if oldest is not None and oldest < before:
                with stream.store.writing() as change:
                    drop_older(change, before, until)


def _with_status(rollout: Rollout, number: int, status: Status) -> Rollout:
    if number not in rollout.versions:
        return rollout
    return rollout.with_version(dataclasses.replace(rollout.versions[number], status=status))
