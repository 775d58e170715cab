"""A headless Chromium, the system's own: nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from typing import Any

CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
# Containers often run as root and have little shared memory; the pages are our own.
LAUNCH: dict[str, Any] = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}
