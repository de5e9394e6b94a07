"""The model's name: a vLLM that the gate lets pass answers the rows, and one that would answer them passes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from draftmill.engines import vllm
from draftmill.gate import Level, look_again
from draftmill.generation.http import open_http
from draftmill.records import Return
from draftmill.serving import vllm_protocol
from draftmill.serving.fake_answers import Seeded
from draftmill.serving.vllm_fake import VllmFake
from draftmill.serving.vllm_protocol import VllmLimits

NAME, CONTEXT = "org/smol", 2048


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch, tokenizes: Any) -> Any:
    """`vllm serve ROOT --served-model-name NAMES...`; `adapters` are listed behind them, without a length."""

    @contextlib.asynccontextmanager
    async def serve(*names: str, root: str = NAME, adapters: tuple[str, ...] = ()) -> AsyncIterator[VllmFake]:
        models = [{"id": name, "root": root, "max_model_len": CONTEXT} for name in names]
        models += [{"id": name, "root": f"/adapters/{name}", "parent": names[0]} for name in adapters]
        monkeypatch.setattr(vllm_protocol, "listed", lambda *_: {"object": "list", "data": models})
        answered = NAME if NAME in (*names, *adapters) else names[0]
        answers = Seeded(7, ordinary=range(1000, 40000), lengths=(4, 12))
        limits = VllmLimits(CONTEXT, 49152)
        async with VllmFake(answers, model=answered, limits=limits, tokenizer=tokenizes) as fake:
            yield fake

    return serve


SERVED = [
    ((NAME,), ()),
    (("short", NAME), ()),
    ((NAME, "short"), ()),
    (("base", "other"), (NAME,)),
    (("alias",), ()),
    (("alias",), ("org/adapter",)),
]


@pytest.mark.parametrize(("names", "adapters"), SERVED, ids=str)
async def test_the_gate_passes_the_servers_that_answer_to_the_recipes_name(
    serving: Any, inspected: Any, names: tuple[str, ...], adapters: tuple[str, ...]
) -> None:
    async with serving(*names, adapters=adapters) as fake:
        seen = await inspected(fake.url, protocol=vllm, engine__kind="vllm", model__name=NAME)
    checks = {check.name: check for check in seen.checks}
    answers = NAME in (*names, *adapters)
    assert checks["model"].level is (Level.OK if answers else Level.REFUSE)
    assert bool(seen.refusals) is not answers
    assert {body["model"] for body in fake.asked} == ({NAME} if answers else set())
    if answers:
        assert {check.level for check in seen.checks} == {Level.OK}
        assert (seen.reports[0].model, seen.reports[0].context_length) == (NAME, CONTEXT)
    else:
        assert checks["model"].seen == "alias (from org/smol)"
        assert "--served-model-name" in checks["model"].remedy
        assert checks["canary"].level is Level.WARN


async def test_another_first_name_after_a_restart_is_the_same_server(
    serving: Any, inspected: Any, recipe_for: Any, variants_for: Any
) -> None:
    changes = {"engine__kind": "vllm", "model__name": NAME}
    async with serving(NAME, "short") as fake:
        before = (await inspected(fake.url, protocol=vllm, **changes)).reports[0]
    async with serving("short", NAME) as fake:
        recipe = recipe_for(fake.url, **changes)
        async with open_http(recipe.engine) as http:
            now = await look_again(recipe, variants_for(recipe), _at(before, fake.url), protocol=vllm, http=http)
    assert now.state is Return.SAME


def _at(report: Any, url: str) -> Any:
    from dataclasses import replace

    return replace(report, url=url)
