"""`python -m aru.spark` is `aru spark`, in a file that spark-submit can run."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    sys.argv.insert(1, "spark")
    importlib.import_module("aru.cli").main()
