"""What a user can set: one frozen dataclass, validated once, before any data is seen."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from aru.errors import ConfigError

Integration = Literal["paper", "skip", "residual", "direct"]
CellInput = Literal["h", "x", "raw"]
Scaler = Literal["mean", "level", "auto"]
Transform = Literal["log1p", "asinh"]
DistributionName = Literal["auto", "gaussian", "student-t", "negative-binomial"]
SupportName = Literal["auto", "real", "nonnegative", "count"]
Schedule = Literal["one-cycle", "constant"]
Loss = Literal["nll", "mse"]
Calibration = Literal["online"]


@dataclasses.dataclass(frozen=True)
class Size:
    """Units of the encoder RNN and of the decoder's three ReLU layers; the last is the dimension of the ARU."""

    rnn: int
    hidden: tuple[int, int, int]


# The paper's hyper-parameter table, and one size beyond it.
SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "small": Size(8, (8, 6, 6)),
        "medium": Size(16, (16, 15, 10)),
        "large": Size(50, (32, 20, 15)),
        "xlarge": Size(64, (64, 64, 32)),
    }
)

# The paper's training: Forecaster(h=16, freq="D", **PAPER). The ridge and the set of aging factors are searched on
# validation loss; the forecast is the average over the five epochs that validated best.
PAPER: Mapping[str, Any] = MappingProxyType(
    {
        "lags": None,
        "integration": "paper",
        "scaler": "mean",
        "distribution": "gaussian",
        "robust": False,
        "learn_ridge": False,
        "learning_rate": 1e-4,
        "schedule": "constant",
        "batch_size": 64,
        "births": 0.0,
        "weight_average": 0.0,
        "snapshots": 5,
        "search": MappingProxyType(
            {
                "ridge": (0.01, 0.1, 1.0),
                "alphas": ((1.0,), (1.0, 0.99), (1.0, 0.95, 0.9)),
            }
        ),
    }
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """All settings of a forecaster. `Forecaster` documents each of them for users."""

    h: int
    freq: str | int | None
    input_size: int | None = None
    model: str = "aru"
    futr_exog_list: Sequence[str] = ()
    hist_exog_list: Sequence[str] = ()
    stat_exog_list: Sequence[str] = ()
    lags: Sequence[int] | Literal["auto"] | None = "auto"
    season: int | None = None
    encoder: str = "lstm"
    encoder_layers: int = 1
    decoder_rnn: bool = False
    size: str | Sequence[int] = "medium"
    alphas: Sequence[float] = (1.0, 0.99, 0.95)
    ridge: float = 1.0
    learn_ridge: bool = True
    learn_alphas: bool = False
    integration: Integration = "residual"
    cell_input: CellInput = "h"
    local_variance: bool = True
    stop_gradient: bool = False
    stride: int | None = None
    scaler: Scaler = "auto"
    transform: Transform | None = None
    robust: bool = True
    distribution: DistributionName = "auto"
    support: SupportName = "auto"
    series_id: bool = False
    ensemble: int = 1
    finetune_steps: int = 0
    gate: bool = False
    calibration: Calibration | None = None
    dropout: float = 0.0
    loss: Loss = "nll"
    global_loss: float = 0.3
    max_steps: int = 1000
    learning_rate: float = 1e-2
    schedule: Schedule = "one-cycle"
    weight_average: float = 0.99
    snapshots: int = 0
    search: Mapping[str, Sequence[Any]] | None = None
    batch_size: int = 64
    max_windows: int = 256
    births: float = 0.25
    size_weight: float = 0.0
    random_seed: int = 0
    accelerator: str = "auto"
    trainer_options: Mapping[str, Any] | None = None
    alias: str | None = None

    def __post_init__(self) -> None:
        """Normalise sequences to tuples and refuse what cannot work, with the value and what is allowed."""
        for name in ("futr_exog_list", "hist_exog_list", "stat_exog_list"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise ConfigError(f"{name} must be a list of column names, got the string {value!r}.")
            object.__setattr__(self, name, tuple(value or ()))
        self._check_types()
        object.__setattr__(self, "alphas", _numbers("alphas", self.alphas, float))
        if self.lags is not None and self.lags != "auto":
            object.__setattr__(self, "lags", tuple(sorted(set(_numbers("lags", self.lags, int)))))
        if not isinstance(self.size, str):
            object.__setattr__(self, "size", _numbers("size", self.size, int))
        self._check()

    def _check_types(self) -> None:
        """Plain values have the type that their field says; anything else would fail far from its cause."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "bool" and not isinstance(value, bool):
                raise ConfigError(f"{field.name} must be True or False, got {value!r}.")
            if field.type == "float":
                if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
                    raise ConfigError(f"{field.name} must be a finite number, got {value!r}.")
                object.__setattr__(self, field.name, float(value))
            if field.type == "int" or (field.type == "int | None" and value is not None):
                if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                    raise ConfigError(f"{field.name} must be a whole number, got {value!r}.")
                object.__setattr__(self, field.name, int(value))

    def _check(self) -> None:
        _positive("h", self.h)
        for name in ("input_size", "stride", "season"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        for name in ("encoder_layers", "ensemble", "max_steps", "batch_size", "max_windows"):
            _positive(name, getattr(self, name))
        for name in ("global_loss", "random_seed", "snapshots", "finetune_steps"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}.")
        if self.alias in ("unique_id", "ds", "y", "cutoff"):
            raise ConfigError(f"alias={self.alias!r} is the name of another column of every forecast: choose another.")
        if isinstance(self.freq, bool) or not (self.freq is None or isinstance(self.freq, (str, int))):
            raise ConfigError(f"freq must be a pandas offset alias, an integer or None, got {self.freq!r}.")
        if isinstance(self.freq, int) and self.freq < 1:
            raise ConfigError(f"An integer freq must be at least 1, got {self.freq}.")
        if self.stride is not None and self.stride > self.h:
            raise ConfigError(f"stride={self.stride} is longer than h={self.h}: choose stride <= h.")
        if self.season and self.input_size and self.season + self.window_stride > self.input_size:
            raise ConfigError(
                f"season={self.season} needs a context of a season and a stride, {self.season + self.window_stride} "
                f"rows, but input_size is {self.input_size}: raise it, or lower the stride."
            )
        if self.accelerator == "mps":
            raise ConfigError("accelerator='mps' has no float64, which the statistics need: use 'cpu' or 'gpu'.")
        for name, value, allowed in (
            ("integration", self.integration, ("paper", "skip", "residual", "direct")),
            ("cell_input", self.cell_input, ("h", "x", "raw")),
            ("scaler", self.scaler, ("mean", "level", "auto")),
            ("transform", self.transform, (None, "log1p", "asinh")),
            ("distribution", self.distribution, ("auto", "gaussian", "student-t", "negative-binomial")),
            ("support", self.support, ("auto", "real", "nonnegative", "count")),
            ("encoder", self.encoder, ("lstm", "gru", "sru", "fru")),
            ("schedule", self.schedule, ("one-cycle", "constant")),
            ("loss", self.loss, ("nll", "mse")),
            ("calibration", self.calibration, (None, "online")),
            ("accelerator", self.accelerator, ("auto", "cpu", "gpu", "cuda")),
        ):
            if value not in allowed:
                raise ConfigError(f"{name}={value!r} is not known: choose one of {', '.join(map(repr, allowed))}.")
        if isinstance(self.size, str) and self.size not in SIZES:
            raise ConfigError(
                f"size={self.size!r} is not known: choose one of {', '.join(SIZES)}, or four numbers "
                "(RNN units and three layer widths)."
            )
        if not isinstance(self.size, str) and (len(self.size) != 4 or min(self.size) < 1):
            raise ConfigError(f"An explicit size is four positive numbers (RNN units, three widths), got {self.size}.")
        if not self.alphas or not all(0 < a <= 1 for a in self.alphas):
            raise ConfigError(f"alphas must be one or more numbers in (0, 1], got {self.alphas}.")
        if not self.ridge > 0:
            raise ConfigError(f"ridge must be positive, got {self.ridge}.")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must lie in [0, 1), got {self.dropout}.")
        if not 0 <= self.births <= 1:
            raise ConfigError(f"births must lie in [0, 1], got {self.births}.")
        if not 0 <= self.size_weight <= 2:
            raise ConfigError(f"size_weight must lie in [0, 2], got {self.size_weight}.")
        if not 0 <= self.weight_average < 1:
            raise ConfigError(f"weight_average must lie in [0, 1), got {self.weight_average}.")
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate must be positive, got {self.learning_rate}.")
        if self.distribution == "negative-binomial" and (self.transform or self.loss == "mse"):
            raise ConfigError("The negative binomial models counts as they are: use transform=None and loss='nll'.")
        if self.transform == "log1p" and self.support == "real":
            raise ConfigError("transform='log1p' has no values below 0: use transform='asinh' with support='real'.")
        if self.distribution == "negative-binomial" and self.support not in ("auto", "count"):
            raise ConfigError(
                f"The negative binomial models counts, not support={self.support!r}: use 'auto' or 'count'."
            )
        if self.ensemble > 1 and self.snapshots:
            raise ConfigError("Choose either ensemble (several seeds) or snapshots (several epochs), not both.")
        self._check_columns()
        self._check_lags()
        self._check_search()

    def _check_columns(self) -> None:
        lists = {n: getattr(self, n) for n in ("futr_exog_list", "hist_exog_list", "stat_exog_list")}
        seen: dict[str, str] = {}
        for name, columns in lists.items():
            for column in columns:
                if column in ("unique_id", "ds", "y"):
                    raise ConfigError(f"{column!r} in {name} is reserved: list covariates only.")
                if column in seen:
                    raise ConfigError(f"Column {column!r} is listed in {seen[column]} and in {name}: list it once.")
                seen[column] = name

    def _check_lags(self) -> None:
        if self.lags is None or self.lags == "auto":
            return
        short = [lag for lag in self.lags if lag < self.h]
        if short:
            raise ConfigError(
                f"Lags {short} are shorter than h={self.h}: their values are not known at the forecast's origin. "
                f"Use lags of at least {self.h}."
            )

    def _check_search(self) -> None:
        if self.search is None:
            return
        unknown = sorted(set(self.search) - {"ridge", "alphas", "size", "learning_rate", "dropout", "integration"})
        candidates: list[Any] = list(self.search.values())
        lists = all(isinstance(v, Sequence) and not isinstance(v, str) and len(v) for v in candidates)
        if unknown or not lists:
            raise ConfigError(
                f"search cannot vary {unknown or 'over nothing'}: give candidate values for ridge, alphas, size, "
                "learning_rate, dropout or integration."
            )

    @property
    def network_size(self) -> Size:
        """The widths that `size` stands for."""
        if isinstance(self.size, str):
            return SIZES[self.size]
        rnn, *hidden = self.size
        return Size(rnn, (hidden[0], hidden[1], hidden[2]))

    @property
    def window_stride(self) -> int:
        """Steps between the grid origins of a series: `stride`, or h."""
        return self.stride or self.h

    @property
    def longest_window(self) -> int:
        """Steps that the windows of a series last, those that a gate or calibration compares included."""
        return self.h if self.gate or self.calibration else self.window_stride

    @property
    def name(self) -> str:
        """Name of the forecast columns."""
        return self.alias or self.model

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold; `trainer_options` belong to the machine, not to the model."""
        values = dataclasses.asdict(dataclasses.replace(self, trainer_options=None, search=None))
        values["search"] = None if self.search is None else {k: list(v) for k, v in self.search.items()}
        return values


@dataclasses.dataclass(frozen=True)
class AdapterSettings:
    """All settings of an adapter. `Adapter` documents each of them for users."""

    h: int
    freq: str | int | None = "auto"
    season_length: int | None = None
    models: Sequence[str] | None = None
    alphas: Sequence[float] = (0.9999, 0.999, 0.99)
    ridge: float = 30.0
    gate: bool = False
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        whole: dict[str, Any] = {"h": self.h, "season_length": 1 if self.season_length is None else self.season_length}
        for name, value in whole.items():
            if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}.")
            _positive(name, int(value))
        if isinstance(self.models, str):
            raise ConfigError(f"models must be a list of column names, got the string {self.models!r}.")
        if not isinstance(self.gate, bool):
            raise ConfigError(f"gate must be True or False, got {self.gate!r}.")
        if self.calibration not in (None, "online"):
            raise ConfigError(f"calibration={self.calibration!r} is not known: choose None or 'online'.")
        if isinstance(self.freq, bool) or not (self.freq is None or isinstance(self.freq, (str, int))):
            raise ConfigError(f"freq must be 'auto', a pandas offset alias, an integer or None, got {self.freq!r}.")
        object.__setattr__(self, "alphas", _numbers("alphas", self.alphas, float))
        if not self.alphas or not all(0 < a <= 1 for a in self.alphas):
            raise ConfigError(f"alphas must be one or more numbers in (0, 1], got {self.alphas}.")
        ridge: Any = self.ridge
        if isinstance(ridge, bool) or not isinstance(ridge, numbers.Real) or not 0 < float(ridge) < math.inf:
            raise ConfigError(f"ridge must be a positive number, got {ridge!r}.")
        object.__setattr__(self, "models", None if self.models is None else tuple(self.models))

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold."""
        lists = {"models": None if self.models is None else list(self.models), "alphas": list(self.alphas)}
        return {**dataclasses.asdict(self), **lists}


def _numbers(name: str, values: Any, kind: type[Any]) -> tuple[Any, ...]:
    try:
        converted = tuple(kind(value) for value in values)
        if any(a != b for a, b in zip(converted, values, strict=True)):
            raise ValueError
    except (TypeError, ValueError) as error:
        what = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{name} must be a list of {what}, got {values!r}.") from error
    return converted


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}.")
