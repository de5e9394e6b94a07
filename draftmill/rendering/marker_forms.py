"""The ids of a marker, also where it is ordinary text that merges with what stands beside it.

A tokenizer that has `</think>` as a token gives it one id everywhere. One that
does not writes it in several ids, and which ones depends on the text around it:
a full stop before it and a line break behind it are often merged into its first
and last id. What can be merged with it, the vocabulary says: each token that ends
with a beginning of the marker, or begins with an end of it. So the marker is
tokenized between all of these, and of each the fewest ids that cover it are
taken: all of them read as the marker. Thousands of forms come of it, but few
lists: a first id out of these, those in the middle, a last one out of those.

Refuses a tokenizer that cannot say which text an id stands for. Where a
vocabulary has more neighbours than MOST_CONTEXTS allows, only USUAL ones are
combined with each other and with the vocabulary's, and an answer that has the
marker in other ids is one that lacks it, never one that is taken for right.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from draftmill.judging.structure import Form, Marker, ids_at, stands

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

USUAL_BEFORE = (
    "", "\n", "\n\n", " ", "  ", "\t", "\r\n", ".", ".\n", ".\n\n", "!", "?", "?\n", "?\n\n", ":", ":\n", ":\n\n",
    ",", ";", "'", "-", "/", "%", "\u3002", "\u2026", ")", ").", ").\n", "a", "7", "\u00e9", "\u4e86", "\u2705", ">",
    '"', "*", "**", "]", "}", "`", "$", "_",
)  # fmt: skip
"""What ends a sentence, a formula, a list or code; another marker; the start of a text. Those that do not merge count
too: tokenizers cut between letters and signs first, and do it in other ways beside the one and the other."""

USUAL_BEHIND = (
    "", "\n", "\n\n", "\n\n\n", "\r\n", " ", " a", "a", "A", "\na", "\n\na", "\n\nA", "\n\n#", "\n\n*", "\n\n1", "7",
    "<", "\n<", "\n\n<", "</", "(", '"', ".", ",", "-", "*", "**", "#", "/", "=", "_", "\u4f60", "\u00c9", "\u2705",
    "\t",
)  # fmt: skip
"""What begins an answer, a thought or another marker."""

FIRST_CONTEXT = ("\n", "\n")
"""Of the form that is shown, and stands for all."""

LEADING = ("", "\n", "\n\n", " ")
"""What may stand before a marker that an answer begins with."""

MOST_CONTEXTS = 100_000
"""Texts tokenized for one marker, a second or two. Vocabularies of 128,000 to 262,000 ids come to 8,000 to 60,000."""

MARKERS_KEPT = 64
"""Markers whose forms are kept: those of a recipe's tokenizers."""


