"""What a trip through text changes, on the embedded tokenizer's ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from draftmill.recipe_file import parse_recipe
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.reporting.page import round_trip as module
from draftmill.reporting.page.data import RoundTrip, Unmeasured
from draftmill.reporting.page.reading import ShownRow
from draftmill.reporting.page.round_trip import again, round_trip
from tests.mill import Mill

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

END = 2


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return load_tokenizer(parse_recipe(Mill(Path(".")).data(), origin="the test").model)


def row(*spans: list[int]) -> ShownRow:
    """Each span behind one id of a prompt."""
    ids: list[int] = []
    places = []
    for span in spans:
        places.append({"start": len(ids) + 1, "end": len(ids) + 1 + len(span)})
        ids += [1, *span]
    return ShownRow({"spans": places}, np.array(ids, np.int32))


def encoded(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def test_whole_words_and_special_tokens_come_back(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = [*encoded(tokenizer, "How many r are in strawberry?"), END]
    assert again(tokenizer, np.array(ids, np.int32)) == ids


def test_what_no_tokenizer_would_write_is_changed(tokenizer: PreTrainedTokenizerBase) -> None:
    whole, apart = encoded(tokenizer, " strawberry"), [*encoded(tokenizer, " st"), *encoded(tokenizer, "rawberry")]
    assert whole != apart
    found = round_trip([row(whole), row(apart), row(whole, apart), row(whole, whole)], tokenizer)
    assert isinstance(found, RoundTrip)
    assert (found.rows, found.changed, found.to_json()["share"]) == (4, 2, 0.5)
    low, high = found.interval
    assert (round(low, 4), round(high, 4)) == (0.15, 0.85)  # Wilson, 95 %, 2 of 4


def test_the_sample_has_a_bound(tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLED_ROWS", 3)
    found = round_trip([row([END])] * 5, tokenizer)
    assert isinstance(found, RoundTrip)
    assert found.rows == 3


def test_no_row_is_no_share(tokenizer: PreTrainedTokenizerBase) -> None:
    assert isinstance(round_trip([], tokenizer), Unmeasured)
