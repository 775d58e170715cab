"""A PostgreSQL server of the tests' own: its data in a folder of its own, on a socket in that folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

USER = "aru"
ADMIN = "keeper"
CONFIGURATION = """
listen_addresses = ''
max_connections = 40
shared_buffers = 256MB
max_wal_size = 2GB
"""
# The one user who needs a password is for the test of wrong ones.
ACCESS = """
local all locked scram-sha-256
local all all trust
"""


def programs() -> Path:
    """The folder of the server's programs; tests are skipped where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    named = shutil.which("postgres")
    if not found and named is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    return found[-1].parent if found else Path(str(named)).parent


class Server:
    """A server that can be stopped, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._programs = folder, programs()
        self._process: subprocess.Popen[bytes] | None = None
        self.user = _other_user() if os.getuid() == 0 else None  # the server refuses to run as root
        if self.user is not None:
            shutil.chown(folder, self.user)
        self._call("initdb", "--no-sync", "--auth=trust", f"--username={ADMIN}", "--encoding=UTF8", "--locale=C")
        (folder / "data" / "postgresql.auto.conf").write_text(f"{CONFIGURATION}unix_socket_directories = '{folder}'\n")
        (folder / "data" / "pg_hba.conf").write_text(ACCESS)

    @property
    def pid(self) -> int:
        """The server's first process."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str, user: str = USER, **query: str) -> str:
        """The address of a database."""
        more = "".join(f"&{name}={value}" for name, value in query.items())
        return f"postgresql://{user}@/{database}?host={self.folder}{more}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        for _ in range(100):
            command = [self._programs / "postgres", "-D", self.folder / "data"]
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log, user=self.user, cwd="/")
            if self._answers():
                return
            self._process.wait()  # those of a killed server may still hold its memory
            time.sleep(0.1)
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def _answers(self) -> bool:
        import psycopg

        assert self._process is not None
        while self._process.poll() is None:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url("postgres", ADMIN)).close()
                return True
            time.sleep(0.02)
        return False

    def kill(self) -> None:
        """Kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End all sessions and stop."""
        self._end(signal.SIGINT)

    def _end(self, how: int) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def _call(self, program: str, *arguments: str) -> None:
        command = [self._programs / program, "-D", self.folder / "data", *arguments]
        subprocess.run(command, check=True, user=self.user, cwd="/", stdout=subprocess.DEVNULL)


def _other_user() -> str:
    known = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server with a user of its own and an empty database of the same name."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'aru-forecast[postgres]'")
    programs()
    folder = Path(tempfile.mkdtemp(prefix="aru-postgres-"))
    folder.chmod(0o755)
    try:
        server = Server(folder)
        server.start()
        try:
            with psycopg.connect(server.url("postgres", ADMIN), autocommit=True) as session:
                session.execute(f"CREATE ROLE {USER} LOGIN")
                session.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
                session.execute(f"CREATE DATABASE {USER} OWNER {USER}")
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def new_url(server: Server) -> str:
    """The address of a new store."""
    return server.url(USER, schema=f"test_{uuid.uuid4().hex[:12]}")
