"""10,000 answers with random faults for each family: the judge's verdict is the slow reference's.

Structures are derived from real templates on tokenizers shaped like the models'
(DeepSeek-V4's is its own). Every row is compared: code, end of the reasoning, id
that ended the turn.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from draftmill.judging.answers import Answers
from draftmill.judging.derive import derive_structure
from draftmill.judging.judge import judge
from draftmill.judging.structure import Structure
from draftmill.records import Completion, Thinking
from draftmill.rendering.template import render_ids
from tests.judging import families
from tests.judging.fuzzing import Fuzzer
from tests.judging.reference import ORDER, Wanted, wanted

NUM_ROWS = 10_000
WORDS = ["a", " the", " is", "1", "22", ".", "\n", " x", "{", "think", "<", ">", "</", "\n\n"]

# name, shape, template, template_kwargs
FAMILIES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("qwen3 hybrid", "qwen3", "Qwen-Qwen3-0.6B", {}),
    ("qwen3 without thinking", "qwen3", "Qwen-Qwen3-0.6B", {"enable_thinking": False}),
    ("kimi k2.5", "kimi", "moonshotai-Kimi-K2.5", {}),
    ("kimi k2.5 without thinking", "kimi", "moonshotai-Kimi-K2.5", {"thinking": False}),
    ("deepseek v4", families.REAL, "deepseek-ai-DeepSeek-V4", {"thinking": True}),
    ("deepseek v4 without thinking", families.REAL, "deepseek-ai-DeepSeek-V4", {}),
    ("gpt-oss", "gpt-oss", "openai-gpt-oss-120b", {}),
    ("olmo 3, markers as text", "olmo3", "allenai-Olmo-3-32B-Think", {}),
    ("gemma 4", "gemma4", "google-gemma-4-31B-it", {"enable_thinking": True}),
    ("smollm2, no reasoning", "chatml", "HuggingFaceTB-SmolLM2-135M-Instruct", {}),
]
OF_REASONING = {"reasoning_reopened", "reasoning_not_opened", "reasoning_not_closed"}


@pytest.mark.parametrize(("name", "shape", "template", "kwargs"), FAMILIES, ids=[name for name, *_ in FAMILIES])
def test_ten_thousand_rows_as_the_reference(
    completion_of: Callable[..., Completion], name: str, shape: str, template: str, kwargs: dict[str, Any]
) -> None:
    tokenizer = families.tokenizer(shape, template)
    structure = derive_structure(tokenizer, families.recipe(template_kwargs=kwargs))
    ask = [{"role": "user", "content": "a"}]
    prompt: Any = render_ids(tokenizer, ask, None, template_kwargs=kwargs, date=families.DAY)
    words = sorted({i for word in WORDS for i in tokenizer.encode(word, add_special_tokens=False)})
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    fuzzer = Fuzzer(rng, structure, completion_of, prompt=prompt.tolist(), words=words)
    assert_as_the_reference(fuzzer.rows(NUM_ROWS), structure, on_truncated="keep", at_least=codes_of(structure))
    assert_as_the_reference(fuzzer.rows(NUM_ROWS // 10), structure, on_truncated="quarantine", at_least={"truncated"})


def codes_of(structure: Structure) -> set[str]:
    """The codes that answers of this structure can get, when nothing is asked of lengths and loops."""
    codes = set(ORDER) - {"degenerate", "truncated"} - OF_REASONING
    if structure.opens:
        codes.add("reasoning_reopened")
    if structure.thinking is Thinking.OPENED_BY_MODEL:
        codes.add("reasoning_not_opened")
    if structure.thinking in (Thinking.OPENED_BY_MODEL, Thinking.OPENED_BY_PROMPT):
        codes.add("reasoning_not_closed")
    return codes


def assert_as_the_reference(
    rows: Sequence[Completion], structure: Structure, *, on_truncated: str, at_least: set[str]
) -> None:
    verdicts = judge(Answers.of_completions(rows), structure, on_truncated=on_truncated, degenerate="off")
    seen: Counter[str | None] = Counter()
    for b, row in enumerate(rows):
        want = wanted(row, structure, on_truncated=on_truncated)
        reason = verdicts.reason(b)
        got = Wanted(reason and str(reason), _null(verdicts.reasoning_end_B[b]), _null(verdicts.stop_id_B[b]))
        assert got == want, told(row, structure, got, want)
        seen[want.code] += 1
    # A generator that stops making a fault would make this test pass by itself.
    missing = {code for code in at_least | {None} if seen[code] < len(rows) // 2000}
    assert not missing, f"the rows show too little of {missing}: {seen}"


def told(row: Completion, structure: Structure, got: Wanted, want: Wanted) -> str:
    answer = row.answer
    return "\n".join(
        [
            f"judge: {got}",
            f"reference: {want}",
            f"prompt {row.row.prompt_ids.tolist()}",
            f"output {answer.output_ids.tolist()}",
            f"{answer.finish_type} matched {answer.matched!r} length {answer.finish_length}",
            f"counted {answer.prompt_tokens}, {answer.completion_tokens} of {row.row.max_new_tokens}",
            repr({key: value for key, value in structure.to_json().items() if key not in ("evidence", "blank_ids")}),
        ]
    )


def _null(number: np.int64) -> int | None:
    return None if number == -1 else int(number)
