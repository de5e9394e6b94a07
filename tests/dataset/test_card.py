"""The card: Hugging Face's own readers find exactly the manifest's rows; a person's words stay; no secret is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset import card as module
from draftmill.dataset.card import BEGIN, CARD, END, card_state, card_text, read_card, write_card
from draftmill.dataset.card_body import COLUMNS
from draftmill.dataset.compact import compact
from draftmill.dataset.manifest import DataRef, Made, Manifest, newest
from draftmill.dataset.schema import SHARD
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.stored import requests_table
from draftmill.errors import DatasetError

Rows = Callable[..., pa.Table]

RECIPE = {
    "dataset": "/home/anna/secret-project/kimi-eagle3",
    "prompts": {"path": ["/home/anna/prompts/*.jsonl", "s3://bucket/private/more.csv?X-Amz-Signature=abc"]},
    "model": {"name": "moonshotai/Kimi-K2.5", "revision": "0123abc", "context_length": 131072, "template_kwargs": {}},
    "sampling": {"temperature": 0.6, "top_p": 0.95, "max_new_tokens": 32768, "samples": 1, "stop_token_ids": []},
    "engine": {"urls": ["http://user:hunter2@10.0.0.7:30000"], "api_key_env": "SECRET_KEY"},
    "variants": [
        {"name": "think", "share": 0.8},
        {"name": "fast", "share": 0.2, "template_kwargs": {"thinking": False}},
    ],
}
PROVENANCE = {
    "draftmill": "0.1.0",
    "tokenizer_sha256": "a" * 64,
    "chat_template_sha256": "b" * 64,
    "servers": [{"url": "http://10.0.0.7:30000", "name": "sglang", "version": "0.5.23"}] * 2,
    "sealed_by": "anna@workstation",
}


@pytest.fixture
def sealed(storage: Storage, stored_rows: Rows) -> Storage:
    """Two versions; the second drops a row of the first, whose object stays in the folder."""
    first = storage.put_table("shards", stored_rows({"key": "a"}, {"key": "b"}))
    bad = storage.put_table("quarantine", stored_rows({"key": "x"}, reason="degenerate"))
    made: dict[str, Any] = {"recipe": RECIPE, "provenance": PROVENANCE, "structures": {"think": {"thinking": "none"}}}
    seal(storage, Change(good=[first], bad=[bad], **made))
    more = [storage.put_table("shards", stored_rows({"key": name})) for name in ("c", "d")]
    key = stored_rows({"key": "a"})["row_key"][0].as_py()
    seal(storage, Change(good=more, dropped=requests_table([(key, 0)]), **made))
    write_card(storage)
    return storage


def last(storage: Storage) -> Manifest:
    manifest = newest(storage)
    assert manifest is not None
    return manifest


def listed_rows(storage: Storage) -> list[dict[str, Any]]:
    return [row for ref in last(storage).shards for row in storage.read_table(ref.path).to_pylist()]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[dict[str, Any]]]:
    """The rows as `datasets` reads a folder, by its card alone."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    import datasets

    datasets.disable_progress_bars()

    def rows(folder: str) -> list[dict[str, Any]]:
        found = datasets.load_dataset(folder, cache_dir=str(tmp_path / "cache"))
        assert list(found) == ["train"]
        return list(found["train"])

    return rows


def keys(rows: list[dict[str, Any]]) -> list[tuple[str, list[int]]]:
    return [(row["row_key"], list(row["input_ids"])) for row in rows]


def test_datasets_reads_exactly_the_manifests_rows(sealed: Storage, load: Any) -> None:
    expected = listed_rows(sealed)
    assert [row["prompt_id"] for row in expected] == ["b", "c", "d"]
    assert len(sealed.list("shards")) == 4
    rows = load(sealed.url)
    assert rows == expected
    compact(sealed)
    write_card(sealed)
    assert len(last(sealed).shards) == 1
    assert load(sealed.url) == expected


def test_the_hubs_own_reader(sealed: Storage) -> None:
    card = DatasetCard.load(str(Path(sealed.url) / CARD))
    assert card.data.task_categories == ["text-generation"]
    (config,) = card.data.to_dict()["configs"]
    (split,) = config["data_files"]
    assert split["path"] == [ref.path for ref in last(sealed).shards]


