"""The vectorised judge against a slow one, written from the definitions, on rows with random faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.arrays import ids_array
from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge
from draftmill.judging.structure import Structure
from draftmill.records import Completion, Reason, Thinking

BOUND = 16


def reference(completion: Completion, structure: Structure, on_truncated: str) -> Reason | None:
    """The definitions, one after the other, on lists."""
    prompt, out = completion.row.prompt_ids.tolist(), completion.answer.output_ids.tolist()
    answer = completion.answer
    stop, cut = answer.finish_type == "stop", answer.finish_type == "length"
    open_id, close_id = (*structure.open_ids, None)[0], (*structure.close_ids, None)[0]
    thinking = structure.thinking
    if not stop and not cut:
        return Reason.ABORTED
    if answer.matched == "NaN happened":
        return Reason.CORRUPTED
    if answer.echo_ids is not None or answer.prompt_tokens not in (None, len(prompt)):
        return Reason.PROMPT_MISMATCH
    if answer.completion_tokens not in (None, len(out)) or len(out) > completion.row.max_new_tokens:
        return Reason.COUNT_MISMATCH
    if cut and answer.finish_length not in (None, len(out)):
        return Reason.COUNT_MISMATCH
    if any(i < 0 or i > structure.highest_id for i in out):
        return Reason.ID_OUT_OF_RANGE
    if not out:
        return Reason.EMPTY_OUTPUT
    if any(len(out) >= k and len(prompt) >= k and out[:k] == prompt[-k:] for k in range(2, 17)):
        return Reason.PROMPT_ECHO
    if out[0] in structure.tail_ids and out[0] in (*structure.foreign_ids, open_id, close_id):
        return Reason.PROMPT_ECHO
    if any(i in structure.end_ids for i in out[:-1]):
        return Reason.AFTER_END_OF_TURN
    opens, closes = out.count(open_id), out.count(close_id)
    most_opens = 1 if thinking is Thinking.OPENED_BY_MODEL else 0
    most_closes = 0 if thinking is Thinking.CLOSED_BY_PROMPT else 1
    if opens > most_opens or closes > most_closes:
        return Reason.REASONING_REOPENED
    said = [i for i in out if i not in structure.blank_ids]
    if thinking is Thinking.OPENED_BY_MODEL and said and said[0] != open_id:
        return Reason.REASONING_NOT_OPENED
    if any(i in structure.foreign_ids for i in out):
        return Reason.FOREIGN_MARKER
    if cut and on_truncated == "quarantine":
        return Reason.TRUNCATED
    if stop and (out[-1] not in structure.end_ids or isinstance(answer.matched, str)):
        return Reason.NO_END_OF_TURN
    if stop and answer.matched not in (None, out[-1]):
        return Reason.NO_END_OF_TURN
    if stop and thinking in (Thinking.OPENED_BY_PROMPT, Thinking.OPENED_BY_MODEL) and not closes:
        return Reason.REASONING_NOT_CLOSED
    body = out[:-1] if out[-1] in structure.end_ids else out
    content = body[body.index(close_id) + 1 :] if close_id in body else body
    if stop and all(i in structure.blank_ids for i in content):
        return Reason.EMPTY_CONTENT
    last = body[-BOUND:]
    for period in range(1, BOUND // 8 + 1):
        if len(last) == BOUND and all(last[i] == last[i - period] for i in range(period, BOUND)):
            return Reason.DEGENERATE
    return None


WELL_FORMED = {
    Thinking.OPENED_BY_PROMPT: [11, 12, 7, 2, 7, 13, 14, 3],
    Thinking.OPENED_BY_MODEL: [1, 7, 11, 12, 2, 7, 13, 14, 3],
    Thinking.CLOSED_BY_PROMPT: [13, 14, 7, 15, 3],
    Thinking.NONE: [13, 14, 7, 15, 3],
}
IDS = st.sampled_from([-1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 99, 100])
FAULTS = st.sampled_from(["cut", "drop", "double", "insert", "swap", "loop", "echo"])
LOOP = st.lists(st.sampled_from([11, 12]), min_size=1, max_size=3).map(lambda cycle: cycle * 18)
SAID = st.fixed_dictionaries(
    {},
    optional={
        "matched": st.sampled_from([None, 3, 4, "###", "NaN happened"]),
        "prompt_tokens": st.sampled_from([None, 3]),
        "completion_tokens": st.sampled_from([None, 3]),
        "max_new_tokens": st.sampled_from([3, 8, 9]),
        "finish_length": st.sampled_from([None, 3]),
        "echo_ids": st.sampled_from([None, ids_array("e", [1])]),
    },
)


@st.composite
def outputs(draw: st.DrawFn, thinking: Thinking) -> list[int]:
    """A well-formed output with up to four faults: cut, dropped, doubled, inserted, a loop in front of the end."""
    out = list(WELL_FORMED[thinking])
    for fault in draw(st.lists(FAULTS, max_size=4)):
        at = draw(st.integers(0, len(out)))
        if fault == "cut":
            out = out[:at]
        elif fault == "drop":
            out = out[:at] + out[at + 1 :]
        elif fault == "double":
            out = out[:at] + out[at : at + 1] * 2 + out[at + 1 :]
        elif fault == "insert":
            out = [*out[:at], draw(IDS), *out[at:]]
        elif fault == "swap":
            out = [*out[:at], draw(IDS), *out[at + 1 :]]
        elif fault == "loop":
            out = [*out[:-1], *draw(LOOP), *out[-1:]]
        else:
            out = [*draw(st.sampled_from([[7], [1, 7], [10, 7], [7, 2, 7], [20, 5, 10, 7]])), *out]
    return out


@settings(max_examples=120)
@given(data=st.data(), thinking=st.sampled_from(list(Thinking)), on_truncated=st.sampled_from(["keep", "quarantine"]))
def test_equals_the_reference(
    structure_of: Callable[..., Structure],
    completion_of: Callable[..., Completion],
    data: st.DataObject,
    thinking: Thinking,
    on_truncated: str,
) -> None:
    structure = structure_of(thinking)
    prompt = [6, 20, *structure.tail_ids]
    completions = []
    for _ in range(data.draw(st.integers(1, 12))):
        said: dict[str, Any] = data.draw(st.just({}) | SAID)
        finish = data.draw(st.sampled_from(["stop", "stop", "stop", "length", "abort"]))
        short = data.draw(st.sampled_from([prompt, prompt, prompt[-1:], []]))
        completions.append(completion_of(short, data.draw(outputs(thinking)), **{"finish_type": finish, **said}))
    verdicts = judge(Answers.of_completions(completions), structure, on_truncated=on_truncated, degenerate=BOUND)
    wanted = [reference(completion, structure, on_truncated) for completion in completions]
    assert [verdicts.reason(b) for b in range(len(completions))] == wanted
