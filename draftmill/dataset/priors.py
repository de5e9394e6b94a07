"""Ids so far: where rows that are asked on find the output ids to go on from.

A row cut by length may lie in a shard, in quarantine or, generated and not
sealed yet, in a part; the plan names the object and the attempt. Ids that
cannot be had are no error: the row is then asked from the start. From a part
only an answer is taken that is certainly the row's own (`continuing.is_cut`):
nothing has judged it yet.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from draftmill.arrays import Ids, ids_array
from draftmill.dataset import completions
from draftmill.dataset.journal import Key
from draftmill.dataset.schema import table_completions
from draftmill.dataset.storage import Storage
from draftmill.generation.continuing import is_cut

PRIORS = pa.schema(
    [
        ("row_key", pa.string()),
        ("attempt", pa.int32()),  # as it is asked now
        ("prior_attempt", pa.int32()),
        ("prior", pa.string()),  # the object that has it
    ]
)


def read_priors(storage: Storage, priors: pa.Table) -> dict[Key, Ids]:
    """The output ids so far of a PRIORS table's rows, by (row_key, attempt), as far as they can be had."""
    wanted: dict[str, dict[Key, Key]] = defaultdict(dict)
    for row in priors.to_pylist():
        wanted[row["prior"]][row["row_key"], row["prior_attempt"]] = row["row_key"], row["attempt"]
    found: dict[Key, Ids] = {}
    for path, keys in sorted(wanted.items()):
        read = _of_part if path.startswith(f"{completions.FOLDER}/") else _of_stored
        try:
            ids_by_key = read(storage, path, keys)
        except FileNotFoundError:
            continue
        found |= {keys[prior]: ids for prior, ids in ids_by_key.items()}
    return found


def _of_part(storage: Storage, path: str, keys: dict[Key, Key]) -> dict[Key, Ids]:
    made = table_completions(_rows(storage, path, keys, None))
    return {completion.row.key: completion.answer.output_ids for completion in made if is_cut(completion)}


def _of_stored(storage: Storage, path: str, keys: dict[Key, Key]) -> dict[Key, Ids]:
    table = _rows(storage, path, keys, ["row_key", "attempt", "input_ids", "prompt_len"])
    return {
        (row_key, attempt): ids_array("input_ids", input_ids.values.to_numpy()[prompt_len:])
        for row_key, attempt, input_ids, prompt_len in zip(
            table["row_key"].to_pylist(),
            table["attempt"].to_pylist(),
            table["input_ids"],
            table["prompt_len"].to_pylist(),
            strict=True,
        )
    }


def _rows(storage: Storage, path: str, keys: dict[Key, Key], columns: list[str] | None) -> pa.Table:
    """The object's rows of these requests."""
    table = storage.read_table(path, columns)
    requests = zip(table["row_key"].to_pylist(), table["attempt"].to_pylist(), strict=True)
    return table.filter(pa.array([request in keys for request in requests], pa.bool_()))
