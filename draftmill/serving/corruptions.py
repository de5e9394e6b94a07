"""Every way in which a server spoils the founding case's answer, one at least for each reason code.

Each is something that was seen, done by a fault of the fake server to the same
good answer. A test holds this table to the codes: a new code needs a new line
here, and is then shown by `make demo-reasoning`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftmill.records import Reason
from draftmill.serving.faults import LOOP_IDS, Act, Fault
from draftmill.serving.shaped import KIMI, KIMI_MARKERS, QWEN3, QWEN3_MARKERS, Shape

THINK, END_THINK, END_OF_TURN = KIMI_MARKERS["<think>"], KIMI_MARKERS["</think>"], KIMI_MARKERS["<|im_end|>"]

TAIL = 5
"""Ids: how much of the prompt SGLang 0.5.1.post3 to 0.5.4.post1 put in front of answers, at most."""


@dataclass(frozen=True, slots=True)
class Corruption:
    """What a server does to the answer, its name, and what a drafter would learn from it.

    `shape`: the model that is asked; `on_truncated`: the recipe's. `times`: only
    to the first so many requests; None = to all.
    """

    code: Reason
    title: str
    harm: str
    act: Act
    shape: Shape = KIMI
    on_truncated: Literal["keep", "quarantine"] = "keep"
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Corruptions of one kind."""

    title: str
    corruptions: tuple[Corruption, ...]


GROUPS = (
    Group(
        "The exchange: who knows what these ids are?",
        (
            Corruption(
                Reason.ABORTED,
                "aborts half-way, every time",
                "HTTP 200 and half an answer. Asked again first: an abort may pass.",
                Act(Fault.ABORTED),
            ),
            Corruption(
                Reason.CORRUPTED,
                "meets NaN while sampling",
                "The ids look as ever; from there on they were drawn from noise.",
                Act(Fault.NAN),
            ),
            Corruption(
                Reason.PROMPT_MISMATCH,
                "cuts the prompt without a word, as --allow-auto-truncate does",
                "It is the answer to another prompt than the one it would stand behind.",
                Act(Fault.FEWER_PROMPT_TOKENS),
            ),
            Corruption(
                Reason.COUNT_MISMATCH,
                f"trims {END_OF_TURN} <|im_end|>, and counts it all the same",
                "An id is missing between model and answer; nobody knows what else is.",
                Act(Fault.TRIMMED),
            ),
        ),
    ),
    Group(
        "The ids: more, fewer or others than the answer's",
        (
            Corruption(
                Reason.ID_OUT_OF_RANGE,
                "gives an id that the tokenizer does not have",
                "Another model's id, or a padded row of the vocabulary: it means nothing.",
                Act(Fault.ID_OUT_OF_RANGE),
            ),
            Corruption(
                Reason.EMPTY_OUTPUT,
                "stops at once and takes the id away",
                "A prompt without an answer: nothing to learn, and counted as a row.",
                Act(Fault.EMPTIED),
            ),
            Corruption(
                Reason.PROMPT_ECHO,
                f"prepends the prompt's last {TAIL} ids",
                "The assistant's turn would begin twice, and all that follows stand in the wrong place.",
                Act(Fault.PROMPT_TAIL_FIRST, TAIL),
            ),
            Corruption(
                Reason.PROMPT_ECHO,
                f"echoes {THINK} <think> at the start",
                "The prompt has opened the reasoning: the model never produced a second marker.",
                Act(Fault.OPENED_AGAIN),
            ),
            Corruption(
                Reason.AFTER_END_OF_TURN,
                f"goes on behind {END_OF_TURN} <|im_end|>, as speculative decoding did",
                "A drafter would learn to speak on after the end.",
                Act(Fault.PAST_END, 2),
            ),
        ),
    ),
    Group(
        "The markers inside",
        (
            Corruption(
                Reason.REASONING_REOPENED,
                f"forces {END_THINK} </think> by a thinking budget; the model's own follows",
                "Half a thought would pass for content, and content for a second thought.",
                Act(Fault.FORCED_CLOSE),
            ),
            Corruption(
                Reason.REASONING_NOT_OPENED,
                f"strips {QWEN3_MARKERS['<think>']} <think> and {QWEN3_MARKERS['</think>']} </think> "
                "(the same answer under Qwen3's template, which leaves the opening to the model)",
                "Reasoning and content become one: a drafter would never open a thought.",
                Act(Fault.STRIPPED_MARKER),
                shape=QWEN3,
            ),
            Corruption(
                Reason.FOREIGN_MARKER,
                "misses the end of the turn, and a user's turn begins inside the answer",
                "A drafter would learn to speak for the user.",
                Act(Fault.NEXT_TURN, 3),
            ),
        ),
    ),
    Group(
        "How it ends",
        (
            Corruption(
                Reason.TRUNCATED,
                "clips the budget in silence (with on_truncated: quarantine)",
                "Half a thought. With on_truncated: keep it is a row of that length: true ids, no end.",
                Act(Fault.CLIPPED_BUDGET),
                on_truncated="quarantine",
            ),
            Corruption(
                Reason.NO_END_OF_TURN,
                f"drops {END_OF_TURN} <|im_end|>",
                "A drafter that never sees the turn end does not learn to end one.",
                Act(Fault.NO_END),
            ),
            Corruption(
                Reason.REASONING_NOT_CLOSED,
                f"strips {END_THINK} </think>",
                "The turn ends inside the reasoning: nobody can tell where the content begins.",
                Act(Fault.STRIPPED_MARKER),
            ),
            Corruption(
                Reason.EMPTY_CONTENT,
                f"drops all between {END_THINK} </think> and {END_OF_TURN} <|im_end|>",
                "A drafter would learn to think and then to say nothing.",
                Act(Fault.NO_CONTENT),
            ),
            Corruption(
                Reason.DEGENERATE,
                f"repeats {LOOP_IDS} ids until the budget is used up",
                "Ids that any drafter guesses: they outweigh the answer and teach nothing.",
                Act(Fault.LOOPED),
            ),
        ),
    ),
)

CORRUPTIONS = tuple(corruption for group in GROUPS for corruption in group.corruptions)
"""All of them, in the order in which their codes take precedence."""

ABORTED_ONCE = Corruption(
    Reason.ABORTED,
    "aborts half-way, the first time only",
    "Nothing wrong: asked again, it is whole.",
    Act(Fault.ABORTED),
    times=1,
)
