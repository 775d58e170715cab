"""Settings of an adapter."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from aru.checked import CheckedFields, check_alphas, check_freq, check_least
from aru.errors import ConfigError
from aru.settings import CalibrationName


@dataclasses.dataclass(frozen=True)
class AdapterSettings(CheckedFields):
    """All settings of an adapter. `Adapter` documents them."""

    h: int
    freq: str | int | None = "auto"
    season_length: int | None = None
    models: Sequence[str] | None = None
    alphas: Sequence[float] = (0.9999, 0.999, 0.99)
    ridge: float = 30.0
    gate: bool = False
    calibration: CalibrationName | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        super().__post_init__()
        check_least("h", self.h, 1)
        check_least("season_length", self.season_length, 1)
        check_freq(self.freq)
        check_alphas(self.alphas)
        if not self.ridge > 0:
            raise ConfigError(f"`ridge` must be positive, got {self.ridge}")

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        lists = {"models": None if self.models is None else list(self.models), "alphas": list(self.alphas)}
        return {**dataclasses.asdict(self), **lists}
