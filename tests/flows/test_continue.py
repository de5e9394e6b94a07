"""`on_truncated: continue`: rows cut by length are asked on from the ids so far, within a run and from run to run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from draftmill.dataset.journal import Journal, journal_path
from draftmill.generation import continuing
from draftmill.serving.answers import ran_out
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import FakeAnswer
from draftmill.serving.faults import Fault
from draftmill.serving.protocol import GenerateRequest

SIX = [f"prompt {n}" for n in range(6)]
NUM_IDS = 41
"""Ids of each answer, its end included: three requests of 16."""

END_ID = 2


@dataclass
class Speaker:
    """Answers as a model does that is asked on: what it says behind a prompt goes on behind the ids said so far."""

    said: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def __call__(self, request: GenerateRequest) -> FakeAnswer:
        prompt_ids = request.prompt_ids
        num_said = self.so_far(prompt_ids)
        start = len(prompt_ids) - num_said
        if not num_said:
            first_id = 1000 + sum(prompt_ids) % 30000
            self.said[prompt_ids] = [*range(first_id, first_id + NUM_IDS - 1), END_ID]
        return FakeAnswer(self.said[prompt_ids[:start]][num_said:])

    def so_far(self, prompt_ids: tuple[int, ...]) -> int:
        """How many of the prompt's ids are its own answer's first."""
        for prompt, answer in self.said.items():
            num = len(prompt_ids) - len(prompt)
            if num > 0 and prompt_ids == (*prompt, *answer[:num]):
                return num
        return 0


@pytest.fixture
def speaker() -> Speaker:
    return Speaker()


async def refresh(mill: Any, *, times: int = 4, **changes: Any) -> dict[str, Any]:
    settings = {"on_truncated": "continue", "continue_times": times, "sampling__max_new_tokens": 16}
    data: dict[str, Any] = await mill.refresh(**(settings | changes))
    return data


def answers_of(rows: list[dict[str, Any]]) -> dict[tuple[int, ...], list[int]]:
    return {tuple(row["input_ids"][: row["prompt_len"]]): row["input_ids"][row["prompt_len"] :] for row in rows}


def rounds_of(fake: FakeServer, speaker: Speaker, since: int = 0) -> list[int]:
    """Of each request that went on from ids said before: how many there were. Sorted."""
    sent = (tuple(entry.input_ids or ()) for entry in fake.log[since:])
    return sorted(num for ids in sent if (num := speaker.so_far(ids)))


async def test_an_answer_is_asked_on_until_its_end(mill, fake_server, speaker: Speaker) -> None:
    mill.prompts(SIX)
    async with fake_server(speaker) as fake:
        mill.url = fake.url
        data = await refresh(mill)
    rows = mill.rows()
    assert (data["state"], data["exit_code"]) == ("Completed", 0)
    assert {(row["attempt"], row["finish_reason"], row["max_new_tokens"]) for row in rows} == {(2, "stop", 48)}
    assert all(speaker.said[prompt] == answer for prompt, answer in answers_of(rows).items())
    assert len(rows) == len(SIX)
    summary = data["summary"]
    assert (summary["rows"]["generated"], summary["requests"], summary["retries"]) == (6, 18, 0)
    assert summary["tokens"] == {"prompt": sum(row["prompt_len"] for row in rows), "output": 6 * NUM_IDS}
    # Sealed: the journal keeps no round of them.
    with Journal(journal_path(mill.dataset)) as journal:
        assert journal.find([(row["row_key"], attempt) for row in rows for attempt in range(3)]) == {}
    again = await refresh(mill)
    assert (again["summary"]["requests"], again["summary"]["rows"]["kept"]) == (0, 6)


async def test_the_recipe_bounds_it_and_what_is_cut_then_is_good(mill, fake_server, speaker: Speaker) -> None:
    mill.prompts(SIX)
    async with fake_server(speaker) as fake:
        mill.url = fake.url
        data = await refresh(mill, times=1)
        rows = mill.rows()
        assert (data["exit_code"], data["summary"]["requests"]) == (0, 12)
        assert {(row["attempt"], row["finish_reason"], row["max_new_tokens"]) for row in rows} == {(1, "length", 32)}
        assert all(speaker.said[prompt][:32] == answer for prompt, answer in answers_of(rows).items())
        assert (await refresh(mill, times=1))["summary"]["requests"] == 0


@pytest.mark.parametrize("before", ["keep", "quarantine", "continue"])
async def test_stored_rows_are_asked_on_by_a_larger_budget(mill, fake_server, speaker: Speaker, before: str) -> None:
    """From shards and from quarantine: only what is missing of each answer is generated."""
    mill.prompts(SIX)
    stored = 32 if before == "continue" else 16
    async with fake_server(speaker) as fake:
        mill.url = fake.url
        await refresh(mill, times=1, on_truncated=before)
        assert len(mill.rows("quarantine" if before == "quarantine" else "shards")) == 6
        since = len(fake.log)
        data = await refresh(mill, times=4)
        rounds = rounds_of(fake, speaker, since)
    rows, summary = mill.rows(), data["summary"]
    assert rounds == [start for start in range(stored, NUM_IDS, 16) for _ in SIX]
    assert (summary["rows"]["generated"], summary["requests"]) == (6, len(rounds))
    assert summary["tokens"]["output"] == 6 * (NUM_IDS - stored)
    assert (len(rows), len(mill.rows("quarantine"))) == (6, 0)
    assert all(speaker.said[prompt] == answer for prompt, answer in answers_of(rows).items())
    assert {(row["attempt"], row["finish_reason"]) for row in rows} == {(2, "stop")}


async def test_a_run_that_ends_between_rounds_loses_none(mill, fake_server, speaker: Speaker) -> None:
    mill.prompts(SIX)

    def third_round_fails(_: int, request: GenerateRequest) -> Fault | None:
        return Fault.ERROR_500 if speaker.so_far(request.prompt_ids) == 32 else None

    async with fake_server(speaker, rule=third_round_fails) as fake:
        mill.url = fake.url
        data = await refresh(mill, engine__retries=0)
        assert data["summary"]["rows"]["failed"] == 6
        assert data["summary"]["tokens"]["output"] == 6 * 32
        assert mill.manifest is None
        fake.rule, since = None, len(fake.log)
        data = await refresh(mill)
        assert rounds_of(fake, speaker, since) == [32] * 6
    rows = mill.rows()
    assert (data["state"], data["summary"]["requests"]) == ("Completed", 6)
    assert data["summary"]["tokens"]["output"] == 6 * (NUM_IDS - 32)
    assert all(speaker.said[prompt] == answer for prompt, answer in answers_of(rows).items())
    assert [row["attempt"] for row in rows] == [2] * 6


async def test_another_machine_goes_on_from_the_parts(
    mill, fake_server, speaker: Speaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    mill.prompts(SIX)
    async with fake_server(speaker) as fake:
        mill.url = fake.url
        fake.rule = lambda _, request: Fault.ERROR_500 if speaker.so_far(request.prompt_ids) == 32 else None
        await refresh(mill, engine__retries=0)
        await refresh(mill, plan_only=True)  # which takes the journal's tail to the dataset
        monkeypatch.setenv("DRAFTMILL_STATE", str(tmp_path / "another-machine"))
        fake.rule = None
        data = await refresh(mill)
    assert (data["summary"]["requests"], len(mill.rows())) == (6, 6)
    assert all(speaker.said[prompt] == answer for prompt, answer in answers_of(mill.rows()).items())


async def test_a_round_with_a_foreign_prompt_is_quarantined_and_not_asked_on(
    mill, fake_server, speaker: Speaker
) -> None:
    mill.prompts(SIX)
    async with fake_server(speaker) as fake:
        mill.url = fake.url
        fake.rule = lambda _, request: Fault.WRONG_ECHO if speaker.so_far(request.prompt_ids) == 16 else None
        data = await refresh(mill)
        assert data["summary"]["reasons"] == {"prompt_mismatch": 6}
        assert data["summary"]["requests"] == 12
        fake.rule = None
        held = await refresh(mill)
    assert (held["summary"]["requests"], held["summary"]["rows"]["held"]) == (0, 6)


@pytest.mark.parametrize("setting", ["stop", "record"])
async def test_ids_of_other_weights_are_not_asked_on(mill, fake_server, speaker: Speaker, setting: str) -> None:
    """From a part, which no manifest knows, and from a shard: the rows begin anew, and are of one model."""
    mill.prompts(SIX)
    async with fake_server(speaker) as fake:
        mill.url = fake.url
        if setting == "stop":
            fake.rule = lambda _, request: Fault.ERROR_500 if speaker.so_far(request.prompt_ids) == 16 else None
        await refresh(mill, times=1, engine__retries=0)
        assert (mill.manifest is None) == (setting == "stop")
        fake.card, fake.rule, since = replace(fake.card, weight_version="w2"), None, len(fake.log)
        data = await refresh(mill, engine__weights=setting)
        assert rounds_of(fake, speaker, since) == [16] * 6 + [32] * 6
    assert (data["exit_code"], data["summary"]["requests"]) == (0, 18)
    assert data["summary"]["tokens"]["output"] == 6 * NUM_IDS
    rows = mill.rows()
    assert {(row["weight_version"], row["finish_reason"]) for row in rows} == {("w2", "stop")}
    assert all(speaker.said[prompt] == answer for prompt, answer in answers_of(rows).items())
    assert len(rows) == 6


def looks_at_the_budget_first(fake: FakeServer) -> None:
    """The server says `length` of an answer whose last allowed id ends the turn."""
    answer = fake.answer

    async def budget_first(request: GenerateRequest) -> Any:
        body = await answer(request)
        if isinstance(body, dict) and len(body["output_ids"]) == NUM_IDS:
            body["meta_info"]["finish_reason"] = ran_out(NUM_IDS)
        return body

    fake.answer = budget_first  # type: ignore[method-assign]


async def test_nothing_is_asked_on_behind_the_end_of_a_turn(mill, fake_server, speaker: Speaker) -> None:
    mill.prompts(SIX)
    async with fake_server(speaker) as fake:
        mill.url = fake.url
        looks_at_the_budget_first(fake)
        data = await refresh(mill, sampling__max_new_tokens=NUM_IDS)
    assert (data["exit_code"], data["summary"]["requests"]) == (0, 6)
    assert {(row["attempt"], row["finish_reason"], row["stop_id"]) for row in mill.rows()} == {(0, "stop", END_ID)}
    again = await refresh(mill, sampling__max_new_tokens=NUM_IDS)
    assert (again["summary"]["requests"], again["summary"]["rows"]["kept"]) == (0, 6)


@pytest.mark.parametrize("before", ["keep", "quarantine"])
async def test_a_row_stored_as_cut_that_has_ended_is_finished_without_a_request(
    mill, fake_server, speaker: Speaker, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    mill.prompts(SIX)
    async with fake_server(speaker) as fake:
        mill.url = fake.url
        looks_at_the_budget_first(fake)
        with monkeypatch.context() as as_the_server_says:
            as_the_server_says.setattr(continuing, "ended", lambda answer, end_ids: answer)
            await refresh(mill, sampling__max_new_tokens=NUM_IDS, on_truncated=before)
        assert len(mill.rows("quarantine" if before == "quarantine" else "shards")) == 6
        data = await refresh(mill, sampling__max_new_tokens=NUM_IDS)
    summary, rows = data["summary"], mill.rows()
    assert (data["exit_code"], summary["requests"], summary["tokens"]["output"]) == (0, 0, 0)
    assert (summary["rows"]["resumed"], summary["rows"]["generated"]) == (6, 0)
    assert {(row["attempt"], row["finish_reason"], row["stop_id"]) for row in rows} == {(1, "stop", END_ID)}
    assert all(speaker.said[prompt] == answer for prompt, answer in answers_of(rows).items())
    assert (len(rows), len(mill.rows("quarantine"))) == (6, 0)
    again = await refresh(mill, sampling__max_new_tokens=NUM_IDS)
    assert again["summary"]["rows"]["kept"] == 6
