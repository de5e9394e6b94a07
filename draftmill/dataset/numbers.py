"""Small numbers for text: keys to plan and to seal with.

A row key is 64 characters; a million of them as Python strings take 110 MB and are slow
to compare. Here equal texts get equal numbers, counted from 0 in the order in which
they are first seen, so that everything that follows works on integers: exact, unlike a
shortened hash. A column keeps the way back to its text as Arrow's dictionary.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int32]


class Texts:
    """The texts met so far, each with its number."""

    def __init__(self) -> None:
        self._known = pa.array([], pa.string())

    def add(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The numbers of a column's texts, int32. Takes tens of bytes a text while it works."""
        if not len(self._known):
            return self._first(column)
        found = pc.index_in(column, value_set=self._known)
        if found.null_count:
            new = column.filter(found.is_null()).unique()
            later = pc.add(pc.index_in(column, value_set=new), pa.scalar(len(self._known), pa.int32()))
            self._known = pa.concat_arrays([self._known, new])
            found = pc.coalesce(found, later)
        return found

    def _first(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        # Nothing to look up: one pass, and a third of the memory.
        encoded = column.dictionary_encode()  # all chunks have the one dictionary
        if encoded.num_chunks:
            self._known = encoded.chunk(0).dictionary
        return pa.chunked_array([chunk.indices for chunk in encoded.chunks], pa.int32())

    def column(self, numbers: pa.ChunkedArray) -> pa.DictionaryArray:
        """Numbers as a column of their texts: a dictionary column over all that are known by now."""
        return pa.DictionaryArray.from_arrays(numbers.combine_chunks(), self._known)


def numbered(*columns: pa.ChunkedArray) -> list[Numbers]:
    """Columns as numbers, the same for the same text in all of them.

    Text, or dictionary columns; those of one and the same dictionary are taken as they are.
    """
    if all(pa.types.is_dictionary(column.type) for column in columns):
        arrays = [column.combine_chunks() for column in columns]
        if all(array.dictionary.equals(arrays[0].dictionary) for array in arrays):
            return [array.indices.to_numpy() for array in arrays]
    texts = Texts()
    return [texts.add(column.cast(pa.string())).to_numpy() for column in columns]
