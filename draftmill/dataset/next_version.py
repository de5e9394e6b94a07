"""Version N + 1: checked objects, one `create`, and what to do when another was faster.

The objects are there before; each is looked at again just before the manifest
is created, the last write. Whoever dies before it leaves version N as it was.
After any doubt (an answer that got lost; a second try that met its first) the
file itself says whose it is: `seal_id`. Who lost builds again on the winner.

Promises: of all writers of a version exactly one has it, and knows that. An
error leaves the newest version as it was, or, where the storage fell silent
behind the create, ours: complete, and the next run sees it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from draftmill.dataset.manifest import Manifest, newest, read_manifest
from draftmill.dataset.storage import ObjectRef, Outcome, Storage
from draftmill.dataset.stored import missing_object, not_as_listed
from draftmill.errors import DatasetError

ROUNDS = 16
"""Races lost before giving up; each means that another run has just sealed."""

DOUBTS = 3
"""Puts of one manifest whose answer got lost before giving up."""

LOOKS_AT_ONCE = 8
"""Objects looked at in parallel before the commit: they are small requests to one storage."""

Build = Callable[[Manifest | None], Manifest | None]
"""The parent in (None: there is no version yet), the next version out; None: it would be the same."""


def seal_next(storage: Storage, build: Build) -> Manifest | None:
    """Builds on the newest version until one of ours is created; that one, None when `build` has nothing to add.

    `build` may be called several times; its manifest's seal_id and sha256 are set here. Raises DatasetError.
    """
    parent, seal_id = newest(storage), uuid.uuid4().hex
    for _ in range(ROUNDS):
        built = build(parent)
        if built is None:
            return None
        manifest = built.model_copy(update={"seal_id": seal_id}).hashed()
        check_objects(storage, manifest)
        with storage.exclusive():
            ours = create_version(storage, manifest)
        if ours:
            return manifest
        parent = read_manifest(storage, manifest.version)
    raise DatasetError(
        "another run was faster at every try to seal",
        value=f"{ROUNDS} races lost",
        expected="few runs that seal at the same time",
        remedy="run again when the others are done: what was generated is kept",
    )


def check_objects(storage: Storage, manifest: Manifest) -> None:
    """Whether all objects are there, of the size they were written with. Raises DatasetError naming the first that is
    not."""
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        sizes = pool.map(lambda ref: _size(storage, ref), manifest.objects)
        for ref, size in zip(manifest.objects, sizes, strict=True):
            if size is None:
                raise missing_object(ref.path)
            if size != ref.bytes:
                raise not_as_listed(ref.path, f"{size} bytes", f"{ref.bytes} bytes")


def create_version(storage: Storage, manifest: Manifest) -> bool:
    """Create the manifest; whether the version is ours. What the file says outranks what the storage answered."""
    doubt: DatasetError | None = None
    for _ in range(DOUBTS):
        try:
            if storage.create(manifest.path, manifest.to_bytes()) is Outcome.CREATED:
                return True
        except DatasetError as error:
            doubt = error
        if storage.exists(manifest.path):
            return read_manifest(storage, manifest.version).seal_id == manifest.seal_id
    raise doubt or DatasetError(
        f"{manifest.path} cannot be created",
        value="it exists for a put and is missing for a read",
        expected="a storage that shows what was written",
        remedy="see to the storage, then run again",
    )


def _size(storage: Storage, ref: ObjectRef) -> int | None:
    try:
        return storage.size(ref.path)
    except FileNotFoundError:
        return None
