"""A run whose answers are mostly wrong stops, says why, and loses nothing."""

from __future__ import annotations

from draftmill.serving.faults import Act, Fault

CANARY = 1


async def test_it_stops_with_counts_examples_and_the_likely_cause_and_seals_what_is_finished(mill, fake_server) -> None:
    tail_first = Act(Fault.PROMPT_TAIL_FIRST, amount=3)
    mill.prompts([f"prompt {n}" for n in range(40)])
    async with fake_server() as fake:
        mill.url = fake.url
        fake.rule = lambda number, request: tail_first if number > CANARY + 4 else None
        data = await mill.refresh(breaker={"share": 0.5, "window": 8}, engine__in_flight=4)
        rows = data["summary"]["rows"]
        assert (data["state"], data["exit_code"], rows["failed"]) == ("RowsMissing", 5, 0)
        assert (rows["ok"], rows["ok"] + rows["quarantined"] + rows["pending"]) == (4, 40)
        assert rows["pending"] > 0
        words = data["error"].split("\n")
        assert words[0].startswith("the breaker stopped the run: ")
        assert words[1].startswith("  got:      prompt_echo ")
        shown = [row["row_key"][:12] for row in mill.rows("quarantine")]
        assert all(any(f"(row {key}): prompt_echo: " in line for key in shown) for line in words[2:4])
        assert f"{fake.url} reports sglang 0.5.23" in data["error"]
        fake.rule = None
        data = await mill.refresh(breaker={"share": 0.5, "window": 8})
        assert (data["state"], data["summary"]["rows"]["held"]) == ("Completed", rows["quarantined"])
    assert len(mill.rows()) + len(mill.rows("quarantine")) == 40
