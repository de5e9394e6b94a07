"""Answers so far: where rows that are asked on find the ids to go on from.

A row cut by length may lie in a shard, in quarantine or, generated and not
sealed yet, in a part; the plan names the object and the attempt. One that
cannot be had is no error: the row is then asked from the start. From a part
only an answer is taken that is certainly the row's own (`continuing.is_cut`):
nothing has judged it yet. Of a sealed one the server's counts are not stored.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from draftmill.arrays import ids_array
from draftmill.dataset import completions
from draftmill.dataset.journal import Key
from draftmill.dataset.schema import table_completions
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import requested_rows
from draftmill.generation.continuing import is_cut
from draftmill.records import Answer

PRIORS = pa.schema(
    [
        ("row_key", pa.string()),
        ("attempt", pa.int32()),  # as it is asked now
        ("prior_attempt", pa.int32()),
        ("prior", pa.string()),  # the object that has it
    ]
)

STORED = ["row_key", "attempt", "input_ids", "prompt_len", "finish_reason", "engine", "weight_version", "created_at"]
"""The columns of a shard or of quarantine that make an answer."""


def read_priors(storage: Storage, priors: pa.Table) -> dict[Key, Answer]:
    """The answers so far of a PRIORS table's rows, by (row_key, attempt), as far as they can be had."""
    wanted: dict[str, dict[Key, Key]] = defaultdict(dict)
    for row in priors.to_pylist():
        wanted[row["prior"]][row["row_key"], row["prior_attempt"]] = row["row_key"], row["attempt"]
    found: dict[Key, Answer] = {}
    for path, keys in sorted(wanted.items()):
        read = _of_part if path.startswith(f"{completions.FOLDER}/") else _of_stored
        try:
            answers = read(storage, path, keys)
        except FileNotFoundError:
            continue
        found |= {keys[prior]: answer for prior, answer in answers.items()}
    return found


def _of_part(storage: Storage, path: str, keys: dict[Key, Key]) -> dict[Key, Answer]:
    made = table_completions(requested_rows(storage, path, keys))
    return {completion.row.key: completion.answer for completion in made if is_cut(completion)}


def _of_stored(storage: Storage, path: str, keys: dict[Key, Key]) -> dict[Key, Answer]:
    table = requested_rows(storage, path, keys, STORED)
    rows = table.drop_columns(["input_ids"]).to_pylist()
    return {
        (row["row_key"], row["attempt"]): Answer(
            output_ids=ids_array("input_ids", input_ids.values.to_numpy()[row["prompt_len"] :]),
            echo_ids=None,
            prompt_tokens=None,
            completion_tokens=None,
            finish_type=row["finish_reason"],
            finish_length=None,
            matched=None,
            engine=row["engine"],
            weight_version=row["weight_version"],
            created_at=row["created_at"],
        )
        for row, input_ids in zip(rows, table["input_ids"], strict=True)
    }
