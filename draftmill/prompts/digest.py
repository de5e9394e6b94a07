"""Whether a source is what it was: the digest that decides if it must be loaded again.

Local files are hashed: their times are too coarse to trust. Objects behind a
URL are known by what the store says of them (a strong ETag, size and time),
so that a night does not fetch everything twice; where it gives no ETag, their
bytes are read. Equal digest, equal prompts; another digest costs one loading.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

from draftmill import identity
from draftmill.prompts.files import find_files
from draftmill.prompts.opening import UNREADABLE, file_system, open_raw, shown
from draftmill.recipe import Prompts

READ_BYTES = 2**20
"""Bytes hashed at a time."""

LANES = 8
"""Files asked about side by side: a store answers in some 20 ms, and a source may have a thousand parts."""


def source_digest(prompts: Prompts) -> str:
    """Hex SHA-256 of the files' names and content and of the recipe's prompt keys.

    Raises what `find_files` raises, and SourceError for a file that cannot be read.
    """
    files = find_files(prompts)
    with ThreadPoolExecutor(LANES) as lanes:
        # Of what is only named, the name is all that matters.
        prints = list(lanes.map(lambda file: ["beside"] if file.beside else _fingerprint(file.path), files))
    named = [[shown(file.path), file.format, each] for file, each in zip(files, prints, strict=True)]
    keys = prompts.model_dump(mode="json", exclude={"path"})
    return identity.digest({"files": named, "prompts": keys})


def _fingerprint(path: str) -> list[str]:
    return _said_by_the_store(path) or [_bytes_digest(path)]


def _said_by_the_store(path: str) -> list[str] | None:
    if "://" not in path or path.startswith("file://"):
        return None
    try:
        fs, inside = file_system(path)
        info = fs.info(inside)
    except (*UNREADABLE, ValueError):
        return None  # reading it says what is wrong, in words
    tag = info.get("ETag") or info.get("etag")
    if not isinstance(tag, str) or tag.startswith("W/"):
        return None
    # The time too: what was put back may have been read in between, and costs only another loading.
    return [tag, str(info.get("size")), str(info.get("LastModified"))]


def _bytes_digest(path: str) -> str:
    sha = hashlib.sha256()
    with open_raw(path) as raw:
        while block := raw.read(READ_BYTES):
            sha.update(block)
    return sha.hexdigest()
