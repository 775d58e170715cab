"""Connections to PostgreSQL: what every session is told, the versions of the tables, and what can go wrong."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

import psycopg

from aru.errors import StorageError, verbatim
from aru.store.address import Address

Session = psycopg.Connection[tuple[Any, ...]]
BUSY = 60  # seconds that a writer waits for another
CONNECT = 10  # seconds to connect
# How long a process that hangs, or whose host is gone, can hold up others. One that dies holds up nobody: its
# connection ends, and with it its transaction.
TIMEOUTS = {
    "lock_timeout": f"{BUSY}s",
    "idle_in_transaction_session_timeout": "300s",
    "client_connection_check_interval": "5s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# Records change as a whole. Compressed, the new one fits beside the old one in a page: the index need not change, and
# the room of older ones is used again without a vacuum. A server without LZ4 compresses in its own way.
RECORD_TABLES = """
    CREATE TABLE about (description text NOT NULL);
    CREATE TABLE series (id bytea PRIMARY KEY, record bytea NOT NULL) WITH (fillfactor = 45);
    ALTER TABLE series ALTER record SET STORAGE MAIN;
    CREATE TABLE panel (id bytea PRIMARY KEY, record bytea NOT NULL);
    CREATE TABLE request (id bytea PRIMARY KEY, record bytea NOT NULL) WITH (fillfactor = 45);
    DO $$ BEGIN
        EXECUTE 'ALTER TABLE series ALTER record SET COMPRESSION lz4';
    EXCEPTION WHEN OTHERS THEN NULL;
    END $$;
"""
PART_TABLE = """
    CREATE TABLE part (
        slot bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, transactions bigint NOT NULL, newest bigint
    ) WITH (fillfactor = 10);
"""
STEPS = (
    RECORD_TABLES,
    PART_TABLE,
)  # of the tables, each from one version to the next; never change one that was released


def connect(address: Address) -> Session:
    """A session in the schema of the tables. Commits wait for the disk."""
    session = psycopg.connect(
        address.url,
        autocommit=True,
        connect_timeout=CONNECT,
        application_name="aru",
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=30_000,
    )
    try:
        values = ", ".join(f"('{name}', '{value}')" for name, value in TIMEOUTS.items())
        session.execute(
            f"""SET search_path TO {address.schema};
            SELECT set_config(name, value, false) FROM (VALUES {values}) AS wanted(name, value)
            JOIN pg_settings USING (name);
            SELECT set_config('synchronous_commit', 'on', false)
            WHERE current_setting('synchronous_commit') IN ('off', 'local')""",
            prepare=False,
        )
    except BaseException:
        session.close()
        raise
    return session


def lock_of(address: Address) -> int:
    """The number of the advisory lock of a whole store."""
    return 0x617275 << 32 | zlib.crc32(address.schema.encode())


def version_of(session: Session, address: Address) -> int:
    """The version of the tables; 0 if there are none."""
    place = f"{address.schema}.meta"
    if session.execute("SELECT to_regclass(%s)", [place]).fetchone() == (None,):
        return 0
    row = session.execute("SELECT version FROM meta").fetchone()
    return 0 if row is None else int(row[0])


def prepare(session: Session, address: Address) -> None:
    """Create the tables, or bring those of an older version up to date, unless another process is faster."""
    found = version_of(session, address)
    if found < len(STEPS):
        # Before the transaction: one that waits for the lock would not see the tables that another one creates.
        session.execute("SELECT pg_advisory_lock(%s)", [lock_of(address)])
        with session.transaction():
            found = version_of(session, address)
            if session.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [address.schema]).fetchone() is None:
                session.execute(f"CREATE SCHEMA {address.schema}")
            if found == 0:
                session.execute("CREATE TABLE meta (version integer NOT NULL)")
                session.execute("INSERT INTO meta VALUES (0)")
            for step in STEPS[found:]:
                session.execute(step, prepare=False)
            session.execute("UPDATE meta SET version = greatest(version, %s)", [len(STEPS)])
        session.execute("SELECT pg_advisory_unlock(%s)", [lock_of(address)])
    if found > len(STEPS):
        raise StorageError(
            f"{verbatim(address.shown)} has tables of version {found}, and this version of aru knows {len(STEPS)}",
            "Use the version of aru that wrote them.",
        )


@contextlib.contextmanager
def named_errors(address: Address) -> Iterator[None]:
    """Say what is wrong with a database, never with its password."""
    try:
        yield
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        for secret in address.secrets:
            reason = reason.replace(secret, "...")
        raise _named(address, error, reason) from None


def _named(address: Address, error: psycopg.Error, reason: str) -> StorageError:
    name, reason = verbatim(address.shown), verbatim(reason)
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return StorageError(f"{name} was busy for {BUSY} s with other writers", "Try again.")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return StorageError(
            f"{name} does not let this user in: {reason}",
            f"Grant it the rights on the schema {address.schema}, and CREATE on the database for the first use.",
        )
    if "authentication failed" in reason or "no password supplied" in reason:
        return StorageError(
            f"{name} refuses this user or password",
            "Correct the address, the variable PGPASSWORD or the file ~/.pgpass.",
        )
    if isinstance(error, psycopg.errors.InvalidCatalogName) or ("database" in reason and "does not exist" in reason):
        return StorageError(f"{name} does not exist", "Create the database: createdb.")
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is not None:
        return StorageError(f"{name} cannot do that now: {reason}", "Try again.")
    if isinstance(error, psycopg.OperationalError):
        return StorageError(
            f"{name} cannot be reached: {reason}", "Start the server or correct the address, and try again."
        )
    return StorageError(f"{name} cannot be used as a store: {reason}", "Give a database or a schema of its own.")
