"""The next turn's prompt, on top of what was generated: exact on ids in either mode.

Where the template extends its history, the prompt is the ids so far and what
the template writes between two turns (`history.between`); the library
`renderers`, where it knows the model, must bridge to the same ids, and is left
aside when it does not. Where the template rewrites it, the generated turns go
back into it as messages, split on ids into reasoning and content. Generated ids
are never tokenized again as something to train on: they stay in the rows they
came in. Generated text that would come back as control ids which the model never
sent is counted, or ends the conversation (`prompts.special_text`).

Not for the event loop: rendering takes milliseconds. A tokenizer is used by one
thread at a time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from draftmill.arrays import Ids, ids_array
from draftmill.judging.structure import Form, Structure, stands
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.records import HistoryMode, Row, Said, Thinking
from draftmill.rendering.bridge import bridged, renderer_of, tool_calls
from draftmill.rendering.call_form import CallForm, call_form, has_calls, in_form
from draftmill.rendering.context import room, too_long
from draftmill.rendering.conversation import Conversation, Message
from draftmill.rendering.history import between, history_mode
from draftmill.rendering.special_text import control_ids_of_text
from draftmill.rendering.template import Refused, render_date, render_ids
from draftmill.rendering.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing can be asked behind a turn, and why: no room, or the template does not take what came."""

    words: str


@dataclass(frozen=True, slots=True)
class Parts:
    """A generated turn's own ids, without the markers around its reasoning and the id that ended it."""

    reasoning: Ids | None
    content: Ids

    @property
    def ids(self) -> list[int]:
        return [*([] if self.reasoning is None else self.reasoning.tolist()), *self.content.tolist()]


