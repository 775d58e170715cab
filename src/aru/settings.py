"""All settings: frozen dataclasses, validated once, before any data are read.

`Settings` holds the arguments of `Forecaster`. Settings that few people change are in `NetworkOptions` and
`TrainingOptions`. Names, types, defaults and documentation are written here alone: the command line, saved models and
the reference are generated from them (`documentation`, `fields_by_name`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from aru.checked import CheckedFields, check_alphas, check_freq, check_inside, check_least
from aru.errors import ConfigError, listing, quoted

EncoderName = Literal["lstm", "gru", "sru", "fru"]
Integration = Literal["residual", "skip", "paper", "direct"]
Scaler = Literal["auto", "mean", "level"]
TransformName = Literal["log1p", "asinh"]
DistributionName = Literal["auto", "student-t", "gaussian", "negative-binomial"]
SupportName = Literal["auto", "real", "nonnegative", "count"]
Schedule = Literal["one-cycle", "constant"]
CalibrationName = Literal["online"]
AcceleratorName = Literal["auto", "cpu", "gpu", "cuda"]

PRETRAINED = "aru"  # the model that begins with shipped weights; `size` names them
WEIGHTS = ("nano", "mini", "base")  # its sizes
SEARCHED = ("alphas", "dropout", "integration", "learning_rate", "ridge", "size")  # what `search` can vary


@dataclasses.dataclass(frozen=True)
class Size:
    """Units of the encoder RNN and of the decoder's three ReLU layers; the last is the dimension of the ARU."""

    rnn: int
    hidden: tuple[int, int, int]


# The sizes of the paper's hyper-parameter table, and a larger one.
SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "small": Size(8, (8, 6, 6)),
        "medium": Size(16, (16, 15, 10)),
        "large": Size(50, (32, 20, 15)),
        "xlarge": Size(64, (64, 64, 32)),
    }
)


@dataclasses.dataclass(frozen=True)
class NetworkOptions(CheckedFields):
    """How the recurrent network and its cell are built.

    Args:
        encoder: The RNN that reads the context: "lstm", "gru", "sru" (a statistical unit) or "fru" (a Fourier unit).
        encoder_layers: Layers of the encoder.
        alphas: Aging factors of the local statistics: the share of an observation's weight that remains after one
            step. 1 forgets nothing.
        ridge: Ridge penalty of the local fit; its initial value if it is learned.
        learn_ridge: Learn the ridge penalty, one per aging factor.
        learn_alphas: Learn the aging factors.
        integration: How a series' local fit is combined with the global forecast. "residual": it fits the errors of
            the global forecast and corrects it. "paper": it is an input of the output layers. "skip": the same, with
            a skip connection. "direct": it is the forecast.
        stride: Steps from one origin of a series to the next, in training and in local statistics. None: the horizon.
        scaler: What values are divided by: the "mean" of the whole series so far (as in the paper), the "level" of the
            context, or "auto", a mix of the two that training chooses.
        robust: Give outliers less weight in the local statistics, and let these fade while errors stay large.
        series_id: Give each series an embedding of its own.
        dropout: Dropout rate in the decoder and between layers of the encoder.
    """

    encoder: EncoderName = "lstm"
    encoder_layers: int = 1
    alphas: Sequence[float] = (1.0, 0.99, 0.95)
    ridge: float = 1.0
    learn_ridge: bool = True
    learn_alphas: bool = False
    integration: Integration = "residual"
    stride: int | None = None
    scaler: Scaler = "auto"
    robust: bool = True
    series_id: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        super().__post_init__()
        check_least("encoder_layers", self.encoder_layers, 1)
        check_least("stride", self.stride, 1)
        check_alphas(self.alphas)
        if not self.ridge > 0:
            raise ConfigError(f"`ridge` must be positive, got {self.ridge}")
        check_inside("dropout", self.dropout, 0, 1, open_end=True)