def test_what_it_tells(sealed: Storage) -> None:
    text = read_card(sealed)
    assert text is not None
    for words in (
        *("# kimi-eagle3", "`moonshotai/Kimi-K2.5`", "`0123abc`", "| manifest | 2, sealed", "| rows | 3 in 3 shards |"),
        *("temperature 0.6, top_p 0.95", "`*.jsonl`, `more.csv`", "`sglang 0.5.23` |", "`draftmill 0.1.0`", "a" * 64),
        *("variant fast (0.2)", "`thinking=False`", "manifests/00000002.json", "mask[start:end]"),
    ):
        assert words in text


def test_it_tells_nothing_private(sealed: Storage) -> None:
    text = read_card(sealed) or ""
    for words in ("anna", "hunter2", "10.0.0.7", "SECRET_KEY", "secret-project", "Signature", "private", "/home"):
        assert words not in text


def test_a_model_in_a_folder_is_told_by_its_last_part(sealed: Storage) -> None:
    recipe = {**RECIPE, "model": {"name": "/home/anna/models/kimi"}}
    text = card_text(last(sealed).model_copy(update={"recipe": recipe}))
    assert "`kimi`" in text
    assert "anna" not in text


def test_every_column_is_explained() -> None:
    assert list(COLUMNS) == SHARD.names


def test_the_loss_mask_of_the_card_is_right(sealed: Storage) -> None:
    text = read_card(sealed) or ""
    code = text.split("```python\n")[2].split("```")[0]
    for row in listed_rows(sealed):
        names: dict[str, Any] = {"row": row}
        exec(code, names)
        assert names["mask"] == [0, 0, 1, 1, 1, 1]


def test_a_manifest_that_says_little(storage: Storage, stored_rows: Rows, load: Any) -> None:
    """Without recipe and provenance, as of another maker; and all rows in quarantine: nothing to read."""
    seal(storage, Change(bad=[storage.put_table("quarantine", stored_rows({"key": "x"}, reason="degenerate"))]))
    write_card(storage)
    assert yaml.safe_load((read_card(storage) or "").split("---")[1])["configs"] == []
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "a"}))]))
    write_card(storage)
    assert keys(load(storage.url)) == keys(listed_rows(storage))


def test_an_owners_words_stay(sealed: Storage) -> None:
    text = read_card(sealed) or ""
    edited = text.replace(
        "---\ntask_categories", "---\nlicense: apache-2.0\nlanguage:\n- de\npretty_name: Öl\ntask_categories"
    )
    edited = edited.replace("# kimi-eagle3\n", "# Our set\n\nFor whom?\n").replace("- draftmill\n", "")
    edited += "\n## Thanks\n\nTo all.\n"
    sealed.replace(CARD, edited.encode())
    assert card_state(sealed, last(sealed)) == "current"
    compact(sealed)
    assert card_state(sealed, last(sealed)) == "stale"
    write_card(sealed)
    found = read_card(sealed) or ""
    fields = yaml.safe_load(found.split("---\n")[1])
    assert (fields["license"], fields["language"], fields["pretty_name"]) == ("apache-2.0", ["de"], "Öl")
    assert "draftmill" not in fields["tags"]
    assert fields["configs"][0]["data_files"][0]["path"] == [ref.path for ref in last(sealed).shards]
    assert "# Our set\n\nFor whom?\n" in found
    assert found.endswith("\n## Thanks\n\nTo all.\n")
    assert found.count(BEGIN) == found.count(END) == 1
    assert "| rows | 3 in 1 shards |" in found


def test_a_card_of_the_owners_own_gets_the_block(sealed: Storage, load: Any) -> None:
    sealed.replace(CARD, b"# Mine\r\n\r\nText.\r\n")
    write_card(sealed)
    text = read_card(sealed) or ""
    assert text.startswith("---\n")
    assert "\n# Mine\n\nText.\n\n<!-- draftmill" in text
    assert len(load(sealed.url)) == 3


@given(
    before=st.sampled_from(
        ["", "words\n", "---\nlicense: mit\n---\n", "---\na: 1\n---\ntext", f"{BEGIN}\nold\n{END} x"]
    ),
    after=st.sampled_from(
        ["", "more", f"\n{BEGIN}\n", f"\n{END}\n", f"{END}{BEGIN}", f"\n{BEGIN} a {END} b {BEGIN} c {END}"]
    ),
)
def test_made_twice_is_made_once(before: str, after: str) -> None:
    once = card_text(MANIFEST, before + after)
    assert card_text(MANIFEST, once) == once


