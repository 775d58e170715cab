"""Settings of a service, checked once."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from typing import Literal

from aru.errors import ConfigError, quoted, verbatim

MANY_LEVELS = 20  # prediction intervals that one request may ask for
LONGEST = 500  # characters of an id or a time
TokenScope = Literal["read", "write", "admin"]
SCOPES: tuple[TokenScope, ...] = ("read", "write", "admin")  # each allows what those before it do


@dataclasses.dataclass(frozen=True)
class Options:
    """Address, access and limits of a service.

    Args:
        host: Address to listen on. Without tokens only addresses of this machine are allowed.
        port: Port; 0 takes a free one.
        tokens: Tokens, one of which clients must send as `Authorization: Bearer ...`, and what each allows. Without
            any, all clients may do everything.
        max_rows: Most rows of a request, of a forecast, and of a batch of requests.
        max_bytes: Most bytes of a request's body.
        monitor: Whether to keep recent history and accuracy of every series.
        max_connections: Most connections at a time.
        max_header_bytes: Most bytes of a request's first line and headers.
        idle_seconds: Longest pause while a client sends a request or takes an answer.
        request_seconds: Longest time for a client to send a request, or to take an answer.
        json_log: Whether lines of the log are JSON.
        workers: Processes that share the port. Several need states in a database.
        keep: For how many seconds rows are kept, for models that come later; 0: not at all; None: as in the store.
        accelerator: Where models that are brought in compute.
        scratch: Folder of monitors where states are in a database; None: each process has files of its own, which are
            deleted in the end.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: Mapping[str, TokenScope] = dataclasses.field(default_factory=dict)
    max_rows: int = 100_000
    max_bytes: int = 32 * 2**20
    monitor: bool = True
    max_connections: int = 512
    max_header_bytes: int = 2**14
    idle_seconds: float = 10.0
    request_seconds: float = 60.0
    json_log: bool = False
    workers: int = 1
    keep: float | None = None
    accelerator: str = "auto"
    scratch: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes", "max_connections", "max_header_bytes", "workers"):
            value = getattr(self, name)
            if isinstance(value, bool) or value < 1:
                raise ConfigError(f"`{name}` must be a whole number of at least 1, got {quoted(value)}")
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"`port` must lie between 0 and 65535, got {self.port}")
        for token in self.tokens:
            if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
                raise ConfigError(
                    "A token has at least 16 characters, all of them plain ASCII and no blanks", "Choose another one."
                )
        if self.keep is not None and not 0 <= self.keep < float("inf"):
            raise ConfigError(f"`keep` must be a time of 0 or more, got {quoted(self.keep)}")
        if not self.tokens and not is_local(self.host):
            raise ConfigError(
                f"{verbatim(self.host)} can be reached by other machines",
                "Give a token (--token-file or ARU_TOKEN), or listen on 127.0.0.1.",
            )


def is_local(host: str) -> bool:
    """Whether a name or address means this machine and nobody else's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