class NextTurn:
    """Makes the rows of later turns. `recipe`: the variant's own."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, structure: Structure) -> None:
        self._tokenizer = tokenizer
        self._recipe = recipe
        self._structure = structure
        self._date = render_date(recipe.model)
        self._call_form: CallForm | None = None
        self._lock = threading.Lock()
        self._history = history_mode(tokenizer, structure, template_kwargs=recipe.model.template_kwargs)
        self._renderer = renderer_of(
            tokenizer,
            recipe.model.name,
            template_kwargs=recipe.model.template_kwargs,
            render=self._renders(None),
            history=self._history,
        )
        self._spelled = 0

    def row(self, planned: Row, said: Sequence[Said]) -> Row | Over:
        """A planned turn with the ids it is sent with, on top of the turns before it: of all where history is
        rewritten, of the last where it is extended, which has the others in its prompt."""
        assert planned.conversation is not None, "a row that has no later turns"
        conversation = Conversation.parse(planned.conversation)
        with self._lock:
            extends = self._history.mode is HistoryMode.EXTENDS
            ids = (
                self._extended(conversation, planned.turn, said[-1]) if extends else self._rewritten(conversation, said)
            )
        if isinstance(ids, Over):
            return ids
        if words := too_long(self._recipe, len(ids)):
            return Over(words)
        spans = (*said[-1].earlier, said[-1].span) if extends else ()
        return replace(planned, prompt_ids=ids, spans=spans, room=room(self._recipe, len(ids)), conversation=None)

    def _extended(self, conversation: Conversation, turn: int, last: Said) -> Ids | Over:
        found = between(conversation, turn, self._history, self._structure.end_ids, self._renders(conversation.tools))
        if isinstance(found, Refused):
            return Over(found.words)
        end_id, added = found
        if int(last.output_ids[-1]) != end_id:
            return Over(f"it ended with id {int(last.output_ids[-1])}, and the template goes on behind {end_id}")
        ids = ids_array("prompt_ids", np.concatenate([last.prompt_ids, last.output_ids, added]))
        self._hold_bridge(ids, last, conversation, turn)
        return ids

    def _hold_bridge(self, ids: Ids, last: Said, conversation: Conversation, turn: int) -> None:
        """The library beside the template: where it builds another prompt, that is said, and it is asked no more."""
        if self._renderer is None:
            return
        behind = conversation.between(turn - 1)
        made = bridged(self._renderer, last.prompt_ids, last.output_ids, behind, conversation.tools)
        if made is not None and not np.array_equal(made, ids):
            self._renderer = None
            listener().wait(
                f"warning: `renderers` goes on from a turn of {self._recipe.model.name} with other ids than the "
                "chat template; the template's are taken"
            )

    def _rewritten(self, conversation: Conversation, said: Sequence[Said]) -> Ids | Over:
        def render(generated: list[Message]) -> Ids | Refused:
            return self._renders(conversation.tools)(conversation.asked(len(said), generated))

        generated = [self._message(turn) for turn in said]
        ids = render(generated)
        if isinstance(ids, Refused):
            return Over(ids.words)
        of_text = control_ids_of_text(self._tokenizer, generated, ids, render)
        # What the model sent as control ids may come back as such: calls of tools that are handed back as text.
        spelled = of_text - Counter(index for turn in said for index in self._parts(turn).ids)
        if not spelled:
            return ids
        words = ", ".join(map(str, self._tokenizer.convert_ids_to_tokens(sorted(spelled))))
        if self._recipe.prompts.special_text == "reject":
            return Over(f"the generated turns spell control tokens: {words}")
        self._spelled += 1
        if str(self._spelled).strip("0") == "1":
            listener().wait(
                f"warning: {self._spelled} turns are asked behind generated text that spells control tokens "
                f"({words}), which a prompt has as control ids; kept (prompts.special_text)"
            )
        return ids

    def _message(self, said: Said) -> Message:
        """A generated turn as the template takes it: reasoning and content apart, calls of tools where they are read.

        Line breaks beside the markers of the reasoning are the markers': templates write their own.
        """
        parts = self._parts(said)
        message: Message = {"role": "assistant", "content": self._text(parts.content)}
        if parts.reasoning is not None:
            message["content"] = message["content"].lstrip("\n")
            message["reasoning_content"] = self._text(parts.reasoning).strip("\n")
        called = self._renderer and tool_calls(self._renderer, said.prompt_ids, said.output_ids)
        if called:
            message |= {"content": called[0], "tool_calls": called[1]}
        return message

    def _parts(self, said: Said) -> Parts:
        body = said.output_ids if said.span.stop_id is None else said.output_ids[:-1]
        if said.span.reasoning_end is None:
            return Parts(None, body)
        behind = said.span.reasoning_end - said.span.start + 1
        return Parts(self._reasoning(body[:behind]), self._body(body[behind:], last=True))

    def _reasoning(self, ids: Ids) -> Ids:
        """The reasoning without the markers around it; `ids` end with the one that closes it."""
        closes = sorted(self._structure.closes, key=len, reverse=True)
        close: Form = next((form for form in closes if stands(form, ids[-len(form) :])), ())
        ids = ids[: len(ids) - len(close)]
        if self._structure.channels is not None:
            return self._body(ids, last=False)
        if self._structure.thinking is not Thinking.OPENED_BY_MODEL:
            return ids
        opens = ((start, form) for form in self._structure.opens for start in _places(ids, form))
        start, form = min(opens, key=lambda found: found[0], default=(0, ()))
        return ids[start + len(form) :]

    def _body(self, ids: Ids, *, last: bool) -> Ids:
        """A channel's ids without their header: behind the first or the last of several."""
        channels = self._structure.channels
        headers = [] if channels is None else _places(ids, (channels.message_id,))
        return ids[headers[-1 if last else 0] + 1 :] if headers else ids

    def _text(self, ids: Ids) -> str:
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _renders(self, tools: list[dict[str, Any]] | None) -> Callable[[list[Message]], Ids | Refused]:
        kwargs = self._recipe.model.template_kwargs

        def render(messages: list[Message], tools: list[dict[str, Any]] | None = tools) -> Ids | Refused:
            return render_ids(self._tokenizer, messages, tools, template_kwargs=kwargs, date=self._date)

        def written(messages: list[Message]) -> Ids | Refused:
            if not has_calls(messages):
                return render(messages)
            if self._call_form is None:
                self._call_form = call_form(render)
            return render(in_form(messages, self._call_form))

        return written


def next_turns(variants: Mapping[str, tuple[Recipe, Structure]]) -> Callable[[Row, Sequence[Said]], Row | Over]:
    """`NextTurn.row` of each row's variant. Loads the tokenizer and probes the templates: not for the event loop."""
    of = {
        name: NextTurn(load_tokenizer(recipe.model), recipe, structure)
        for name, (recipe, structure) in variants.items()
    }
    return lambda row, said: of[row.variant].row(row, said)


def _places(ids: Ids, marker: Form) -> list[int]:
    return [i for i in range(len(ids)) if marker and stands(marker, ids[i : i + len(marker)])]