MANIFEST = Manifest.model_validate(
    {
        **{"format": 3, "version": 7, "parent": None, "seal_id": "", "created_at": "2026-01-01T00:00:00Z"},
        **{"shards": [], "quarantine": [], "rejected": [], "consumed": [], "failed": []},
        **{name: {} for name in ("recipe", "identity", "structures", "provenance", "counts")},
    }
)


@pytest.mark.parametrize(
    "front", ["---\na: [\n---\n", "---\n- list\n---\n", "---\nno end\n", "---\n---\n", b"\xff\xfe"]
)
def test_a_card_that_cannot_be_read_is_left_alone(sealed: Storage, front: str | bytes) -> None:
    data = front.encode() if isinstance(front, str) else front
    sealed.replace(CARD, data)
    with pytest.raises(DatasetError, match=CARD):
        write_card(sealed)
    assert sealed.read(CARD) == data
    assert card_state(sealed, last(sealed)) == "unreadable"


def test_thousands_of_shards(storage: Storage, stored_rows: Rows, load: Any) -> None:
    """By the card, not by what lies there: each of them is named, in order."""
    refs = [storage.put_table("shards", stored_rows({"key": str(n)})) for n in range(3)]
    listed = [
        DataRef(path=f"shards/{n:064x}.parquet", bytes=1, rows=1, sha256="", made=[Made(manifest=1, rows=1)])
        for n in range(5000)
    ]
    text = card_text(MANIFEST.model_copy(update={"shards": listed}))
    (config,) = DatasetCard(text).data.to_dict()["configs"]
    assert config["data_files"][0]["path"] == [ref.path for ref in listed]
    assert len(refs) == 3


def test_hundreds_of_shards_are_read_in_order(storage: Storage, stored_rows: Rows, load: Any) -> None:
    refs = [storage.put_table("shards", stored_rows({"key": str(n)})) for n in range(300)]
    seal(storage, Change(good=refs[::2]))
    write_card(storage)
    assert [row["prompt_id"] for row in load(storage.url)] == [str(n) for n in range(0, 300, 2)]


@pytest.mark.parametrize(
    ("rows", "category"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (123_456, "100K<n<1M"), (10**6, "1M<n<10M"), (10**12, "n>1T")],
)
def test_size_category(rows: int, category: str) -> None:
    ref = DataRef(path="shards/x", bytes=1, rows=rows, sha256="", made=[])
    manifest = MANIFEST.model_copy(update={"shards": [ref]})
    assert yaml.safe_load(card_text(manifest).split("---")[1])["size_categories"] == [category]
    other = card_text(manifest, "---\nsize_categories:\n- n<1K\n---\n")
    assert yaml.safe_load(other.split("---")[1])["size_categories"] == [category]
    assert "size_categories" not in yaml.safe_load(card_text(manifest, "---\nlicense: mit\n---\n").split("---")[1])


def test_no_manifest_no_card(storage: Storage) -> None:
    write_card(storage)
    assert read_card(storage) is None


def test_a_manifest_sealed_while_the_card_is_written(
    sealed: Storage, stored_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = module.newest, []

    def slow(storage: Storage) -> Manifest | None:
        found = real(storage)
        if not calls:
            calls.append(storage)
            seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "late"}))]))
        return found

    monkeypatch.setattr(module, "newest", slow)
    write_card(sealed)
    assert "manifests/00000003.json" in (read_card(sealed) or "")


def test_states(sealed: Storage) -> None:
    assert card_state(sealed, last(sealed)) == "current"
    sealed.remove(CARD)
    assert card_state(sealed, last(sealed)) == "missing"


def test_on_s3(bucket: str, stored_rows: Rows) -> None:
    there = open_storage(f"{bucket}/data")
    seal(there, Change(good=[there.put_table("shards", stored_rows({"key": "a"}))]))
    write_card(there)
    seal(there, Change(good=[there.put_table("shards", stored_rows({"key": "b"}))]))
    write_card(there)
    assert card_state(there, last(there)) == "current"
    assert len(json.dumps(DatasetCard(read_card(there) or "").data.to_dict())) > 0
