"""What a pretrained model learns from the rows it is told, in closed form, and what that gives.

covariates     effects of covariates beside the network alone; on streams also frozen at the first cutoff
hindsight      what errors of past forecasts teach without covariates, on streams: also frozen, and the network alone
first-values   error against the number of known values, of series never seen (`experiments.first_values`)
frozen         closed-form corrections of frozen zero-shot forecasts on ETTh1 (`experiments.rivals`)

Nothing is trained but what stands beside: on the flights our recurrent networks, LightGBM (which must be
installed), and our networks on M1. What `runs.csv` and `curves.csv` have is not repeated here.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import pandas as pd

from aru import Forecaster, NetworkOptions
from aru.datasets import nyc_flights
from experiments import first_values, rivals
from experiments.boosted import Boosted
from experiments.data import read
from experiments.metrics import LEVELS, score
from experiments.panels import Windows, seasonal_naive
from experiments.provenance import hardware
from experiments.tasks import PROTOCOLS, Protocol, Task, cut
from experiments.zeroshot import weights_of

COVARIATES, HINDSIGHT, FIRST_VALUES, FROZEN = "covariates", "hindsight", "first-values", "frozen"
SIZES = ("mini", "base")
STREAMED = "mini"  # on streams
ALONE = " alone"  # the network without covariates
FLIGHTS = "nyc_flights"
STEPS = 1200  # of training the recurrent networks on the flights
STREAMING, START = "streaming", "start"
DEMO = Protocol(85, step=1, settings={"h": 7})
"""Every evening from 1 October to 24 December, as the demo does it."""
STARTS = {
    "rossmann": (64, Protocol(20)),
    "walmart": (26, Protocol(8)),
    "gefcom2012": (672, Protocol(84)),
    "electricity_10": (672, Protocol(84)),
    FLIGHTS: (120, DEMO),  # with two holidays: what first rows do not hold is never read
    "m4_hourly": (240, Protocol(20)),
}
"""Streams that begin with little history: rows before the first cutoff, and the windows after it."""
STREAMS = [
    ("rossmann", "fixed"),
    ("rossmann", STREAMING),
    ("rossmann", START),
    ("walmart", "fixed"),
    ("walmart", STREAMING),
    ("walmart", START),
    ("gefcom2012", STREAMING),
    ("gefcom2012", START),
    ("electricity_10", STREAMING),
    ("electricity_10", START),
    (FLIGHTS, STREAMING),
    (FLIGHTS, START),
]
WITHOUT = [
    *((name, protocol) for name in ("electricity_10", "gefcom2012", FLIGHTS) for protocol in (STREAMING, START)),
    *((name, START) for name in ("m4_hourly", "rossmann", "walmart")),
]
"""Streams without covariates."""
DIGITS = {"nd": 5, "mse": 6, "rmse": 4, "mase": 4, "crps": 5, "coverage90": 4}
KEY = ("part", "dataset", "protocol", "method", "weights", "seed")
FIELDS = (
    *KEY, "variant", "x", "h", "series", "forecasts", *DIGITS, "seconds", "commit", "hardware", "date", "command",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Lesson:
    """A run and the rows it gives."""

    part: str
    dataset: str
    protocol: str
    method: str
    seed: int
    series: int | None = None  # for a quick look: the first few series only
    steps: int | None = None  # and other numbers of training steps

    KEY: ClassVar[tuple[str, ...]] = KEY  # with the weights: other weights are measured anew
    FIELDS: ClassVar[tuple[str, ...]] = FIELDS

    @property
    def size(self) -> str:
        """Of the pretrained network; empty if there is none."""
        size = self.method.removesuffix(ALONE)
        return size if size in SIZES else ""

    @property
    def weights(self) -> str:
        """Version of the weights and the beginning of their checksum."""
        return weights_of(self.size) if self.size else ""

    @property
    def expected_seconds(self) -> float:
        """A rough guess."""
        return 300.0 if self.part == FROZEN or self.size == "base" else 120.0

    def compute(self) -> list[dict[str, Any]]:
        """Its rows."""
        import torch

        torch.set_num_threads(1)
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = list(COMPUTE[self.part](self))
        end = {
            "seconds": round(time.perf_counter() - started, 1),
            "hardware": hardware(),
            "date": datetime.date.today().isoformat(),
            "command": "python -m experiments learning",
        }
        about = {name: getattr(self, name) for name in KEY}
        known = {*DIGITS, *FIELDS}
        return [
            {**about, **{k: round(v, DIGITS[k]) if k in DIGITS else v for k, v in row.items() if k in known}, **end}
            for row in rows
        ]


def lessons(seeds: Iterable[int]) -> list[Lesson]:
    """All of them, quick ones first; only trainings have several seeds."""
    seeds, out = list(seeds), []
    for dataset, protocol in STREAMS:
        methods = (STREAMED,) if dataset == "electricity_10" else (STREAMED, f"{STREAMED}{ALONE}")
        out += [Lesson(COVARIATES, dataset, protocol, method, 0) for method in methods]
    out += [Lesson(HINDSIGHT, dataset, protocol, STREAMED, 0) for dataset, protocol in WITHOUT]
    for size in SIZES:
        out += [Lesson(FIRST_VALUES, dataset, "", size, 0) for dataset in first_values.PANELS]
        with_covariates = [dataset for dataset in first_values.PANELS if dataset != "m1_monthly"]
        out += [Lesson(FIRST_VALUES, dataset, "", f"{size}{ALONE}", 0) for dataset in with_covariates]
        out += [Lesson(FROZEN, "etth1", f"h={h}", size, 0) for h in rivals.HORIZONS]
    out += [Lesson(COVARIATES, dataset, START, "seasonal-naive", 0) for dataset in STARTS if dataset != "m4_hourly"]
    out += [Lesson(COVARIATES, FLIGHTS, STREAMING, method, 0) for method in ("seasonal-naive", "lightgbm")]
    out += [Lesson(FIRST_VALUES, dataset, "", "seasonal-naive", 0) for dataset in first_values.PANELS]
    out += [Lesson(FIRST_VALUES, dataset, "", "lightgbm", 0) for dataset in first_values.PANELS]
    for seed in seeds:
        for method in ("aru", "baseline"):
            out.append(Lesson(COVARIATES, FLIGHTS, STREAMING, method, seed))
            out += [Lesson(FIRST_VALUES, dataset, "", method, seed) for dataset in first_values.TRAINED]
    return out


def task_of(dataset: str, protocol: str, series: int | None) -> Task:
    """Rows of a dataset and where they are forecast."""
    data = read(dataset)
    if protocol == START:
        before, rule = STARTS[dataset]
        h = rule.settings.get("h", data.settings["h"])
        rows = before + h + (rule.step or h) * (rule.windows - 1)
        by = data.df.groupby("unique_id")
        chosen = (by.cumcount(ascending=False) < rows) & (by.y.transform("size") >= rows)
        data = dataclasses.replace(data, df=data.df[chosen])
    else:
        rule = DEMO if dataset == FLIGHTS else PROTOCOLS[dataset][protocol]
    return cut(dataset, data, rule, series)


def covariate_columns(settings: dict[str, Any]) -> dict[str, list[str]]:
    """The lists of covariates that `from_pretrained` takes."""
    taken = inspect.signature(Forecaster.from_pretrained).parameters
    names = (f"{kind}_exog_list" for kind in ("futr", "hist", "stat"))
    return {name: settings[name] for name in names if name in taken and settings.get(name)}


def covariates(job: Lesson) -> Iterator[dict[str, Any]]:
    """Scores of a method over the windows of a protocol; of what adapts, also frozen at the first cutoff."""
    task = task_of(job.dataset, job.protocol, job.series)
    h, name = task.settings["h"], "aru"
    frames: list[tuple[str, pd.DataFrame]] = []
    if job.method == "seasonal-naive":
        windows = Windows(task.df, task.train, task.windows, task.step)
        frames, name = [("", seasonal_naive(windows, h, task.season))], "naive"
    elif job.method == "lightgbm":
        trees = Boosted(task.train, task.static, task.settings, task.season, job.seed)
        frames = [("", trees.cross_validation(task.df, task.windows, task.step))]
    else:
        forecaster, static = _forecaster(job, task)
        both = task.windows > 1 and (job.method == "aru" or bool(job.size and not job.method.endswith(ALONE)))
        for adapt in (True, False) if both else (True,):
            frame = forecaster.cross_validation(task.df, task.windows, task.step, LEVELS, adapt, static)
            frames.append(("" if adapt else "adapt=off", frame))
    for variant, frame in frames:
        yield from scored(task, variant, frame, name)


def hindsight(job: Lesson) -> Iterator[dict[str, Any]]:
    """Scores without covariates: adapting, frozen at the first cutoff, and of the network alone."""
    task = task_of(job.dataset, job.protocol, job.series)
    df = task.df[["unique_id", "ds", "y"]]
    for variant, learns in (("", True), ("adapt=off", True), ("alone", False)):
        settings = {name: task.settings[name] for name in ("h", "freq")}
        model = Forecaster.from_pretrained(job.size, **settings, hindsight=learns)
        yield from scored(task, variant, model.cross_validation(df, task.windows, task.step, LEVELS, variant == ""))


def scored(task: Task, variant: str, frame: pd.DataFrame, name: str = "aru") -> Iterator[dict[str, Any]]:
    """Of all windows, and by quarters of a stream."""
    for x, part in {"": frame, **(quarters(frame) if task.windows >= 8 else {})}.items():
        count = {"series": part.unique_id.nunique(), "forecasts": len(part) // task.settings["h"]}
        about = {"variant": variant, "x": x, "h": task.settings["h"], **count}
        yield {**about, **score(part, name, task.train, task.season)}


def quarters(frame: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """Parts of a stream in the order of its cutoffs, 1 to 4."""
    order = frame.groupby("unique_id").cutoff.rank(method="dense")
    part = (order - 1) * 4 // order.groupby(frame.unique_id).transform("max") + 1
    return {int(x): rows for x, rows in frame.groupby(part)}


def _forecaster(job: Lesson, task: Task) -> tuple[Forecaster, pd.DataFrame | None]:
    """A pretrained one, or one that is trained; and the static covariates that it reads."""
    if job.size:
        columns = {} if job.method.endswith(ALONE) else covariate_columns(task.settings)
        settings = {"h": task.settings["h"], "freq": task.settings["freq"], **columns}
        opened = Forecaster.from_pretrained(job.size, **settings, hindsight=not job.method.endswith(ALONE))
        return opened, task.static if "stat_exog_list" in columns else None
    return recurrent(job).fit(task.train, task.static, val_size=0), task.static


def recurrent(job: Lesson) -> Forecaster:
    """ARU or the baseline for the flights, with settings chosen on August and September with training until July."""
    return Forecaster(
        h=7,
        freq="D",
        input_size=7,
        lags=[7, 14, 21, 28],
        model="aru-rnn" if job.method == "aru" else job.method,
        alias="aru",
        futr_exog_list=nyc_flights.FUTR_EXOG,
        hist_exog_list=nyc_flights.HIST_EXOG,
        stat_exog_list=nyc_flights.STAT_EXOG,
        batch_size=16,
        max_steps=job.steps or STEPS,
        learning_rate=0.01,
        random_seed=job.seed,
        accelerator="cpu",
        network=NetworkOptions(scaler="level"),
    )


COMPUTE = {
    COVARIATES: covariates,
    HINDSIGHT: hindsight,
    FIRST_VALUES: lambda job: first_values.curve(job, covariate_columns),
    FROZEN: lambda job: rivals.corrections(job.size, int(job.protocol.removeprefix("h=")), job.series),
}
