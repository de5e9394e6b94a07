"""Which rows are audited, and what of each: named ones, or so many evenly by key.

Keys are hashes, so that evenly by key is a fair sample of the dataset, and the same one on every call. One object's
rows are in memory at a time; those chosen stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from draftmill.arrays import Ids
from draftmill.audit.verdict import Asked
from draftmill.dataset.manifest import Manifest
from draftmill.dataset.schema import column_ids
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import object_keys, sound_table
from draftmill.errors import RecipeError

COLUMNS = ["row_key", "prompt_id", "variant", "input_ids", "prompt_len", "spans"]

SHORTEST_KEY = 4
"""Characters of a row key's beginning that name a row, as `draftmill show` takes them."""


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A stored row to audit. `spans`: as the column of that name."""

    row_key: str
    prompt_id: str
    variant: str
    ids_T: Ids
    spans: list[dict[str, int]]

    @property
    def start(self) -> int:
        """Of the first generated id."""
        return self.spans[0]["start"]

    def asked(self, longest: int | None) -> Asked:
        """What of it is scored; `longest`: ids that the server takes at most, None when it does not say."""
        places = [place for span in self.spans for place in range(span["start"], span["end"])]
        scored = [place for place in places if longest is None or place < longest]
        return Asked(self.row_key, self.prompt_id, self.variant, scored, len(places) - len(scored))


def chosen_rows(storage: Storage, manifest: Manifest, *, rows: int, named: Sequence[str] = ()) -> list[Chosen]:
    """`named`: beginnings of row keys; without them `rows` good rows evenly by key, or all. Sorted by key.

    Raises RecipeError for a name that fits none or several rows; DatasetError.
    """
    keys = object_keys(storage, manifest.shards, good=True, columns=["row_key", "object"])
    known = sorted(keys["row_key"].to_pylist())
    wanted = pa.array(_named(known, named) if named else evenly(known, rows), pa.string())
    chosen = keys.filter(pc.is_in(keys["row_key"], value_set=wanted))
    paths = set(chosen["object"].cast(pa.string()).to_pylist())
    found: list[Chosen] = []
    for ref in manifest.shards:
        if ref.path in paths:
            table = sound_table(storage, ref).select(COLUMNS)
            found += _rows(table.filter(pc.is_in(table["row_key"], value_set=wanted)))
    return sorted(found, key=lambda row: row.row_key)


def evenly(keys: Sequence[str], number: int) -> list[str]:
    """That many of the sorted keys, as far apart as can be; all of them when there are no more."""
    if number >= len(keys):
        return list(keys)
    return [keys[(2 * place + 1) * len(keys) // (2 * number)] for place in range(number)]


def _named(known: Sequence[str], named: Sequence[str]) -> list[str]:
    found = []
    for name in named:
        fits = [key for key in known if len(name) >= SHORTEST_KEY and key.startswith(name)]
        if len(fits) != 1:
            raise RecipeError(
                "no such good row" if not fits else f"{len(fits)} rows fit",
                value=name,
                expected=f"the beginning of one good row's key, of at least {SHORTEST_KEY} characters",
                remedy="give more of the key; quarantined rows are not audited",
            )
        found += fits
    return found


def _rows(table: pa.Table) -> list[Chosen]:
    rest = table.drop_columns(["input_ids"]).to_pylist()
    ids = [np.array(row, np.int32) for row in column_ids(table["input_ids"]) if row is not None]
    return [
        Chosen(row["row_key"], row["prompt_id"], row["variant"], ids_T, row["spans"])
        for row, ids_T in zip(rest, ids, strict=True)
    ]
