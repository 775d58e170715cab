"""The states of all series of a forecaster. An update costs only as much as the series that it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pandas as pd
import torch

from aru.data.columns import Ints
from aru.nn.tree import tree_map
from aru.store.exchange import index_of, unknown_series


class StateTable:
    """States by series, in order of their first observation.

    States are replaced in place. Capacity for new series grows by doubling. Copies share memory until one of them
    changes.
    """

    def __init__(self, ids: Sequence[Any] | pd.Index[Any], states: Any, shared: bool = False) -> None:
        """Copy the states, so that no two tensors share memory; with `shared`, use those of another table."""
        self.ids: list[Any] = list(ids)
        self._place = {name: place for place, name in enumerate(self.ids)}
        self._room, self._shared = states if shared else tree_map(torch.clone, states), shared
        self.newest = _newest(self.states)  # the newest time of all series, None without any

    def __len__(self) -> int:
        return len(self.ids)

    def copy(self) -> StateTable:
        """The same states; changes of one table do not reach the other."""
        self._shared = True
        return StateTable(self.ids, self.states, shared=True)

    @property
    def states(self) -> Any:
        """The states of all series."""
        n = len(self.ids)
        return self._room if len(self._room.last) == n else tree_map(lambda v: v[:n], self._room)

    @property
    def capacity(self) -> int:
        """How many series there is room for."""
        return len(self._room.last)

    def places(self, ids: Iterable[Any]) -> Ints:
        """Position of each series, -1 if it is unknown."""
        names = ids.tolist() if isinstance(ids, pd.Index) else list(ids)
        return np.fromiter(map(self._place.get, names, repeat(-1)), np.int64, len(names))

    def find(self, ids: Iterable[Any] | str | int | None) -> tuple[pd.Index[Any], Any]:
        """The names and states of some series, or of all with None. Unknown ones are an error."""
        integer = bool(self.ids) and isinstance(self.ids[0], int)
        if ids is None:
            return index_of(self.ids, integer), self.states
        wanted = [ids] if isinstance(ids, (str, int, np.integer)) else list(ids)
        places = self.places(wanted)
        if (places < 0).any():
            raise unknown_series([name for name, place in zip(wanted, places, strict=True) if place < 0])
        return index_of([self.ids[place] for place in places], integer), self.take(places)

    def take(self, places: Ints) -> Any:
        """The states at these positions. Do not change them: they may be the table's own memory."""
        if len(places) == len(self.ids) and (places == np.arange(len(places))).all():
            return self.states
        index = torch.from_numpy(places).to(self._room.last.device)
        return tree_map(lambda v: v[index], self._room)

    @torch.no_grad()
    def put(self, ids: Sequence[Any] | pd.Index[Any], states: Any) -> None:
        """Replace the states of known series and append those of new ones."""
        names = list(ids)
        self.newest = max((time for time in (self.newest, _newest(states)) if time is not None), default=None)
        new = [name for name in names if name not in self._place]
        if len(names) == len(self.ids) and names == self.ids:
            self._room, self._shared = states, True  # every series, in order: nothing is copied
            return
        self._make_room(len(self.ids) + len(new))
        for name in new:
            self._place[name] = len(self.ids)
            self.ids.append(name)
        index = torch.from_numpy(self.places(names)).to(self._room.last.device)
        tree_map(lambda old, value: old.index_copy_(0, index, value.to(old.dtype)), self._room, states)

    def _make_room(self, n: int) -> None:
        """Make room for `n` series, in memory that no copy shares."""
        room = self.capacity
        if room >= n:
            if self._shared:
                self._room = tree_map(torch.clone, self._room)
        else:
            more = max(n, 2 * room)
            states = self.states
            self._room = tree_map(lambda v: torch.cat([v, v.new_zeros(more - len(v), *v.shape[1:])]), states)
        self._shared = False


def _newest(states: Any) -> int | None:
    return int(states.last.max()) if len(states.last) else None
