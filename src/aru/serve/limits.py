"""How much clients may send: bytes of bodies, one and all together."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.requests import Request

from aru.serve.batching import Busy
from aru.serve.incoming import TooLarge

DIGITS = 18  # of a number of bytes
BODIES = 8  # times the bytes of the largest body that all bodies may have that are worked on at a time
MODEL_BYTES = 2**29  # of the archive of a model


class Bodies:
    """Reads the bodies of requests. Neither starlette nor uvicorn limits their size.

    Args:
        most: Bytes of a body; more are refused.
        at_once: Of all bodies until they are answered: so many times that.
    """

    def __init__(self, most: int, at_once: int = BODIES) -> None:
        self._most, self._all, self._held = most, at_once * most, 0

    @contextlib.asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytes]:
        """The body of a request, which counts until the end of the context."""
        held = 0
        try:
            length = request.headers.get("content-length", "0")
            if not length.isdecimal() or len(length) > DIGITS or int(length) > self._most:
                raise self._too_large()
            body = bytearray()  # a list of parts would be larger, if they are small
            async for part in request.stream():
                body += part
                held += len(part)
                self._held += len(part)
                if held > self._most:
                    raise self._too_large()
                if self._held > self._all:
                    raise Busy
            whole = bytes(body)
            del body
            yield whole
        finally:
            self._held -= held

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self._most:,} bytes: send it in parts.")
