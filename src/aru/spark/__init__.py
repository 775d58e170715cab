"""The stream and the backtest on Spark (needs `aru-forecast[spark]` and Java 17).

    forecast_stream   observations in, forecasts out, states in Spark's state store
    forecast_batch    forecasts and states from a history
    backtest_batch    rolling forecasts of a history
    learn_model       a pretrained model that has seen how covariates are read, and what series have in common
    adapt_stream      observations and forecasts of another model in, adapted forecasts out
    adapt_batch       a history of forecasts of another model, adapted
    read_checkpoint, read_export, write_export   exchange states between Spark and `Stream`

Series are grouped into shards by a hash of their id. A shard is updated by the same code as a `Stream`.
"""

from __future__ import annotations

from aru.spark.adapter_query import adapt_batch, adapt_stream
from aru.spark.batch_query import BatchResult, backtest_batch, forecast_batch, learn_model
from aru.spark.state_frames import read_checkpoint, read_export, write_export
from aru.spark.streaming_query import forecast_stream

__all__ = [
    "BatchResult",
    "adapt_batch",
    "adapt_stream",
    "backtest_batch",
    "forecast_batch",
    "forecast_stream",
    "learn_model",
    "read_checkpoint",
    "read_export",
    "write_export",
]