@functools.lru_cache(maxsize=MARKERS_KEPT)
def marker_forms(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[Form, ...]:
    """Every form of the marker, the one between line breaks first, alone; () when the tokenizer cannot tell.

    One form of one id where the tokenizer has the marker as a token.
    """
    if (known := _token(tokenizer, text)) is not None:
        return ((known,),)
    if not tokenizer.is_fast:
        return ()
    first = next(_spelled(tokenizer, text, [FIRST_CONTEXT]))
    if text not in str(tokenizer.decode(list(first), skip_special_tokens=False)):
        return ()
    found = dict.fromkeys(_spelled(tokenizer, text, _contexts(tokenizer, text)))
    return (first, *(form for form in _joined(found) if form != first))


def opening_beginnings(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> dict[Marker, str]:
    """What an answer begins with that begins with one of the markers: ids, with the marker's text.

    Of a marker of several ids all but its last character, so that what is merged with that does not matter.
    """
    found: dict[Marker, str] = {}
    for text in texts:
        if (known := _token(tokenizer, text)) is not None:
            found[(known,)] = text
        elif tokenizer.is_fast:
            contexts = [(before, text[-1] + behind) for before in LEADING for behind in USUAL_BEHIND]
            found |= dict.fromkeys(_spelled(tokenizer, text[:-1], contexts), text)
    return found


def num_forms(forms: Sequence[Form]) -> int:
    """How many markers the forms are; one that is alone is often in a list as well."""
    lists = [form for form in forms if any(not isinstance(index, int) for index in form)]
    alone = {first_of(form) for form in forms if form not in lists}
    num_listed = sum(math.prod(len(ids_at(form, place)) for place in range(len(form))) for form in lists)
    return num_listed + sum(not any(stands(form, ids) for form in lists) for ids in alone)


def first_of(form: Form) -> Marker:
    """One marker of the form."""
    return tuple(ids_at(form, place)[0] for place in range(len(form)))


def places(ids: Marker, forms: tuple[Form, ...]) -> list[tuple[int, int]]:
    """Where any of the forms stands in `ids`, as [start, end), in order."""
    found = {
        (start, start + len(form))
        for form in forms
        for start in range(len(ids) - len(form) + 1)
        if stands(form, ids[start : start + len(form)])
    }
    return sorted(found)


def _token(tokenizer: PreTrainedTokenizerBase, text: str) -> int | None:
    return next((index for index, token in tokenizer.added_tokens_decoder.items() if str(token) == text), None)


def _contexts(tokenizer: PreTrainedTokenizerBase, text: str) -> list[tuple[str, str]]:
    """What stands before and behind: all of the vocabulary with each other, or, of too many, with the usual ones."""
    before, behind = _neighbours(tokenizer, text)
    all_before, all_behind = dict.fromkeys((*USUAL_BEFORE, *before)), dict.fromkeys((*USUAL_BEHIND, *behind))
    if len(all_before) * len(all_behind) <= MOST_CONTEXTS:
        return [(a, b) for a in all_before for b in all_behind]
    usual = [(a, b) for a in USUAL_BEFORE for b in all_behind] + [(a, b) for a in before for b in USUAL_BEHIND]
    return usual[:MOST_CONTEXTS]


def _neighbours(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[str], list[str]]:
    """What the vocabulary's tokens have before a beginning of the marker, and behind an end of it."""
    beginnings = tuple(text[:length] for length in range(1, len(text) + 1))
    endings = tuple(text[start:] for start in range(len(text)))
    before: list[str] = []
    behind: list[str] = []
    added = tokenizer.added_tokens_decoder
    for token, index in tokenizer.get_vocab().items():
        # Markers are ASCII, which vocabularies write as it is: only the few tokens that fit are decoded.
        ends, begins = token.endswith(beginnings), token.startswith(endings)
        if (ends or begins) and index not in added:
            decoded = _text_of(tokenizer, token, index)
            before += [decoded[: -len(part)] for part in beginnings if decoded.endswith(part)]
            behind += [decoded[len(part) :] for part in endings if decoded.startswith(part)]
    # A marker that ends with a letter is another word when letters go on.
    apart = [rest for rest in behind if not (text[-1].isalnum() and rest[:1].isalnum())]
    return [*dict.fromkeys(before)], [*dict.fromkeys(apart)]


def _text_of(tokenizer: PreTrainedTokenizerBase, token: str, index: int) -> str:
    """The token as text; empty for one that holds a part of a character."""
    if "\u2581" in token:  # SentencePiece drops the space of a lone piece when it decodes
        return token.replace("\u2581", " ")
    text = str(tokenizer.decode([index], skip_special_tokens=False))
    return "" if "\ufffd" in text else text


def _spelled(tokenizer: PreTrainedTokenizerBase, text: str, contexts: Sequence[tuple[str, str]]) -> Iterator[Marker]:
    """The ids that cover the text in each context."""
    encoded = tokenizer.backend_tokenizer.encode_batch(
        [before + text + behind for before, behind in contexts], add_special_tokens=False
    )
    for (before, _), each in zip(contexts, encoded, strict=True):
        start, end = len(before), len(before) + len(text)
        yield tuple(index for index, (a, b) in zip(each.ids, each.offsets, strict=True) if a < end and b > start)


def _joined(forms: Iterable[Marker]) -> list[Form]:
    """The same markers as few forms: first ids that have the same last ids behind the same middle become a list."""
    lasts: dict[tuple[Marker, Marker], set[int]] = defaultdict(set)
    firsts: dict[tuple[Marker, frozenset[int]], set[int]] = defaultdict(set)
    found: list[Form] = []
    for form in forms:
        if len(form) > 1:
            lasts[form[:1], form[1:-1]].add(form[-1])
        else:
            found.append(form)
    for (first, middle), last in lasts.items():
        firsts[middle, frozenset(last)] |= {*first}
    return found + [(_ids(first), *middle, _ids(last)) for (middle, last), first in firsts.items()]


def _ids(some: Iterable[int]) -> int | tuple[int, ...]:
    found = tuple(sorted(some))
    return found if len(found) > 1 else found[0]
