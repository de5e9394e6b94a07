"""A soak: 20,000 rows, every fault of a row at 1 %, the breaker off.

Every row ends in exactly one place; what is stored is what the server's own log
says it sent; nothing is asked again once it was answered; the loop stays free.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import verify
from draftmill.generation import pace
from draftmill.serving.faults import Fault
from draftmill.serving.kimi_case import CONTEXT_LENGTH, FoundingCase, kimi_case
from draftmill.serving.shaped import KIMI, KIMI_MARKERS

ROWS = 20_000
IN_FLIGHT = 400
RETRIES = 8
SHARE = 0.01

LAG_BOUND_S = 0.25
"""How late the loop may be at worst while rows are out: requests are sent and answers read by it, so a server waits as
long. Two cores with nothing else to do show a quarter of it."""

OVERDUE_S = 20.0
"""In place of `pace.LEAST_S`: what a stuck request costs is not what is tested here."""

OF_THE_SERVER = {Fault.UNAVAILABLE, Fault.RATE_LIMITED}
"""What a server says of itself, not of a row: one in a hundred of these holds it at a handful of requests at once, as
it should. They have a run of their own."""

CURED = {
    Fault.ERROR_500, Fault.BAD_GATEWAY, Fault.RESET_BEFORE, Fault.RESET_REUSED, Fault.HANG, Fault.RESET_MIDWAY,
    Fault.TRUNCATED_JSON, Fault.FOREIGN_JSON, Fault.ABORTED, Fault.ABORTED_IN_QUEUE, Fault.OTHER_RID,
    Fault.NO_OUTPUT_IDS,
}  # fmt: skip
"""Asked again, and well the next time."""

GOOD = {None, Fault.RESET_AFTER, Fault.OTHER_WEIGHTS}
"""The answer is whole and true: a reset behind it, or other weights that the recipe records."""

QUARANTINED = {
    Fault.WRONG_ECHO: "prompt_mismatch",
    Fault.FEWER_PROMPT_TOKENS: "prompt_mismatch",
    Fault.WRONG_COUNT: "count_mismatch",
    Fault.ID_OUT_OF_RANGE: "id_out_of_range",
    Fault.NAN: "corrupted",
    Fault.STRIPPED_MARKER: "reasoning_not_closed",
    Fault.PROMPT_TAIL_FIRST: "prompt_echo",
    Fault.OPENED_AGAIN: "prompt_echo",
    Fault.NO_END: "no_end_of_turn",
    Fault.TRIMMED: "count_mismatch",
    Fault.EMPTIED: "empty_output",
    Fault.PAST_END: "after_end_of_turn",
    Fault.FORCED_CLOSE: "reasoning_reopened",
    Fault.NEXT_TURN: "foreign_marker",
    Fault.NO_CONTENT: "empty_content",
    Fault.LOOPED: "truncated",
    Fault.CLIPPED_BUDGET: "truncated",
}
"""An answer that is not what it should be: kept apart under this reason, and not asked again."""

Entry = dict[str, Any]


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> FoundingCase:
    return kimi_case(tmp_path_factory.mktemp("kimi"))


@pytest.fixture
def kimi_process(fake_process: Callable[..., Any]) -> Callable[..., Any]:
    """A Kimi-shaped fake server with these faults at 1 % each."""

    def start(faults: set[Fault], *arguments: object) -> Any:
        shares = [word for fault in sorted(faults) for word in ("--fault", f"{fault}={SHARE}")]
        markers = ["--open-id", KIMI_MARKERS["<think>"], "--close-id", KIMI_MARKERS["</think>"]]
        markers += ["--end-id", KIMI_MARKERS["<|im_end|>"], "--ordinary", 1000, 40000]
        model = ["--model", KIMI.model, "--context-length", CONTEXT_LENGTH, "--vocabulary", 163840]
        return fake_process(*model, "--slots", IN_FLIGHT, *markers, *arguments, *shares)

    return start


def by_prompt(log: list[Entry]) -> dict[tuple[int, ...], list[Entry]]:
    entries: dict[tuple[int, ...], list[Entry]] = defaultdict(list)
    for entry in log:
        entries[tuple(entry["input_ids"])].append(entry)
    return entries


def split(row: dict[str, Any]) -> tuple[tuple[int, ...], list[int]]:
    """A stored row's prompt and output."""
    ids, prompt_len = row["input_ids"], row["prompt_len"]
    return tuple(ids[:prompt_len]), list(ids[prompt_len:])


