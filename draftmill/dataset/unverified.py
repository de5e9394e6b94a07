"""What nothing vouches for: the files of a dataset that no manifest hashes, counted by what they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from draftmill.dataset import completions, verdicts
from draftmill.dataset.card import CARD
from draftmill.dataset.create_only import LOCK, PROBE
from draftmill.dataset.manifest import FOLDER
from draftmill.dataset.storage import Storage
from draftmill.dataset.verify_chain import line
from draftmill.errors import DatasetError

KINDS = {
    CARD: "the card, made anew by each seal",
    "reports": "reports, made of what is verified",
    completions.FOLDER: "working objects: completions as they came in",
    "prompts": "working objects: prompts",
    verdicts.FOLDER: "working objects: verdicts",
    "shards": "objects that no manifest lists",
    "quarantine": "objects that no manifest lists",
    "rejected": "objects that no manifest lists",
    FOLDER: "files that are no manifest",
}
"""By the first part of a path."""

MARKS = {PROBE: "the mark of a storage that lets one writer win", LOCK: "the lock of a commit under way"}
"""By the whole path."""

HIDDEN = "hidden files: unfinished writes, or another program's"


def unverified(storage: Storage, verified: Collection[str]) -> list[str]:
    """A line for each kind of file that is there and not among `verified`."""
    try:
        entries = storage.entries("", hidden=True)
    except DatasetError as error:
        return [f"files that no manifest lists: {line(error)}"]
    counts = Counter(_kind(entry.path) for entry in entries if entry.path not in verified)
    return [f"{place}: {number:,} {what}" for (place, what), number in sorted(counts.items())]


def _kind(path: str) -> tuple[str, str]:
    place = path.split("/")[0]
    if path in MARKS:
        return path, MARKS[path]
    if any(part.startswith(".") for part in path.split("/")):
        return "hidden", HIDDEN
    return (place if place == path else f"{place}/", KINDS.get(place, "not draftmill's"))
