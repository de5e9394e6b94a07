"""Context, longest prompt and KV pool: enough passes, less refuses, on recorded pages."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.engines import sglang
from draftmill.gate.room import room_checks
from draftmill.gate.table import Check, Level


@pytest.fixture
def checks(recorded_report: Any, recipe_for: Any) -> Any:
    def named(context: int, **pages: Any) -> dict[str, Check]:
        report, recipe = recorded_report(**pages), recipe_for(model__context_length=context)
        return {each.name: each for each in room_checks(report, recipe, prompt_reserve=sglang.PROMPT_RESERVE)}

    return named


def test_the_recorded_server_has_room_for_its_whole_context(checks: Any) -> None:
    assert {check.level for check in checks(8192).values()} == {Level.OK}


def test_one_token_more_is_too_much(checks: Any) -> None:
    seen = checks(8193)
    assert {seen["context length"].level, seen["longest prompt"].level} == {Level.REFUSE}
    assert "--context-length" in seen["context length"].remedy
    assert seen["KV pool"].level is Level.OK


def test_the_recorded_small_pool_refuses(checks: Any) -> None:
    seen = checks(2048, info="pool256_server_info")
    assert seen["context length"].level is Level.OK
    assert (seen["KV pool"].level, seen["KV pool"].seen) == (Level.REFUSE, "256 tokens")
    assert (seen["longest prompt"].level, seen["longest prompt"].seen) == (Level.REFUSE, "250")


def test_a_server_that_does_not_say_its_context_is_not_believed(checks: Any) -> None:
    report = sglang.combined("http://h", {"max_total_num_tokens": "many"}, {"model_path": "smol"}, {})
    from draftmill.recipe_file import parse_recipe

    recipe = parse_recipe(
        {
            "dataset": "d",
            "prompts": {"path": "p"},
            "model": {"name": "smol", "context_length": 64},
            "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 8},
        },
        origin="the test",
    )
    levels = {each.name: each.level for each in room_checks(report, recipe, prompt_reserve=6)}
    assert levels == {"context length": Level.REFUSE, "longest prompt": Level.OK, "KV pool": Level.OK}
