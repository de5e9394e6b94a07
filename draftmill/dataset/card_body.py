"""The words of a dataset's card: what it is, how many rows, how they were made, how to read them.

Pure: a manifest in, Markdown out. Paths of the machine are reduced to their last
part, and only named fields are told, so that no key or address can get in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from draftmill.dataset.manifest import Manifest

COLUMNS = {
    "row_key": "SHA-256 of prompt ids, model, sampling and sample index",
    "prompt_key": "SHA-256 of messages, tools and the variant's name",
    "prompt_id": "the source's own id, or file and line",
    "variant": "`default` when the recipe has none",
    "sample": "index of the answer to this prompt",
    "attempt": "0, and one more each time the row was asked again, or asked on",
    "input_ids": "prompt ids and output ids, exactly as sent and returned",
    "prompt_len": "ids before the first generated one",
    "spans": "each generated span `[start, end)`, with `reasoning_end`, `finish_reason`, `stop_id`",
    "reasoning_end": "index in `input_ids` of the id that closes the reasoning, or null",
    "max_new_tokens": "the budget it was asked with",
    "finish_reason": "`stop` or `length`",
    "stop_id": "the id that ended the turn, or null",
    "engine": "kind and version of the server",
    "weight_version": "as the server said, or null",
    "messages": "source messages and tools as JSON, or null: derived, for people",
    "source": "file or URL of the prompt",
    "created_at": "when the completion came back",
}

SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("max_new_tokens", "samples"),
)

READING = """\
```python
from datasets import load_dataset

rows = load_dataset("{name}", split="train")  # this folder, or its id on the Hub
```

The loss mask is 1 on the ids of every span and 0 elsewhere:

```python
mask = [0] * len(row["input_ids"])
for span in row["spans"]:
    start, end = span["start"], span["end"]
    mask[start:end] = [1] * (end - start)
```

To leave the reasoning out, begin behind the span's `reasoning_end`. What the dataset contains is what its newest
file in `manifests/` lists; objects of earlier versions may still lie beside them."""


def dataset_name(manifest: Manifest) -> str:
    """What people call it: the last part of the dataset's URL."""
    return _last_part(manifest.recipe.get("dataset")) or "dataset"


def body(manifest: Manifest) -> str:
    """The card's text as Markdown, without a title."""
    model = manifest.recipe.get("model") or {}
    name = _code(_reduced(model.get("name")) or "a model")
    parts = [
        f"Completions of {name}, token by token as the model produced them: training data for speculative-decoding\n"
        "drafters. Nothing was decoded, parsed or tokenized again.",
        _table(["", ""], _facts(manifest)),
        "## Reading it",
        READING.format(name=dataset_name(manifest)),
        "## Columns",
        _table(["column", "meaning"], [(f"`{column}`", meaning) for column, meaning in COLUMNS.items()]),
        "## How it was made",
        _table(["", ""], _made(manifest)),
        f"The whole recipe, the structures and the versions of all parts are in `{manifest.path}`.",
    ]
    return "\n\n".join(parts)


def _facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    counts = manifest.counts
    yield "manifest", f"{manifest.version}, sealed {manifest.created_at:%Y-%m-%d %H:%M} UTC"
    yield "rows", f"{counts.get('good_rows', 0):,} in {len(manifest.shards):,} shards"
    yield "in quarantine, not part of the split", f"{counts.get('quarantined_rows', 0):,}"
    if manifest.rejected:
        yield "prompts that could not be sent", f"{sum(ref.rows for ref in manifest.rejected):,}"
    lengths = manifest.statistics.total.lengths if manifest.statistics else {}
    for part in ("prompt", "reasoning", "content", "output"):
        if part in lengths:
            found = lengths[part]
            numbers = f"mean {found.mean:,.0f}, median {found.p50:,}, longest {found.max:,}"
            yield f"{part}, ids of the newest rows", numbers


def _made(manifest: Manifest) -> Iterator[tuple[str, str]]:
    recipe, provenance = manifest.recipe, manifest.provenance
    model = recipe.get("model") or {}
    yield "model", _code(_reduced(model.get("name")))
    yield "revision", _code(model.get("revision"))
    yield "quantization", _code(model.get("quantization"))
    yield "context length", _code(model.get("context_length"))
    yield "prompts", ", ".join(_code(_last_part(path)) for path in _paths(recipe))
    yield from _sampling(recipe)
    for name, structure in manifest.structures.items():
        yield f"reasoning, variant {name}", _code(structure.get("thinking"))
    yield "engine", ", ".join(_engines(provenance))
    yield from _hashes(provenance)
    yield "made with", _code(f"draftmill {provenance.get('draftmill', '')}".strip())


def _sampling(recipe: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    variants = recipe.get("variants") or [{"name": None}]
    for variant in variants:
        sampling = {**(recipe.get("sampling") or {}), **(variant.get("sampling") or {})}
        told = ", ".join(f"{name} {sampling[name]}" for name in SAMPLING if sampling.get(name) is not None)
        kwargs = variant.get("template_kwargs") or (recipe.get("model") or {}).get("template_kwargs")
        where = f", variant {variant['name']} ({variant.get('share')})" if variant["name"] else ""
        yield f"sampling{where}", _code(told)
        yield f"template{where}", _code(", ".join(f"{name}={value}" for name, value in (kwargs or {}).items()))


def _engines(provenance: Mapping[str, Any]) -> list[str]:
    servers = provenance.get("servers") or []
    told = (" ".join(str(server[part]) for part in ("name", "version") if server.get(part)) for server in servers)
    return [_code(words) for words in dict.fromkeys(told) if words]


def _hashes(provenance: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Whatever the provenance gives a SHA-256 of: the tokenizer, the template."""
    for name, value in provenance.items():
        found = value.get("sha256") if isinstance(value, Mapping) else value if name.endswith("sha256") else None
        if isinstance(found, str) and re.fullmatch(r"[0-9a-f]{64}", found):
            yield f"SHA-256 of the {name.removesuffix('_sha256').replace('_', ' ')}", _code(found)


def _paths(recipe: Mapping[str, Any]) -> list[Any]:
    path = (recipe.get("prompts") or {}).get("path")
    return path if isinstance(path, list) else [path]


def _reduced(name: Any) -> Any:
    """A hub id as it is; of a folder the last part."""
    return _last_part(name) if isinstance(name, str) and re.match(r"[/~.]|[A-Za-z]:\\|\w+://", name) else name


def _last_part(path: Any) -> str:
    return re.split(r"[/\\]", str(path).split("?")[0].rstrip("/\\"))[-1] if path else ""


def _code(value: Any) -> str:
    """As code in one line of a table; nothing for nothing."""
    if value is None or value == "":
        return ""
    words = " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")
    return f"`{words}`"


def _table(head: list[str], rows: Any) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows if row[-1])])
