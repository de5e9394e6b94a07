"""The canary: whatever is wrong with one answer refuses, in the judge's words or the server's."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.gate import Level, canary
from draftmill.gate.tries import TRIES
from draftmill.recipe import Model
from draftmill.rendering.prepare import prepare
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.serving.fake_answers import in_order
from draftmill.serving.faults import Act, Fault, always, nth
from draftmill.variants import DEFAULT

JUDGED = [
    (Fault.WRONG_ECHO, "prompt_mismatch"),
    (Fault.FEWER_PROMPT_TOKENS, "prompt_mismatch"),
    (Act(Fault.PROMPT_TAIL_FIRST, 3), "prompt_echo"),
    (Fault.NO_END, "no_end_of_turn"),
    (Fault.WRONG_COUNT, "count_mismatch"),
    (Fault.ID_OUT_OF_RANGE, "id_out_of_range"),
    (Fault.NAN, "corrupted"),
]
TRIED_AGAIN = [
    (Fault.NO_OUTPUT_IDS, "output_ids"),
    (Fault.OTHER_RID, "the answer is for request"),
    (Fault.ABORTED, "Aborted"),
    (Fault.ERROR_500, "HTTP 500: Internal Server Error"),
    (Fault.UNAVAILABLE, "HTTP 503: The request queue is full."),
    (Fault.FOREIGN_JSON, "not an answer of /generate"),
    (Fault.RESET_BEFORE, "Error: "),
]


pytestmark = pytest.mark.usefixtures("no_pause")


@pytest.mark.parametrize(
    ("fault", "words", "times"),
    [*((*case, 1) for case in JUDGED), *((*case, TRIES) for case in TRIED_AGAIN)],
    ids=str,
)
async def test_a_canary_that_is_answered_wrongly_refuses(
    server: Any, inspected: Any, refusal: Any, fault: Act | Fault, words: str, times: int
) -> None:
    async with server(answers=in_order([[1000, 1001, 1002, 2]]), rule=always(fault)) as fake:
        seen = await inspected(fake.url)
    error = refusal(seen)
    assert "canary" in error.what
    assert words in str(error.value)
    assert "echoed" in error.expected
    assert len(fake.log) == times


@pytest.mark.parametrize("fault", [fault for fault, _ in TRIED_AGAIN])
async def test_one_accident_does_not_cost_a_night(server: Any, inspected: Any, fault: Fault) -> None:
    async with server(answers=in_order([[1000, 1001, 1002, 2]]), rule=nth({1: fault})) as fake:
        (await inspected(fake.url)).refuse()
    assert len(fake.log) == 2


async def test_a_canary_that_is_never_answered_refuses(
    server: Any, inspected: Any, refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary, "CANARY_TIMEOUT_S", 0.05)
    async with server(rule=always(Fault.HANG)) as fake:
        assert "no answer" in str(refusal(await inspected(fake.url)).value)


async def test_a_canary_cut_by_its_budget_is_fine(server: Any, inspected: Any) -> None:
    async with server(answers=in_order([[*range(1000, 1100), 2]])) as fake:
        seen = await inspected(fake.url)
    seen.refuse()
    assert seen.checks[-1].seen == "16 ids, length"


async def test_an_answer_of_other_weights_than_the_pages_say_refuses(
    server: Any, prepared: Any, recorded_report: Any
) -> None:
    import aiohttp

    from draftmill.engines import sglang

    async with server(card={"weight_version": "w2"}) as fake, aiohttp.ClientSession() as http:
        seen = await canary.ask_canary(prepared, sglang, http, recorded_report(fake.url))
    assert seen.level is Level.REFUSE
    assert seen.seen == "an answer of weight version w2, from a server that says default"


def opening(text: str) -> list[int]:
    tokenizer = load_tokenizer(Model(name="smol", tokenizer="embedded", context_length=2048))
    return [*tokenizer.encode(text, add_special_tokens=False), 2]


@pytest.mark.parametrize("text", ["<think>\nHm", "<think>Hm", "\n <think> a", "\n\n<reasoning>\n", "<think>"])
async def test_a_model_taken_for_plain_that_opens_a_block_is_refused(
    server: Any, inspected: Any, refusal: Any, text: str
) -> None:
    async with server(answers=in_order([opening(text)])) as fake:
        error = refusal(await inspected(fake.url))
    assert "canary" in error.what
    assert "which opens '<" in str(error.value)
    for word in ("structure: think", "structure: plain"):
        assert word in error.remedy


@pytest.mark.parametrize("text", ["a <think> b", "< think>", "<thin", "Hello"])
async def test_a_marker_elsewhere_is_nothing(server: Any, inspected: Any, text: str) -> None:
    async with server(answers=in_order([opening(text)])) as fake:
        (await inspected(fake.url)).refuse()


async def test_the_authors_word_for_plain_holds(server: Any, recorded_report: Any, recipe_for: Any) -> None:
    import aiohttp

    from draftmill.engines import sglang

    named = recipe_for().model_copy(update={"structure": "plain"})
    async with server(answers=in_order([opening("<think>\nHm")])) as fake, aiohttp.ClientSession() as http:
        seen = await canary.ask_canary(prepare(named)[DEFAULT], sglang, http, recorded_report(fake.url))
    assert seen.level is Level.OK


async def test_structure_think_is_a_remedy(server: Any, recorded_report: Any, recipe_for: Any) -> None:
    import aiohttp

    from draftmill.engines import sglang

    named = recipe_for().model_copy(update={"structure": "think"})
    async with server(answers=in_order([opening("<think>\nHm.</think>\n\nHello")])) as fake:
        async with aiohttp.ClientSession() as http:
            seen = await canary.ask_canary(prepare(named)[DEFAULT], sglang, http, recorded_report(fake.url))
    assert seen.level is Level.OK
