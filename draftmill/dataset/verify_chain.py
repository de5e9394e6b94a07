"""Every manifest of a dataset: each byte of it, and that each was built on the one before.

A manifest's hash is over its content, not over its text, so the text is
compared with what writing the content gives: a space that became a tab is a
change, too. A damaged version hides no other: all are read, newest first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from draftmill.dataset.manifest import FOLDER, Manifest, manifest_path, read_with_text, versions
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError

Say = Callable[[str, str], None]
"""Takes a file and what is wrong with it."""


def manifests(storage: Storage, say: Say) -> Iterator[Manifest | None]:
    """The versions from the newest to the first, None for one that is damaged; none at all when there is none.

    One at a time, since each lists all objects; its faults are said before it is given.
    """
    try:
        known = versions(storage)
    except DatasetError as error:  # the listing itself
        say(f"{FOLDER}/", line(error))
        return
    if not known:
        say(f"{FOLDER}/", "there is no manifest")
    child: Manifest | None = None
    for version in range(known[-1] if known else 0, 0, -1):
        manifest = _sound(storage, version, say)
        if child is not None:
            _built_on(child, manifest, say)
        if version == 1 and manifest is not None:
            _built_on(manifest, None, say)
        yield manifest
        child = manifest


def line(error: DatasetError) -> str:
    """An error as a fault's words."""
    return f"{error.what} (got {error.value}, expected {error.expected})"


def _sound(storage: Storage, version: int, say: Say) -> Manifest | None:
    path = manifest_path(version)
    try:
        manifest, text = read_with_text(storage, version)
    except DatasetError as error:
        say(path, line(error))
        return None
    if (json.dumps(json.loads(text), ensure_ascii=False, indent=1) + "\n").encode() != text:
        say(path, "changed after it was sealed: its content is what it was, its text is not")
    return manifest


def _built_on(child: Manifest, parent: Manifest | None, say: Say) -> None:
    if child.parent is None:
        if child.version != 1:
            say(child.path, "has no parent, and is not version 1")
    elif child.parent.version != child.version - 1:
        say(child.path, f"its parent is version {child.parent.version}, not {child.version - 1}")
    elif parent is not None and parent.sha256 != child.parent.sha256:
        say(parent.path, f"not the manifest that version {child.version} was built on")
