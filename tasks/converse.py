"""A chunk of conversations: each turn asked on top of those before it, what is there already never again."""

from __future__ import annotations

from typing import Any

from draftmill.dataset.ancestors import read_ancestors
from draftmill.dataset.journal import Key
from draftmill.dataset.schema import table_rows
from draftmill.generation.conversations import Conversations, Outcome
from draftmill.generation.tickets import Asked
from draftmill.records import Completion, HistoryMode, Row, Said
from draftmill.workspace import Workspace, conversing, in_thread, pool
from tasks.answers import ended_early, failed_rows, failed_words, find_known, named, put_completions
from tasks.receipts import Receipt


async def converse(space: Workspace, chunk: Receipt) -> Receipt:
    """The receipt of `generate`, for a chunk whose rows have several turns or are turns of a conversation."""
    rows, known, sealed = await in_thread(_there, space, chunk)
    number = chunk["number"]
    pool().expect(number, len({_root(row) for row in rows if row.key not in known}))

    async def ask(row: Row, first: bool) -> Asked:
        return await pool().ask_one(row, chunk=number, expected=first)

    talk = conversing()
    conversations = Conversations(
        rows,
        ask=ask,
        judge=talk.judge,
        next_turn=talk.next_turn,
        known=known,
        sealed=sealed,
        weight_versions=pool().weight_versions,
    )
    outcome = await conversations.outcome()
    pool().failed |= failed_rows(outcome.failures)
    await space.journal.flush()
    return await in_thread(_store, space, rows, outcome)


def _there(space: Workspace, chunk: Receipt) -> tuple[list[Row], dict[Key, Completion], dict[str, Said]]:
    """The chunk's rows, the answers that are there to them and to their earlier turns, the sealed turns before them."""
    rows = table_rows(space.storage.read_table(chunk["rows"]["path"]))
    turns = {key for row in rows if row.history is HistoryMode.EXTENDS for key in row.earlier}
    known = find_known(space, [row.key for row in rows], chunk["parts"], turns=turns)
    reference: dict[str, Any] | None = chunk["ancestors"]
    return rows, known, read_ancestors(space.storage, space.storage.read_table(reference["path"])) if reference else {}


def _root(row: Row) -> str:
    return row.earlier[0] if row.earlier else row.row_key


def _store(space: Workspace, rows: list[Row], outcome: Outcome) -> Receipt:
    # Apart from the rows: other conversations of later runs may go on from them.
    put_completions(space, outcome.earlier)
    have = {completion.row.row_key: completion for completion in (*outcome.resumed, *outcome.generated)}
    return {
        "completions": put_completions(space, [have[row.row_key] for row in rows if row.row_key in have]),
        "generated": len(outcome.generated),
        "resumed": len(outcome.resumed),
        "failed": len(outcome.failures),
        "pending": len(outcome.pending),
        "tokens": {"prompt": outcome.prompt_tokens, "output": outcome.output_tokens},
        "failures": named(outcome.failures),
        "failed_words": failed_words(outcome.failures),
        "ended_early": ended_early(outcome.ended),
    }
