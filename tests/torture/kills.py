"""kill -9 of a writer and of a service, again and again, at any moment: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import tempfile
from pathlib import Path

from aru import Forecaster
from tests.making import make
from tests.serve.test_processes import kill_services
from tests.shops import BASE, TRAINED, both
from tests.test_stream_processes import kill_writers, save_model
from tests.torture import Attack, Outcome


def writers(kills: int) -> Outcome:
    """Writers to a SQLite file, each killed inside a batch."""
    with tempfile.TemporaryDirectory() as folder:
        rows = kill_writers(save_model(Path(folder) / "model"), Path(folder), Path(folder) / "state.db", kills, each=60)
    return Outcome(kills, 0, f"{rows:,} rows sent, {rows:,} rows found, once each")


def services(kills: int) -> Outcome:
    """Services under the load of twelve clients."""
    with tempfile.TemporaryDirectory() as folder:
        trained: Forecaster = make(**BASE).fit(both(range(TRAINED)))
        trained.save(Path(folder) / "model")
        rows = kill_services(Path(folder) / "model", trained, Path(folder) / "state.db", kills)
    return Outcome(kills, 0, f"{rows:,} rows of 12 clients sent, {rows:,} rows found, once each")


ATTACKS = [
    Attack("kill -9 of a writer inside a batch", writers, 2, 25, slow=True),
    Attack("kill -9 of a service under load", services, 2, 25, slow=True),
]
