"""A run's plan as objects: chunk by chunk the rows to generate, and the rejected rows.

The keys of all rows are read column-wise; ids only slice by slice, while their
chunks are written: in memory are one slice and one chunk's own rows, however
thinly the missing rows are spread. A chunk's object holds exactly its rows (with attempt and
budget), so its hash is the same in every run that misses the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset.duplicates import duplicate_rejections
from draftmill.dataset.known import read_known
from draftmill.dataset.manifest import newest
from draftmill.dataset.plan import SUCCESSION, chunks, make_plan, rows_of_a_chunk
from draftmill.dataset.plan_turns import ancestors, earlier_turns, newest_good, parts_of, roots
from draftmill.dataset.priors import PRIORS
from draftmill.dataset.schema import REJECTED, ROW
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import REQUESTS
from draftmill.generation.continuing import slice_of
from draftmill.recipe import Recipe
from draftmill.records import HistoryMode, Reason

NUMBERS = ("kept", "held", "carried", "spared", "superseded", "resumed", "to_ask")
"""What the JSON has of a Plan as it is."""


def plan_run(
    storage: Storage, recipe: Recipe, *, rows: Sequence[str], rejected: Sequence[str], again: frozenset[str]
) -> dict[str, Any]:
    """The plan of a run as JSON: its numbers, its chunks, its rejected rows.

    `rows`, `rejected`: paths of the rendered slices' ROW tables and of REJECTED
    tables. `{chunks: [{number, total, rows: reference, num_rows, resumed, parts, priors, ancestors, turns}],
    rejected: reference or None, num_rejected, rejected_reasons, dropped, succession: reference or None, manifest,
    slices, planned, kept, held, held_reasons, carried, spared, superseded, removed: {kept, dropped}, resumed, to_ask,
    kinds, to_send}`. `priors`, `ancestors`, `dropped`, `succession`: references to a PRIORS, an ANCESTORS, a REQUESTS,
    a SUCCESSION table. `turns`: whether rows of it are of conversations with several turns. `slices`: `rows`.
    `removed`: good rows whose prompt is gone; `spared`: those whose prompt is there, rejected or with fewer samples.
    `kinds`: the missing rows by `plan.Kind`. `to_send`: requests, where a row may have several turns to ask.
    """
    manifest = newest(storage)
    known = read_known(storage, manifest, rows)
    planned, stored, generated = known.planned, known.stored, known.generated
    refused = pa.concat_tables([REJECTED.empty_table(), *(storage.read_table(path) for path in rejected)])
    plan = make_plan(
        planned,
        stored,
        generated,
        removed=recipe.removed,
        again=again,
        continuing=slice_of(recipe) is not None,
        rejected=pc.list_flatten(refused["prompt_keys"]).combine_chunks(),
    )
    rejections = pa.concat_tables([refused, duplicate_rejections(storage, rows, plan.duplicates)])
    chunk_rows = rows_of_a_chunk(plan.missing.num_rows, recipe.chunk_rows)
    parts = chunks(plan.missing, chunk_rows, roots(planned))
    turns = _Turns(planned, plan.missing, stored, generated)
    reasons = _rows_by_reason(rejections, recipe.sampling.samples)
    num_rejected = sum(reasons.values())
    return {
        "chunks": [
            {
                "number": number,
                "total": len(parts),
                "rows": storage.put_table("prompts", table).model_dump(),
                "num_rows": table.num_rows,
                "resumed": int(np.sum(part["resumed"].to_numpy())),
                "parts": sorted({*part["part"].drop_null().unique().to_pylist(), *turns.parts(part)}),
                "priors": _priors(storage, table, part),
                "ancestors": turns.ancestors(storage, part),
                "turns": table["history"].null_count < table.num_rows,
            }
            for number, (part, table) in enumerate(
                zip(parts, _with_ids(storage, rows, known.num_rows, parts), strict=True), 1
            )
        ],
        "rejected": storage.put_table("rejected", rejections).model_dump() if rejections.num_rows else None,
        "num_rejected": num_rejected,
        "rejected_reasons": reasons,
        "dropped": _put_requests(storage, plan.dropped, REQUESTS),
        "succession": _put_requests(storage, plan.succession, SUCCESSION),
        "manifest": manifest.version if manifest else 0,
        "slices": list(rows),
        "planned": planned.num_rows + num_rejected - len(plan.duplicates),
        **{name: getattr(plan, name) for name in NUMBERS},
        "held_reasons": dict(sorted(plan.held_reasons.items())),
        "removed": {"kept": 0, "dropped": 0} | {"kept" if recipe.removed == "keep" else "dropped": plan.removed},
        "kinds": {kind.value: number for kind, number in plan.kinds.items()},
        "to_send": plan.to_ask + turns.num_earlier,
    }


def _put_requests(storage: Storage, table: pa.Table, schema: pa.Schema) -> dict[str, Any] | None:
    """A reference to the table, in the order of its requests; None for an empty one."""
    if not table.num_rows:
        return None
    ordered = table.cast(schema).sort_by([(name, "ascending") for name in REQUESTS.names])
    return storage.put_table("prompts", ordered).model_dump()


class _Turns:
    """What the missing rows of several turns need of what is there: of a row that extends its history, answers to its
    own earlier turns in parts, in this attempt or a later one; of one that rewrites it, the rows of the earlier turns
    in shards."""

    def __init__(self, planned: pa.Table, missing: pa.Table, stored: pa.Table, generated: pa.Table) -> None:
        asked = missing.filter(pc.invert(missing["resumed"]))
        asked = asked.filter(planned["history"].take(asked["index"]).is_valid())
        rows = planned.select(["row_key", "history", "earlier"]).take(asked["index"])
        extends, rewrites = (earlier_turns(rows, mode) for mode in (HistoryMode.EXTENDS, HistoryMode.REWRITES))
        attempts = dict(zip(rows["row_key"].to_pylist(), asked["attempt"].to_pylist(), strict=True))
        self._requests = {key: [(turn, attempts[key]) for turn in earlier] for key, earlier in extends.items()}
        wanted = (turn for earlier in extends.values() for turn in earlier)
        self._parts = parts_of(wanted, generated) if extends else {}
        self._earlier = rewrites
        coming = set(planned["row_key"].take(missing["index"]).to_pylist()) if rewrites else set[str]()
        stood_on = {turn for earlier in rewrites.values() for turn in earlier}
        self._sealed = newest_good(stood_on - coming, stored)
        self._keys = planned["row_key"]
        self.num_earlier = sum(map(len, self._requests.values()))

    def parts(self, part: pa.Table) -> set[str]:
        """The parts that have answers to earlier turns of a chunk's rows."""
        requests = (request for key in self._of(part) for request in self._requests.get(key, ()))
        return {part for turn, first in requests for attempt, part in self._parts.get(turn, ()) if attempt >= first}

    def ancestors(self, storage: Storage, part: pa.Table) -> dict[str, Any] | None:
        """A reference to where the sealed turns lie that a chunk's rows are asked on top of; None without any."""
        earlier = {turn for key in self._of(part) for turn in self._earlier.get(key, ())}
        table = ancestors(earlier, self._sealed)
        return storage.put_table("prompts", table).model_dump() if table.num_rows else None

    def _of(self, part: pa.Table) -> list[str]:
        keys: list[str] = self._keys.take(part["index"]).to_pylist() if self._requests or self._earlier else []
        return keys


