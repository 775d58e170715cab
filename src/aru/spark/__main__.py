"""`python -m aru.spark` is `aru spark`: a file of its own for spark-submit."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    sys.argv.insert(1, "spark")
    importlib.import_module("aru.cli").main()