@dataclasses.dataclass(frozen=True)
class TrainingOptions(CheckedFields):
    """How a training runs.

    Args:
        schedule: Learning rate over the steps: "one-cycle" (up, then down to zero) or "constant".
        weight_average: Decay of the moving average of the weights that forecasts use. 0: use the last weights.
        snapshots: Average the forecasts of this many epochs: those with the lowest validation loss. 0: the last epoch.
        search: Candidate values of settings, by name. The ones with the lowest validation loss are chosen.
        cold_starts: Share of the series in a training batch that begin at a random later time, as cold starts. The
            network then learns to forecast from few values.
        size_weight: Power of a series' mean |y| that is its weight in the loss. 0: all series count alike. Above 0
            large series count more, as they do in scores pooled over series, such as ND.
        trainer: Further options of Lightning's Trainer (devices, num_nodes, strategy, callbacks, ...).
    """

    schedule: Schedule = "one-cycle"
    weight_average: float = 0.99
    snapshots: int = 0
    search: Mapping[str, Sequence[Any]] | None = None
    cold_starts: float = 0.25
    size_weight: float = 0.0
    trainer: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        super().__post_init__()
        check_inside("weight_average", self.weight_average, 0, 1, open_end=True)
        check_least("snapshots", self.snapshots, 0)
        check_inside("cold_starts", self.cold_starts, 0, 1)
        check_inside("size_weight", self.size_weight, 0, 2)
        if self.search is not None:
            unknown = sorted(set(self.search) - set(SEARCHED))
            candidates: list[Any] = list(self.search.values())
            lists = all(isinstance(v, Sequence) and not isinstance(v, str) and len(v) for v in candidates)
            if unknown or not lists:
                what = f"cannot choose {quoted(unknown[0])}" if unknown else "has a setting without candidates"
                raise ConfigError(
                    f"`search` {what}",
                    f"Give a list of candidate values for one or more of {', '.join(SEARCHED)}.",
                )


