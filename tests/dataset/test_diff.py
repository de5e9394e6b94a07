"""What changed between two versions, in rows that close, by name where something is gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.dataset.compact import compact
from draftmill.dataset.diff import diff_rows, pair
from draftmill.dataset.manifest import Manifest
from draftmill.dataset.origin import data_ref
from draftmill.dataset.rejected import rejections_table
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.stored import requests_table
from draftmill.errors import DatasetError, RecipeError
from draftmill.recipe_diff import Changed
from draftmill.records import Reason, Rejection
from draftmill.reporting.diff_lines import difference

Rows = Callable[..., pa.Table]
Row = dict[str, Any]


@pytest.fixture
def sealer(storage: Storage, stored_rows: Rows, key_of: Callable[[str], str]) -> Callable[..., Manifest]:
    def make(
        good: Sequence[Row] = (), bad: Sequence[Row] = (), drop: Sequence[tuple[str, int]] = (), **changes: Any
    ) -> Manifest:
        shards = [storage.put_table("shards", stored_rows(*good))] if good else []
        by_reason = [
            storage.put_table("quarantine", stored_rows(row, reason=row.get("reason", "degenerate"))) for row in bad
        ]
        dropped = requests_table([(key_of(key), attempt) for key, attempt in drop])
        return seal(storage, Change(good=shards, bad=by_reason, dropped=dropped, **changes)).manifest

    return make


def test_every_kind_of_change(storage: Storage, sealer: Callable[..., Manifest]) -> None:
    old = sealer(
        [
            {"key": "stays"},
            {"key": "gone"},
            {"key": "v1", "slot": "s"},
            {"key": "fell"},
            {"key": "cut", "finish": "length"},
        ],
        [{"key": "rose"}, {"key": "held"}, {"key": "other"}],
    )
    new = sealer(
        [{"key": "new"}, {"key": "v2", "slot": "s"}, {"key": "rose"}, {"key": "cut", "attempt": 1}],
        [{"key": "bad"}, {"key": "fell"}, {"key": "other", "reason": "empty_content"}],
        [("gone", 0), ("v1", 0), ("rose", 0), ("fell", 0), ("other", 0)],
    )
    found = diff_rows(storage, old, new)
    assert found.old == {"degenerate": 3, "good": 5}
    assert found.new == {"degenerate": 3, "empty_content": 1, "good": 5}
    assert found.added == {"degenerate": 1, "good": 2}
    assert found.removed == {"good": 1}
    assert found.superseded == {"good": 1}
    assert found.moved == {("degenerate", "good"): 1, ("good", "degenerate"): 1, ("degenerate", "empty_content"): 1}
    assert found.asked_again == 1


def test_a_good_row_outlives_a_newer_bad_attempt(storage: Storage, sealer: Callable[..., Manifest]) -> None:
    old = sealer([{"key": "a"}])
    new = sealer(bad=[{"key": "a", "attempt": 1}])
    found = diff_rows(storage, old, new)
    assert (found.moved, found.asked_again, found.new) == ({}, 0, {"good": 1})


KEYS = st.dictionaries(
    st.sampled_from("abcdef"), st.tuples(st.sampled_from("xyz"), st.sampled_from(["good", "degenerate"])), min_size=1
)


@settings(max_examples=15)
@given(before=KEYS, after=KEYS)
def test_the_numbers_close(
    tmp_path_factory: pytest.TempPathFactory,
    stored_rows: Rows,
    before: dict[str, tuple[str, str]],
    after: dict[str, tuple[str, str]],
) -> None:
    storage = open_storage(str(tmp_path_factory.mktemp("diff") / "dataset"))

    def manifest(rows: dict[str, tuple[str, str]]) -> Manifest:
        good = [{"key": key, "slot": slot} for key, (slot, stands) in rows.items() if stands == "good"]
        bad = [{"key": key, "slot": slot} for key, (slot, stands) in rows.items() if stands != "good"]
        refs = {
            "good": [storage.put_table("shards", stored_rows(*good))] if good else [],
            "bad": [storage.put_table("quarantine", stored_rows(*bad, reason="degenerate"))] if bad else [],
        }
        return _manifest(**refs)

    found = diff_rows(storage, manifest(before), manifest(after))
    total = {name: sum(getattr(found, name).values()) for name in ("old", "new", "added", "removed", "superseded")}
    assert total["old"] == len(before)
    assert total["new"] == len(after) == total["old"] - total["removed"] - total["superseded"] + total["added"]
    slots = {slot for slot, _ in after.values()}
    gone = {key: slot for key, (slot, _) in before.items() if key not in after}
    assert total["superseded"] == sum(slot in slots for slot in gone.values())
    moved = {key for key in before.keys() & after.keys() if before[key][1] != after[key][1]}
    assert sum(found.moved.values()) == len(moved)


def _manifest(good: list[Any], bad: list[Any]) -> Manifest:
    """A first version that lists these objects."""
    shards, quarantine = ([data_ref(ref, [1] * ref.rows) for ref in refs] for refs in (good, bad))
    empty: dict[str, Any] = {}
    return Manifest.model_validate(
        {
            **{"format": 3, "version": 1, "parent": None, "seal_id": "", "created_at": "2026-01-01T00:00:00Z"},
            **{"shards": shards, "quarantine": quarantine, "rejected": [], "consumed": [], "failed": []},
            **dict.fromkeys(("recipe", "identity", "structures", "provenance", "counts"), empty),
        }
    )


def test_compacting_changes_no_row(storage: Storage, sealer: Callable[..., Manifest]) -> None:
    sealer([{"key": "a"}])
    sealer([{"key": "b"}])
    compact(storage)
    found = difference(storage.url)
    assert (found.old, found.new) == (2, 3)
    assert found.lines() == ["rows: 2 -> 2, good 2 -> 2", "  the same rows"]
    assert (found.recipe, found.made_with, found.drift) == ([], [], None)


def test_recipe_rejections_and_what_rows_are_made_with(storage: Storage, sealer: Callable[..., Manifest]) -> None:
    def rejected(*reasons: Reason) -> list[Any]:
        rejections = [Rejection(reason, "no", str(n), "p.jsonl", n) for n, reason in enumerate(reasons)]
        return [storage.put_table("rejected", rejections_table(rejections))]

    def provenance(template: str, server: str) -> dict[str, Any]:
        return {"chat_template_sha256": template, "servers": [{"url": server}], "sealed_by": server}

    sealer([{"key": "a"}], recipe={"sampling": {"top_p": 0.9}}, provenance=provenance("1" * 64, "x"))
    sealer(
        [{"key": "b"}],
        recipe={"sampling": {"top_p": 0.95}, "on_truncated": "keep"},
        provenance=provenance("2" * 64, "y"),
        rejected=rejected(Reason.DUPLICATE, Reason.DUPLICATE, Reason.PROMPT_INVALID),
    )
    found = difference(storage.url)
    assert found.recipe == [Changed("sampling.top_p", 0.9, 0.95), Changed("on_truncated", None, "keep")]
    assert [changed.field for changed in found.made_with] == ["chat_template_sha256"]
    assert "rejected prompts, duplicate: 0 -> 2" in found.lines()
    assert "recipe: sampling.top_p: 0.9 -> 0.95" in found.lines()
    data = found.to_json()
    assert data["rows"]["rejected"] == {"old": {}, "new": {"duplicate": 2, "prompt_invalid": 1}}
    assert data["recipe"][0] == {"field": "sampling.top_p", "old": 0.9, "new": 0.95}
    assert data["drift"]["compared_with"] == 1


def test_which_two(storage: Storage, sealer: Callable[..., Manifest]) -> None:
    for key in "abc":
        sealer([{"key": key}])

    def compared(old: int | None = None, new: int | None = None) -> tuple[int, int]:
        before, after = pair(storage, old, new)
        return before.version, after.version

    assert compared() == (2, 3)
    assert compared(1) == (1, 3)
    assert compared(None, 2) == (1, 2)
    assert compared(3, 1) == (3, 1)
    for old, new in ((1, 1), (0, 1), (3, 4), (None, 1)):
        with pytest.raises(RecipeError):
            pair(storage, old, new)


def test_one_manifest_or_none(storage: Storage, sealer: Callable[..., Manifest]) -> None:
    named = [(None, None), (1, None), (None, 1), (1, 2)]
    for old, new in named:
        with pytest.raises(RecipeError, match="no dataset there"):
            difference(storage.url, old, new)
    sealer([{"key": "a"}])
    for old, new in named:
        with pytest.raises(RecipeError, match="only one manifest"):
            difference(storage.url, old, new)


@pytest.mark.parametrize("kind", ["shards", "quarantine", "rejected"])
def test_an_object_that_gc_removed_is_named_with_its_manifest(
    storage: Storage, sealer: Callable[..., Manifest], kind: str
) -> None:
    rejected = [storage.put_table("rejected", rejections_table([]))]
    old = sealer([{"key": "a"}], [{"key": "b"}], rejected=rejected)
    sealer([{"key": "c"}], drop=[("a", 0), ("b", 0)])
    path = getattr(old, kind)[0].path
    storage.remove(path)
    with pytest.raises(DatasetError, match="manifest 1") as refused:
        difference(storage.url)
    assert refused.value.value == path
    assert "gc" in refused.value.remedy


def test_on_s3(bucket: str, stored_rows: Rows) -> None:
    there = open_storage(f"{bucket}/data")
    seal(there, Change(good=[there.put_table("shards", stored_rows({"key": "a"}))]))
    seal(there, Change(good=[there.put_table("shards", stored_rows({"key": "b"}))]))
    assert difference(there.url).rows.added == {"good": 1}
