"""What each reason code means, in a sentence for people: docs/reason-codes.md says the same and more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from draftmill.records import Reason

MEANINGS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.ABORTED: "The server gave the answer up (finish_reason abort).",
        Reason.CORRUPTED: "The server reported NaN while sampling.",
        Reason.PROMPT_MISMATCH: "The server used other prompt ids than were sent, or fewer.",
        Reason.COUNT_MISMATCH: "The number of ids differs from what the server counted.",
        Reason.ID_OUT_OF_RANGE: "An output id that the tokenizer does not know.",
        Reason.EMPTY_OUTPUT: "No ids at all.",
        Reason.PROMPT_ECHO: "The answer begins with two or more ids of the prompt's end, or with a marker that stands "
        "in it.",
        Reason.AFTER_END_OF_TURN: "Ids follow the id that ended the turn.",
        Reason.REASONING_REOPENED: "A second reasoning block begins, or a marker of reasoning stands where the prompt "
        "closed it or there is none.",
        Reason.REASONING_NOT_OPENED: "The structure wants reasoning, none was opened.",
        Reason.FOREIGN_MARKER: "A role or turn marker stands inside the answer, or a channel's marker where none may "
        "be.",
        Reason.TRUNCATED: "Cut by length, and the recipe says on_truncated: quarantine.",
        Reason.NO_END_OF_TURN: "It stopped, but not at an id that ends a turn.",
        Reason.REASONING_NOT_CLOSED: "It ended by itself inside the reasoning.",
        Reason.EMPTY_CONTENT: "Reasoning, then nothing but white space.",
        Reason.DEGENERATE: "The end is a loop.",
        Reason.PROMPT_INVALID: "The row is not a prompt, or the template refuses it in its own words, or leaves the "
        "tool calls of earlier turns out.",
        Reason.PROMPT_TOO_LONG: "The prompt leaves too little room for an answer.",
        Reason.DUPLICATE: "The same row key as an earlier row, whose file and line are named.",
        Reason.SPECIAL_TEXT: "Content becomes control ids, and the recipe says special_text: reject.",
        Reason.REQUEST_FAILED: "No answer after all retries; the detail is the server's words.",
    }
)


def meaning(reason: str) -> str:
    """Of a code as a row has it; empty for one that this draftmill does not know."""
    return MEANINGS[Reason(reason)] if reason in set(Reason) else ""
