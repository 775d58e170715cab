"""`python -m aru.cli`."""

from __future__ import annotations

from aru.cli import main

main()
