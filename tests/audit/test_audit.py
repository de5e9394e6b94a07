"""The whole audit against a fake server that is sure of its own answers: a sealed dataset, damaged here and there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from draftmill.audit import ask
from draftmill.audit.audit import Audit, audit_dataset
from draftmill.audit.verdict import Doubt, Verdict
from draftmill.cli import app
from draftmill.dataset.schema import SHARD
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import open_storage
from draftmill.errors import DatasetError, GateRefused, RecipeError
from draftmill.identity import row_identity, sha256
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.prepare import prepare, structures_json
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import Markers, Seeded
from draftmill.serving.fake_scores import Scorer, sure_of
from draftmill.serving.faults import Fault, nth
from draftmill.serving.protocol import GenerateRequest
from draftmill.serving.vllm_fake import VllmFake
from draftmill.serving.vllm_protocol import VllmLimits
from tests.mill import MODEL, Mill

ANSWERS = Seeded(seed=7, markers=Markers(end_id=2), ordinary=range(1000, 40000), lengths=(6, 12))
PROMPT_LEN = 5

Damage = Callable[[list[int]], list[int]]


def prompt_of(number: int) -> tuple[int, ...]:
    return (1, 4093, 198, 500 + number, 198)


def answer_to(prompt: tuple[int, ...]) -> list[int]:
    return list(ANSWERS(GenerateRequest("", prompt, prompt, 0, {}, False)).output_ids)


def key_of(number: int) -> str:
    return sha256(f"row {number}")


def swap(ids: list[int]) -> list[int]:
    return [ids[0], ids[2], ids[1], *ids[3:]]


class Sealed(Mill):
    """A mill whose dataset holds what the fake answers, but for the damage; greedy unless `sampling` says otherwise."""

    def seal(self, number: int, damage: dict[int, Damage] | None = None, **sampling: Any) -> str:
        data = self.data(sampling={"temperature": 0.0, "top_p": 1.0, "max_new_tokens": 32} | sampling)
        recipe = parse_recipe(data, origin="the test")
        storage = open_storage(self.dataset)
        rows = [self._row(n, (damage or {}).get(n, list)) for n in range(number)]
        table = pa.table({name: [row[name] for row in rows] for name in SHARD.names}, schema=SHARD)
        half = len(rows) // 2
        change = Change(
            good=[storage.put_table("shards", part) for part in (table[:half], table[half:]) if part.num_rows],
            recipe=recipe.model_dump(mode="json"),
            identity={"default": row_identity(recipe.model, recipe.sampling)},
            structures=structures_json(prepare(recipe)),
        )
        seal(storage, change)
        return self.dataset

    def _row(self, number: int, damage: Damage) -> dict[str, Any]:
        prompt = prompt_of(number)
        ids = [*prompt, *damage(answer_to(prompt))]
        ended = {"reasoning_end": None, "finish_reason": "stop", "stop_id": 2}
        return {
            "row_key": key_of(number),
            "prompt_key": sha256(f"prompt {number}"),
            "prompt_id": f"p{number}",
            "variant": "default",
            "sample": 0,
            "attempt": 0,
            "input_ids": np.array(ids, np.int32),
            "prompt_len": PROMPT_LEN,
            "spans": [{"start": PROMPT_LEN, "end": len(ids), **ended}],
            **ended,
            "max_new_tokens": 32,
            "engine": "sglang 0.5.23",
            "weight_version": "default",
            "messages": None,
            "source": "prompts.jsonl",
            "created_at": datetime(2026, 1, 2, tzinfo=UTC),
        }


@pytest.fixture
def sealed(tmp_path: Path) -> Sealed:
    return Sealed(tmp_path)


@pytest.fixture
def scoring(fake_server: Callable[..., FakeServer]) -> Callable[..., FakeServer]:
    def make(scorer: Scorer | None = None, **options: Any) -> FakeServer:
        return fake_server(ANSWERS, slots=4, scorer=scorer or sure_of(ANSWERS), **options)

    return make


async def audit(sealed: Sealed, url: str, **options: Any) -> Audit:
    """In a thread: it has a loop of its own, as on the command line."""
    return await asyncio.to_thread(audit_dataset, sealed.dataset, servers=[url], **options)


def found_keys(audit: Audit) -> set[str]:
    return {row.row_key for row in audit.rows if row.verdict is Verdict.SUSPICIOUS}


async def test_the_models_own_rows_pass(sealed: Sealed, scoring: Callable[..., FakeServer]) -> None:
    sealed.seal(12)
    async with scoring() as fake:
        found = await audit(sealed, fake.url)
    assert found.verdict is Verdict.OWN
    assert len(found.rows) == 12
    assert found.verdicts == {"own": 12, "suspicious": 0, "undecided": 0}
    assert sum(row.positions for row in found.rows) == sum(len(answer_to(prompt_of(n))) for n in range(12))
    assert sum(row.not_first for row in found.rows) == 0


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_p": 0.95}], ids=["greedy", "sampled"])
async def test_swapped_ids_are_found_in_their_rows_at_their_places(
    sealed: Sealed, scoring: Callable[..., FakeServer], sampling: dict[str, Any]
) -> None:
    sealed.seal(10, {2: swap, 7: swap}, **sampling)
    async with scoring() as fake:
        found = await audit(sealed, fake.url)
    assert found.verdict is Verdict.SUSPICIOUS
    assert found_keys(found) == {key_of(2), key_of(7)}
    for row in found.rows:
        if row.verdict is Verdict.SUSPICIOUS:
            assert row.places == (PROMPT_LEN + 1, PROMPT_LEN + 2)
            assert row.doubt is (Doubt.OUTSIDE if sampling else Doubt.NOT_FIRST)
            assert row.worst_at in row.places


async def test_vllm_is_asked_in_its_own_way(sealed: Sealed) -> None:
    sealed.changes = {"engine__kind": "vllm"}
    sealed.seal(6, {1: swap})
    answers = {"answers": ANSWERS, "model": MODEL, "limits": VllmLimits(2048, 49152)}
    async with VllmFake(**answers, scorer=sure_of(ANSWERS), scored_from=lambda ids: PROMPT_LEN) as fake:
        found = await audit(sealed, fake.url)
    assert found_keys(found) == {key_of(1)}
    assert found.verdicts["own"] == 5


async def test_rows_sampled_with_penalties_are_undecided_and_say_why(
    sealed: Sealed, scoring: Callable[..., FakeServer]
) -> None:
    sealed.seal(3, {1: swap}, temperature=1.0, repetition_penalty=1.1)
    async with scoring() as fake:
        found = await audit(sealed, fake.url)
    assert found.verdict is Verdict.UNDECIDED
    assert all("penalties" in row.why_undecided for row in found.rows)
    assert all(row.undecided == row.positions for row in found.rows)


async def test_so_many_rows_as_asked_for_or_the_ones_that_are_named(
    sealed: Sealed, scoring: Callable[..., FakeServer]
) -> None:
    sealed.seal(12, {3: swap})
    async with scoring() as fake:
        assert len((await audit(sealed, fake.url, rows=5)).rows) == 5
        named = await audit(sealed, fake.url, named=[key_of(3)[:10]])
        assert found_keys(named) == {key_of(3)} == {row.row_key for row in named.rows}
        with pytest.raises(RecipeError, match="no such good row"):
            await audit(sealed, fake.url, named=["0" * 12])


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
async def test_an_engine_without_log_probabilities_says_so(
    sealed: Sealed, fake_server: Callable[..., FakeServer], kind: str
) -> None:
    sealed.changes = {"engine__kind": kind}
    sealed.seal(2)
    vllm = VllmFake(answers=ANSWERS, model=MODEL, limits=VllmLimits(2048, 49152))
    async with fake_server(ANSWERS) if kind == "sglang" else vllm as fake:
        with pytest.raises(GateRefused, match="this engine gives no log-probabilities of a prompt"):
            await audit(sealed, fake.url)


async def test_another_model_is_refused_before_it_accuses_anyone(
    sealed: Sealed, scoring: Callable[..., FakeServer]
) -> None:
    sealed.changes = {"model__name": "another/model", "model__revision": "abc"}
    sealed.seal(2)
    async with scoring() as fake:
        with pytest.raises(GateRefused, match="model"):
            await audit(sealed, fake.url)


async def test_a_failing_request_is_asked_again(
    sealed: Sealed, scoring: Callable[..., FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "PAUSES_S", (0.0, 0.0, 0.0))
    sealed.seal(6)
    # 1 is the gate's canary, 2 the audit's first question
    async with scoring(rule=nth({4: Fault.RESET_MIDWAY, 6: Fault.ERROR_500})) as fake:
        found = await audit(sealed, fake.url)
        assert {entry.fault for entry in fake.log} == {None, Fault.RESET_MIDWAY, Fault.ERROR_500}
    assert found.verdicts["own"] == 6


async def test_what_was_audited_before_the_server_went_away_is_kept(
    sealed: Sealed, scoring: Callable[..., FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "PAUSES_S", (0.0,))
    sealed.seal(40)
    fake = scoring()
    told = sure_of(ANSWERS)
    asked: set[tuple[int, ...]] = set()
    ending: list[asyncio.Task[None]] = []

    def dying(ids: tuple[int, ...], start: int) -> dict[int, float]:
        asked.add(ids[:start])
        if len(asked) == 12:
            ending.append(loop.create_task(fake.cut()))
        return told(ids, start)

    loop = asyncio.get_running_loop()
    fake._scorer = dying
    async with fake:
        found = await audit(sealed, fake.url)
    assert 0 < len(found.rows) < 40
    assert found.stopped is not None
    assert found.to_json()["rows"]["not_audited"] == 40 - len(found.rows)


async def test_ids_beyond_the_longest_prompt_are_counted_not_accused(
    sealed: Sealed, fake_server: Callable[..., FakeServer]
) -> None:
    def long(ids: list[int]) -> list[int]:
        return [*ids, *[77] * 2040][: 2048 - PROMPT_LEN - 2]

    sealed.seal(2, {0: long})
    scorer: Scorer = lambda ids, start: {77: -0.1, 78: -3.0} if len(ids) > 20 else sure_of(ANSWERS)(ids, start)  # noqa: E731
    async with fake_server(ANSWERS, slots=4, scorer=scorer) as fake:
        found = await audit(sealed, fake.url, named=[key_of(0)])
    (row,) = found.rows
    assert row.unscored == 4
    assert row.positions + row.unscored == 2048 - PROMPT_LEN - 2


async def test_a_manifest_without_good_rows_has_nothing_to_audit(sealed: Sealed, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no dataset there"):
        await audit(sealed, "http://127.0.0.1:9")
    assert DatasetError.exit_code == 1


async def command(*arguments: str) -> tuple[int, str]:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["audit", *arguments])
    return result.exit_code, result.stdout


async def test_the_command_shows_each_place_and_ends_with_1(sealed: Sealed, scoring: Callable[..., FakeServer]) -> None:
    sealed.seal(4, {1: swap})
    async with scoring() as fake:
        status, text = await command(sealed.dataset, "--url", fake.url, "--json")
    assert status == 1
    wrong = swap(answer_to(prompt_of(1)))[1]
    assert f"[{wrong}]" in text
    assert key_of(1)[:12] in text
    told = json.loads(text.splitlines()[-1])
    assert told["verdict"] == "suspicious"
    assert told["rows"] == {"chosen": 4, "own": 3, "suspicious": 1, "undecided": 0, "not_audited": 0}
    assert [row["row_key"] for row in told["found"]] == [key_of(1)]
    assert told["found"][0]["places"] == [PROMPT_LEN + 1, PROMPT_LEN + 2]


async def test_the_command_ends_with_0_when_all_rows_are_the_models_own(
    sealed: Sealed, scoring: Callable[..., FakeServer]
) -> None:
    sealed.seal(4)
    async with scoring() as fake:
        status, text = await command(sealed.dataset, "--url", fake.url)
    assert status == 0, text
    assert "4 of 4 chosen rows audited: 4 own" in text


def test_which_options_there_are() -> None:
    text = CliRunner().invoke(app, ["audit", "--help"]).stdout
    options: Sequence[str] = ("--rows", "--row", "--manifest", "--url", "--tolerance", "--json", "Example:")
    assert all(option in text for option in options)
