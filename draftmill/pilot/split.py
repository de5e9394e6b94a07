"""A plan cut in two: what the pilot asks now, as one chunk, and what it leaves to the run that follows.

The chunk's object holds exactly the sampled rows, as any chunk's; what they go on from
and stand on (parts, answers so far, sealed turns) comes with them. The other chunks stay as
they are planned and are counted as pending, so a pilot seals like a night that ended early: the next run
finds its rows kept and plans the rest anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset.completions import generated
from draftmill.dataset.plan_turns import ANCESTORS
from draftmill.dataset.priors import PRIORS
from draftmill.dataset.schema import ROW
from draftmill.dataset.storage import Storage
from draftmill.pilot.strata import strata, take, units_for
from draftmill.records import HistoryMode

_FRAME = ["row_key", "variant", "history", "earlier", "prompt_ids"]
"""The columns of a chunk that a sample is chosen by."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What the sample is of. `unit_of`: by the row_key of each sampled row its unit; `stratum_n`: of each sampled unit;
    `sizes_H`: units of each stratum; `num_rows`: missing rows in all; `prompt_ids`: ids of all their prompts, None
    where later turns have prompts that nobody knows yet; `rows`: sampled rows."""

    unit_of: dict[str, int]
    stratum_n: npt.NDArray[np.int64]
    sizes_H: npt.NDArray[np.int64]
    num_rows: int
    prompt_ids: int | None

    @property
    def rows(self) -> int:
        return len(self.unit_of)


def split(storage: Storage, plan: dict[str, Any], rows: int) -> tuple[dict[str, Any], list[dict[str, Any]], Frame]:
    """The plan of about `rows` of a plan's missing rows; the chunks of the others; what the sample is of.

    A conversation is taken as a whole. The two together have the plan's missing rows, each once.
    """
    tables = [_frame(storage, chunk) for chunk in plan["chunks"]]
    table = pa.concat_tables(tables).combine_chunks()
    chunk_R = np.repeat(np.arange(len(tables)), [len(each) for each in tables])
    roots, unit_R = _units(table)
    length_U = np.bincount(unit_R, table["length"].to_numpy(), len(roots)).astype(np.int64)
    variant_U = np.zeros(len(roots), np.int64)
    variant_U[unit_R] = table["variant"].combine_chunks().dictionary_encode().indices.to_numpy()
    order_U = np.empty(len(roots), np.int64)
    order_U[pc.sort_indices(roots).to_numpy()] = np.arange(len(roots))
    sample = units_for(rows, num_units=len(roots), num_rows=len(table))
    stratum_U = strata(variant_U, length_U, order_U, sample=sample)
    units = take(stratum_U, order_U, sample=sample)
    place_U = np.full(len(roots), -1, np.int64)
    place_U[units] = np.arange(len(units))
    chosen = np.flatnonzero(place_U[unit_R] >= 0)
    chosen = chosen[np.argsort(place_U[unit_R][chosen], kind="stable")]
    frame = Frame(
        dict(zip(table["row_key"].take(pa.array(chosen)).to_pylist(), place_U[unit_R][chosen].tolist(), strict=True)),
        stratum_U[units],
        np.bincount(stratum_U, minlength=1),
        len(table),
        int(length_U.sum()) if table["history"].null_count == len(table) else None,
    )
    counts = np.bincount(chunk_R[chosen], minlength=len(tables))
    chunk, to_send = _chunk(storage, plan["chunks"], np.flatnonzero(counts), frame)
    mine = plan | {
        "chunks": [chunk],
        "to_ask": chunk["num_rows"] - chunk["resumed"],
        "to_send": to_send,
        "resumed": chunk["resumed"],
    }
    rest = [
        each | {"num_rows": each["num_rows"] - int(taken), "resumed": 0}
        for each, taken in zip(plan["chunks"], counts, strict=True)
    ]
    return mine, rest, frame


def _frame(storage: Storage, chunk: dict[str, Any]) -> pa.Table:
    table = storage.read_table(chunk["rows"]["path"], _FRAME)
    length = pc.fill_null(pc.list_value_length(table["prompt_ids"]), 0).cast(pa.int64())
    return table.drop_columns(["prompt_ids"]).append_column("length", length)


def _units(table: pa.Table) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The key of each unit (that of its first turn), and of each row its unit."""
    keys = table["row_key"].combine_chunks()
    if table["history"].null_count < len(table):
        pairs = zip(keys.to_pylist(), table["earlier"].to_pylist(), strict=True)
        keys = pa.array([earlier[0] if earlier else key for key, earlier in pairs], pa.string())
    encoded = keys.dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)


def _chunk(
    storage: Storage, chunks: Sequence[dict[str, Any]], touched: npt.NDArray[np.int64], frame: Frame
) -> tuple[dict[str, Any], int]:
    """The sampled rows of these chunks as one, unit by unit, and the requests that they are."""
    wanted = pa.array(list(frame.unit_of), pa.string())
    used = [chunks[number] for number in touched]
    tables = [ROW.empty_table()]
    for chunk in used:
        table = storage.read_table(chunk["rows"]["path"], ROW.names)
        tables.append(table.filter(pc.is_in(table["row_key"], value_set=wanted)))
    rows = pa.concat_tables(tables)
    rows = rows.take(pc.sort_indices(pc.index_in(rows["row_key"], value_set=wanted))).combine_chunks()
    answered = _answered(storage, rows)
    extends = pc.and_(pc.fill_null(pc.equal(rows["history"], HistoryMode.EXTENDS.value), False), pc.invert(answered))
    earlier = pc.sum(pc.list_value_length(rows["earlier"].filter(extends))).as_py() or 0
    resumed = pc.sum(answered).as_py() or 0
    chunk = {
        "number": 1,
        "total": 1,
        "rows": storage.put_table("prompts", rows).model_dump(),
        "num_rows": rows.num_rows,
        "resumed": resumed,
        "parts": sorted({part for each in used for part in each["parts"]}),
        "priors": _joined(storage, used, "priors", PRIORS, keep=wanted),
        "ancestors": _joined(storage, used, "ancestors", ANCESTORS, keep=None),
        "turns": rows["history"].null_count < rows.num_rows,
    }
    return chunk, rows.num_rows - resumed + earlier


def _answered(storage: Storage, rows: pa.Table) -> pa.Array:
    """Which requests the dataset's parts have an answer to, as the plan counts them: they are not asked."""
    made = generated(storage)
    requests = set(zip(made["row_key"].to_pylist(), made["attempt"].to_pylist(), strict=True))
    pairs = zip(rows["row_key"].to_pylist(), rows["attempt"].to_pylist(), strict=True)
    return pa.array([pair in requests for pair in pairs], pa.bool_())


def _joined(
    storage: Storage, chunks: Sequence[dict[str, Any]], name: str, schema: pa.Schema, *, keep: pa.Array | None
) -> dict[str, Any] | None:
    """A reference to these chunks' tables of that name as one, each line once; `keep`: of these row_keys."""
    tables = [storage.read_table(chunk[name]["path"]) for chunk in chunks if chunk[name]]
    joined = pa.concat_tables([schema.empty_table(), *tables])
    if keep is not None:
        joined = joined.filter(pc.is_in(joined["row_key"], value_set=keep))
    joined = joined.group_by(schema.names).aggregate([]).sort_by([(each, "ascending") for each in schema.names])
    return storage.put_table("prompts", joined.cast(schema)).model_dump() if joined.num_rows else None
