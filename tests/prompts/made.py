"""Prompt files as people have them, made here; what loading gives for them, and what rendering makes of that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from draftmill.dataset.schema import table_rows
from draftmill.prompts.load import Loaded, load_prompts
from draftmill.recipe import Prompts, Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.render import Rendered, render_prompts
from tests.conftest import chat_template

Message = dict[str, Any]

QWEN25, QWEN3 = "Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B"
CODER = "Qwen-Qwen3-Coder-30B-A3B-Instruct"
MISTRAL, GEMMA = "mistralai-Mistral-7B-Instruct-v0.2", "google-gemma-2-2b-it"
DEEPSEEK_V3 = "trl-internal-testing-tiny-DeepseekV3ForCausalLM-0528"
DEEPSEEK_R1 = "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@56a144"


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def system(content: Any) -> Message:
    return {"role": "system", "content": content}


def chat(*messages: Message, **columns: Any) -> dict[str, Any]:
    return {"messages": list(messages), **columns}


def jsonl(file: Path, *rows: object) -> str:
    """One row a line; Python's own writer, which has NaN and Infinity."""
    return raw(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def raw(file: Path, data: bytes) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return str(file)


def load(path: str | list[str], **keys: Any) -> Loaded:
    return load_prompts(Prompts(path=path, **keys))


def conversations(loaded: Loaded) -> list[list[Message]]:
    return [json.loads(text)["messages"] for text in loaded.table["messages"].to_pylist()]


def last_texts(loaded: Loaded) -> list[str]:
    return [messages[-1]["content"] for messages in conversations(loaded)]


def roles(loaded: Loaded) -> list[list[str]]:
    return [[message["role"] for message in messages] for messages in conversations(loaded)]


def lines(loaded: Loaded) -> list[int]:
    """Where the prompts stand."""
    return list(loaded.table["line"].to_pylist())


def why(loaded: Loaded) -> dict[int, str]:
    """The rejected rows' words by their line."""
    return {row["line"]: row["detail"] for row in loaded.rejected.to_pylist()}


def holds(loaded: Loaded, *, good: Iterable[int], bad: dict[int, str]) -> None:
    """Exactly these lines are prompts, exactly these are rejected, each in words that begin so."""
    assert lines(loaded) == list(good)
    found = why(loaded)
    assert found.keys() == bad.keys()
    for line, words in bad.items():
        assert found[line].startswith(words), found[line]


Renders = Callable[..., Rendered]


def recipe(folder: Path, template: str, *, context: int = 4096, tokenizer: str = "embedded", **prompts: Any) -> Recipe:
    """A recipe with a real chat template on the embedded tokenizer."""
    file = folder / f"{template}.jinja"
    file.write_text(chat_template(template), encoding="utf-8")
    model = {"name": "m", "tokenizer": tokenizer, "chat_template": str(file), "context_length": context}
    sampling = {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 64}
    data = {"dataset": "/nowhere", "prompts": {"path": "p", **prompts}, "model": model, "sampling": sampling}
    return parse_recipe(data, origin="test")


def render(loaded: Loaded, folder: Path, template: str, **keys: Any) -> Rendered:
    return render_prompts(loaded.table, recipe(folder, template, **keys))


def ids(rendered: Rendered) -> dict[str, list[int]]:
    """Prompt ids by prompt_id."""
    return {row.prompt_id: row.prompt_ids.tolist() for row in table_rows(rendered.rows)}


def refused(rendered: Rendered) -> dict[int, str]:
    """Reason and words of what the template did not take, by line."""
    return {row["line"]: f"{row['reason']}: {row['detail']}" for row in rejected_rows(rendered)}


def rejected_rows(rendered: Rendered) -> list[dict[str, Any]]:
    return [
        {"line": r.line, "reason": str(r.reason), "detail": r.detail, "source": r.source} for r in rendered.rejected
    ]
