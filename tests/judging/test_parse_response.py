"""Our split of an answer into reasoning and content is the one of `renderers`, an independent parser, family by family.

What that takes off at the ends of each part is named in `KEPT`; where it splits
at another place, `DIFFERENCES` holds the ids, both readings and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from draftmill.judging.judge import judge_one
from draftmill.records import Completion, Thinking, Verdict
from tests.judging.renderers_bench import FAMILIES, KEPT, Bench, Parts, Text, bench_of

NAMES = [item.name for item in FAMILIES]

# name: reasoning, content
SAMPLES: dict[str, tuple[Text, Text]] = {
    "as models write": ("\nI think.\nTwice.\n", "\n\nSeven."),
    "no white space": ("I think.", "Seven."),
    "spaces": (" I think ", "  Seven  \n"),
    "indented": ("\n  - a\n", "\n\n    code\n"),
    "many scripts": ("\nWir \u00fcberlegen \u4f60\u597d \U0001f642\n", "\n\n\u00dc \U0001f642"),
    "empty reasoning": ("", "Seven."),
    "blank reasoning": ("\n\n", "\n\nSeven."),
    "about tags": ("\nthe <thinking> tag, <answer>\n", "\n\n<b>7</b>"),
    "code": ("\ndef f():\n\treturn 1\n\n", "\n```py\nx = 1\n```\n"),
    "opening marker spelled": (["\nthe mark <", "think", "> opens it\n"], "Seven."),
    "closing marker spelled in content": ("I think.", ["the mark <", "/", "think", "> ends it"]),
}


def judged(bench: Bench, completion_of: Callable[..., Completion], out: Sequence[int]) -> Verdict:
    completion = completion_of(bench.prompt, out)
    return judge_one(completion, bench.structure, on_truncated="keep", degenerate="off")


@pytest.mark.parametrize("name", NAMES)
def test_well_formed_answers_split_as_renderers_splits_them(
    completion_of: Callable[..., Completion], name: str
) -> None:
    bench = bench_of(name)
    kept = KEPT[bench.item.kept]
    for sample, (reasoning, content) in SAMPLES.items():
        out = bench.answer(reasoning, content)
        verdict = judged(bench, completion_of, out)
        assert verdict.reason is None, (sample, out, verdict.detail)
        ours, theirs = bench.ours(out, verdict), bench.theirs(out)
        assert kept(ours) == (theirs.reasoning or "", theirs.content), (sample, out, ours, theirs)
        has_reasoning = bench.structure.thinking is not Thinking.CLOSED_BY_PROMPT
        assert (ours.reasoning is not None) is has_reasoning, (sample, out)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gpt-oss"])
def test_a_tool_call_behind_the_reasoning_is_no_part_of_the_content_there(
    completion_of: Callable[..., Completion], name: str
) -> None:
    bench = bench_of(name)
    item = bench.item
    for content in ("Seven.", "\n"):
        call = [*bench.ids(item.tool[0]), *bench.ids("f"), *bench.ids(item.tool[1])]
        out = bench.answer("I think.", content)
        out = [*out[:-1], *call, out[-1]]
        verdict = judged(bench, completion_of, out)
        assert verdict.reason is None, (out, verdict.detail)
        ours, theirs = bench.ours(out, verdict), bench.theirs(out)
        stripped = (theirs.reasoning or "").strip(), theirs.content.strip()
        assert KEPT["strips both"](ours) == stripped, (out, ours, theirs)


@dataclass(frozen=True, slots=True)
class Difference:
    """`ours`: the code of a row we set apart, else our split."""

    family: str
    ids: list[int]
    ours: str | Parts
    theirs: Parts
    why: str


SPELLED = "`renderers` looks for the text `</think>`, which the reasoning only spells in ordinary ids; we read ids"
TOOL_ENDS = "a tool call inside the reasoning: `renderers` takes it for the reasoning's end; nothing closed it, say we"
TWICE_TEXT = "a second closing marker: `renderers` keeps it as text of the content; a row with it is no training data"
TWICE_GONE = "a second closing marker: `renderers` drops it and the text looks sound; a row with it is no training data"
NOT_OPENED = "no reasoning where the template has the model open it: content alone to `renderers`; we set it apart"
NOT_OPENED_GLM = "no opening marker: `renderers` takes it all for reasoning that never ended; we say what is missing"

DIFFERENCES = [
    Difference(
        "qwen3",
        [151667, 64, 2050, 14, 17383, 29, 261, 151668, 40340, 13, 151645],
        Parts("a </think> b", "Seven."),
        Parts("a </think> b", "b</think>Seven."),
        SPELLED,
    ),
    Difference(
        "kimi k2.5",
        [64, 2050, 14, 17383, 29, 261, 163607, 40340, 13, 163586],
        Parts("a </think> b", "Seven."),
        Parts("a </think> b", "b</think>Seven."),
        SPELLED,
    ),
    Difference(
        "deepseek r1",
        [66, 2052, 16, 17385, 31, 263, 128799, 40342, 15, 1],
        Parts("a </think> b", "Seven."),
        Parts("a </think> b", "b</think>Seven."),
        SPELLED,
    ),
    *(
        Difference(name, ids, "reasoning_not_closed", Parts("Hm.", ""), TOOL_ENDS)
        for name, ids in (
            ("qwen3", [151667, 39, 76, 13, 151657, 69, 151658, 151645]),
            ("qwen3.5", [39, 76, 13, 248058, 69, 248059, 248046]),
            ("kimi k2.5", [39, 76, 13, 163595, 69, 163596, 163586]),
            ("kimi k2 thinking", [163606, 39, 76, 13, 163595, 69, 163596, 163586]),
            ("glm 4.5", [151350, 39, 76, 13, 151352, 69, 151353, 151329]),
            ("glm 5", [39, 76, 13, 154843, 69, 154844, 154820]),
            ("minimax m2", [39, 76, 13, 200052, 69, 200053, 200020]),
            ("nemotron 3", [139, 176, 113, 14, 169, 15, 11]),
        )
    ),
    *(
        Difference(name, ids, "reasoning_reopened", Parts("Hm.", "Seven.</think>7"), TWICE_TEXT)
        for name, ids in (
            ("qwen3", [151667, 39, 76, 13, 151668, 40340, 13, 151668, 22, 151645]),
            ("kimi k2.5", [39, 76, 13, 163607, 40340, 13, 163607, 22, 163586]),
            ("deepseek r1", [41, 78, 15, 128799, 40342, 15, 128799, 24, 1]),
        )
    ),
    *(
        Difference(name, ids, "reasoning_reopened", Parts("Hm.", "Seven.7"), TWICE_GONE)
        for name, ids in (
            ("deepseek v4", [42, 79, 16, 128822, 75076, 16, 128822, 25, 1]),
            ("glm 4.5", [151350, 39, 76, 13, 151351, 40340, 13, 151351, 22, 151329]),
        )
    ),
    Difference("qwen3", [40340, 13, 151645], "reasoning_not_opened", Parts(None, "Seven."), NOT_OPENED),
    Difference("kimi k2 thinking", [40340, 13, 163586], "reasoning_not_opened", Parts(None, "Seven."), NOT_OPENED),
    Difference("glm 4.5", [40340, 13, 151329], "reasoning_not_opened", Parts("Seven.", ""), NOT_OPENED_GLM),
]


@pytest.mark.parametrize("name", sorted({item.family for item in DIFFERENCES}))
def test_where_the_two_differ(completion_of: Callable[..., Completion], name: str) -> None:
    bench = bench_of(name)
    for item in DIFFERENCES:
        if item.family != name:
            continue
        verdict = judged(bench, completion_of, item.ids)
        ours = bench.ours(item.ids, verdict) if verdict.reason is None else str(verdict.reason)
        assert (ours, bench.theirs(item.ids)) == (item.ours, item.theirs), item.why
