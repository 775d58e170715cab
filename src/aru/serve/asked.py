"""What clients ask for, once it is checked."""

from __future__ import annotations

from typing import NamedTuple

from aru.runtime.update import Late
from aru.serve.tables import Columns
from aru.store import Key


class UpdateRequest(NamedTuple):
    """Checked rows of one request."""

    rows: Columns
    ids: list[Key]
    static: Columns | None
    late: Late
    allow_jump: bool
    digest: bytes  # of what was sent
    extra: Columns = {}  # columns that the model does not know  # noqa: RUF012

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.rows["ds"])


class ForecastRequest(NamedTuple):
    """The distinct series of one request, in order, and the known-future covariates of their next steps."""

    ids: list[Key]
    futr: Columns | None
    level: tuple[float, ...]
    reader: object = None  # the service that read it; None: any


class ForgetRequest(NamedTuple):
    """Series whose states are to be deleted."""

    ids: list[Key]
