"""load_tokenizer: where a tokenizer comes from, and the refusals in four parts."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import EntryNotFoundError
from transformers import PreTrainedTokenizerBase

from draftmill.errors import RecipeError
from draftmill.recipe import Model
from draftmill.rendering.tokenizer import (
    EndIds,
    generation_end_ids,
    highest_id,
    load_tokenizer,
    template_digest,
    tokenizer_digest,
    tokenizer_source,
)
from draftmill.serving.shaped import kimi_shaped_tokenizer

Shaped = Callable[[str, str], PreTrainedTokenizerBase]

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def model(**parts: Any) -> Model:
    return Model(**{"name": "owner/model", "context_length": 4096, **parts})


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def kimi_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kimi_shaped_tokenizer(tmp_path_factory.mktemp("kimi"), "{{ messages[0].content }}")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({}, "a tokenizer from the hub needs a revision"),
        ({"tokenizer": "owner/other"}, "a tokenizer from the hub needs a revision"),
        ({"revision": "main", "trust_remote_code": True}, "trust_remote_code needs a pinned revision"),
        ({"tokenizer": "/no/such/folder"}, "no such tokenizer"),
        ({"tokenizer": "a/b/c"}, "no such tokenizer"),
        ({"tokenizer": "embedded", "chat_template": "/no/such.jinja"}, "the chat template cannot be read"),
    ],
)
def test_refused_before_anything_is_fetched(parts: dict[str, Any], what: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_tokenizer(model(**parts))
    assert caught.value.what == what


def test_which_revision() -> None:
    assert tokenizer_source(model(revision="r1")).revision == "r1"
    assert tokenizer_source(model(revision="r1", tokenizer_revision="r2")).revision == "r2"
    assert tokenizer_source(model(revision=COMMIT, trust_remote_code=True)).trust_remote_code


def test_a_folder_and_its_digests(kimi_folder: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(model(tokenizer=str(kimi_folder)))
    assert load_tokenizer(model(name=str(kimi_folder))) is tokenizer  # once a process
    file = tmp_path / "other.jinja"
    file.write_text("{{ messages[0].role }}")
    other = load_tokenizer(model(tokenizer=str(kimi_folder), chat_template=str(file)))
    assert other.chat_template == "{{ messages[0].role }}"
    assert tokenizer.chat_template == "{{ messages[0].content }}"
    assert template_digest(other) != template_digest(tokenizer)
    assert tokenizer_digest(other) == tokenizer_digest(tokenizer)
    other.add_tokens(["<new>"])
    assert tokenizer_digest(other) != tokenizer_digest(tokenizer)


def test_the_embedded_tokenizer() -> None:
    tokenizer = load_tokenizer(model(tokenizer="embedded"))
    assert tokenizer.decode([1, 4093]) == "<|im_start|>user"


def test_highest_id_is_not_the_length(kimi_folder: Path) -> None:
    tokenizer = load_tokenizer(model(tokenizer=str(kimi_folder)))
    assert highest_id(tokenizer) == 163839
    assert len(tokenizer) < 60_000


def test_a_broken_tokenizer_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(RecipeError, match="cannot be loaded") as caught:
        load_tokenizer(model(tokenizer=str(tmp_path)))
    assert caught.value.__suppress_context__
    assert "Traceback" not in str(caught.value)


def test_no_template_at_all(kimi_folder: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((kimi_folder / name).read_bytes())
    with pytest.raises(RecipeError, match="has no chat template"):
        load_tokenizer(model(tokenizer=str(tmp_path)))


def test_an_empty_template_file(kimi_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("\n")
    with pytest.raises(RecipeError, match="the chat template is empty"):
        load_tokenizer(model(tokenizer=str(kimi_folder), chat_template=str(tmp_path / "t.jinja")))


@pytest.mark.parametrize(("eos", "wanted"), [(7, (7,)), ([7, 9], (7, 9)), (None, ())])
def test_end_ids_of_the_generation_config(tmp_path: Path, eos: object, wanted: tuple[int, ...]) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    assert generation_end_ids(model(name=str(tmp_path))) == EndIds(wanted)


def test_no_or_a_broken_generation_config(tmp_path: Path) -> None:
    assert generation_end_ids(model(name=str(tmp_path))) == EndIds(())
    (tmp_path / "generation_config.json").write_text("[")
    with pytest.raises(RecipeError, match=r"generation_config\.json is not readable"):
        generation_end_ids(model(name=str(tmp_path)))


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's own client without a network, and the folder where it keeps this model's files of COMMIT."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--owner--model"
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    return folder


def test_a_generation_config_nobody_could_look_for_is_said(hub_cache: Path) -> None:
    found = generation_end_ids(model(revision=COMMIT))
    assert found.ids == ()
    assert found.unseen is not None
    assert found.unseen.startswith("generation_config.json could not be looked for: LocalEntryNotFoundError")


def test_a_generation_config_in_the_cache(hub_cache: Path) -> None:
    (hub_cache / "snapshots" / COMMIT / "generation_config.json").write_text('{"eos_token_id": [3]}')
    assert generation_end_ids(model(revision=COMMIT)) == EndIds((3,))


def test_a_generation_config_that_the_cache_knows_not_to_be_there(hub_cache: Path) -> None:
    (hub_cache / ".no_exist" / COMMIT).mkdir(parents=True)
    (hub_cache / ".no_exist" / COMMIT / "generation_config.json").touch()
    assert generation_end_ids(model(revision=COMMIT)) == EndIds(())


def test_a_generation_config_the_hub_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise EntryNotFoundError("404")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", missing)
    assert generation_end_ids(model(revision=COMMIT)) == EndIds(())
