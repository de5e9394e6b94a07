"""Equal texts, equal numbers; and the way back."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.numbers import Texts, numbered

COLUMNS = st.lists(st.lists(st.text("ab", max_size=3), max_size=6), min_size=1, max_size=4)


def chunked(values: list[str]) -> pa.ChunkedArray:
    middle = len(values) // 2
    return pa.chunked_array([values[:middle], values[middle:]], pa.string())


@given(COLUMNS)
def test_texts_come_back_from_their_numbers(columns: list[list[str]]) -> None:
    texts = Texts()
    numbers = [texts.add(chunked(column)) for column in columns]
    assert [texts.column(column).to_pylist() for column in numbers] == columns
    met = list(dict.fromkeys(text for column in columns for text in column))
    assert texts.column(pa.chunked_array([pa.array(range(len(met)), pa.int32())])).to_pylist() == met


@given(COLUMNS, st.sampled_from(["text", "one dictionary", "a dictionary each"]))
def test_the_same_number_means_the_same_text(columns: list[list[str]], form: str) -> None:
    given_as = [chunked(column) for column in columns]
    if form == "one dictionary":
        texts = Texts()
        numbers = [texts.add(column) for column in given_as]
        given_as = [pa.chunked_array([texts.column(column)]) for column in numbers]
    elif form == "a dictionary each":
        given_as = [column.dictionary_encode() for column in given_as]
    found = [number for column in numbered(*given_as) for number in column.tolist()]
    texts_in_order = [text for column in columns for text in column]
    pairs = set(zip(found, texts_in_order, strict=True))
    assert len(pairs) == len(set(found)) == len(set(texts_in_order))
