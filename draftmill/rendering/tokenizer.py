"""The recipe's tokenizer, with its chat template, loaded once a process.

`model.tokenizer` (or `model.name`) is "embedded", a folder, or a hub id. A hub
id needs a revision before anything is fetched, since a moved branch would change
ids under a finished dataset; code from the hub needs a full commit hash and the
recipe's word. Whatever transformers, the hub or the Rust tokenizer say about a
tokenizer that cannot be loaded becomes one RecipeError in four parts.

Refuses a tokenizer without a chat template: there is nothing to render with.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftmill.errors import RecipeError
from draftmill.identity import digest, sha256
from draftmill.recipe import Model
from draftmill.rendering.template import template_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EMBEDDED = "embedded"

NO_LENGTH_LIMIT = 10**30
"""Tokens. The recipe's context_length decides what is too long, not a tokenizer's guess of it."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """Where a tokenizer is: a folder (`revision` None) or a hub id at a revision."""

    place: str
    revision: str | None
    trust_remote_code: bool


def load_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """The model's tokenizer with the recipe's chat template.

    Raises RecipeError: no revision for a hub id (before any network), nothing
    at that place, not a tokenizer, template file missing, no template at all.
    """
    template = _template_file(model.chat_template) if model.chat_template else None
    tokenizer = _load(tokenizer_source(model), template)
    if not template_text(tokenizer):
        raise RecipeError(
            "the tokenizer has no chat template",
            value=model.tokenizer or model.name,
            expected="a template in tokenizer_config.json or chat_template.jinja",
            remedy="give the model's own template as a file with model.chat_template",
        )
    return tokenizer


def tokenizer_source(model: Model) -> TokenizerSource:
    """Where the recipe's tokenizer is. Raises RecipeError for a hub id without a revision; opens no connection."""
    name = model.tokenizer or model.name
    if name == EMBEDDED:
        from draftmill.rendering.gguf import smollm2_gguf, tokenizer_folder  # needs the optional part

        return TokenizerSource(str(tokenizer_folder(smollm2_gguf())), None, False)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return TokenizerSource(str(folder.absolute()), None, model.trust_remote_code)
    if not _HUB_ID.fullmatch(name):
        raise RecipeError(
            "no such tokenizer",
            value=name,
            expected="an existing folder, a hub id (owner/name), or 'embedded'",
            remedy="correct model.tokenizer (or model.name, which stands for it when it is null)",
        )
    revision = model.tokenizer_revision or model.revision
    if revision is None:
        raise RecipeError(
            "a tokenizer from the hub needs a revision",
            value=f"{name} (no such folder here)",
            expected="model.tokenizer_revision, or model.revision",
            remedy="set it to the commit hash the model's page shows, or model.tokenizer to a folder",
        )
    if model.trust_remote_code and not _COMMIT.fullmatch(revision):
        raise RecipeError(
            "trust_remote_code needs a pinned revision",
            value=revision,
            expected="a full commit hash (40 hex digits): a branch or tag may hold other code tomorrow",
            remedy="set model.tokenizer_revision to the commit whose code you have read",
        )
    return TokenizerSource(name, revision, model.trust_remote_code)


@dataclass(frozen=True, slots=True)
class EndIds:
    """`ids`: at which servers stop; () when no file says. `unseen`: why it is not known whether there is a file."""

    ids: tuple[int, ...]
    unseen: str | None = None


@dataclass(frozen=True, slots=True)
class _Unseen:
    """A file that may be there: nobody could look."""

    words: str


def generation_end_ids(model: Model) -> EndIds:
    """The end ids of the generation_config.json beside the tokenizer. Raises RecipeError when it is not readable."""
    file = _beside(tokenizer_source(model), "generation_config.json")
    if not isinstance(file, Path):
        return EndIds((), None if file is None else f"generation_config.json could not be looked for: {file.words}")
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
    except (ValueError, AttributeError):
        raise RecipeError(
            "generation_config.json is not readable",
            value=file,
            expected="a JSON object",
            remedy="correct or remove the file",
        ) from None
    ids = found if isinstance(found, list) else [found]
    return EndIds(tuple(item for item in ids if type(item) is int))


def model_vocabulary(model: Model) -> int | None:
    """How many ids the model itself has, by the config.json beside the tokenizer; None where that does not say."""
    file = _beside(tokenizer_source(model), "config.json")
    if not isinstance(file, Path):
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        size = config.get("vocab_size", (config.get("text_config") or {}).get("vocab_size"))
    except (ValueError, AttributeError):
        return None
    return size if type(size) is int else None


def _beside(source: TokenizerSource, name: str) -> Path | _Unseen | None:
    """A file beside the tokenizer; None when it is known that there is none."""
    if source.revision is None:
        file = Path(source.place) / name
        return file if file.is_file() else None
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(source.place, name, revision=source.revision))
    except LocalEntryNotFoundError as error:  # not in the cache, and no network
        # The cache also remembers, as an object of its own, what an earlier look found not to be there.
        cached = try_to_load_from_cache(source.place, name, revision=source.revision)
        return _Unseen(_first_line(error)) if cached is None else None
    except EntryNotFoundError:  # not in the repository
        return None


def highest_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The largest id the tokenizer knows. Its `len` counts no holes: Kimi's is far below its markers' ids."""
    return max(max(tokenizer.get_vocab().values(), default=0), max(tokenizer.added_tokens_decoder, default=0))


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hex SHA-256 of all that decides a text's ids: vocabulary, added tokens, and the Rust pipeline if there is one."""
    added = {str(index): [str(token), token.special] for index, token in tokenizer.added_tokens_decoder.items()}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    parts = {
        "vocab": tokenizer.get_vocab(),
        "added": added,
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "pipeline": sha256(backend.to_str()) if backend is not None else None,
    }
    return sha256(json.dumps(parts, sort_keys=True))


def template_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hex SHA-256 of the chat template (of the named ones with their names)."""
    return digest(tokenizer.chat_template)


def _template_file(path: str) -> str:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            "the chat template cannot be read",
            value=f"{path} ({type(error).__name__})",
            expected="a text file with a Jinja template",
            remedy="correct model.chat_template, or set it to null for the tokenizer's own",
        ) from None
    if not text.strip():
        raise RecipeError(
            "the chat template is empty", value=path, expected="a Jinja template", remedy="correct model.chat_template"
        )
    return text


@functools.lru_cache(maxsize=8)
def _load(source: TokenizerSource, template: str | None) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer  # takes two seconds, which `draftmill --help` need not

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source.place, revision=source.revision or "main", trust_remote_code=source.trust_remote_code
        )
    except Exception as error:  # the Rust library raises bare Exception for a broken tokenizer.json
        raise RecipeError(
            "the tokenizer cannot be loaded",
            value=f"{source.place}{f' at {source.revision}' if source.revision else ''}",
            expected="a Hugging Face tokenizer (tokenizer.json, tokenizer_config.json) that can be read or fetched",
            remedy=f"check the name, the revision and the network, or use a local folder; {_first_line(error)}",
        ) from None
    tokenizer.model_max_length = NO_LENGTH_LIMIT
    if template is not None:
        tokenizer.chat_template = template
    return tokenizer


def _first_line(error: Exception) -> str:
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line[:300]}"
