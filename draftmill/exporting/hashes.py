"""Choices that come out the same every time: by a hash of what is chosen, never by a random generator's state."""

from __future__ import annotations

import hashlib

HASH_BYTES = 16
"""Bytes of an order: a million rows under one seed never share one."""


def order_of(*parts: object) -> bytes:
    """Where something stands in a shuffled order."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:HASH_BYTES]


def share_of(*parts: object) -> float:
    """A number in [0, 1), evenly spread over what is hashed."""
    return int.from_bytes(order_of(*parts)[:7], "big") / 2**56
