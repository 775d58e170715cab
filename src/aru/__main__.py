"""`python -m aru`: the command line."""

from __future__ import annotations

from aru.cli import main

main()
