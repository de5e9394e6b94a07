"""What dead runs left in their journals comes into the dataset; what lives is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmill.dataset.completions import read_completions
from draftmill.dataset.journal import Journal, journal_path, journals
from draftmill.dataset.storage import Storage
from draftmill.dataset.tails import upload_tails
from draftmill.records import Completion

Make = Callable[..., Completion]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTMILL_STATE", str(tmp_path / "state"))


def leave(storage: Storage, name: str, *completions: Completion) -> None:
    """A journal as a killed run leaves it."""
    with Journal(journal_path(storage.url, name)) as journal:
        for completion in completions:
            journal.put(completion)


def names(storage: Storage) -> list[str]:
    return [path.name for path in journals(storage.url)]


def test_tails_become_parts_and_a_partitions_journal_goes(storage: Storage, completion: Make) -> None:
    one, two, three = (completion(name) for name in "abc")
    leave(storage, "journal", one)
    leave(storage, "partition-1", two)
    leave(storage, "partition-2", three)
    parts = upload_tails(storage)
    assert sorted(parts) == storage.list("completions")
    assert len(read_completions(storage, parts, [each.row.key for each in (one, two, three)])) == 3
    assert names(storage) == ["journal.sqlite"]
    assert upload_tails(storage) == []


def test_a_journal_that_is_held_is_left_alone(storage: Storage, completion: Make) -> None:
    leave(storage, "partition-1", completion("a"))
    with Journal(journal_path(storage.url, "partition-1")):
        assert upload_tails(storage) == []
    assert names(storage) == ["partition-1.sqlite"]


def test_a_tail_that_cannot_be_uploaded_stays(
    storage: Storage, completion: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(storage, "partition-1", completion("a"))

    def full(*arguments: Any) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(storage, "put_table", full)
        with pytest.raises(OSError, match="no room"):
            upload_tails(storage)
    assert len(upload_tails(storage)) == 1
