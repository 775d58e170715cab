"""What a service knows of the versions of a model: a document in the store of its first version.

    champion     answers requests. Its journal has what was taken in, if rows are kept
    challenger   a new version. It builds its states from the journal of the champion, then shadows it
    former       the champion of before. It shadows the present one, so that a promotion can be taken back

Versions have numbers and stores of their own. Who the champion is, is written here and nowhere else. It changes while
the champion's store is locked, and every writer asks for it after it has the lock: whoever waited for the old champion
finds out that there is a new one before it has written anything.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from aru.errors import ConfigError, StorageError, verbatim
from aru.store import Transaction

DOCUMENT, CONTEST = "rollout", "contest"  # keys; bundles have the numbers of their versions
Status = Literal["building", "shadowing", "diverged"]


class Superseded(StorageError):
    """Another version has become the champion since this one was asked."""


def superseded(champion: int) -> Superseded:
    """The error for a request that was read for the champion of before."""
    return Superseded(f"Version {champion} is the champion now", "Send the request again.")


class RolloutError(ConfigError):
    """A step that the present versions do not allow."""


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a model.

    Args:
        number: Counts versions from 1 on.
        fingerprint: Of the model as it was brought in.
        since: When that was, in seconds since 1970.
        status: Of one that is not the champion: whether it has caught up with it, or is ahead of it, as when only one
            of their stores was restored: then it follows no longer.
    """

    number: int
    fingerprint: str
    since: float
    status: Status = "building"


@dataclasses.dataclass(frozen=True)
class Rollout:
    """The versions of a model. `keep` is for how many seconds rows are kept; None: they are not."""

    versions: Mapping[int, Version]
    champion: int = 1
    challenger: int | None = None
    former: int | None = None
    keep: float | None = None
    latest: int = 1  # number of the latest version that there was
    gone: Sequence[str] = ()  # fingerprints of versions that were dropped; a folder may still have one of them

    @property
    def shadows(self) -> list[int]:
        """The versions that follow the champion."""
        return [number for number in (self.challenger, self.former) if number is not None]

    @property
    def journals(self) -> bool:
        """Whether what is taken in is written to the journal."""
        return self.keep is not None or bool(self.shadows)

    def role(self, number: int) -> str:
        """The role of a version."""
        return next(role for role in ("champion", "challenger", "former") if getattr(self, role) == number)

    def find(self, role: Literal["challenger", "former"]) -> Version:
        """The version that has a role."""
        number = getattr(self, role)
        if number is None:
            raise RolloutError(f"There is no {role}", "Bring a model in first.")
        return self.versions[number]

    def with_version(self, version: Version) -> Rollout:
        """With this version, or what is new about it."""
        return dataclasses.replace(self, versions={**self.versions, version.number: version})

    def challenged_by(self, fingerprint: str) -> Rollout:
        """With a challenger."""
        if self.keep is None:
            raise RolloutError("The service keeps no rows to build states from", "Start it with --keep 400d.")
        if self.challenger is not None:
            raise RolloutError(
                f"Version {self.challenger} is the challenger already", "Promote it or drop it first: aru rollout."
            )
        if fingerprint in (version.fingerprint for version in self.versions.values()):
            raise RolloutError("This is a version that the service has already", "Bring in another model.")
        number = self.latest + 1
        added = self.with_version(Version(number, fingerprint, time.time()))
        return dataclasses.replace(added, challenger=number, latest=number)

    def promoted(self) -> Rollout:
        """The challenger is the champion. The champion of before that is dropped."""
        self.find("challenger")
        assert self.challenger is not None
        left = self if self.former is None else self.dropped("former")
        left = left.with_version(dataclasses.replace(left.versions[self.champion], status="shadowing"))
        return dataclasses.replace(left, champion=self.challenger, challenger=None, former=self.champion)

    def rolled_back(self) -> Rollout:
        """The champion of before is the champion again."""
        former = self.find("former").number
        back = self.with_version(dataclasses.replace(self.versions[self.champion], status="shadowing"))
        return dataclasses.replace(back, champion=former, former=self.champion)

    def dropped(self, role: Literal["challenger", "former"]) -> Rollout:
        """Without one of the versions that follow."""
        gone = self.find(role)
        versions = {number: version for number, version in self.versions.items() if number != gone.number}
        left = {"challenger": self.challenger, "former": self.former, role: None}
        return dataclasses.replace(
            self,
            versions=versions,
            challenger=left["challenger"],
            former=left["former"],
            gone=[*self.gone, gone.fingerprint],
        )

    def knows(self, fingerprint: str) -> bool:
        """Whether a model is, or was, one of the versions."""
        return fingerprint in (*self.gone, *(version.fingerprint for version in self.versions.values()))

    def to_bytes(self) -> bytes:
        """As a record of a store."""
        versions = [dataclasses.asdict(version) for version in self.versions.values()]
        return json.dumps({**dataclasses.asdict(self), "versions": versions}).encode()

    @classmethod
    def from_bytes(cls, record: bytes) -> Rollout:
        """The inverse of `to_bytes`."""
        try:
            found = json.loads(record)
            versions = [Version(**version) for version in found.pop("versions")]
            return cls({version.number: version for version in versions}, **found)
        except (TypeError, ValueError, KeyError) as error:
            raise StorageError(
                f"What the store says about versions cannot be read ({verbatim(error)})",
                "Use the version of aru that wrote it.",
            ) from error


def read_rollout(view: Transaction) -> Rollout | None:
    """The versions of a model; None if there was never more than one, and nothing kept."""
    (record,) = view.get([DOCUMENT], "service")
    return None if record is None else Rollout.from_bytes(record)


def write_rollout(change: Transaction, rollout: Rollout) -> None:
    """Keep the document."""
    change.put([DOCUMENT], [rollout.to_bytes()], "service")
