"""`draftmill status`: manifests, reasons, rejected prompts, and what is generated but not sealed."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from draftmill.dataset import completions
from draftmill.dataset.card import write_card
from draftmill.dataset.rejected import rejections_table
from draftmill.dataset.schema import completions_table
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.status import REJECTED_SHOWN, dataset_status
from draftmill.dataset.storage import Storage, open_storage
from draftmill.errors import DatasetError, RecipeError
from draftmill.records import Completion, Reason, Rejection

Rows = Callable[..., pa.Table]


def test_a_path_without_a_dataset_is_refused(storage: Storage) -> None:
    with pytest.raises(RecipeError) as refused:
        dataset_status(storage.url)
    assert refused.value.value == storage.url
    assert "draftmill run" in refused.value.remedy


def test_an_unfinished_first_run_is_a_dataset(storage: Storage, completion: Callable[..., Completion]) -> None:
    storage.put_table(completions.FOLDER, completions_table([completion("a"), completion("b")]))
    status = dataset_status(storage.url)
    assert (status.manifests, status.unfinished, status.reasons) == ([], 2, {})


def test_each_manifest_in_a_line_and_the_newest_ones_reasons(storage: Storage, stored_rows: Rows) -> None:
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "a"}))]))
    seal(
        storage,
        Change(
            good=[storage.put_table("shards", stored_rows({"key": "b"}))],
            bad=[
                storage.put_table("quarantine", stored_rows({"key": "c"}, {"key": "d"}, reason="degenerate")),
                storage.put_table("quarantine", stored_rows({"key": "e"}, reason="aborted")),
            ],
            failed=[{"row_key": "k", "prompt_id": "f", "source": "s", "detail": "HTTP 500"}],
        ),
    )
    status = dataset_status(storage.url)
    assert [(v.version, v.good_rows, v.quarantined_rows) for v in status.manifests] == [(1, 1, 0), (2, 2, 3)]
    assert status.reasons == {"aborted": 1, "degenerate": 2}
    assert status.attempts == {"0": 2}
    assert status.failed[0]["detail"] == "HTTP 500"
    assert status.to_json()["manifests"][1]["version"] == 2


def test_good_rows_by_attempt_also_of_a_manifest_that_does_not_count_them(storage: Storage, stored_rows: Rows) -> None:
    good = [storage.put_table("shards", stored_rows({"key": "a"}, {"key": "b", "attempt": 2}))]
    bad = [storage.put_table("quarantine", stored_rows({"key": "c", "attempt": 1}, reason="degenerate"))]
    first = seal(storage, Change(good=good, bad=bad)).manifest
    assert dataset_status(storage.url).to_json()["attempts"] == first.counts["attempts"] == {"0": 1, "2": 1}
    older = {name: number for name, number in first.counts.items() if name != "attempts"}
    second = first.model_copy(update={"version": 2, "counts": older}).hashed()
    storage.create(second.path, second.to_bytes())
    assert dataset_status(storage.url).attempts == {"0": 1, "2": 1}


def test_statistics_of_the_last_two_manifests_that_brought_rows(storage: Storage, stored_rows: Rows) -> None:
    def seal_rows(*rows: dict[str, object]) -> None:
        seal(storage, Change(good=[storage.put_table("shards", stored_rows(*rows))], recipe={"on_truncated": "keep"}))

    seal_rows({"key": "a", "finish": "length"})
    assert (dataset_status(storage.url).statistics, dataset_status(storage.url).statistics_before) != (None, None)
    assert dataset_status(storage.url).statistics_before is None
    seal_rows({"key": "b"}, {"key": "c"})
    seal_rows({"key": "a", "attempt": 1})  # not new: manifest 3 repeats the statistics of 2
    status = dataset_status(storage.url)
    assert status.statistics is not None
    assert status.statistics_before is not None
    assert (status.statistics.manifest, status.statistics_before.manifest) == (2, 1)
    data = status.to_json()
    assert data["statistics"]["total"]["rows"] == 2
    assert not {"statistics_before", "recipe"} & data.keys()


def test_rejected_prompts_are_counted_and_the_first_ones_shown(storage: Storage, stored_rows: Rows) -> None:
    rejections = [Rejection(Reason.PROMPT_INVALID, "no", str(n), "prompts.jsonl", n) for n in range(REJECTED_SHOWN + 5)]
    seal(
        storage,
        Change(
            good=[storage.put_table("shards", stored_rows({"key": "a"}))],
            rejected=[storage.put_table("rejected", rejections_table(rejections))],
        ),
    )
    status = dataset_status(storage.url)
    assert status.rejected == {"prompt_invalid": REJECTED_SHOWN + 5}
    assert [row["line"] for row in status.rejected_prompts] == list(range(REJECTED_SHOWN))


def test_sealed_rows_and_second_copies_are_not_unfinished(
    storage: Storage, stored_rows: Rows, completion: Callable[..., Completion]
) -> None:
    storage.put_table(completions.FOLDER, completions_table([completion("a"), completion("b")]))
    storage.put_table(completions.FOLDER, completions_table([completion("b"), completion("c"), completion("a", 1)]))
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "a"}))]))
    assert dataset_status(storage.url).unfinished == 3  # b, c, and a's next attempt


def test_an_attempt_before_the_sealed_one_is_not_unfinished(
    storage: Storage, stored_rows: Rows, completion: Callable[..., Completion]
) -> None:
    storage.put_table(completions.FOLDER, completions_table([completion("a"), completion("a", 1)]))
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "a", "attempt": 1}))]))
    assert dataset_status(storage.url).unfinished == 0


@pytest.mark.parametrize("kind", ["shards", "quarantine", "rejected"])
def test_a_missing_object_is_named(storage: Storage, stored_rows: Rows, kind: str) -> None:
    manifest = seal(
        storage,
        Change(
            good=[storage.put_table("shards", stored_rows({"key": "a"}))],
            bad=[storage.put_table("quarantine", stored_rows({"key": "b"}, reason="aborted"))],
            rejected=[storage.put_table("rejected", rejections_table([]))],
        ),
    ).manifest
    path = getattr(manifest, kind)[0].path
    storage.remove(path)
    with pytest.raises(DatasetError) as refused:
        dataset_status(storage.url)
    assert refused.value.value == path


def test_parts_sizes_and_the_card(storage: Storage, stored_rows: Rows, completion: Callable[..., Completion]) -> None:
    storage.put_table(completions.FOLDER, completions_table([completion("a"), completion("b")]))
    storage.put_table(completions.FOLDER, completions_table([completion("c")]))
    status = dataset_status(storage.url)
    assert (status.unfinished, status.parts, status.card, list(status.folders)) == (3, 2, "missing", ["completions"])
    manifest = seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "c"}))])).manifest
    write_card(storage)
    status = dataset_status(storage.url)
    assert (status.unfinished, status.parts, status.card) == (2, 1, "current")
    assert status.folders["shards"] == {"objects": 1, "bytes": manifest.shards[0].bytes}
    assert set(status.folders) == {"README.md", "completions", "manifests", "shards"}
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "d"}))]))
    assert dataset_status(storage.url).card == "stale"


def test_every_rejected_prompt_where_all_are_asked_for(storage: Storage, stored_rows: Rows) -> None:
    rejections = [Rejection(Reason.DUPLICATE, "of x", str(n), "prompts.jsonl", n) for n in range(REJECTED_SHOWN + 5)]
    rejected = [storage.put_table("rejected", rejections_table(rejections))]
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "a"}))], rejected=rejected))
    status = dataset_status(storage.url, all_rejected=True)
    assert [(row["source"], row["line"], row["reason"], row["detail"]) for row in status.rejected_prompts] == [
        ("prompts.jsonl", n, "duplicate", "of x") for n in range(REJECTED_SHOWN + 5)
    ]


def test_on_s3(bucket: str, stored_rows: Rows, completion: Callable[..., Completion]) -> None:
    there = open_storage(f"{bucket}/data")
    with pytest.raises(RecipeError):
        dataset_status(there.url)
    rejected = [there.put_table("rejected", rejections_table([Rejection(Reason.DUPLICATE, "x", "p", "s3://b/p", 3)]))]
    bad = [there.put_table("quarantine", stored_rows({"key": "b"}, reason="aborted"))]
    there.put_table(completions.FOLDER, completions_table([completion("z")]))
    seal(there, Change(good=[there.put_table("shards", stored_rows({"key": "a"}))], bad=bad, rejected=rejected))
    write_card(there)
    status = dataset_status(there.url)
    assert (status.reasons, status.rejected) == ({"aborted": 1}, {"duplicate": 1})
    assert (status.unfinished, status.card) == (1, "current")
    assert status.rejected_prompts[0]["source"] == "s3://b/p"
    assert status.folders["manifests"]["objects"] == 1
