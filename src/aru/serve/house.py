"""All models of a service, by their names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aru.errors import AruError, ConfigError, StorageError, quoted, verbatim
from aru.forecaster import Forecaster
from aru.serve.bundles import bundle_of, unpack
from aru.serve.metrics import Figure, Metrics
from aru.serve.options import Options
from aru.serve.rollout import read_rollout
from aru.serve.served import Served
from aru.serve.versions import require_states
from aru.store import Store, open_store
from aru.store.address import beside, is_database
from aru.stream import Stream

CORRECTABLE = 7  # steps of a series that can be corrected, unless another number is chosen
ONLY_MODEL = "model"  # name of a model that has no other
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*")
LONGEST_NAME = 40  # characters

Load = Callable[[], Forecaster]


class UnknownModel(Exception):
    """A name that no model has."""


class House:
    """The models of a service. The default one answers where no name is given."""

    def __init__(self, options: Options) -> None:
        self.options, self.metrics = options, Metrics(self._figures)
        self.models: dict[str, Served] = {}
        self.default = ""
        self.notes: list[str] = []  # for the log, once there is one

    @classmethod
    def of_stream(cls, stream: Stream, options: Options, place: str | Path | None = None) -> House:
        """The house of one stream; `place` is where its store is."""
        house = cls(options)
        house._add(ONLY_MODEL, place, stream, 1, stream.store)
        return house

    @classmethod
    def open(
        cls,
        models: Mapping[str, Load],
        state: str | Path,
        options: Options,
        default: str | None = None,
        correctable_steps: int | None = None,
        by_name: bool = False,
    ) -> House:
        """The house of models that are loaded by these functions. `by_name`: see `places_of`."""
        house, places = cls(options), places_of(list(models), state, by_name)
        if default is not None and default not in models:
            raise ConfigError(f"There is no model {quoted(default)}", f"Choose the default among {', '.join(models)}.")
        try:
            for name, load in models.items():
                house._open(name, load, places[name], correctable_steps)
            house.default = default or house.default
        except BaseException:
            house.close()
            raise
        return house

    def find(self, name: str) -> Served:
        """The model of this name."""
        if name not in self.models:
            raise UnknownModel(name)
        return self.models[name]

    def status(self) -> str:
        """Whether requests can be answered: "ok", or why not. If a thread has died, requests would wait for ever."""
        found = [served.status() for served in self.models.values()]
        return next((status for status in found if status != "ok"), "ok" if found else "stopping")

    def close(self) -> None:
        """Answer what was accepted, and close files."""
        for served in self.models.values():
            served.close()

    def _open(self, name: str, load: Load, place: str | Path, correctable_steps: int | None) -> None:
        home, model = open_store(place), load()
        with home.reading() as view:
            rollout = read_rollout(view)
        number, fingerprint = 1 if rollout is None else rollout.champion, model.runtime.engine.fingerprint
        if rollout is not None and fingerprint != rollout.versions[number].fingerprint:
            if not rollout.knows(fingerprint):
                raise StorageError(
                    f"{verbatim(home)} belongs to another model than {verbatim(name)} (fingerprint "
                    f"{rollout.versions[number].fingerprint}, here {fingerprint})",
                    "Start the service with the model that it had, and bring the new one in: aru rollout start.",
                )
            model = self._promoted(home, name, number)
        store = home if number == 1 else open_store(beside(place, str(number)))
        if number != 1:
            require_states(store, number)
        if correctable_steps is None:
            with store.reading() as view:
                correctable_steps = None if view.about_or_new() else CORRECTABLE
        self._add(name, place, Stream(model, store, correctable_steps), number, home)

    def _promoted(self, home: Store, name: str, number: int) -> Forecaster:
        """The champion, where the folder has another version."""
        bundle = bundle_of(home, number)
        if bundle is None:
            raise StorageError(
                f"Version {number} of {verbatim(name)} is the champion, and its files are lost", "Restore a backup."
            )
        self.notes.append(f"version {number} of {name} is the champion: the folder has another one")
        return unpack(bundle, self.options.accelerator)

    def _add(self, name: str, place: str | Path | None, stream: Stream, number: int, home: Store) -> None:
        self.models[name] = Served(name, place, stream, number, home, self.options, self.metrics)
        self.default = self.default or name

    def _figures(self) -> Iterator[Figure]:
        for served in self.models.values():
            for queue in ("updates", "forecasts"):
                waiting = getattr(served, queue).waiting
                self.metrics.waiting.labels(served.name, queue).set(waiting)
            yield "aru_ready", {"model": served.name}, float(served.status() == "ok")
            with contextlib.suppress(AruError):  # what a store does not say now is missing
                yield from served.figures()


def places_of(names: list[str], state: str | Path, by_name: bool) -> dict[str, str | Path]:
    """Where the states of each model are. Of a single one that is `state` itself, unless others may join it."""
    if len(names) == 1 and not by_name:
        return {names[0]: state}
    wrong = [name for name in names if not _MODEL_NAME.fullmatch(name) or len(name) > LONGEST_NAME]
    if wrong:
        raise ConfigError(
            f"{quoted(wrong[0])} cannot be the name of a model",
            f"Rename its folder: letters, digits, hyphens, single underscores, {LONGEST_NAME} characters at most.",
        )
    if is_database(state):
        places: dict[str, Any] = {name: beside(state, name) for name in names}
    else:
        folder = Path(state)
        if folder.is_file():
            raise ConfigError(f"{verbatim(folder)} is a file", "Of a folder of models --state is a folder, too.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{verbatim(folder)} cannot be created ({verbatim(error)})", "Choose another folder for --state."
            ) from error
        places = {name: folder / f"{name}.db" for name in names}
    if len({str(place).casefold() for place in places.values()}) < len(names):
        raise ConfigError("Names of models must differ in more than capitals and hyphens", "Rename a folder.")
    return places
