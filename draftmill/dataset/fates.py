"""What becomes of stored rows that nothing plans: superseded, gone, or spared. Pure.

Superseded is a row whose slot (prompt, variant and sample) has a planned row of
another row_key, its successor. Gone is one whose prompt is no longer in the source:
`removed` decides about it. Spared is one whose prompt is there: it is rejected by
now (too long for a smaller context, control text, a template that refuses it), or
has fewer samples. A recipe that goes back gets spared rows back as they are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc


def among(column: pa.ChunkedArray, values: pa.Array | None) -> npt.NDArray[np.bool_]:
    """Which of a column's texts are among these."""
    if values is None or not len(values):
        return np.zeros(len(column), np.bool_)
    texts = column.combine_chunks()
    encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    found = pc.is_in(encoded.dictionary, value_set=values).to_numpy(zero_copy_only=False)
    among: npt.NDArray[np.bool_] = found[encoded.indices.to_numpy()]
    return among


def fates(
    stored: pd.DataFrame, planned: pd.DataFrame, *, names: pa.ChunkedArray, refused: npt.NDArray[np.bool_]
) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Per stored row: whether it is gone; whether it is spared; the index of its successor among the planned rows, null
    for all that have none.

    `names`: the planned row_keys as text; `refused`: of each stored row, whether its prompt is there and rejected.
    """
    unplanned = ~stored["row_key"].isin(planned["row_key"])
    slots = planned.loc[planned["slot"].isin(stored.loc[unplanned, "slot"]), ["slot", "row_key"]]
    slots = slots.drop_duplicates(["slot", "row_key"]).reset_index(names="successor")
    # Of several row_keys in one slot (a template that reads the clock) any will do, but always the same.
    tied = slots[slots["slot"].duplicated(keep=False)]
    best = tied.assign(name=names.take(pa.array(tied["successor"], pa.int64())).to_pylist()).sort_values("name")
    slots = pd.concat([best.drop(columns="name"), slots]).drop_duplicates("slot").set_index("slot")
    successors = slots["successor"].reindex(stored["slot"]).set_axis(stored.index).where(unplanned)
    left = unplanned & successors.isna()
    there = refused | stored["asked_as"].isin(planned["asked_as"])
    return left & ~there, left & there, successors
