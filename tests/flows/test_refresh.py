"""The refresh flow: a dataset is brought up to its recipe, and asks only for what is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from draftmill.errors import GateRefused, SourceError
from draftmill.serving.fake import FakeServer
from draftmill.serving.faults import Fault, by_chance

TEN = [f"prompt {n}" for n in range(10)]
CANARY = 1


def asked(fake: FakeServer) -> int:
    """Requests without the gate's canary, which is asked once in every run that asks anything."""
    return len(fake.log) - CANARY


async def test_first_run_seals_every_prompt(mill, fake_server: Callable[..., FakeServer]) -> None:
    mill.prompts(TEN)
    async with fake_server() as fake:
        mill.url = fake.url
        data = await mill.refresh()
    sent = {tuple(entry.input_ids): entry.output_ids for entry in fake.log[CANARY:]}
    rows = mill.rows()
    assert data["state"] == "Completed"
    assert (data["exit_code"], data["summary"]["requests"], len(rows)) == (0, 10, 10)
    assert {tuple(row["input_ids"][: row["prompt_len"]]): row["input_ids"][row["prompt_len"] :] for row in rows} == sent


async def test_second_run_asks_nothing_and_needs_no_server(mill, fake_server) -> None:
    mill.prompts(TEN)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
    data = await mill.refresh()
    assert (data["summary"]["requests"], data["summary"]["sealed"], mill.manifest.version) == (0, False, 1)
    assert data["summary"]["rows"]["kept"] == 10


async def test_ten_more_prompts_ask_exactly_ten(mill, fake_server) -> None:
    mill.prompts(TEN)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
        before = len(fake.log)
        mill.prompts([f"new {n}" for n in range(10)] + TEN[::-1])
        data = await mill.refresh()
        assert len(fake.log) - before - CANARY == 10
    assert (data["summary"]["rows"]["kept"], data["summary"]["rows"]["ok"], len(mill.rows())) == (10, 10, 20)


async def test_changed_temperature_supersedes_all(mill, fake_server) -> None:
    mill.prompts(TEN)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
        old = {row["row_key"] for row in mill.rows()}
        data = await mill.refresh(sampling__temperature=0.5)
    new = {row["row_key"] for row in mill.rows()}
    assert (data["summary"]["rows"]["generated"], data["summary"]["rows"]["superseded"]) == (10, 10)
    assert len(new) == 10
    assert not old & new


async def test_raised_budget_asks_only_rows_cut_by_length(mill, fake_server) -> None:
    mill.prompts(TEN)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(sampling__max_new_tokens=5)
        cut = {row["row_key"] for row in mill.rows() if row["finish_reason"] == "length"}
        assert 0 < len(cut) < 10
        data = await mill.refresh(sampling__max_new_tokens=32)
    again = {row["row_key"] for row in mill.rows() if row["attempt"] == 1}
    assert (data["summary"]["rows"]["generated"], data["summary"]["rows"]["kept"]) == (len(cut), 10 - len(cut))
    assert again == cut
    assert len(mill.rows()) == 10


async def test_plan_generates_nothing_and_needs_no_server(mill) -> None:
    mill.prompts(TEN)
    data = await mill.refresh(plan_only=True)
    assert (data["summary"]["rows"]["generated"], mill.manifest) == (10, None)


async def test_stopped_engine_is_refused_by_the_gate(mill) -> None:
    mill.prompts(TEN)
    with pytest.raises(GateRefused, match="reachable"):
        await mill.refresh()


async def test_empty_source_is_an_error_and_seals_nothing(mill, fake_server) -> None:
    mill.prompts(TEN)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
    (mill.folder / "prompts.jsonl").write_text("")
    with pytest.raises(SourceError):
        await mill.refresh()
    assert (mill.manifest.version, len(mill.rows())) == (1, 10)


async def test_failed_rows_are_asked_again_and_no_others(mill, fake_server) -> None:
    mill.prompts(TEN)

    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(prompts__limit=1)
        first = len(fake.log)
        fake.rule = lambda number, request: Fault.ERROR_500 if number in (first + 3, first + 4) else None
        data = await mill.refresh(engine__retries=0)
        assert (data["state"], data["exit_code"]) == ("RowsMissing", 3)
        assert data["summary"]["rows"]["failed"] == 2
        assert len(mill.rows()) == 8
        fake.rule, before = None, len(fake.log)
        data = await mill.refresh()
        assert len(fake.log) - before - CANARY == 2
    assert (data["state"], len(mill.rows())) == ("Completed", 10)


async def test_bad_answers_go_into_quarantine_and_are_held(mill, fake_server) -> None:
    mill.prompts(TEN)
    async with fake_server() as fake:
        mill.url = fake.url
        fake.rule = lambda number, request: Fault.NO_END if number in (3, 4) else None
        data = await mill.refresh()
        assert (data["state"], data["exit_code"]) == ("PartialSuccess", 3)
        assert data["summary"]["reasons"] == {"no_end_of_turn": 2}
        fake.rule, before = None, len(fake.log)
        data = await mill.refresh()
        assert (len(fake.log), data["summary"]["rows"]["held"]) == (before, 2)
        data = await mill.rerun(generate=True, reasons=["no_end_of_turn"])
        assert len(fake.log) - before - CANARY == 2
    assert (len(mill.rows()), len(mill.rows("quarantine"))) == (10, 0)
    assert sorted(row["attempt"] for row in mill.rows()) == [0] * 8 + [1] * 2
    assert data["attempts"] == mill.manifest.counts["attempts"] == {"0": 8, "1": 2}


async def test_every_row_fault_at_once_ends_with_every_row_in_one_place(mill, fake_server) -> None:
    prompts = [f"prompt {n}" for n in range(120)]
    mill.prompts(prompts)
    faults = [
        Fault.ERROR_500, Fault.BAD_GATEWAY, Fault.UNAVAILABLE, Fault.RESET_BEFORE, Fault.RESET_MIDWAY,
        Fault.RESET_AFTER, Fault.TRUNCATED_JSON, Fault.FOREIGN_JSON, Fault.ABORTED, Fault.ABORTED_IN_QUEUE,
        Fault.WRONG_ECHO, Fault.FEWER_PROMPT_TOKENS, Fault.OTHER_RID, Fault.WRONG_COUNT, Fault.ID_OUT_OF_RANGE,
        Fault.NO_OUTPUT_IDS, Fault.NAN, Fault.NO_END,
    ]  # fmt: skip
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(prompts__limit=1)
        chance, canary = by_chance(dict.fromkeys(faults, 0.02), seed=3), len(fake.log) + 1
        fake.rule = lambda number, request: None if number == canary else chance(number, request)
        data = await mill.refresh(chunk_rows=32, engine__in_flight=32, engine__retries=3)
    rows = data["summary"]["rows"]
    # RESET_AFTER: the whole answer arrives before the reset.
    sound = (None, Fault.RESET_AFTER)
    good = {tuple(entry.output_ids) for entry in fake.log if entry.fault in sound and entry.output_ids}
    assert rows["kept"] + rows["ok"] + rows["quarantined"] + rows["failed"] == 120
    assert len(mill.rows()) == rows["kept"] + rows["ok"]
    assert all(tuple(row["input_ids"][row["prompt_len"] :]) in good for row in mill.rows())
