"""The odd families' structures in full, for people: every id with its text, and why.

    python -m infra.template_families --out tests/golden/families.txt

Real chat templates with the vocabulary that `template_table` gives them: the
markers' ids are not the models' own, all else is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from draftmill.judging.derive import examine, keeps_reasoning
from draftmill.rendering.marker_forms import num_forms
from infra.template_table import RECIPE, Bench, base_tokenizer, escaped, templates

FAMILIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("openai-gpt-oss-120b", {}),
    ("google-gemma-4-31B-it", {}),
    ("google-gemma-4-31B-it", {"enable_thinking": True}),
    ("google-gemma-4-E4B-it", {}),
    ("google-gemma-4-E4B-it", {"enable_thinking": True}),
    ("zai-org-GLM-4.5-Air", {}),
    ("zai-org-GLM-4.5-Air", {"enable_thinking": False}),
    ("GLM-4.6", {}),
    ("zai-org-GLM-5", {}),
    ("MiniMaxAI-MiniMax-M2", {}),
    ("MiniMaxAI-MiniMax-M3-MXFP8", {"thinking_mode": "enabled"}),
    ("moonshotai-Kimi-K2-Thinking", {}),
    ("moonshotai-Kimi-K2.5", {}),
    ("moonshotai-Kimi-K2.5", {"thinking": False}),
    ("mistralai-Ministral-3-3B-Reasoning-2512", {}),
    ("mistralai-Mistral-Small-4-119B-2603", {"reasoning_effort": "high"}),
    ("ByteDance-Seed-OSS", {}),
    ("ByteDance-Seed-OSS", {"thinking_budget": 0}),
    ("Qwen-Qwen3-0.6B", {}),
    ("Qwen-Qwen3-0.6B", {"enable_thinking": False}),
    ("Qwen-Qwen3-4B-Thinking-2507", {}),
    ("Qwen-Qwen3.5-0.8B", {}),
    ("deepseek-ai-DeepSeek-V3.1", {}),
    ("deepseek-ai-DeepSeek-V3.1", {"thinking": True}),
    ("deepseek-ai-DeepSeek-V4", {}),
    ("deepseek-ai-DeepSeek-V4", {"thinking": True}),
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {}),
    ("ibm-granite-granite-3.3-2B-Instruct", {"thinking": True}),
    ("CohereLabs-command-a-plus-05-2026-w4a4", {}),
)
"""Templates and their variables that are shown in full, with ids, in tests/golden/families.txt."""


def block(name: str, template_kwargs: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> str:
    """A structure in full, for people: each id with its text."""
    model = RECIPE.model.model_copy(update={"template_kwargs": template_kwargs})
    probe, structure = examine(tokenizer, RECIPE.model_copy(update={"model": model}))

    def shown(ids: Iterable[int]) -> str:
        return " ".join(f"{_quoted(probe.text([index]))}={index}" for index in ids) or "-"

    also = [("also opens", structure.opens), ("also closes", structure.closes)]
    fields = [
        ("structure", f"{structure.name}, {structure.thinking.value}"),
        ("prompt's tail", shown(structure.tail_ids)),
        ("opens", shown(structure.open_ids)),
        ("closes", shown(structure.close_ids)),
        *((title, f"{num_forms(forms) - 1} forms") for title, forms in also if len(forms) > 1),
        ("ends the turn", shown(structure.end_ids)),
        ("foreign", shown(structure.foreign_ids)),
        ("earlier reasoning", "kept" if keeps_reasoning(probe, structure) else "dropped"),
        ("depends on the date", "yes" if probe.depends_on_date else "no"),
        *(("because", escaped(line)) for line in structure.evidence),
    ]
    if (found := structure.channels) is not None:
        named = [("next message", found.next_ids), ("channel", (found.channel_id,)), ("body", (found.message_id,))]
        names = [("reasoning in", found.reasoning), ("content in", found.content)]
        fields += [(title, shown(ids)) for title, ids in named]
        fields += [(title, ", ".join(shown(ids) for ids in markers)) for title, markers in names]
    title = f"{name} {json.dumps(template_kwargs)}" if template_kwargs else name
    return f"[{title}]\n" + "".join(f"{key:<20}{value}\n" for key, value in fields)


def blocks(bench: Bench) -> str:
    """Every family's block."""
    known = dict(templates())
    return "\n".join(block(name, kwargs, bench.tokenizer(known[name])) for name, kwargs in FAMILIES)


def _quoted(text: str) -> str:
    return "'" + escaped(text) + "'"


def main() -> None:
    """Writes the blocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.parse_args().out.write_text(blocks(Bench(base_tokenizer(None))), encoding="utf-8")


if __name__ == "__main__":
    main()
