"""The vectorised judge against the slow one (`reference.py`): small structures of every kind, rows with random faults.

Hypothesis shrinks what differs to a row that a person can read. The families'
own structures, and many more rows, are in `test_fuzz_families.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.arrays import ids_array
from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge
from draftmill.judging.structure import Channels, Structure
from draftmill.records import Completion, Thinking
from tests.judging.reference import Wanted, wanted

BOUND = 16

# `<open>` is 1, or the text 21 22, which reads the same as 21 23; `</close>` is 2, or 24 22, 24 23, or 25 alone.
ONE_ID: dict[str, Any] = {"open_ids": (1,), "close_ids": (2,)}
FORMS: dict[str, Any] = {
    "open_ids": (21, 22),
    "open_also": ((21, 23),),
    "close_ids": (24, 22),
    "close_also": ((24, 23), (25,)),
}
# The same as two lists of what may stand at each place: 26 or 27, then 22 or 23; and 28, which is both at once.
LISTS: dict[str, Any] = {
    "open_ids": (21, 22),
    "open_also": ((21, (22, 23)), ((26, 27), 22)),
    "close_ids": (24, 22),
    "close_also": (((24, 28), (22, 23)), ((25, 28),)),
}
# 30 begins a header, 31 a body, 2 closes, 32 10 begins the next; 33 is reasoning, 34 the answer, 35 36 an aside.
CHANNELS: dict[str, Any] = {
    "open_ids": (30, 33, 31),
    "close_ids": (2,),
    "channels": Channels((32, 10), 30, 31, reasoning=((33,),), content=((34,), (35, 36))),
    "tail_ids": (32, 10),
}
TAILS: dict[Thinking, Callable[..., tuple[int, ...]]] = {
    Thinking.OPENED_BY_PROMPT: lambda opened, closed: (5, 10, *opened, 7),
    Thinking.OPENED_BY_MODEL: lambda opened, closed: (5, 10, 7),
    Thinking.CLOSED_BY_PROMPT: lambda opened, closed: (5, 10, *opened, 7, *closed, 7),
    Thinking.NONE: lambda opened, closed: (5, 10, 7),
}
WELL_FORMED: dict[Thinking, Callable[..., list[int]]] = {
    Thinking.OPENED_BY_PROMPT: lambda opened, closed: [11, 12, 7, *closed, 7, 13, 14, 3],
    Thinking.OPENED_BY_MODEL: lambda opened, closed: [*opened, 7, 11, 12, *closed, 7, 13, 14, 3],
    Thinking.CLOSED_BY_PROMPT: lambda opened, closed: [13, 14, 7, 15, 3],
    Thinking.NONE: lambda opened, closed: [13, 14, 7, 15, 3],
}
TURNS = [
    [30, 33, 31, 11, 12, 2, 32, 10, 30, 34, 31, 13, 14, 3],
    [30, 34, 31, 13, 14, 3],
    [30, 33, 31, 11, 2, 32, 10, 30, 35, 36, 40, 31, 13, 4],
    [30, 33, 31, 11, 2, 32, 10, 30, 33, 40, 31, 12, 2, 32, 10, 41, 30, 33, 31, 13, 4],
    [30, 33, 31, 11, 2, 32, 10, 30, 35, 36, 31, 12, 2, 32, 10, 41, 30, 33, 31, 13, 2, 32, 10, 30, 34, 31, 14, 3],
]
GRAMMAR = [1, 1, 2, 2, 21, 22, 23, 24, 25, 26, 27, 28, 30, 31, 32, 33, 34, 35, 36]
IDS = st.sampled_from([-1, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 99, 100, *GRAMMAR])
FAULTS = st.sampled_from(["cut", "drop", "double", "insert", "swap", "loop", "echo"])
LOOP = st.lists(st.sampled_from([11, 12]), min_size=1, max_size=3).map(lambda cycle: cycle * 18)
FORMED = [[21, 22], [21, 22, 7], [27, 22]]
ECHOES = st.sampled_from([[7], [1, 7], [10, 7], [7, 2, 7], [20, 5, 10, 7], [32, 10], [10], *FORMED])
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
def faulty(draw: st.DrawFn, out: list[int]) -> list[int]:
    """A well-formed output with up to four faults: cut, dropped, doubled, inserted, a loop in front of the end."""
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
            out = [*draw(ECHOES), *out]
    return out


def assert_as_the_reference(
    structure: Structure, completion_of: Callable[..., Completion], data: st.DataObject, outs: list[list[int]]
) -> None:
    """A batch of faulty rows: code, end of the reasoning and stop id are the reference's."""
    on_truncated = data.draw(st.sampled_from(["keep", "quarantine"]))
    prompt = [6, 20, *structure.tail_ids]
    rows = []
    for _ in range(data.draw(st.integers(1, 12))):
        said: dict[str, Any] = data.draw(st.just({}) | SAID)
        finish = data.draw(st.sampled_from(["stop", "stop", "stop", "length", "abort"]))
        short = data.draw(st.sampled_from([prompt, prompt, prompt[-1:], []]))
        out = data.draw(faulty(data.draw(st.sampled_from(outs))))
        rows.append(completion_of(short, out, **{"finish_type": finish, **said}))
    verdicts = judge(Answers.of_completions(rows), structure, on_truncated=on_truncated, degenerate=BOUND)
    for row, verdict in zip(rows, verdicts, strict=True):
        reason = None if verdict.reason is None else str(verdict.reason)
        got = Wanted(reason, verdict.reasoning_end, verdict.stop_id)
        want = wanted(row, structure, on_truncated=on_truncated, bound=BOUND)
        assert got == want, (structure.thinking, row.row.prompt_ids.tolist(), row.answer.output_ids.tolist())


@settings(max_examples=150)
@given(data=st.data(), thinking=st.sampled_from(list(Thinking)), forms=st.sampled_from([ONE_ID, FORMS, LISTS]))
def test_blocks(
    structure_of: Callable[..., Structure],
    completion_of: Callable[..., Completion],
    data: st.DataObject,
    thinking: Thinking,
    forms: dict[str, Any],
) -> None:
    opened, closed = forms["open_ids"], forms["close_ids"]
    fields = {} if thinking is Thinking.NONE else forms
    structure = structure_of(thinking, **{**fields, "tail_ids": TAILS[thinking](opened, closed)})
    assert_as_the_reference(structure, completion_of, data, [WELL_FORMED[thinking](opened, closed)])


@settings(max_examples=150)
@given(data=st.data())
def test_channels(
    structure_of: Callable[..., Structure], completion_of: Callable[..., Completion], data: st.DataObject
) -> None:
    assert_as_the_reference(structure_of(Thinking.OPENED_BY_MODEL, **CHANNELS), completion_of, data, TURNS)
