"""Generate on many machines: chunks dealt to runs of a deployment, taken up again here, with numbers that close.

What a partition finished is in the dataset, whoever reports it: after each round
the run plans anew on what is there. Chunks that a partition brought to their end
come with its receipts; the others are taken up from their parts, and rows that
nobody answered are failed as a partition heard it, or pending. A partition's death
costs a second round for its rows; a fault that stops all of them costs none.

Requests, retries and tokens are the sums of the last reports: of a partition that
was killed up to BEAT_S of them are not counted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftmill.dataset.partition_objects import remove_reports
from draftmill.errors import DraftmillError
from draftmill.generation.night import Night
from draftmill.generation.partitions import (
    ROUNDS,
    Report,
    all_stopped,
    deal,
    failed_rows,
    in_flight_shares,
    is_settled,
    left,
    partitions_lost,
    settled_chunks,
)
from draftmill.generation.pool import Counts
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import Variants
from draftmill.workspace import in_thread, workspace
from tasks.chunks import ChunkOutcome, RunOutcome, run_chunks
from tasks.gate import gate
from tasks.generated import NO_GATE, Generated, Replan, generate_here, plan_again
from tasks.partition import how_rendered
from tasks.partition_runs import Partition, end_left_behind, start, watch
from tasks.receipts import Receipt

log = logging.getLogger("draftmill.fan_out")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A `generated.Generate`: at most `partitions` runs of `deployment` at once."""

    partitions: int
    deployment: str

    async def __call__(
        self, plan: Receipt, recipe: Recipe, variants: Variants, *, night: Night, replan: Replan
    ) -> Generated:
        if await end_left_behind(recipe):
            plan = await plan_again(replan)
        if not plan["to_ask"]:
            return await generate_here(plan, recipe, variants, night=night, replan=replan)
        before = plan["resumed"]
        passed = await gate(recipe, variants, night=night)
        begun: list[Partition] = []
        try:
            plan = await self._rounds(plan, passed, recipe, variants, night, replan, begun)
        finally:
            await _remove_reports(begun)
        outcome = await take_up(plan, begun, recipe, variants)
        outcome.before, outcome.tokens = before, _tokens([each.report for each in begun])
        return Generated(plan, passed, outcome)

    async def _rounds(
        self,
        plan: Receipt,
        passed: Receipt,
        recipe: Recipe,
        variants: Variants,
        night: Night,
        replan: Replan,
        begun: list[Partition],
    ) -> Receipt:
        """The plan on what is there at the end; `begun` gets every partition."""
        most = self.partitions
        for _ in range(ROUNDS):
            settled = settled_chunks([each.report for each in begun])
            hands = deal(_unsettled(plan["chunks"], settled), most, recipe.engine.in_flight)
            if not hands:
                break
            to_ask = sum(left(chunk) for hand in hands for chunk in hand)
            fewer = "" if len(hands) == most else f" of {most}, since a chunk stays whole"
            listener().stage(f"rows to ask: {to_ask:,}; partitions: {len(hands)}{fewer} ({self.deployment})")
            shares = [_share(hand, passed, variants) for hand in hands]
            now = await start(
                self.deployment, shares, in_flight_shares(recipe.engine.in_flight, len(hands)), recipe, night
            )
            begun += now
            await watch(now, night=night, to_ask=to_ask)
            plan = await plan_again(replan)
            lost = [each for each in now if each.lost]
            for each in lost:
                listener().stage(f"{each.name} ended before its rows did: {each.state}")
            if not lost or all_stopped([each.report for each in now]):
                break
            most = max(1, len(now) - len(lost))
        return plan


async def _remove_reports(begun: Sequence[Partition]) -> None:
    try:
        await in_thread(remove_reports, workspace().storage, [each.path for each in begun])
    except Exception as error:
        # They are in nobody's way, and a later fan-out removes them: no reason to lose this one's rows.
        log.warning("reports of partitions could not be removed: %s", error)


def _unsettled(chunks: Sequence[Receipt], settled: dict[str, dict[str, Any]]) -> list[Receipt]:
    """Those with rows that nobody was asked for to the end: failed rows had their tries."""
    return [chunk for chunk in chunks if not _settled(settled.get(chunk["rows"]["sha256"]))]


def _settled(receipts: dict[str, Any] | None) -> bool:
    return receipts is not None and is_settled(receipts)


def _share(hand: Sequence[Any], passed: Receipt, variants: Variants) -> dict[str, Any]:
    to_ask = sum(map(left, hand))
    plan = {
        "chunks": list(hand),
        "to_ask": to_ask,
        "to_send": to_ask,
        "resumed": sum(chunk["resumed"] for chunk in hand),
    }
    return {"plan": plan, "servers": passed["reports"], "rendered": how_rendered(variants)}


async def take_up(plan: Receipt, begun: Sequence[Partition], recipe: Recipe, variants: Variants) -> RunOutcome:
    """What became of every chunk of the plan; nothing is asked."""
    reports = [each.report for each in begun]
    settled = settled_chunks(reports)
    outcomes = {chunk["number"]: _outcome(chunk, settled.get(chunk["rows"]["sha256"])) for chunk in plan["chunks"]}
    rest = [chunk for chunk in plan["chunks"] if outcomes[chunk["number"]] is None]
    here = {"chunks": rest, "to_ask": 0, "to_send": 0, "resumed": sum(chunk["resumed"] for chunk in rest)}
    done = await run_chunks(here, NO_GATE, recipe, variants, unasked=failed_rows(reports))
    taken = iter(done.chunks)
    chunks = [outcomes[chunk["number"]] or next(taken) for chunk in plan["chunks"]]
    counts = Counts(**{name: sum(getattr(each, name) for each in reports) for name in ("requests", "retries", "done")})
    counts.tokens = sum(each.tokens for each in reports)
    pending = sum(chunk.generated["pending"] if chunk.generated else chunk.chunk["num_rows"] for chunk in chunks)
    return RunOutcome(chunks, counts, done.stopped or (_stopped(begun, pending) if pending else None))


def _outcome(chunk: Receipt, receipts: dict[str, Any] | None) -> ChunkOutcome | None:
    """A chain that a partition brought to its end; None where there is more, or less, than its receipts tell."""
    if receipts is None or receipts["generated"] is None:
        return None
    generated = receipts["generated"]
    if generated["completions"] is not None and receipts["uploaded"] is None:
        return None
    if generated["generated"] + generated["resumed"] < chunk["resumed"]:
        return None
    return ChunkOutcome(chunk, **receipts, over=True)


def _tokens(reports: Sequence[Report]) -> dict[str, int]:
    """Of the rows that partitions asked; of prompts as far as their chunks came to an end."""
    asked = (each["generated"] for report in reports for each in report.chunks.values() if not each["cached"])
    return {
        "prompt": sum(receipt["tokens"]["prompt"] for receipt in asked if receipt),
        "output": sum(report.tokens for report in reports),
    }


def _stopped(begun: Sequence[Partition], pending: int) -> DraftmillError | None:
    """Why rows are pending: what stops all comes before what one machine lacks."""
    lost = [each for each in begun if each.lost]
    errors = sorted((each.report for each in begun if each.report.error), key=lambda report: not report.speaks_for_all)
    if errors and (all_stopped([each.report for each in begun]) or all(each.report.error for each in lost)):
        return errors[0].error
    return partitions_lost({each.name: each.state for each in lost}, rows=pending) if lost else None
