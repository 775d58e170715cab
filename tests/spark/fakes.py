"""Spark's states of a shard, as far as a store uses them."""

from __future__ import annotations

from typing import Any


class FakeMapState(dict[Any, Any]):
    def getValue(self, key: Any) -> Any:
        return self.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self[key] = value

    def removeKey(self, key: Any) -> None:
        self.pop(key, None)


class FakeValueState:
    value: Any = None

    def get(self) -> Any:
        return self.value

    def update(self, value: Any) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None
