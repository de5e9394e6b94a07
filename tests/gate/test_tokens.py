"""The server's tokenizer against ours: one difference refuses, with its place; no page, nothing to compare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from draftmill.arrays import ids_array
from draftmill.gate.table import Level
from draftmill.gate.tokens import NOT_OFFERED, difference
from draftmill.records import Fault, FaultKind
from draftmill.rendering.prepare import Prepared
from draftmill.rendering.round_trips import RoundTrip
from draftmill.rendering.specimens import Specimen
from draftmill.rendering.template import Refused

Body = dict[str, Any]


async def test_the_same_tokenizer_passes(checks_of: Any, tokenizes: Any, prepared: Prepared) -> None:
    asked: list[Body] = []

    def page(body: Body) -> list[int]:
        asked.append(body)
        return tokenizes(body)

    seen = await checks_of(page)
    assert {check.level for check in seen.values()} == {Level.OK}
    assert seen["tokenizer"].seen == f"{len(prepared.specimens)} equal"
    talks = [body for body in asked if "messages" in body]
    assert len(talks) == len(prepared.specimens) >= 6
    assert any(body.get("tools") for body in talks)
    assert any(body.get("chat_template_kwargs") for body in talks)
    assert {body["prompt"] for body in asked if "prompt" in body} >= {"<|im_end|>", "<|im_start|>"}


@pytest.mark.parametrize("number", range(8))
async def test_a_difference_in_any_one_conversation_refuses(
    checks_of: Any, tokenizes: Any, prepared: Prepared, number: int
) -> None:
    specimen = prepared.specimens[number]

    def page(body: Body) -> list[int]:
        ids = tokenizes(body)
        same = body.get("messages") == specimen.messages and body.get("tools") == specimen.tools
        kwargs = body.get("chat_template_kwargs") or {}
        return [*ids[:5], 77, *ids[6:]] if same and kwargs == specimen.template_kwargs else ids

    seen = (await checks_of(page))["tokenizer"]
    assert seen.level is (Level.WARN if specimen.tools else Level.REFUSE)
    assert seen.seen.startswith(f"{specimen.name}: id 5 is ")
    assert "and 77 there" in seen.seen
    assert "more" not in seen.seen
    assert ("rendered here" if specimen.tools else "model.chat_template") in seen.remedy


async def test_another_difference_than_the_tools_is_the_one_that_is_shown(
    checks_of: Any, tokenizes: Any, prepared: Prepared
) -> None:
    cjk = next(each for each in prepared.specimens if each.name == "CJK")

    def page(body: Body) -> list[int]:
        return [9, *tokenizes(body)] if body.get("tools") or body.get("messages") == cjk.messages else tokenizes(body)

    seen = (await checks_of(page))["tokenizer"]
    assert seen.level is Level.REFUSE
    assert seen.seen.startswith("CJK: ")
    assert "(and in 1 more)" in seen.seen


async def test_all_differences_are_counted(checks_of: Any, tokenizes: Any, prepared: Prepared) -> None:
    seen = (await checks_of(lambda body: [1, *tokenizes(body)]))["tokenizer"]
    assert f"(and in {len(prepared.specimens) - 1} more)" in seen.seen


async def test_a_server_without_the_page_is_not_compared(checks_of: Any) -> None:
    seen = await checks_of(None)
    assert {check.level for check in seen.values()} == {Level.OK}
    assert seen["tokenizer"].seen == NOT_OFFERED
    assert "not compared" in seen["markers"].seen


async def test_a_marker_with_another_id_on_the_server_refuses(checks_of: Any, tokenizes: Any) -> None:
    seen = await checks_of(lambda body: [0] if body.get("prompt") == "<|im_end|>" else tokenizes(body))
    assert seen["markers"].level is Level.REFUSE
    assert "'<|im_end|>', which ends the turn, is 2 here and [0] there" in seen["markers"].seen
    assert seen["highest id"].level is Level.OK


@pytest.mark.parametrize(
    ("trip", "words"),
    [
        (RoundTrip("ends the turn", 60000, None, None, None), "60000, which ends the turn, is no token"),
        (RoundTrip("opens the reasoning", 7, "<think>", 9, None), "7, which opens the reasoning, is '<think>'"),
    ],
)
async def test_a_marker_that_does_not_map_back_here_refuses(
    checks_of: Any, tokenizes: Any, prepared: Prepared, trip: RoundTrip, words: str
) -> None:
    broken = replace(prepared, round_trips=(trip, *prepared.round_trips))
    seen = (await checks_of(tokenizes, with_=broken))["markers"]
    assert seen.level is Level.REFUSE
    assert words in seen.seen


async def test_the_highest_id_must_be_the_servers_too(checks_of: Any, tokenizes: Any, prepared: Prepared) -> None:
    text = next(trip.alone for trip in prepared.round_trips if trip.kind == "highest id")
    seen = await checks_of(lambda body: [5, 6] if body.get("prompt") == text else tokenizes(body))
    assert seen["highest id"].level is Level.REFUSE
    assert "there" in seen["highest id"].seen
    assert seen["markers"].level is Level.OK


@pytest.mark.parametrize(
    ("vocabulary", "level"),
    [
        (None, Level.OK),
        (49152, Level.OK),
        (49151, Level.WARN),  # no conversation needs the one that is too high, but a prompt's text may
        (40000, Level.REFUSE),  # ordinary text needs some
    ],
)
async def test_the_highest_id_against_the_models_own_vocabulary(
    checks_of: Any, tokenizes: Any, prepared: Prepared, vocabulary: int | None, level: Level
) -> None:
    seen = (await checks_of(tokenizes, with_=replace(prepared, vocabulary=vocabulary)))["highest id"]
    assert seen.level is level
    assert bool(seen.remedy) is (level is not Level.OK)


def specimen(*renderings: Any) -> Specimen:
    ids = tuple(each if isinstance(each, Refused) else ids_array("ids", each) for each in renderings)
    return Specimen("one", [], None, {}, ids)


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ([1, 2, 9, 4], "id 2 is 3 here and 9 there; here ... [1, 2, 3, 4], there ... [1, 2, 9, 4]"),
        ([1, 2, 3], "id 3 is 4 here and no id there (4 ids here, 3 there); here ... [1, 2, 3, 4], there ... [1, 2, 3]"),
        ([1, 2, 3, 4, 5], "id 4 is no id here and 5 there (4 ids here, 5 there)"),
        ([], "id 0 is 1 here and no id there"),
    ],
)
def test_the_first_difference_is_named_with_its_neighbours(theirs: list[int], words: str) -> None:
    found = difference(specimen([1, 2, 3, 4]), ids_array("ids", theirs))
    assert found is not None
    assert found.startswith(words)


def test_equal_ids_and_any_days_ids_are_no_difference() -> None:
    dated = specimen([1, 30], [1, 29], [1, 31])
    assert difference(dated, np.array([1, 29], np.int32)) is None
    assert difference(dated, np.array([1, 30], np.int32)) is None
    assert "id 1 is 30 here and 28 there" in str(difference(dated, np.array([1, 28], np.int32)))


def test_a_server_that_does_not_take_it_is_a_difference() -> None:
    fault = Fault(FaultKind.REJECTED, "no system role")
    assert difference(specimen([1]), fault) == "the server does not take it: no system role"


async def test_what_our_template_does_not_take_is_not_held_against_the_server(
    checks_of: Any, tokenizes: Any, prepared: Prepared
) -> None:
    first, *others = prepared.specimens
    refused = replace(prepared, specimens=(replace(first, renderings=(Refused("no"),)), *others))
    seen = (await checks_of(tokenizes, with_=refused))["tokenizer"]
    assert seen.level is Level.OK
    assert seen.seen == f"{len(others)} equal; the template does not take: {first.name}"
