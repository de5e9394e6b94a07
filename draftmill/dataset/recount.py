"""What became of a plan's other rows when another run sealed in between.

A run counts its rows on the manifest it planned on. Where another manifest is
the newest by the time it seals, rows that it kept may be in quarantine now, or
gone, and rows that it could not get may have been answered there. So each
planned row that the run does not bring is looked up again. Only after a lost
race: it reads the plan's keys and those of the manifest it was made on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset.manifest import read_manifest
from draftmill.dataset.scan import tables
from draftmill.dataset.schema import ROW
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import stored_keys
from draftmill.errors import DatasetError

KEY = ["row_key"]

NO_ATTEMPT = -1


@dataclass(frozen=True, slots=True)
class Planned:
    """A run's plan. `manifest`: the version it was made on, 0 for none. `slices`: paths of the ROW tables of all
    planned rows; `chunks`: of those of them that were to be asked."""

    manifest: int
    slices: Sequence[str]
    chunks: Sequence[str]


@dataclass(frozen=True, slots=True)
class Recount:
    """Row_keys that were planned and are not brought, in the manifest about to be sealed.

    Of those that were not to be asked: `kept` have a good row, `held` have none,
    `gone` left with another run's seal. Of those that were: `answered_good`,
    `answered_bad` have an attempt that the plan did not know.
    """

    kept: int
    held: int
    gone: int
    answered_good: int
    answered_bad: int


def recount_planned(storage: Storage, planned: Planned, brought: pa.Table, after: pa.Table) -> Recount:
    """`brought`: the change's rows; `after`: the rows that stand with it; both with row_key, attempt, good.

    Raises DatasetError when the plan's objects are gone: without them the run's numbers do not close.
    """
    before = stored_keys(storage, read_manifest(storage, planned.manifest) if planned.manifest else None)
    return recount(
        _keys(storage, planned.slices),
        asked=_keys(storage, planned.chunks),
        brought=brought,
        before=before,
        after=after,
    )


def recount(keys: pa.Array, *, asked: pa.Array, brought: pa.Table, before: pa.Table, after: pa.Table) -> Recount:
    """Pure. `keys`: of all planned rows, `asked`: of those to ask; the tables as above, `before`: as planned on."""
    others = pc.unique(keys)
    others = others.filter(pc.invert(pc.is_in(others, value_set=pc.unique(brought["row_key"]))))
    was_asked = pc.is_in(others, value_set=asked).to_numpy(zero_copy_only=False)
    newest_before, newest_after = _newest_attempts(others, before), _newest_attempts(others, after)
    good = _newest_attempts(others, after.filter(after["good"])) > NO_ATTEMPT
    gone = (newest_before > NO_ATTEMPT) & (newest_after == NO_ATTEMPT)
    answered = was_asked & (newest_after > newest_before)
    return Recount(
        kept=int((~was_asked & good).sum()),
        held=int((~was_asked & ~good & ~gone).sum()),
        gone=int((~was_asked & gone).sum()),
        answered_good=int((answered & good).sum()),
        answered_bad=int((answered & ~good).sum()),
    )


def _keys(storage: Storage, paths: Sequence[str]) -> pa.Array:
    schema = pa.schema([ROW.field(name) for name in KEY])
    try:
        return pa.concat_tables([schema.empty_table(), *tables(storage, paths, schema)])["row_key"].combine_chunks()
    except FileNotFoundError as error:
        raise DatasetError(
            "another run sealed meanwhile, and the rows that this one planned are gone: they cannot be counted again",
            value=error,
            expected="the plan's objects in prompts/ until it is sealed",
            remedy="run again: what was generated is kept, and comes back without a request; leave `gc --older-than` "
            "above the length of a run",
        ) from None


def _newest_attempts(keys: pa.Array, rows: pa.Table) -> npt.NDArray[np.int64]:
    """The largest attempt among the rows of each key; NO_ATTEMPT where it has none."""
    place = pc.fill_null(pc.index_in(rows["row_key"], value_set=keys), NO_ATTEMPT).to_numpy()
    newest = np.full(len(keys), NO_ATTEMPT, np.int64)
    here = place != NO_ATTEMPT
    np.maximum.at(newest, place[here], rows["attempt"].to_numpy()[here])
    return newest
