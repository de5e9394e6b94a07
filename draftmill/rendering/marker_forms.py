"""The ids of a marker, also where it is ordinary text that merges with what stands beside it.

A tokenizer that has `</think>` as a token gives it one id everywhere. One that
does not writes it in several ids, and which ones depends on the text around it:
a full stop before it and a line break behind it are often merged into its first
and last id. So the marker is tokenized in the contexts in which models write it,
and of each the fewest ids that cover it are taken: all of them read as the marker.

Refuses a tokenizer that cannot say which text an id stands for. Context that is
not listed here may give further ids: an answer that has the marker in those only
is one that lacks it, never one that is taken for right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BEFORE = (
    "", "\n", "\n\n", " ", ".", ".\n", ".\n\n", "!", "?", "?\n", "?\n\n", ":", ":\n", ":\n\n",
    ")", ").", ").\n", "a", "7", ">", '"', "*", "]", "}", "`", "$",
)  # fmt: skip
"""What ends a sentence, a formula, a list or code; another marker; and the start of a text."""

BEHIND = (
    "", "\n", "\n\n", " ", " a", "a", "A", "\na", "\n\na", "\n\nA", "\n\n#", "\n\n*", "\n\n1",
    "7", "<", "\n<", "\n\n<", "</",
)  # fmt: skip
"""What begins an answer, a thought or another marker."""

Marker = tuple[int, ...]


def marker_forms(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[Marker, ...]:
    """Every form of the marker, the one between line breaks first; () when the tokenizer cannot tell.

    One form of one id where the tokenizer has the marker as a token.
    """
    known = next((index for index, token in tokenizer.added_tokens_decoder.items() if str(token) == text), None)
    if known is not None:
        return ((known,),)
    if not tokenizer.is_fast:
        return ()
    contexts = [("\n", "\n"), *((before, behind) for before in BEFORE for behind in BEHIND)]
    encoded = tokenizer(
        [before + text + behind for before, behind in contexts],
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
    )
    forms: dict[Marker, None] = {}
    for (before, _), ids, offsets in zip(contexts, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        start, end = len(before), len(before) + len(text)
        form = tuple(index for index, (a, b) in zip(ids, offsets, strict=True) if a < end and b > start)
        if text not in str(tokenizer.decode(list(form), skip_special_tokens=False)):
            return ()
        forms[form] = None
    return tuple(forms)


def places(ids: tuple[int, ...], forms: tuple[Marker, ...]) -> list[tuple[int, int]]:
    """Where any of the forms stands in `ids`, as [start, end), in order."""
    found = [
        (start, start + len(form))
        for form in forms
        for start in range(len(ids) - len(form) + 1)
        if ids[start] == form[0] and ids[start : start + len(form)] == form
    ]
    return sorted(found)
