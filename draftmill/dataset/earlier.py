"""The structures that a dataset's rows were first sealed with: what judges rows of an older template."""

from __future__ import annotations

import contextlib

from draftmill.dataset.manifest import Manifest, read_manifest
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError
from draftmill.judging.structure import Structure, structures_from_json


def earlier_structures(storage: Storage, manifest: Manifest) -> list[dict[str, Structure]]:
    """By variant, of each version that brought rows of this manifest, newest first.

    A version whose manifest is gone or damaged is left out: `verify` names it.
    """
    origins = {made.manifest for ref in (*manifest.shards, *manifest.quarantine) for made in ref.made}
    found = [manifest.structures]
    for version in sorted(origins - {manifest.version}, reverse=True):
        with contextlib.suppress(DatasetError):
            found.append(read_manifest(storage, version).structures)
    return [structures_from_json(structures) for structures in found]
