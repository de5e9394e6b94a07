"""Text in a source row that becomes control ids: a user who typed `<|im_start|>`.

The tokenizer cannot tell it from the template's own markers, so a prompt may
hold forged turns. Found on ids: where a content holds an added token's text, the
conversation is rendered again with that text masked, and if control ids go away
they came from the text. What a template strips or writes itself is not counted.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from draftmill.arrays import Ids
from draftmill.rendering.template import Refused

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MASK = "text"
"""What stands for a marker's text in the second rendering: a word without control ids."""

Conversation = tuple[list[dict[str, Any]], list[dict[str, Any]] | None]
Render = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None], Ids | Refused]


def control_ids_of_text(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], ids_P: Ids, render: Callable[..., Ids | Refused]
) -> Counter[int]:
    """Control ids in a prompt that the text of these messages became, with their numbers; `render`: the prompt with
    these messages in their place."""
    pattern, control_ids = _control_tokens(tokenizer)
    found: list[str] = []
    masked = _masked(messages, pattern, found)
    if not found:
        return Counter()
    plain = render(masked)
    before, after = (
        Counter[int]() if isinstance(ids, Refused) else Counter[int](ids[np.isin(ids, control_ids)].tolist())
        for ids in (ids_P, plain)
    )
    return before - after


def special_text(
    tokenizer: PreTrainedTokenizerBase, conversation: Conversation, prompt_ids_P: Ids, render: Render
) -> list[str]:
    """The markers' texts in it that became control ids, sorted. Most conversations hold none and cost one search."""
    pattern, control_ids = _control_tokens(tokenizer)
    found: list[str] = []
    masked = _masked(list(conversation), pattern, found)
    if not found:
        return []
    plain = render(*masked)
    if not isinstance(plain, Refused):
        before, after = (int(np.isin(ids, control_ids).sum()) for ids in (prompt_ids_P, plain))
        if after >= before:
            return []
    return sorted(set(found))


@functools.lru_cache(maxsize=8)
def _control_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[re.Pattern[str], Ids]:
    """Added tokens as a pattern (the longest first) and as ids; white space is text in some tokenizers' lists."""
    tokens = {index: str(token) for index, token in tokenizer.added_tokens_decoder.items() if str(token).strip()}
    longest_first = sorted(tokens.values(), key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first)) or "(?!)"
    return re.compile(pattern), np.array(sorted(tokens), np.int32)


def _masked(value: Any, pattern: re.Pattern[str], found: list[str]) -> Any:
    if isinstance(value, str):
        found += pattern.findall(value)
        return pattern.sub(MASK, value)
    if isinstance(value, dict):
        return {key: item if key == "role" else _masked(item, pattern, found) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, pattern, found) for item in value]
    return value
