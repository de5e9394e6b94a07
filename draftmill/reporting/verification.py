"""`draftmill verify`: the dataset's own checks, and every good row judged again by its manifest's structure.

Rows that wait under an older template are judged by that template's (`judging.eras`).
"""

from __future__ import annotations

import pyarrow as pa

from draftmill.dataset.earlier import earlier_structures
from draftmill.dataset.manifest import Manifest, newest
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.verify import Judge, Verification, verify
from draftmill.errors import DatasetError
from draftmill.judging.eras import eras
from draftmill.judging.judged import Rules, judged_table
from draftmill.judging.structure import structures_from_json

NO_STRUCTURE = "of a variant that the manifest has no structure of"
"""Said of a row that nothing can judge: its manifest is not whole."""


def verify_dataset(url: str) -> Verification:
    """Reads everything the newest manifest lists."""
    storage = open_storage(url)
    storage.check()
    try:
        manifest = newest(storage)
    except DatasetError:
        manifest = None  # `verify` names the damage; without a manifest there is no structure to judge by
    return verify(storage, judge=_judge_by(storage, manifest) if manifest else None)


def _judge_by(storage: Storage, manifest: Manifest) -> Judge:
    known = eras(structures_from_json(manifest.structures), earlier_structures(storage, manifest))
    rules = Rules(manifest.recipe["on_truncated"], manifest.recipe["degenerate"])

    def reasons(table: pa.Table) -> list[str | None]:
        verdicts = judged_table(known.named(table), known.structures, rules).verdicts
        return [NO_STRUCTURE if v is None else v.reason and str(v.reason) for v in verdicts]

    return reasons
