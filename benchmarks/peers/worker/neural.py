"""neuralforecast: global networks whose weights stay as trained."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import DistributionLoss, MQLoss
from neuralforecast.models import NHITS, DeepAR
from numpy.typing import NDArray

from benchmarks.peers.worker.interface import LEVEL, Spec, Streaming, filled


class NeuralPeer(Streaming):
    """Trained once; later windows only bring new context. Categories are embedded by the library.

    Missing values are filled with the last one and masked out of the loss (`available_mask`).
    """

    libraries = ("neuralforecast", "torch")

    def __init__(self, model: type, settings: dict[str, Any], spec: Spec, static: pd.DataFrame) -> None:
        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        self.name = model.__name__
        self.context = spec.context
        self.covariates = [*spec.numbers, *spec.codes]
        self.static = static if len(static.columns) > 1 else None
        codes = {**spec.codes, **spec.static_codes}
        network = model(
            h=spec.h,
            input_size=spec.context,
            futr_exog_list=self.covariates or None,
            stat_exog_list=[*spec.static_numbers, *spec.static_codes] or None,
            cat_exog_list=list(codes) or None,
            categorical_cardinalities=codes or None,
            max_steps=spec.steps,
            random_seed=spec.seed,
            start_padding_enabled=True,
            accelerator=spec.accelerator,
            devices=1,
            logger=False,
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            **settings,
        )
        self.forecaster = NeuralForecast([network], freq=1)

    def fit(self, past: pd.DataFrame) -> None:
        """Train the network."""
        self.forecaster.fit(self._frame(past), static_df=self.static)

    def host(self, past: pd.DataFrame, static: pd.DataFrame, copies: NDArray[np.int64]) -> None:
        """Context comes with each question; static covariates are kept."""
        self.static = None if self.static is None else static

    def read(self, past: pd.DataFrame, future: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """The context of each series and the covariates of the horizon."""
        known = future[["unique_id", *self.covariates]].assign(ds=future.step) if self.covariates else None
        return self._frame(past).groupby("unique_id").tail(self.context), known

    def answer(self, asked: tuple[pd.DataFrame, pd.DataFrame | None]) -> pd.DataFrame:
        """Forecast from new context with the weights as they are."""
        context, known = asked
        out = self.forecaster.predict(context, static_df=self.static, futr_df=known)
        ends = {f"-lo-{LEVEL}": "low", f"-hi-{LEVEL}": "high", "-median": "median", "": "mean"}
        out = out.rename(columns={"ds": "step"} | {f"{self.name}{k}": v for k, v in ends.items()})
        return out if "mean" in out else out.assign(mean=out["median"])

    def _frame(self, rows: pd.DataFrame) -> pd.DataFrame:
        frame = rows[["unique_id", *self.covariates]].assign(ds=rows.step, y=filled(rows))
        return frame.assign(available_mask=rows.y.notna().astype(float))


def nhits(spec: Spec, static: pd.DataFrame) -> NeuralPeer:
    """NHITS on quantiles, windows standardised robustly; its median stands for the mean, too."""
    return NeuralPeer(NHITS, {"loss": MQLoss(level=[LEVEL]), "scaler_type": "robust"}, spec, static)


def deepar(spec: Spec, static: pd.DataFrame) -> NeuralPeer:
    """DeepAR with a Student-t likelihood, windows standardised."""
    loss = DistributionLoss("StudentT", level=[LEVEL], return_params=False)
    return NeuralPeer(DeepAR, {"loss": loss, "scaler_type": "standard"}, spec, static)