def _priors(storage: Storage, rows: pa.Table, part: pa.Table) -> dict[str, Any] | None:
    """A reference to what a chunk's rows are asked on from; None when all are asked from the start."""
    columns = [rows["row_key"], part["attempt"], part["prior_attempt"], part["prior"]]
    table = pa.table(columns, schema=PRIORS).filter(part["prior"].is_valid())
    return storage.put_table("prompts", table).model_dump() if table.num_rows else None


def _rows_by_reason(rejections: pa.Table, samples: int) -> dict[str, int]:
    """Rejected rows: a prompt that cannot be sent stands for all its samples, a duplicate for itself."""
    counted = Counter(rejections["reason"].to_pylist())
    return {reason: n if reason == Reason.DUPLICATE else n * samples for reason, n in sorted(counted.items())}


def _with_ids(
    storage: Storage, paths: Sequence[str], num_rows: Sequence[int], parts: Sequence[pa.Table]
) -> Iterator[pa.Table]:
    """Each chunk's ROW table, out of slices of `num_rows` rows.

    Chunks and slices are in source order, so a slice is read once, and one without a missing row never.
    """
    starts = np.cumsum([0, *num_rows])
    held, table = -1, ROW.empty_table()
    for part in parts:
        index = part["index"].to_numpy()
        slice_of_row = np.searchsorted(starts, index, side="right") - 1
        taken = []
        for number in np.unique(slice_of_row):
            if number != held:
                held, table = number, storage.read_table(paths[number], ROW.names)
            taken.append(table.take(pa.array(index[slice_of_row == number] - starts[number])))
        rows = pa.concat_tables(taken)
        attempt = part["attempt"].combine_chunks()
        yield rows.set_column(rows.schema.get_field_index("attempt"), ROW.field("attempt"), attempt).combine_chunks()