def test_the_lists_name_every_fault() -> None:
    lists = [OF_THE_SERVER, CURED, GOOD - {None}, QUARANTINED.keys()]
    assert set().union(*lists) == set(Fault)
    assert sum(map(len, lists)) == len(Fault)


@pytest.mark.timeout(1800)
async def test_every_fault_of_a_row(
    mill: Any,
    kimi: FoundingCase,
    kimi_process: Callable[..., Any],
    loop_lags: list[tuple[float, float]],
    told: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "LEAST_S", OVERDUE_S)
    mill.prompts([f"Question number {n}?" for n in range(ROWS)])
    mill.changes = {"model": kimi.recipe.model.model_dump(), "sampling__max_new_tokens": 256, "chunk_rows": "auto"}
    mill.changes |= {
        "engine__in_flight": IN_FLIGHT,
        "engine__retries": RETRIES,
        "engine__weights": "record",
        "on_truncated": "quarantine",
    }
    fake = kimi_process(
        set(Fault) - OF_THE_SERVER, "--seed", 1, "--lengths", 20, 120, "--first-s", 0.8, "--per-id-s", 0.004
    )
    mill.url = fake.url
    data = await mill.refresh()
    log = await fake.log("fault", "status", "input_ids", "output_ids", "started_at", "ended_at")
    rows, good, bad = data["summary"]["rows"], mill.rows(), mill.rows("quarantine")
    first, last_answer = log[1]["started_at"], max(entry["ended_at"] or 0 for entry in log)
    lags = sorted(lag for began, lag in loop_lags if first <= began <= last_answer)
    told(
        rows=dict(rows),
        reasons=data["summary"]["reasons"],
        requests=len(log),
        seconds=data["summary"]["seconds"],
        generation_s=round(last_answer - first, 1),
        lag_max_ms=round(lags[-1] * 1000, 1),
        lag_p999_ms=round(lags[int(len(lags) * 0.999)] * 1000, 1),
        lag_p99_ms=round(lags[int(len(lags) * 0.99)] * 1000, 1),
        lags_over_100_ms=sum(lag > 0.1 for lag in lags),
    )
    assert len(good) + len(bad) == len({row["row_key"] for row in (*good, *bad)}) == ROWS
    assert (rows["planned"], rows["ok"], rows["quarantined"], rows["failed"]) == (ROWS, len(good), len(bad), 0)
    assert verify(open_storage(mill.dataset)).ok
    entries, verdicts = by_prompt(log), Counter[tuple[Any, Any]]()
    for row in (*good, *bad):
        prompt, output = split(row)
        *earlier, last = entries.pop(prompt)
        # RESET_AFTER: a client that has not read the whole answer yet asks again, rightly.
        assert all(entry["fault"] in CURED | {Fault.RESET_AFTER} for entry in earlier), (earlier, last)
        assert output == last["output_ids"]
        verdicts[last["fault"], row.get("reason")] += 1
    assert set(verdicts) == {*QUARANTINED.items(), *((fault, None) for fault in GOOD)}, verdicts
    assert len(entries) == 1, "the canary's, and no other prompt was asked"
    assert {entry["fault"] for entry in log} == set(Fault) - OF_THE_SERVER | {None}
    assert lags[-1] < LAG_BOUND_S


@pytest.mark.timeout(900)
async def test_a_server_that_says_it_is_full(
    mill: Any, kimi: FoundingCase, kimi_process: Callable[..., Any], told: Callable[..., None]
) -> None:
    """503 and 429 at 1 % each: it is asked more slowly, and no row is worse for it."""
    mill.prompts([f"Question number {n}?" for n in range(1000)])
    mill.changes = {"model": kimi.recipe.model.model_dump(), "engine__in_flight": 64, "chunk_rows": 100}
    fake = kimi_process(OF_THE_SERVER, "--seed", 3, "--lengths", 20, 30, "--first-s", 0.05)
    mill.url = fake.url
    data = await mill.refresh(engine__wait_s=60)
    log = await fake.log("fault", "input_ids", "output_ids", "status")
    entries = by_prompt(log)
    told(seconds=data["summary"]["seconds"], statuses=Counter(entry["status"] for entry in log))
    assert (data["state"], len(mill.rows())) == ("Completed", 1000)
    for row in mill.rows():
        prompt, output = split(row)
        *earlier, last = entries[prompt]
        assert (last["fault"], last["output_ids"]) == (None, output)
        assert all(entry["fault"] in OF_THE_SERVER for entry in earlier)
    assert {entry["fault"] for entry in log} == {None, *OF_THE_SERVER}
