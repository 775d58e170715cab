"""Which requests were consumed, so that one that is sent again is recognised.

A request is known by a digest of what was sent. A store keeps digests in the transaction that applies the rows of the
request: in BUCKETS records, each with the latest SLOTS digests that fall into it. So a lookup reads one record, and a
SQLite file grows by 20 MiB at most. A digest is forgotten when SLOTS later ones have fallen into its bucket: of the
latest 400,000 requests all but one in ten thousand are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from aru.store.contract import Key, Transaction

BUCKETS = 2**16
SLOTS = 16
DIGEST_BYTES = 16


class Receipt(NamedTuple):
    """A request: its digest, and the series that it is about."""

    digest: bytes
    ids: Collection[Key]


def digest_of(*parts: bytes) -> bytes:
    """The digest of a request: of what it says, part by part."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.digest()[:DIGEST_BYTES]


def consumed(view: Transaction, digests: Sequence[bytes]) -> list[bool]:
    """Which of these requests were consumed."""
    buckets = _buckets(view, digests)
    return [digest in buckets[_bucket(digest)] for digest in digests]


def remember(change: Transaction, digests: Sequence[bytes]) -> None:
    """Remember that these requests were consumed."""
    buckets = _buckets(change, digests)
    for digest in digests:
        kept = buckets[_bucket(digest)]
        buckets[_bucket(digest)] = [digest, *(other for other in kept if other != digest)][:SLOTS]
    change.put(list(buckets), [b"".join(kept) for kept in buckets.values()], "request")


def _buckets(view: Transaction, digests: Iterable[bytes]) -> dict[int, list[bytes]]:
    numbers = sorted(set(map(_bucket, digests)))
    return {n: _split(record or b"") for n, record in zip(numbers, view.get(numbers, "request"), strict=True)}


def _bucket(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "little") % BUCKETS


def _split(record: bytes) -> list[bytes]:
    return [record[at : at + DIGEST_BYTES] for at in range(0, len(record), DIGEST_BYTES)]
