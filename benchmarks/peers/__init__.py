"""Other libraries' forecasts on the same windows as ours.

    python -m benchmarks.peers list
    python -m benchmarks.peers setup [peer ...]
    python -m benchmarks.peers run --dataset tourism_monthly --peers seasonal-naive auto-ets --out results.csv

The parent (registry, environments, task, exchange) uses aru and never imports a peer. The child (worker) runs in the
peer's own environment and never imports aru. Between them travel Parquet files and a JSON specification.
"""
