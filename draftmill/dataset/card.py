"""README.md, the dataset's card in the Hub's format: the folder can be pushed as it is.

`configs` in its front matter names exactly the newest manifest's shards, in
order, so that `datasets.load_dataset(folder)` reads the dataset and never what
merely lies in its folders. Of a card that a person has edited, `configs`,
`size_categories` where it stands, and the block between the two markers are
draftmill's; all else stays as it is.

Derived from a manifest and never read by draftmill: not hashed, made anew by
each seal, and it names no path of the machine, no server's address and no key.
"""

from __future__ import annotations

from typing import Any

import yaml

from draftmill.dataset.card_body import body, dataset_name
from draftmill.dataset.manifest import Manifest, manifest_path, newest
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError

CARD = "README.md"

BEGIN, END = "<!-- draftmill: begin, made by each seal -->", "<!-- draftmill: end -->"

ROUNDS = 8
"""Manifests sealed by others while a card is written, before its writing is left to them."""

FENCE = "---"

SIZES = {10**3: "1K", 10**4: "10K", 10**5: "100K", 10**6: "1M", 10**7: "10M", 10**8: "100M", 10**9: "1B", 10**12: "1T"}
"""The bounds of the Hub's size categories."""


def card_text(manifest: Manifest, previous: str = "") -> str:
    """The card of a manifest: new, or `previous` with draftmill's parts made anew.

    Raises DatasetError when the front matter of `previous` cannot be read.
    """
    if not previous.strip():
        name = dataset_name(manifest)
        return _joined(_new_fields(manifest), f"\n# {name}\n\n{_block(manifest)}\n")
    fields, text = _parted(previous)
    fields = {**(fields or _new_fields(manifest)), "configs": _configs(manifest)}
    if "size_categories" in fields:
        fields["size_categories"] = [_size_category(manifest)]
    return _joined(fields, _with_block(text, _block(manifest)))


def write_card(storage: Storage) -> None:
    """The card of the newest manifest, also when another is sealed meanwhile. Raises DatasetError."""
    for _ in range(ROUNDS):
        manifest = newest(storage)
        if manifest is None:
            return
        previous = read_card(storage)
        text = card_text(manifest, previous or "")
        if text != previous:
            storage.replace(CARD, text.encode())
        if not storage.exists(manifest_path(manifest.version + 1)):
            return


def read_card(storage: Storage) -> str | None:
    """The card as it lies there; None when there is none. Raises DatasetError when it is no text."""
    try:
        return storage.read(CARD).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _unreadable(str(error), "UTF-8 text") from None


def card_state(storage: Storage, manifest: Manifest) -> str:
    """`current`, `stale`, `missing` or `unreadable`, beside this manifest."""
    try:
        text = read_card(storage)
        if text is None:
            return "missing"
        return "current" if card_text(manifest, text) == text else "stale"
    except DatasetError:
        return "unreadable"


def _configs(manifest: Manifest) -> list[dict[str, Any]]:
    paths = [ref.path for ref in manifest.shards]
    return [{"config_name": "default", "data_files": [{"split": "train", "path": paths}]}] if paths else []


def _new_fields(manifest: Manifest) -> dict[str, Any]:
    return {
        "task_categories": ["text-generation"],
        "tags": ["draftmill", "speculative-decoding", "token-ids"],
        "size_categories": [_size_category(manifest)],
        "configs": _configs(manifest),
    }


def _size_category(manifest: Manifest) -> str:
    """The Hub's word for how many rows there are."""
    rows = sum(ref.rows for ref in manifest.shards)
    low = "1"
    for number, high in SIZES.items():
        if rows < number:
            return f"n<{high}" if low == "1" else f"{low}<n<{high}"
        low = high
    return f"n>{low}"


def _block(manifest: Manifest) -> str:
    return f"{BEGIN}\n{body(manifest)}\n{END}"


def _with_block(text: str, block: str) -> str:
    end = text.rfind(END)
    begin = text.rfind(BEGIN, 0, max(end, 0))
    if begin < 0:
        return f"{text.rstrip()}\n\n{block}\n"
    return text[:begin] + block + text[end + len(END) :]


def _joined(fields: dict[str, Any], text: str) -> str:
    # No line is folded: a name that is looked for stands in one piece.
    front = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=float("inf"))
    return f"{FENCE}\n{front}{FENCE}\n{text}"


def _parted(card: str) -> tuple[dict[str, Any], str]:
    """The front matter's fields and the text behind it."""
    card = card.removeprefix("\ufeff").replace("\r\n", "\n")
    if not card.startswith(f"{FENCE}\n"):
        return {}, f"\n{card}"
    front, fence, text = card[len(FENCE) + 1 :].partition(f"\n{FENCE}\n")
    try:
        fields = yaml.safe_load(front) if fence else None
    except yaml.YAMLError as error:
        raise _unreadable(" ".join(str(error).split()), "YAML between its two lines of ---") from None
    if not isinstance(fields, dict):
        raise _unreadable(f"{type(fields).__name__} between its lines of ---", "fields in YAML, then a line of ---")
    return fields, text


def _unreadable(value: str, expected: str) -> DatasetError:
    return DatasetError(
        f"{CARD} cannot be brought up to date",
        value=value,
        expected=expected,
        remedy=f"correct or remove {CARD}; the next seal makes it again, the dataset itself is sound",
    )
