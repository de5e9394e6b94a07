"""`draftmill verify` as a whole: the dataset's own checks, and every good row judged by its manifest's structure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from draftmill.arrays import ids_array
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.storage import open_storage
from draftmill.judging.structure import Structure
from draftmill.records import Answer, Completion, Row, Thinking, Verdict
from draftmill.reporting.verification import verify_dataset

RULES = Structure("think", Thinking.OPENED_BY_PROMPT, (20,), (21,), (2,), (), (), (), 99, ())


def dataset(folder: Path, ids: list[int], reasoning_end: int | None) -> str:
    """A sealed dataset of one row that was called good."""
    url = str(folder / "dataset")
    storage = open_storage(url)
    row = Row("k" * 64, 0, "p", "id", "default", 0, ids_array("p", [1, 20]), 64, None, "prompts.jsonl")
    when = datetime(2026, 1, 1, tzinfo=UTC)
    answer = Answer(ids_array("o", ids), None, 2, len(ids), "stop", None, ids[-1], "e", None, when)
    good, _ = dataset_rows([Completion(row, answer)], [Verdict(None, "", None, reasoning_end, ids[-1])])
    recipe = {"on_truncated": "keep", "degenerate": "auto"}
    seal(
        storage,
        Change(good=[storage.put_table("shards", good)], structures={"default": RULES.to_json()}, recipe=recipe),
    )
    return url


def test_a_good_row_verifies(tmp_path: Path) -> None:
    verification = verify_dataset(dataset(tmp_path, [10, 21, 11, 2], 3))
    assert (verification.ok, verification.rows, verification.faults) == (True, 1, [])


def test_a_row_its_own_structure_refuses_is_named_with_its_shard(tmp_path: Path) -> None:
    url = dataset(tmp_path, [10, 11, 2], None)
    verification = verify_dataset(url)
    assert not verification.ok
    (fault,) = verification.faults
    assert fault.file == open_storage(url).list("shards")[0]
    assert "reasoning_not_closed" in fault.fault


def test_an_edited_manifest_is_named(tmp_path: Path) -> None:
    url = dataset(tmp_path, [10, 21, 11, 2], 3)
    manifest = Path(url) / "manifests" / "00000001.json"
    manifest.write_text(manifest.read_text().replace('"opened_by_prompt"', '"none"'))
    verification = verify_dataset(url)
    assert not verification.ok
    assert "manifests/00000001.json" in {fault.file for fault in verification.faults}


def test_a_row_of_an_older_template_is_judged_by_the_structure_it_was_sealed_with(tmp_path: Path) -> None:
    """Its prompt ends as the first manifest says, and not as the second's."""
    bare = replace(RULES, thinking=Thinking.NONE, open_ids=(), close_ids=(), tail_ids=(7,))
    opens = replace(RULES, tail_ids=(7, 20))
    storage = open_storage(str(tmp_path / "dataset"))
    for name, prompt, rules in (("old", [1, 7], bare), ("new", [1, 7, 20], opens)):
        output = [10, 21, 11, 2] if name == "new" else [10, 2]
        end = len(prompt) + 1 if name == "new" else None
        row = Row(name * 20, 0, name, name, "default", 0, ids_array("p", prompt), 64, None, "prompts.jsonl")
        when = datetime(2026, 1, 1, tzinfo=UTC)
        answer = Answer(ids_array("o", output), None, len(prompt), len(output), "stop", None, 2, "e", None, when)
        good, _ = dataset_rows([Completion(row, answer)], [Verdict(None, "", None, end, 2)])
        change = Change(
            good=[storage.put_table("shards", good)],
            structures={"default": rules.to_json()},
            recipe={"on_truncated": "keep", "degenerate": "auto"},
        )
        seal(storage, change)
    assert verify_dataset(storage.url).faults == []
