"""Named dtypes and the one gate through which arrays of ids enter.

Axes in names: `P` prompt ids, `O` output ids, `T = P + O`, `B` rows,
`B1 = B + 1` offsets. Ids are int32 (4 bytes an id; a list of ints costs 36),
offsets int64, so that a chunk may hold more than 2^31 ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ID_DTYPE = np.dtype("<i4")
OFFSET_DTYPE = np.dtype("<i8")
LOGPROB_DTYPE = np.dtype("<f8")

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
Logprobs = npt.NDArray[np.float64]

MAX_ID = int(np.iinfo(np.int32).max)


def ids_array(name: str, ids: Any) -> Ids:
    """`ids` as a read-only int32 array of one dimension.

    Raises ValueError with name, wanted and got when `ids` is not a flat
    sequence of integers that fit; booleans, floats and strings are no ids.
    """
    if isinstance(ids, np.ndarray):
        array = ids
    else:
        if not isinstance(ids, Sequence) or isinstance(ids, str | bytes):
            raise ValueError(f"{name}: wanted a list of integers, got {type(ids).__name__}")
        # JSON's true is a Python int; numpy would turn [1, true] into [1, 1].
        if not set(map(type, ids)) <= {int}:
            odd = next(item for item in ids if type(item) is not int)
            raise ValueError(f"{name}: wanted integers, got {odd!r} ({type(odd).__name__})")
        try:
            array = np.array(ids, dtype=np.int64)
        except OverflowError:
            raise ValueError(f"{name}: an id beyond 64 bits") from None
    if array.ndim != 1:
        raise ValueError(f"{name}: wanted one dimension, got {array.ndim}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name}: wanted integers, got dtype {array.dtype}")
    if array.size and (int(array.max()) > MAX_ID or int(array.min()) < -MAX_ID):
        raise ValueError(f"{name}: an id beyond 32 bits")
    array = array.astype(ID_DTYPE, copy=array.base is not None)
    array.flags.writeable = False
    return array


def flatten(rows_of_ids: Iterable[Ids]) -> tuple[Ids, Offsets]:
    """Ragged rows as one flat array and `B1` offsets: row b is `flat[offsets[b]:offsets[b + 1]]`."""
    rows = list(rows_of_ids)
    offsets_B1 = np.zeros(len(rows) + 1, OFFSET_DTYPE)
    np.cumsum([len(row) for row in rows], out=offsets_B1[1:])
    flat = np.concatenate(rows).astype(ID_DTYPE, copy=False) if rows else np.zeros(0, ID_DTYPE)
    return flat, offsets_B1
