"""Generate: a chunk's rows in, its completions out, as one object of the dataset.

What the journal or an earlier part already has is not asked again. A chunk with
a missing row is Failed, with the receipt of what it has: the chain goes on with
that, nothing is cached, and a retry asks only for what is missing.

A row that is asked on comes back in a later attempt than the one it was planned
as, one for each round; the rounds before are in the journal only. Where the
answer so far turns out to have ended, that is the row, and nothing is asked. The
turns of conversations are `converse`'s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prefect import State
from prefect.states import Failed

from draftmill.dataset.journal import Key
from draftmill.dataset.priors import read_priors
from draftmill.dataset.schema import table_rows
from draftmill.generation.continuing import taken_up
from draftmill.generation.tickets import Asked
from draftmill.records import Answer, Completion, Row
from draftmill.workspace import Workspace, in_thread, pool, workspace
from tasks.answers import ended_early, failed_rows, failed_words, find_known, named, put_completions
from tasks.converse import converse
from tasks.receipts import Receipt, stage


@stage(
    name="generate",
    run_name="generate chunk {chunk[number]}/{chunk[total]}",
    version=3,
    key=lambda p: p["chunk"]["rows"]["sha256"],
    gives={
        "completions",
        "generated",
        "resumed",
        "failed",
        "pending",
        "tokens",
        "failures",
        "failed_words",
        "ended_early",
    },
)
async def generate(chunk: Receipt) -> Receipt | State[Receipt]:
    """`{completions: reference or None, generated, resumed, failed, pending, tokens, failures, failed_words,
    ended_early}`."""
    space = workspace()
    if chunk["turns"]:
        receipt = await converse(space, chunk)
    else:
        rows, known, priors = await in_thread(_there, space, chunk)
        asked = await pool().ask([row for row in rows if row.key not in known], chunk=chunk["number"], priors=priors)
        pool().failed |= failed_rows(asked.failures)
        await space.journal.flush()
        receipt = await in_thread(_store, space, rows, [*known.values()], asked)
    if receipt["failed"] or receipt["pending"]:
        return Failed(message=_missing(receipt, pool().stopped), data=receipt)
    return receipt


def _there(space: Workspace, chunk: Receipt) -> tuple[list[Row], dict[Key, Completion], dict[Key, Answer]]:
    """The chunk's rows, what is known of them, and what they go on from. One thread: rows wait behind it."""
    rows = table_rows(space.storage.read_table(chunk["rows"]["path"]))
    found = find_known(space, [row.key for row in rows], chunk["parts"])
    known = {row.key: _of(row, found[row.key]) for row in rows if row.key in found}
    taken = _taken_up(space, [row for row in rows if row.key not in known], chunk["priors"])
    known |= {key: found for key, found in taken.items() if isinstance(found, Completion)}
    return rows, known, {key: found for key, found in taken.items() if isinstance(found, Answer)}


def _taken_up(
    space: Workspace, rows: list[Row], reference: dict[str, Any] | None
) -> dict[Key, Answer | Completion | None]:
    """What the answers so far are to the rows that have one. What is gone is asked from the start."""
    if reference is None:
        return {}
    try:
        found = read_priors(space.storage, space.storage.read_table(reference["path"]))
    except FileNotFoundError:
        return {}
    weights = pool().weight_versions
    return {
        row.key: taken_up(row, found[row.key], end_ids=pool().way(row).end_ids, weight_versions=weights)
        for row in rows
        if row.key in found
    }


def _of(row: Row, completion: Completion) -> Completion:
    """A stored answer as this run's row: the same ids and the budget it had, today's place in the source."""
    return replace(completion, row=replace(row, max_new_tokens=completion.row.max_new_tokens))


def _store(space: Workspace, rows: list[Row], known: list[Completion], asked: Asked) -> Receipt:
    have = {completion.row.row_key: completion for completion in (*known, *asked.completions)}
    ordered = [have[row.row_key] for row in rows if row.row_key in have]
    prompt_tokens = sum(len(completion.row.prompt_ids) for completion in asked.completions)
    return {
        "completions": put_completions(space, ordered),
        "generated": len(asked.completions),
        "resumed": len(known),
        "failed": len(asked.failures),
        "pending": len(asked.pending),
        # What came now, also for rows that are not finished: the run that goes on from it counts the rest.
        "tokens": {"prompt": prompt_tokens, "output": asked.tokens},
        "failures": named(asked.failures),
        "failed_words": failed_words(asked.failures),
        "ended_early": ended_early(),
    }


def _missing(receipt: dict[str, Any], stopped: Exception | None) -> str:
    parts = []
    if receipt["failed"]:
        parts.append(f"{receipt['failed']} rows failed, the first with: {receipt['failures'][0]['detail']}")
    if receipt["pending"]:
        parts.append(f"{receipt['pending']} rows were not asked")
    if stopped:
        parts.append(str(stopped).splitlines()[0])
    return "; ".join(parts)
