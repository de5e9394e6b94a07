"""Sealed turns that later turns are asked on top of, read from the shards they lie in."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa

from draftmill.arrays import ids_array
from draftmill.dataset.journal import Key
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import requested_rows
from draftmill.records import Said, Span

COLUMNS = ["row_key", "attempt", "input_ids", "spans"]
"""The columns of a shard that make a generated turn."""


def read_ancestors(storage: Storage, table: pa.Table) -> dict[str, Said]:
    """The turns of an ANCESTORS table by row_key, as far as their objects are still there."""
    wanted: dict[str, set[Key]] = defaultdict(set)
    for row in table.to_pylist():
        wanted[row["object"]].add((row["row_key"], row["attempt"]))
    found: dict[str, Said] = {}
    for path, keys in sorted(wanted.items()):
        try:
            rows = requested_rows(storage, path, keys, COLUMNS)
        except FileNotFoundError:
            continue
        for key, ids, spans in zip(
            rows["row_key"].to_pylist(), rows["input_ids"], rows["spans"].to_pylist(), strict=True
        ):
            found[key] = _said(ids, [Span(**span) for span in spans])
    return found


def _said(input_ids: pa.ListScalar, spans: list[Span]) -> Said:
    ids, last = input_ids.values.to_numpy(), spans[-1]
    prompt_ids, output_ids = ids_array("prompt_ids", ids[: last.start]), ids_array("output_ids", ids[last.start :])
    return Said(prompt_ids, tuple(spans[:-1]), output_ids, last)
