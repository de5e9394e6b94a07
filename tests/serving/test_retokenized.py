"""What a chat API loses: the differences between produced ids and ids of the text, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from draftmill.serving.retokenized import Difference, Produced, again, differences, losses, parsed

Shaped = Callable[[str, str], PreTrainedTokenizerBase]
IDS = st.lists(st.integers(0, 3), max_size=12)


def test_sub_words_merge_and_outer_white_space_goes(shaped: Shaped) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    pieces = [tokenizer.encode(piece, add_special_tokens=False) for piece in (" st", "raw", "berry", "\n")]
    reasoning_ids = [index for ids in pieces for index in ids]
    answer = parsed(tokenizer, reasoning_ids, tokenizer.encode("Three.", add_special_tokens=False))
    assert (answer.reasoning, answer.content) == ("strawberry", "Three.")
    ids = again(tokenizer, answer, close=[163607], end=[163586])
    assert ids[-1] == 163586
    assert list(ids[: ids.index(163607)]) == tokenizer.encode("strawberry", add_special_tokens=False) != reasoning_ids


def test_losses_name_what_each_way_adds(shaped: Shaped) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    st, raw, berry, line, three, dot = (
        tokenizer.encode(piece, add_special_tokens=False)[0] for piece in (" st", "raw", "berry", "\n", "Three", ".")
    )
    (strawberry,) = tokenizer.encode(" strawberry", add_special_tokens=False)
    produced = Produced((dot, st, raw, berry, dot, line), 163607, (three, dot), 163586)
    found = losses(tokenizer, produced, rendered={"rendered": (163607, three, dot, 163586)})
    assert [(loss.name, loss.ids, loss.num_wrong) for loss in found] == [
        ("pieces merged", (dot, strawberry, dot, line, 163607, three, dot, 163586), 3),
        ("white space stripped", (dot, strawberry, dot, 163607, three, dot, 163586), 4),
        ("markers gone", (dot, strawberry, dot, three, dot), 6),
        ("reasoning null", (three, dot), 8),
        ("rendered", (163607, three, dot, 163586), 6),
    ]
    assert found[0].more == found[0].differences == (Difference(1, (st, raw, berry), (strawberry,)),)
    assert found[1].more == (Difference(5, (line,), ()),)


def test_differences_name_the_place_and_both_sides() -> None:
    found = differences([1, 2, 3, 9, 5], [1, 7, 9, 5, 6])
    assert found == [Difference(1, (2, 3), (7,)), Difference(5, (), (6,))]


@given(IDS, IDS)
def test_differences_turn_one_into_the_other(produced: list[int], other: list[int]) -> None:
    mended = list(produced)
    for difference in reversed(differences(produced, other)):
        mended[difference.at : difference.at + len(difference.produced)] = difference.again
    assert mended == other
