"""The commit of a run: parts are used up only when all their rows are sealed; the journal forgets only sealed rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from draftmill.dataset import completions
from draftmill.dataset.commit import commit
from draftmill.dataset.journal import Journal
from draftmill.dataset.manifest import newest
from draftmill.dataset.schema import completions_table
from draftmill.dataset.seal import Change, Sealed
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError
from draftmill.records import Completion, Reason, Verdict

OK = Verdict(None, "", None, None, 2)
BAD = Verdict(Reason.DEGENERATE, "a loop", None, None, 2)
Make = Callable[..., Completion]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as opened:
        yield opened


def put_part(storage: Storage, *made: Completion) -> str:
    return storage.put_table(completions.FOLDER, completions_table(made)).path


def commit_rows(storage: Storage, journal: Journal, *made: Completion, verdict: Verdict = OK, **change: Any) -> Sealed:
    good, bad = dataset_rows(made, [verdict] * len(made))
    objects = {
        "good": [storage.put_table("shards", good)] if good.num_rows else [],
        "bad": [storage.put_table("quarantine", bad)] if bad.num_rows else [],
    }
    return commit(storage, journal, Change(**objects, **change))


def keys(made: list[Completion]) -> list[str]:
    return sorted(item.row.prompt_id for item in made)


def test_a_part_is_used_up_when_its_last_row_is_sealed(storage: Storage, journal: Journal, completion: Make) -> None:
    both = put_part(storage, completion("a"), completion("b"))
    alone = put_part(storage, completion("c"))
    sealed = commit_rows(storage, journal, completion("a"), completion("c"))
    assert sealed.manifest.consumed == [alone]
    sealed = commit_rows(storage, journal, completion("b"))
    assert sealed.manifest.consumed == sorted([both, alone])
    assert completions.unfinished(storage, sealed.manifest.consumed).num_rows == 0


def test_a_part_with_an_orphan_stays_and_its_orphan_can_be_found(
    storage: Storage, journal: Journal, completion: Make
) -> None:
    part = put_part(storage, completion("a"), completion("orphan"))
    sealed = commit_rows(storage, journal, completion("a"))
    assert sealed.manifest.consumed == []
    unfinished = completions.unfinished(storage, sealed.manifest.consumed).to_pylist()
    assert completion("orphan").row.row_key in {row["row_key"] for row in unfinished}
    found = completions.read_completions(storage, [part], [(completion("orphan").row.row_key, 0)])
    assert keys(list(found.values())) == ["orphan"]


def test_another_attempt_is_another_row(storage: Storage, journal: Journal, completion: Make) -> None:
    part = put_part(storage, completion("a", 1))
    assert commit_rows(storage, journal, completion("a", 0)).manifest.consumed == []
    assert commit_rows(storage, journal, completion("a", 1)).manifest.consumed == [part]


def test_a_later_attempt_uses_up_the_part_of_an_earlier_one(
    storage: Storage, journal: Journal, completion: Make
) -> None:
    part = put_part(storage, completion("a", 0))  # cut by length; the run was killed, and the next one had more budget
    assert commit_rows(storage, journal, completion("a", 1)).manifest.consumed == [part]


def test_quarantined_rows_use_their_part_up_too(storage: Storage, journal: Journal, completion: Make) -> None:
    part = put_part(storage, completion("a"))
    assert commit_rows(storage, journal, completion("a"), verdict=BAD).manifest.consumed == [part]


async def test_the_journal_forgets_the_sealed_rows_only(storage: Storage, journal: Journal, completion: Make) -> None:
    for name in ("a", "b", "later"):
        journal.put(completion(name))
    await journal.flush()
    commit_rows(storage, journal, completion("a"))
    assert keys(journal.pending()) == ["b", "later"]


async def test_with_a_row_the_journal_forgets_the_attempts_it_went_on_from(
    storage: Storage, journal: Journal, completion: Make
) -> None:
    for attempt in range(4):
        journal.put(completion("a", attempt))
    journal.put(completion("b"))
    await journal.flush()
    commit_rows(storage, journal, completion("a", 2))
    assert [(item.row.prompt_id, item.row.attempt) for item in journal.pending()] == [("a", 3), ("b", 0)]


async def test_a_commit_that_fails_changes_neither_dataset_nor_journal(
    storage: Storage, journal: Journal, completion: Make
) -> None:
    journal.put(completion("a"))
    await journal.flush()
    part = put_part(storage, completion("a"))
    good, _ = dataset_rows([completion("a")], [OK])
    shard = storage.put_table("shards", good)
    rejected = storage.put_table("rejected", pa.table({"x": [1]}))
    storage.remove(rejected.path)
    with pytest.raises(DatasetError):
        commit(storage, journal, Change(good=[shard], rejected=[rejected]))
    assert newest(storage) is None
    assert keys(journal.pending()) == ["a"]
    assert completions.unfinished(storage, ()).to_pylist()[0]["part"] == part


def test_nothing_new_makes_no_manifest(storage: Storage, journal: Journal, completion: Make) -> None:
    first = commit_rows(storage, journal, completion("a"))
    again = commit_rows(storage, journal, completion("a"))
    assert (first.sealed, again.sealed, again.manifest.version) == (True, False, 1)


class Counting(Storage):
    """Counts by path how often an object is opened."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.opened: Counter[str] = Counter()

    def read_open(self, path: str, read: Callable[[Any], Any]) -> Any:
        self.opened[path] += 1
        return super().read_open(path, read)


def test_what_is_stored_is_read_once_and_for_a_change_of_nothing_never(
    storage: Storage, journal: Journal, completion: Make
) -> None:
    first = commit_rows(storage, journal, completion("a"), completion("b")).manifest
    commit_rows(storage, journal, completion("c"), verdict=BAD)
    part = put_part(storage, completion("a"), completion("unfinished"))
    counting = Counting(storage.url)
    unchanged = commit(counting, journal, Change(counts={"never": "asked for"}))
    assert (unchanged.sealed, unchanged.manifest.version, counting.opened) == (False, 2, {})
    assert (unchanged.tally.good_rows, unchanged.tally.held, unchanged.tally.reasons) == (2, 1, {"degenerate": 1})
    assert unchanged.tally.attempts == {"0": 2}
    commit_rows(counting, journal, completion("d"))
    assert counting.opened[first.shards[0].path] == 1
    assert counting.opened[part] == 1


def test_a_card_that_cannot_be_written_costs_no_seal(
    storage: Storage,
    journal: Journal,
    completion: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    commit_rows(storage, journal, completion("a"))
    assert b"data_files" in storage.read("README.md")

    def refused(self: Storage, path: str, data: bytes) -> None:
        raise DatasetError("cannot write", value="403", expected="the right", remedy="-")

    monkeypatch.setattr(Storage, "replace", refused)
    sealed = commit_rows(storage, journal, completion("b"))
    assert (sealed.sealed, newest(storage)) == (True, sealed.manifest)
    assert "card could not be written" in caplog.text
