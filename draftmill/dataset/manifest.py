"""The manifest: version N of a dataset, and the commit that makes it so.

JSON that people can read, with a hash over itself (the canonical JSON of all
other fields), so that an edit shows. `parent` chains the versions; no clock
orders anything. A file that is no JSON, has another hash or another version
than its name is refused by name, never repaired.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftmill.dataset.origin import DataRef as DataRef
from draftmill.dataset.origin import Made as Made
from draftmill.dataset.schema import FORMAT
from draftmill.dataset.statistics import Statistics
from draftmill.dataset.storage import ObjectRef as ObjectRef
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError
from draftmill.identity import digest

FOLDER = "manifests"

MAX_FAILED = 100
"""Failed rows a manifest names; the rest are in its counts."""

_MISSING = "name one that is there; one that was there once: restore the file from a copy"

_OTHER_FORMAT = (
    "the manifest is sound: do not remove it; use the draftmill that made it (its `provenance` says which), or begin a "
    "new dataset"
)

_DAMAGED = (
    "restore the file from a copy; without one, and only if it is the newest, move it away and run again: what the "
    "version before it lacks comes back from completions/ or is asked anew"
)


class Parent(BaseModel):
    """The manifest this one was built on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int
    sha256: str


class Manifest(BaseModel):
    """What a dataset contains, and how it came about.

    `shards` and `quarantine` say of each row which version brought it (`origin`).
    `consumed`: parts in completions/ whose rows have all been sealed, in this
    manifest or an earlier one; they may be removed, and as long as they are there
    the plan can bring their rows back. `judged_alike`: whether `recipe` and
    `structures` have the rules that all rows were judged by; not so where a run
    sealed on top of another's rows that had other rules. `counts` always has good_rows and
    quarantined_rows. `structures`, `identity`: by variant, also of variants that
    only older rows have. `statistics`: of the rows that came with this manifest, or
    the parent's when none did. `failed`: rows without a completion (row_key,
    prompt_id, source, detail).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    version: int = Field(ge=1)
    parent: Parent | None
    seal_id: str
    created_at: datetime
    shards: list[DataRef]
    quarantine: list[DataRef]
    rejected: list[ObjectRef]
    consumed: list[str]
    recipe: dict[str, Any]
    identity: dict[str, Any]
    structures: dict[str, dict[str, Any]]
    judged_alike: bool = True
    provenance: dict[str, Any]
    counts: dict[str, Any]
    statistics: Statistics | None = None
    failed: list[dict[str, Any]] = Field(max_length=MAX_FAILED)
    sha256: str = ""

    @property
    def path(self) -> str:
        return manifest_path(self.version)

    @property
    def objects(self) -> list[ObjectRef]:
        """All objects it lists: shards, quarantine, rejected."""
        return [*self.shards, *self.quarantine, *self.rejected]

    def hashed(self) -> Manifest:
        """The same manifest with its own hash."""
        return self.model_copy(update={"sha256": _self_hash(self.model_dump(mode="json"))})

    def to_bytes(self) -> bytes:
        """The file's content."""
        return (json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=1) + "\n").encode()


def manifest_path(version: int) -> str:
    """Where version N lies."""
    return f"{FOLDER}/{version:08d}.json"


def versions(storage: Storage) -> list[int]:
    """The versions there are, ascending; files of other names are not manifests.

    A listing may be older than the last seal, or even empty: what is beyond it is looked for by name, one look for
    each version that it lacks and one for the version that does not exist.
    """
    names = (re.fullmatch(rf"{FOLDER}/(\d{{8}})\.json", path) for path in storage.list(FOLDER))
    found = sorted(int(match[1]) for match in names if match)
    while storage.exists(manifest_path(beyond := found[-1] + 1 if found else 1)):
        found.append(beyond)
    return found


def newest(storage: Storage) -> Manifest | None:
    """The newest manifest, None for a dataset that has none yet. Raises DatasetError when it is damaged.

    Never older than what was sealed before the call.
    """
    known = versions(storage)
    return read_manifest(storage, known[-1]) if known else None


def servers_of(manifest: Manifest | None) -> list[dict[str, Any]] | None:
    """The reports of the servers a manifest was made with; None without a manifest."""
    return None if manifest is None else list(manifest.provenance.get("servers") or ())


def read_manifest(storage: Storage, version: int) -> Manifest:
    """Version N, checked against its hash and name. Raises DatasetError naming the file."""
    return read_with_text(storage, version)[0]


def read_with_text(storage: Storage, version: int) -> tuple[Manifest, bytes]:
    """The same, and the file as it lies there."""
    path = manifest_path(version)
    try:
        text = storage.read(path)
        data = json.loads(text)
        hash_found = _self_hash(data)
    except FileNotFoundError:
        known = ", ".join(str(v) for v in versions(storage)[-10:]) or "none"
        raise _refused(path, "there is no such manifest", f"version {version}", f"one of: {known}", _MISSING) from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, no stable JSON
        raise _damaged(path, "not JSON", error, "the manifest as it was sealed") from None
    if not isinstance(data, dict) or data.get("sha256") != hash_found:
        raise _damaged(path, "changed after it was sealed", f"content of SHA-256 {hash_found}", "its sha256 field")
    if data.get("format") != FORMAT:
        raise _refused(path, "of another format", data.get("format"), f"format {FORMAT}", _OTHER_FORMAT)
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        value = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise _damaged(path, "not a manifest", value, "the manifest as it was sealed") from None
    if manifest.version != version:
        raise _damaged(path, "another version than its name says", manifest.version, f"version {version}")
    return manifest, text


def _self_hash(data: Any) -> str:
    return digest({key: value for key, value in data.items() if key != "sha256"} if isinstance(data, dict) else data)


def _damaged(path: str, how: str, value: object, expected: str) -> DatasetError:
    return _refused(path, how, value, expected, _DAMAGED)


def _refused(path: str, how: str, value: object, expected: str, remedy: str) -> DatasetError:
    return DatasetError(f"{path}: {how}", value=value, expected=expected, remedy=remedy)
