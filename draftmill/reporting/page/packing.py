"""How data lies in the page: as JSON that no text inside can break out of, or as gzip in base64.

A block that is packed costs about a fifth of its JSON and nothing until the
browser unpacks it. Everything comes out in ASCII, so that no encoding a page is
served with, and no lone surrogate in a row's text, can damage it.
"""

from __future__ import annotations

import base64
import gzip
import json

ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
"""Of the characters that mean something to HTML; inside JSON's strings these say the same."""


def embedded(value: object) -> str:
    """JSON for a `<script type="application/json">`: without `</script>` and `<!--`. Raises ValueError: not finite."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(ESCAPES)


def pack(value: object) -> str:
    """JSON, compressed, in base64: the same value gives the same text. Raises ValueError: a number is not finite."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("ascii"), mtime=0)).decode("ascii")


def unpack(packed: str) -> object:
    """What was packed."""
    value: object = json.loads(gzip.decompress(base64.b64decode(packed)))
    return value
