"""A plan in plain words: every kind that has rows, what changed, and what the rules did."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftmill.dataset.manifest import DataRef, Made, Manifest
from draftmill.judging.structure import Structure
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Thinking
from draftmill.reporting.plan_lines import KINDS, plan_lines
from draftmill.reporting.recipe_changes import Effect, RecipeChange
from draftmill.reporting.since import TWO_SETS, Since, since
from draftmill.reporting.summary import Summary

PLAN: dict[str, Any] = {
    "manifest": 3,
    "planned": 20,
    "to_ask": 0,
    "to_send": 0,
    "resumed": 0,
    "kept": 20,
    "held": 0,
    "held_reasons": {},
    "num_rejected": 0,
    "rejected_reasons": {},
    "superseded": 0,
    "removed": {"kept": 0, "dropped": 0},
    "kinds": dict.fromkeys(KINDS, 0),
}
PLAIN = Structure(
    name="plain", thinking=Thinking.NONE, open_ids=(), close_ids=(), end_ids=(2,), foreign_ids=(), tail_ids=(3,),
    blank_ids=(), highest_id=99, evidence=(),
)  # fmt: skip
HASHES = {"tokenizer_sha256": "a" * 64, "chat_template_sha256": "b" * 64}


def recipe(**changes: Any) -> Recipe:
    data = {
        "dataset": "/data",
        "prompts": {"path": ["/prompts.jsonl"]},
        "model": {"name": "m", "context_length": 4096},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 32},
    }
    return parse_recipe({**data, **changes}, origin="the test")


def manifest(**changes: Any) -> Manifest:
    """Version 3 with 12 good and 4 quarantined rows."""
    good, bad = (
        DataRef(path=f"{rows}", bytes=1, rows=rows, sha256="0" * 64, made=[Made(manifest=1, rows=rows)])
        for rows in (12, 4)
    )
    fields: dict[str, Any] = dict.fromkeys(Manifest.model_fields)
    fields |= {"version": 3, "shards": [good], "quarantine": [bad], "provenance": HASHES}
    fields |= {
        "judged_alike": True,
        "recipe": recipe().model_dump(mode="json"),
        "structures": {"default": PLAIN.to_json()},
    }
    return Manifest.model_construct(**fields | changes)


def lines(found: Since | None = None, *, rejudged: Summary | None = None, rule: str = "keep", **plan: Any) -> str:
    found = found or since(manifest(), recipe(), {"default": PLAIN}, HASHES)
    return "\n".join(plan_lines(PLAN | plan, found, removed=rule, rejudged=rejudged))


def test_nothing_to_do() -> None:
    assert lines() == "plan on manifest 3: 20 rows, 0 to ask\n  kept as they are: 20"


def test_a_new_dataset() -> None:
    text = lines(Since(None), manifest=0, kept=0, to_ask=1234, to_send=1234, planned=1234, kinds={"new": 1234})
    assert text == ("plan for a new dataset: 1,234 rows, 1,234 to ask\n  new prompts: 1,234\n  kept as they are: 0")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_in_its_words(kind: str) -> None:
    text = lines(to_ask=7, to_send=7, kinds=PLAN["kinds"] | {kind: 7})
    assert f"  {KINDS[kind]}: 7" in text.splitlines()
    assert not [words for other, words in KINDS.items() if other != kind and words in text]


def test_what_is_asked_again_names_its_reasons() -> None:
    found = plan_lines(PLAN | {"kinds": {"again": 4}}, Since(None), removed="keep", again=["degenerate", "truncated"])
    assert "  asked again on purpose (degenerate, truncated): 4" in found


def test_what_is_not_asked() -> None:
    text = lines(
        resumed=2, held=5, held_reasons={"degenerate": 4, "truncated": 1}, superseded=6,
        num_rejected=3, rejected_reasons={"duplicate": 1, "prompt_too_long": 2},
    )  # fmt: skip
    assert text.splitlines()[1:] == [
        "  of these generated already by an unfinished run, 0 requests: 2",
        "  kept as they are: 20",
        "  held in quarantine, not asked again: 5 (degenerate 4, truncated 1)",
        "  rejected, cannot be sent: 3 (duplicate 1, prompt_too_long 2)",
        "  superseded, each leaves once its successor is good: 6",
    ]


def test_gone_from_the_source() -> None:
    assert lines(removed={"kept": 2, "dropped": 0}).endswith("\n  gone from the source: 2, kept (removed: keep)")
    dropped = lines(removed={"kept": 0, "dropped": 2}, rule="drop")
    assert dropped.endswith("\n  gone from the source: 2, dropped (removed: drop)")


def test_conversations_take_more_requests_than_rows() -> None:
    assert "3 to ask (7 requests)" in lines(to_ask=3, to_send=7)


def test_changed_fields_by_name_then_those_that_do_nothing() -> None:
    now = recipe(
        sampling={"temperature": 0.5, "top_p": 1.0, "max_new_tokens": 64},
        engine={"urls": ["http://10.0.0.1:1"], "in_flight": 8},
    )
    text = lines(since(manifest(), now, {"default": PLAIN}, HASHES | {"chat_template_sha256": "c" * 64}))
    assert text.splitlines()[1:-1] == [
        "  changed since manifest 3:",
        "    sampling.temperature: 1.0 -> 0.5 (part of a row's identity: its rows are asked anew)",
        "    sampling.max_new_tokens: 32 -> 64 (only rows cut by length are asked again)",
        "    chat template: bbbbbbbb -> cccccccc (only prompts whose ids change by it are asked anew)",
        "    no effect on rows: engine.urls, engine.in_flight",
    ]


def test_rules_that_will_be_applied_and_what_they_did() -> None:
    found = since(manifest(), recipe(on_truncated="quarantine"), {"default": replace(PLAIN, end_ids=(4,))}, HASHES)
    assert found.rules == ("on_truncated", "structure")
    head = "  rules changed (on_truncated, structure): 16 stored rows"
    assert f"{head} are judged again first, 0 requests; the numbers below are those before it" in lines(found)
    moved = Summary("/data", 4, rows=Counter(rejudged=5), rejudged_bad=3)
    assert f"{head} judged again, 0 requests: 2 are good now, 3 bad" in lines(found, rejudged=moved)


def test_rows_that_two_runs_judged_by_other_rules_are_judged_again_by_whichever_comes_next() -> None:
    found = since(manifest(judged_alike=False), recipe(), {"default": PLAIN}, HASHES)
    assert found.rules == (TWO_SETS,)
    assert f"  rules changed ({TWO_SETS}): 16 stored rows are judged again first" in lines(found)


def test_a_rerun_says_what_it_did_though_no_rule_has_changed() -> None:
    moved = Summary("/data", 4, rows=Counter(rejudged=1), rejudged_bad=0)
    assert "  16 stored rows judged again, 0 requests: 1 are good now, 0 bad" in lines(rejudged=moved)


def test_a_dataset_of_an_older_release_without_hashes_has_no_changed_template() -> None:
    assert since(manifest(provenance={}), recipe(), {"default": PLAIN}, HASHES).rendering == ()


def test_the_docs_show_a_plan_in_the_words_that_are_printed() -> None:
    shown = (Path(__file__).parents[2] / "docs" / "running.md").read_text(encoding="utf-8")
    kinds = dict.fromkeys(KINDS, 0) | {"new": 100, "changed": 62, "longer": 55}
    found = Since(
        manifest(shards=[], quarantine=[]),
        tuple(
            RecipeChange(path, old, new, effect)
            for path, old, new, effect in (
                ("sampling.max_new_tokens", "8192", "16384", Effect.BUDGET),
                ("engine.urls", "a", "b", Effect.NONE),
            )
        ),
        (("chat template", "5f1c02aa", "90be6d14"),),
    )
    text = lines(
        found, planned=1240, to_ask=212, to_send=212, kinds=kinds, resumed=5, kept=1001, held=20, num_rejected=2,
        held_reasons={"reasoning_not_closed": 20}, rejected_reasons={"prompt_too_long": 2}, superseded=62,
        removed={"kept": 7, "dropped": 0}, spared=3,
    )  # fmt: skip
    assert [line for line in text.splitlines() if line not in shown] == []


def test_rows_that_nothing_plans_and_that_stay_are_said() -> None:
    words = "kept, though no longer asked (rejected by now, or more samples than the recipe's)"
    assert lines(spared=3).endswith(f"\n  {words}: 3")
    assert words not in lines(spared=0)
