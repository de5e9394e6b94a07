"""Why no connection came about, in words for people: the system's, not a library's."""

from __future__ import annotations

import os

import aiohttp

_TLS = (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError)


def no_connection(error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError) -> str:
    """For example "no connection: Connection refused"."""
    if isinstance(error, _TLS):  # their numbers are TLS's own, not the system's
        return f"no connection: {' '.join(str(error).split())}"
    known = error.os_error.errno
    # Negative and missing numbers are the resolver's, whose own words are good.
    words = os.strerror(known) if known is not None and known > 0 else str(error.os_error)
    return f"no connection: {' '.join(words.split())}"
