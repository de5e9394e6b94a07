"""Rows that an older template made are judged by its structure; all others by the present one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.schema import SHARD
from draftmill.judging.eras import Eras, eras
from draftmill.judging.structure import Structure
from draftmill.records import Thinking

ASSISTANT, THINK = 7, 8


def structure(*tail: int) -> Structure:
    thinking = Thinking.OPENED_BY_PROMPT if THINK in tail else Thinking.NONE
    return Structure(
        name="s", thinking=thinking, open_ids=(), close_ids=(), end_ids=(2,), foreign_ids=(), tail_ids=tail,
        blank_ids=(), highest_id=99, evidence=(),
    )  # fmt: skip


def rows(*prompts: Sequence[int], variants: Sequence[str] = (), output: Sequence[int] = (40, 2)) -> pa.Table:
    """A table with these prompts, each with the same answer."""
    nulls = {field.name: pa.nulls(len(prompts), field.type) for field in SHARD}
    nulls["variant"] = pa.array(variants or ["default"] * len(prompts), pa.string())
    nulls["input_ids"] = pa.array([[*prompt, *output] for prompt in prompts], SHARD.field("input_ids").type)
    nulls["prompt_len"] = pa.array([len(prompt) for prompt in prompts], pa.int32())
    nulls["finish_reason"] = pa.array(["stop"] * len(prompts), pa.string())
    for name in ("max_new_tokens", "stop_id"):
        nulls[name] = pa.array([2] * len(prompts), pa.int32())
    return pa.table(nulls, schema=SHARD)


def tails(found: Eras, table: pa.Table) -> list[tuple[int, ...]]:
    """The tail of the structure that judges each row."""
    return [found.structures[name].tail_ids for name in found.named(table)["variant"].to_pylist()]


def one(structure: Structure) -> Mapping[str, Structure]:
    return {"default": structure}


@pytest.mark.parametrize(
    ("old", "new"),
    [((ASSISTANT,), (ASSISTANT, THINK)), ((ASSISTANT, THINK), (ASSISTANT,)), ((6,), (7,)), ((6, 7), (7,))],
)
def test_each_row_by_the_structure_of_the_template_that_made_it(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    found = eras(one(structure(*new)), [one(structure(*old))])
    assert tails(found, rows([1, 30, *old], [1, 30, *new], [31, *old])) == [old, new, old]


def test_a_row_that_no_structure_knows_is_judged_by_the_present_one() -> None:
    """After a tool's answer some templates add nothing."""
    found = eras(one(structure(7)), [one(structure(6))])
    assert tails(found, rows([1, 30], [1], [6, 30])) == [(7,), (7,), (7,)]


def test_what_the_answer_holds_does_not_count() -> None:
    found = eras(one(structure(7)), [one(structure(6, 40))])
    assert tails(found, rows([1, 6], output=(40, 2))) == [(7,)]


def test_a_fixed_rule_with_the_same_template_is_for_all_rows() -> None:
    found = eras(one(structure(7)), [one(structure(7)), one(structure())])
    table = rows([1, 7], [1, 30])
    assert found.named(table) is table
    assert list(found.structures) == ["default"]


def test_of_several_older_templates_the_one_that_fits_best_and_the_newest_of_its_kind() -> None:
    newest, older = structure(6), structure(6, THINK)
    found = eras(one(structure(7)), [one(newest), one(older), one(structure(6))])
    named = found.named(rows([1, 6], [1, 6, THINK], [1, 7]))["variant"].to_pylist()
    assert [found.structures[name] for name in named] == [newest, older, structure(7)]


def test_variants_keep_to_themselves() -> None:
    present = {"a": structure(7), "b": structure(9)}
    found = eras(present, [{"a": structure(6), "gone": structure(5)}])
    table = rows([1, 6], [1, 6], [1, 5], variants=["a", "b", "b"])
    assert tails(found, table) == [(6,), (9,), (9,)]


def test_no_rows_and_no_ids() -> None:
    found = eras(one(structure(7)), [one(structure(6))])
    assert found.named(rows()).num_rows == 0
    assert tails(found, rows([], output=())) == [(7,)]


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=8), st.data())
def test_never_by_an_older_structure_whose_tail_does_not_stand_there(prompts: list[list[int]], data) -> None:
    of_ids = st.lists(st.integers(0, 3), max_size=3).map(tuple)
    new, *old = (data.draw(of_ids) for _ in range(4))
    found = eras(one(structure(*new)), [one(structure(*tail)) for tail in old])
    for prompt, tail in zip(prompts, tails(found, rows(*prompts)), strict=True):
        fitting = [known for known in (new, *old) if tuple(prompt[len(prompt) - len(known) :]) == known]
        longest = max(map(len, fitting), default=0)
        assert len(tail) == longest if longest else tail == new
