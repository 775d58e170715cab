"""The address of a database, and how to name it without its password. This needs no driver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple, TypeGuard
from urllib.parse import unquote

from aru.errors import ConfigError, verbatim

DATABASES = ("postgresql://", "postgres://")
OWN_SCHEMA = "aru"  # of the tables, unless the address names another
SHOWN_PARTS = ("host", "port", "user", "dbname")  # of the query, in messages
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class Address(NamedTuple):
    """Where the tables of a store are."""

    url: str  # for the driver
    schema: str  # in which the tables are
    shown: str  # for messages: without the password
    secrets: tuple[str, ...]  # which no message may hold


def is_database(store: object) -> TypeGuard[str]:
    """Whether this is the address of a database, not a file."""
    return isinstance(store, str) and store.startswith(DATABASES)


def read_address(url: str) -> Address:
    """`postgresql://user:password@host:port/database?schema=name` and what else libpq knows."""
    scheme, _, whole = url.partition("://")
    place, _, query = whole.partition("?")
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    schema = next((unquote(value) for name, value in pairs if name == "schema"), OWN_SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise ConfigError(
            f"{verbatim(schema)} cannot be the schema of a store", "Use small letters, digits and underscores."
        )
    login, at, where = place.rpartition("@")
    user, _, password = login.partition(":")
    rest = [(name, value) for name, value in pairs if name != "schema"]
    named = [(name, value) for name, value in rest if name in SHOWN_PARTS]
    named += [("schema", schema)] if schema != OWN_SCHEMA else []
    secrets = [value for name, value in rest if "password" in name] + [password]
    return Address(
        f"{scheme}://{place}{_query(rest)}",
        schema,
        f"postgresql://{user}{at}{where}{_query(named)}",
        tuple(text for value in secrets if value for text in (value, unquote(value))),
    )


def name_of(store: str | Path) -> str:
    """A path, or the address of a database without its password."""
    return read_address(store).shown if is_database(store) else str(store)


def beside(store: str | Path, name: str) -> str | Path:
    """The address of another store that belongs to this one: a file beside it, or a schema of the same database."""
    if not is_database(store):
        path = Path(store)
        return path.with_name(f"{path.name}.{name}")
    place, _, query = store.partition("?")
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    schema = f"{read_address(store).schema}__{name.replace('-', '_').lower()}"
    address = place + _query([*((key, value) for key, value in pairs if key != "schema"), ("schema", schema)])
    read_address(address)  # which refuses names that are too long
    return address


def _query(pairs: list[tuple[str, str]]) -> str:
    return "?" * bool(pairs) + "&".join(f"{name}={value}" for name, value in pairs)
