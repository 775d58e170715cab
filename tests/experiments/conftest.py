"""What tests of the experiments share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aru.models import MODELS


@pytest.fixture(autouse=True)
def _only_the_library_s_models() -> Iterator[None]:
    """Ablations that a test asked for do not stay among the models."""
    before = dict(MODELS)
    yield
    MODELS.clear()
    MODELS.update(before)
