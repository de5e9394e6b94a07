"""Which differences between a manifest's rules and the present ones make rows be judged again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from draftmill.judging.changed import changed_rules
from draftmill.judging.loops import AUTO_BOUND
from draftmill.judging.structure import Channels, Structure
from draftmill.records import Thinking

PLAIN = Structure(
    name="plain",
    thinking=Thinking.NONE,
    open_ids=(),
    close_ids=(),
    end_ids=(2,),
    foreign_ids=(5,),
    tail_ids=(3,),
    blank_ids=(9,),
    highest_id=99,
    evidence=("eos is 2",),
)
RULES: dict[str, Any] = {"on_truncated": "keep", "degenerate": "auto"}


def changed(now: Structure = PLAIN, **rules: Any) -> list[str]:
    return changed_rules(RULES, {"default": PLAIN.to_json()}, RULES | rules, {"default": now.to_json()})


def test_the_same_rules_are_no_change() -> None:
    assert changed() == []


@pytest.mark.parametrize(
    "rules", [{"on_truncated": "continue"}, {"degenerate": AUTO_BOUND}, {"on_truncated": "keep", "degenerate": "auto"}]
)
def test_another_way_to_write_the_same_rule_is_no_change(rules: dict[str, Any]) -> None:
    assert changed(**rules) == []


@pytest.mark.parametrize("words", [{"name": "think"}, {"evidence": ("by hand",)}])
def test_what_people_read_is_no_rule(words: dict[str, Any]) -> None:
    assert changed(replace(PLAIN, **words)) == []


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ({"on_truncated": "quarantine"}, ["on_truncated"]),
        ({"degenerate": "off"}, ["degenerate"]),
        ({"degenerate": AUTO_BOUND + 1, "on_truncated": "quarantine"}, ["on_truncated", "degenerate"]),
    ],
)
def test_the_recipes_rules_by_name(rules: dict[str, Any], names: list[str]) -> None:
    assert changed(**rules) == names


CHANGES: list[dict[str, Any]] = [
    {"thinking": Thinking.OPENED_BY_MODEL},
    {"open_ids": (20,)},
    {"close_ids": (21,)},
    {"end_ids": (2, 4)},
    {"foreign_ids": ()},
    {"tail_ids": (3, 20)},
    {"blank_ids": ()},
    {"highest_id": 98},
    {"open_also": ((20, (21, 22)),)},
    {"close_also": ((20,),)},
    {"channels": Channels((1,), 2, 3, (), ())},
]


def test_every_field_of_a_structure_is_either_tried_here_or_for_people() -> None:
    assert {name for change in CHANGES for name in change} | {"name", "evidence"} == set(Structure.__slots__)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_every_other_field_of_a_structure_is_a_rule(change: dict[str, Any]) -> None:
    assert changed(replace(PLAIN, **change)) == ["structure"]


def test_only_variants_that_both_have_count() -> None:
    plain, think = PLAIN.to_json(), replace(PLAIN, end_ids=(4,)).to_json()
    sealed = {"fast": plain, "gone": think}
    assert changed_rules(RULES, sealed, RULES, {"fast": plain, "new": think}) == []
    assert changed_rules(RULES, sealed, RULES, {"fast": think, "new": think}) == ["structure of fast"]