@dataclasses.dataclass(frozen=True)
class Settings(CheckedFields):
    """One global model for many series that adapts to each of them as observations arrive.

    Args:
        h: Forecast horizon in steps.
        freq: Step between observations: a pandas offset alias such as "D", "h", "W-FRI" or "MS", or an integer for
            integer `ds`. None: rows are consecutive whatever their dates.
        input_size: Rows of context that a forecast reads. None: the horizon, or one season where that is longer.
        model: Forecasting method. "aru": a network that was trained beforehand, on synthetic series, with the effects
            of covariates in closed form; `fit` tunes it. "aru-rnn": the paper's recurrent network and cell, trained
            from nothing. Others are listed by `aru models`.
        futr_exog_list: Exogenous columns known in advance. Numbers are rescaled; category, string and bool columns are
            embedded.
        hist_exog_list: Exogenous columns known only up to the origin.
        stat_exog_list: Static exogenous columns, those of `static_df`.
        lags: Lags of y as inputs, each at least h. "auto": the first whole seasons of the frequency (none without a
            natural season of at most 1,000 rows). None: no lags.
        season_length: Rows of a season. Each lead then also reads the latest known value at its own position in the
            season, however long h is.
        size: Size of the network. Of "aru" the weights to begin with: "mini" (its default), "nano" or "base", or a
            version such as "mini-1". Of other models "small", "medium" (their default), "large", "xlarge", or four
            numbers (RNN units, two layer widths, ARU dimension).
        transform: Transform of the scaled target: None, "log1p" or "asinh".
        distribution: Distribution of the forecast: "student-t", "gaussian" or "negative-binomial". "auto": Student-t,
            or the negative binomial for counts with many zeros.
        support: Range of y, to which forecasts are restricted: "nonnegative", "count" (quantiles are whole numbers),
            "real" (no restriction) or "auto" (as in training). "nonnegative" and "count" refuse other values of y.
        ensemble: Number of models, trained from different seeds, whose forecasts are averaged.
        gate: Mix adapted and unadapted forecast, per series and block of leads, by their errors, anew every h rows.
        calibration: "online": move the ends of intervals, by what a series and its panel missed, to keep coverage.
        max_steps: Training steps. None: 1,000, each a batch of series with all their windows; of "aru" at most 300,
            each a batch of 64 forecasts.
        learning_rate: Learning rate of Adam: its peak, or the rate itself if it is constant.
        batch_size: Series per training step.
        random_seed: Seed of training. On a CPU the same seed gives the same model, bit for bit.
        accelerator: Where to compute: "auto" (a CUDA device if there is one, else the CPU), "cpu" or "gpu".
        alias: Name of the forecast columns. None: the name of the model.
        country: Its holidays have effects: "DE", or "DE-BY" for a part of it. Needs the package holidays, and "aru".
        hindsight: Without covariates, learn from the errors of past forecasts, in closed form. Needs "aru".
        network: Further options of the network.
        training: Further options of the training.
    """

    h: int
    freq: str | int | None
    input_size: int | None = None
    model: str = "aru"
    futr_exog_list: Sequence[str] = ()
    hist_exog_list: Sequence[str] = ()
    stat_exog_list: Sequence[str] = ()
    lags: Sequence[int] | Literal["auto"] | None = "auto"
    season_length: int | None = None
    size: str | Sequence[int] | None = None
    transform: TransformName | None = None
    distribution: DistributionName = "auto"
    support: SupportName = "auto"
    ensemble: int = 1
    gate: bool = False
    calibration: CalibrationName | None = None
    max_steps: int | None = None
    learning_rate: float = 1e-2
    batch_size: int = 64
    random_seed: int = 0
    accelerator: AcceleratorName = "auto"
    alias: str | None = None
    country: str | None = None
    hindsight: bool = True
    network: NetworkOptions = NetworkOptions()
    training: TrainingOptions = TrainingOptions()

    def __post_init__(self) -> None:
        """Normalise sequences to tuples and refuse values that cannot work."""
        if str(self.accelerator) == "mps":
            raise ConfigError("`accelerator='mps'` has no float64, which the statistics need", "Use 'cpu' or 'gpu'.")
        super().__post_init__()
        for name in ("h", "input_size", "season_length", "ensemble", "max_steps", "batch_size"):
            check_least(name, getattr(self, name), 1)
        check_least("random_seed", self.random_seed, 0)
        if not self.learning_rate > 0:
            raise ConfigError(f"`learning_rate` must be positive, got {self.learning_rate}")
        if self.ensemble > 1 and self.training.snapshots:
            raise ConfigError(
                "Both `ensemble` (several seeds) and `snapshots` (several epochs) are given", "Choose one."
            )
        if self.alias in ("unique_id", "ds", "y", "cutoff"):
            raise ConfigError(
                f"`alias={quoted(self.alias)}` is the name of another column of every forecast", "Choose another."
            )
        check_freq(self.freq)
        self._check_size()
        self._check_windows()
        self._check_target()
        self._check_columns()

    def _check_size(self) -> None:
        if self.model == PRETRAINED:
            if self.size is not None and str(self.size).partition("-")[0] not in WEIGHTS:
                raise ConfigError(
                    f"`size={quoted(self.size)}` is no size of `model={quoted(self.model)}`",
                    f"Choose one of {', '.join(WEIGHTS)}; 'aru-rnn' and others have {', '.join(SIZES)}.",
                )
            return
        if self.size is None:
            return
        if isinstance(self.size, str) and self.size not in SIZES:
            raise ConfigError(
                f"`size={quoted(self.size)}` is not known",
                f"Choose one of {', '.join(SIZES)}, or four numbers (RNN units, three widths); 'aru' has "
                f"{', '.join(WEIGHTS)}.",
            )
        if not isinstance(self.size, str) and (len(self.size) != 4 or min(self.size) < 1):
            raise ConfigError(f"An explicit size is four positive numbers (RNN units, three widths), got {self.size}")

    def _check_windows(self) -> None:
        if self.network.stride is not None and self.network.stride > self.h:
            raise ConfigError(
                f"`stride={self.network.stride}` is longer than `h={self.h}`", "Choose a stride of at most h."
            )
        if self.season_length and self.input_size and self.season_length + self.window_stride > self.input_size:
            raise ConfigError(
                f"`season_length={self.season_length}` needs a context of a season and a stride, "
                f"{self.season_length + self.window_stride} rows, but input_size is {self.input_size}",
                "Raise it, or lower the stride.",
            )
        if self.lags is not None and self.lags != "auto" and self.model != PRETRAINED:  # which takes none
            short = [lag for lag in self.lags if lag < self.h]
            if short:
                raise ConfigError(
                    f"Lags {short} are shorter than `h={self.h}`: their values are not known at the forecast's origin",
                    f"Use lags of at least {self.h}.",
                )

    def _check_target(self) -> None:
        if self.distribution == "negative-binomial" and self.transform:
            raise ConfigError("The negative binomial models counts as they are", "Use `transform=None`.")
        if self.transform == "log1p" and self.support == "real":
            raise ConfigError(
                "`transform='log1p'` has no values below 0", "Use `transform='asinh'` with `support='real'`."
            )
        if self.distribution == "negative-binomial" and self.support not in ("auto", "count"):
            raise ConfigError(
                f"The negative binomial models counts, not `support={quoted(self.support)}`", "Use 'auto' or 'count'."
            )

    def _check_columns(self) -> None:
        seen: dict[str, str] = {}
        for name in ("futr_exog_list", "hist_exog_list", "stat_exog_list"):
            for column in getattr(self, name):
                if column in ("unique_id", "ds", "y"):
                    raise ConfigError(f"{quoted(column)} in `{name}` is reserved", "List covariates only.")
                if column in seen:
                    raise ConfigError(
                        f"Column {quoted(column)} is listed in `{seen[column]}` and in `{name}`", "List it once."
                    )
                seen[column] = name

    @property
    def network_size(self) -> Size:
        """Layer widths of `size`."""
        assert self.size is not None, "resolve fills it in"
        if isinstance(self.size, str):
            return SIZES[self.size]
        rnn, *hidden = self.size
        return Size(rnn, (hidden[0], hidden[1], hidden[2]))

    @property
    def steps(self) -> int:
        """`max_steps`, as `resolve` filled it in."""
        assert self.max_steps is not None
        return self.max_steps

    @property
    def window_stride(self) -> int:
        """Steps from one origin of a series to the next: `stride`, or h."""
        return self.network.stride or self.h

    @property
    def follows_forecasts(self) -> bool:
        """Whether past forecasts are compared with actual values, for the gate or for calibration."""
        return self.gate or self.calibration is not None

    @property
    def longest_window(self) -> int:
        """Steps of the longest window of a series: h with a gate or calibration, else the stride."""
        return self.h if self.follows_forecasts else self.window_stride

    @property
    def name(self) -> str:
        """Name of the forecast columns."""
        return self.alias or self.model

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can hold, without `trainer`: its options belong to a machine, not to the model."""
        return dataclasses.asdict(dataclasses.replace(self, training=dataclasses.replace(self.training, trainer=None)))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Settings:
        """The inverse of `to_json`."""
        options = {"network": NetworkOptions, "training": TrainingOptions}
        nested: dict[str, Any] = {name: kind(**values[name]) for name, kind in options.items()}
        nested["training"] = dataclasses.replace(nested["training"], trainer=None)  # whatever a file says
        return cls(**{**values, **nested})


# The paper's training: Forecaster(h=16, freq="D", **PAPER). Ridge and aging factors are chosen by validation loss; the
# forecast is the average over the five epochs with the lowest validation loss.
PAPER: Mapping[str, Any] = MappingProxyType(
    {
        "model": "aru-rnn",
        "lags": None,
        "distribution": "gaussian",
        "learning_rate": 1e-4,
        "batch_size": 64,
        "network": NetworkOptions(integration="paper", scaler="mean", robust=False, learn_ridge=False),
        "training": TrainingOptions(
            schedule="constant",
            cold_starts=0.0,
            weight_average=0.0,
            snapshots=5,
            search={"ridge": (0.01, 0.1, 1.0), "alphas": ((1.0,), (1.0, 0.99), (1.0, 0.95, 0.9))},
        ),
    }
)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a flat mapping of settings into arguments of `Settings` and `Forecaster`.

    Options of the network and of training replace those in `network` and `training`, if these are given.
    """
    out: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {"network": {}, "training": {}}
    homes = fields_by_name()
    for name, value in flat.items():
        if name not in homes:
            raise ConfigError(
                f"There is no setting {quoted(name)}", f"Choose one of {listing(sorted(homes), len(homes))}."
            )
        (out if homes[name] is None else inner[homes[name] or ""])[name] = value
    for home, options in inner.items():
        if options:
            out[home] = dataclasses.replace(out.get(home, getattr(Settings, home)), **options)
    return out


def default_of(name: str) -> Any:
    """The default of a setting by name."""
    home = fields_by_name()[name]
    return getattr(Settings if home is None else getattr(Settings, home), name, dataclasses.MISSING)


def fields_by_name() -> dict[str, str | None]:
    """Every setting, and the argument of `Settings` that holds it: "network", "training" or None for its own."""
    names: dict[str, str | None] = {field.name: None for field in dataclasses.fields(Settings)}
    for home, kind in (("network", NetworkOptions), ("training", TrainingOptions)):
        names |= {field.name: home for field in dataclasses.fields(kind)}
    return names
