"""How missing values are written in CSV, for files and requests alike."""

from __future__ import annotations

MISSING_TEXT = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
