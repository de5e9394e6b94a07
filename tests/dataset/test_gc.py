"""Removed is what no recent manifest needs and no run may be making; never anything else."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.dataset import gc as module
from draftmill.dataset.compact import compact
from draftmill.dataset.gc import GRACE, Garbage, garbage, remove
from draftmill.dataset.housekeeping import collect_garbage, parse_age
from draftmill.dataset.journal import journal_path
from draftmill.dataset.lock import ProcessLock
from draftmill.dataset.manifest import Manifest, newest
from draftmill.dataset.objects import FRESH
from draftmill.dataset.schema import completions_table
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.stored import requests_table
from draftmill.dataset.verify import verify
from draftmill.errors import DatasetError, RecipeError
from draftmill.records import Completion

Rows = Callable[..., pa.Table]

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class Nights:
    """A dataset in a folder whose files are as old as the test says."""

    def __init__(self, storage: Storage, rows: Rows) -> None:
        self.storage, self.rows, self.folder = storage, rows, Path(storage.url)

    def age(self, days: float, *paths: str) -> None:
        """All files, or these, are so old."""
        stamp = (NOW - days * DAY).timestamp()
        for path in paths or [entry.path for entry in self.storage.entries("", hidden=True)]:
            os.utime(self.folder / path, (stamp, stamp))

    def seal(self, days: float, *names: str, drops: tuple[str, ...] = ()) -> Manifest:
        """A night so long ago: each name a shard; `drops`: the rows of an earlier one leave."""
        before = {entry.path for entry in self.storage.entries("")}
        good = [self.storage.put_table("shards", self.rows({"key": name})) for name in names]
        dropped = requests_table([(self.rows({"key": name})["row_key"][0].as_py(), 0) for name in drops])
        manifest = seal(self.storage, Change(good=good, dropped=dropped)).manifest
        self.age(days, *({entry.path for entry in self.storage.entries("")} - before))
        return manifest

    def garbage(self, **options: object) -> set[str]:
        return {entry.path for entry in garbage(self.storage, now=NOW, **options).entries}  # type: ignore[arg-type]


@pytest.fixture
def nights(storage: Storage, stored_rows: Rows) -> Nights:
    return Nights(storage, stored_rows)


def only(manifest: Manifest) -> str:
    (ref,) = manifest.shards
    return ref.path


def test_what_only_old_manifests_list(nights: Nights) -> None:
    first = only(nights.seal(9, "a"))
    second = only(nights.seal(8, "b", drops=("a",)))
    third = only(nights.seal(7, "c", drops=("b",)))
    nights.seal(6, "d", drops=("c",))
    assert nights.garbage() == {first}
    assert nights.garbage(keep=1) == {first, second, third}
    assert nights.garbage(keep=2) == {first, second}
    assert nights.garbage(keep=100) == set()
    assert garbage(nights.storage, now=NOW).kept == [4, 3, 2]


def test_a_version_that_was_the_newest_within_the_grace_time_is_recent(nights: Nights) -> None:
    """A run that planned on it may still read its objects, however many versions came since."""
    first = only(nights.seal(9, "a"))
    second = only(nights.seal(8, "b", drops=("a",)))
    for n in range(4):
        nights.seal(0.5, f"c{n}", drops=("b",) if n == 0 else (f"c{n - 1}",))
    assert nights.garbage(keep=1) == {first}
    assert nights.garbage(keep=1, grace=DAY / 4) >= {first, second}


def test_unlisted_objects_only_when_they_are_old(nights: Nights, stored_rows: Rows) -> None:
    nights.seal(9, "a")
    paths = [
        nights.storage.put_table(folder, stored_rows({"key": "new"})).path
        for folder in ("shards", "quarantine", "rejected", "prompts", "verdicts")
    ]
    nights.age(0.9, *paths)
    assert nights.garbage() == set()
    nights.age(1.1, *paths)
    assert nights.garbage() == set(paths)


def test_an_old_object_that_a_run_puts_again_is_young_again(nights: Nights, stored_rows: Rows) -> None:
    nights.seal(9, "a")
    path = nights.storage.put_table("shards", stored_rows({"key": "b"})).path
    nights.age(9, path)
    assert nights.garbage() == {path}
    nights.storage.put_table("shards", stored_rows({"key": "b"}))
    assert nights.garbage() == set()


def test_what_is_young_by_the_time_of_its_removal_stays(nights: Nights, stored_rows: Rows) -> None:
    """A run took it up again since gc has found it, and has not sealed it yet."""
    nights.seal(9, "a")
    tables = {name: stored_rows({"key": name}) for name in "bcd"}
    paths = {name: nights.storage.put_table("shards", table).path for name, table in tables.items()}
    nights.age(9, *paths.values())
    found = garbage(nights.storage, now=NOW)
    nights.storage.put_table("shards", tables["b"])
    nights.storage.remove(paths["c"])
    assert {entry.path for entry in found.entries} == set(paths.values())
    assert {entry.path for entry in remove(nights.storage, found).entries} == {paths["c"], paths["d"]}
    assert [nights.storage.exists(path) for path in paths.values()] == [True, False, False]


def test_only_what_is_old_is_put_again(nights: Nights, stored_rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each body would go over the line twice, where runs and retries meet their own objects."""
    assert 2 * FRESH <= GRACE
    path = nights.storage.put_table("shards", stored_rows({"key": "a"})).path
    replaced: list[str] = []
    monkeypatch.setattr(nights.storage, "replace", lambda path, data: replaced.append(path))
    for age, times in ((timedelta(0), 0), (FRESH - timedelta(minutes=5), 0), (FRESH, 1), (GRACE, 1)):
        replaced.clear()
        stamp = (datetime.now(UTC) - age).timestamp()
        os.utime(nights.folder / path, (stamp, stamp))
        nights.storage.put_table("shards", stored_rows({"key": "a"}))
        assert replaced == [path] * times


def test_a_part_that_a_recent_manifest_has_not_consumed_stays(
    nights: Nights, completion: Callable[..., Completion]
) -> None:
    part = nights.storage.put_table("completions", completions_table([completion("a")])).path
    other = nights.storage.put_table("completions", completions_table([completion("z")])).path
    nights.age(9)
    nights.seal(8, "y")
    assert nights.garbage() == set()
    assert nights.seal(7, "a").consumed == [part]
    assert nights.garbage() == set()  # version 1 is recent: going back to it must bring the row back
    assert nights.garbage(keep=1) == {part}
    nights.seal(6, "b")
    nights.seal(5, "c")
    assert nights.garbage() == {part}
    nights.age(0.5, part)
    assert nights.garbage() == set()
    nights.age(400, part, other)
    assert nights.garbage() == {part}


def test_prompts_of_a_run_of_days_stay(nights: Nights, completion: Callable[..., Completion]) -> None:
    """Its prompts are older than the grace time; its last part is not."""
    nights.seal(9, "a")
    prompts = nights.storage.put_table("prompts", nights.rows({"key": "p"})).path
    part = nights.storage.put_table("completions", completions_table([completion("b")])).path
    nights.age(3, prompts)
    nights.age(0.01, part)
    assert nights.garbage() == set()
    nights.age(2, part)
    assert nights.garbage() == {prompts}


def test_the_morning_after_a_night_the_prompts_of_earlier_ones_go(
    nights: Nights, completion: Callable[..., Completion]
) -> None:
    """Last night's part is young, and consumed by the newest version only."""
    nights.seal(9, "a")
    prompts = nights.storage.put_table("prompts", nights.rows({"key": "p"})).path
    nights.age(3, prompts)
    nights.storage.put_table("completions", completions_table([completion("b")]))
    nights.seal(0.1, "b")
    assert nights.garbage() == {prompts}


def test_what_a_killed_writer_left_behind(nights: Nights) -> None:
    nights.seal(9, "a")
    left = [f"{folder}.{'0f' * 16}.tmp" for folder in ("", "shards/", "manifests/", "deep/er/")]
    for path in left:
        (nights.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (nights.folder / path).write_bytes(b"half")
    assert nights.garbage() == set()
    nights.age(2, *left)
    found = garbage(nights.storage, now=NOW)
    assert {entry.path for entry in found.entries} == set(left)
    assert found.folders == {"temporary files": {"objects": 4, "bytes": 16}}


def test_what_is_not_draftmills_stays(nights: Nights) -> None:
    nights.seal(9, "a")
    foreign = [
        *("README.md", "notes.txt", ".gitattributes", "shards/mine.parquet", "shards/.keep", "reports/1.html"),
        *(f"other/{'0' * 64}.parquet", "manifests/notes.json", f"shards/deep/{'0' * 64}.parquet"),
        *(f"shards/{'0' * 64}.parquet.bak", f"shards/{'0' * 63}.parquet", ".0f.tmp", "completions/old"),
    ]
    for path in foreign:
        (nights.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (nights.folder / path).write_bytes(b"mine")
    nights.age(99)
    assert nights.garbage(keep=1) == set()


@settings(max_examples=20)
@given(
    nights_ago=st.lists(st.integers(0, 6), min_size=1, max_size=5).map(lambda days: sorted(days, reverse=True)),
    keep=st.integers(1, 4),
    grace=st.integers(0, 4),
)
def test_what_recent_manifests_list_never_goes(
    tmp_path_factory: pytest.TempPathFactory, stored_rows: Rows, nights_ago: list[int], keep: int, grace: int
) -> None:
    nights = Nights(open_storage(str(tmp_path_factory.mktemp("nights") / "dataset")), stored_rows)
    sealed = [
        nights.seal(days, f"n{number}", drops=(f"n{number - 1}",) if number else ())
        for number, days in enumerate(nights_ago)
    ]
    found = garbage(nights.storage, now=NOW, keep=keep, grace=grace * DAY)
    gone = remove(nights.storage, found)
    assert gone == found
    there = {entry.path for entry in nights.storage.entries("")}
    recent = [m for m in sealed if m.version in found.kept]
    assert len(recent) >= min(keep, len(sealed))
    assert {ref.path for m in recent for ref in m.objects} <= there
    assert {m.path for m in sealed} <= there
    old = {ref.path for m in sealed for ref in m.objects} - {ref.path for m in recent for ref in m.objects}
    assert old.isdisjoint(there) or grace > min(nights_ago)
    assert verify(nights.storage).ok


def test_a_dry_run_removes_nothing_and_delete_removes_exactly_that(nights: Nights) -> None:
    first = only(nights.seal(9, "a"))
    nights.seal(8, "b", drops=("a",))
    before = nights.storage.entries("", hidden=True)
    url = nights.storage.url
    found = collect_garbage(url, delete=False, keep=1, grace=GRACE)
    assert nights.storage.entries("", hidden=True) == before
    gone = collect_garbage(url, delete=True, keep=1, grace=GRACE)
    assert (gone.entries, gone.kept) == (found.entries, found.kept)
    assert {entry.path for entry in before} - {entry.path for entry in nights.storage.entries("", hidden=True)} == {
        first
    }
    assert found.to_json(deleted=True) == {
        **{"deleted": True, "objects": 1, "bytes": found.entries[0].bytes, "kept_manifests": [2]},
        "folders": {"shards": {"objects": 1, "bytes": found.entries[0].bytes}},
    }
    assert collect_garbage(url, delete=True, keep=1, grace=GRACE).entries == []
    assert verify(nights.storage).ok


def test_a_manifest_sealed_before_the_removal_keeps_its_objects(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run takes up an old object again, after gc has found it and before gc removes it."""
    monkeypatch.setattr(module, "BATCH", 1)
    for n in range(4):
        nights.seal(9 - n, f"n{n}", drops=(f"n{n - 1}",) if n else ())
    found = garbage(nights.storage, now=NOW, keep=1)
    assert len(found.entries) == 3
    taken = found.entries[2].path
    real = Storage.remove

    def slow(storage: Storage, path: str) -> None:
        if path == found.entries[0].path:
            seal(storage, Change(good=[storage.put_parquet("shards", storage.read(taken), 1)]))
        real(storage, path)

    monkeypatch.setattr(Storage, "remove", slow)
    gone = remove(nights.storage, found)
    assert [entry.path for entry in gone.entries] == [entry.path for entry in found.entries[:2]]
    assert verify(nights.storage).ok


def test_a_manifest_sealed_at_the_very_moment_is_an_error_that_names_the_object(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = only(nights.seal(9, "a"))
    nights.seal(8, "b", drops=("a",))
    found = garbage(nights.storage, now=NOW, keep=1)
    data, real = nights.storage.read(first), Storage.remove

    def slow(storage: Storage, path: str) -> None:
        seal(storage, Change(good=[storage.put_parquet("shards", data, 1)]))
        real(storage, path)

    monkeypatch.setattr(Storage, "remove", slow)
    with pytest.raises(DatasetError, match="manifest 3") as refused:
        remove(nights.storage, found)
    assert refused.value.value == first
    assert [fault.file for fault in verify(nights.storage).faults] == [first]


def test_after_compacting_the_small_objects_go(nights: Nights) -> None:
    small = {only(nights.seal(9, "a")), nights.seal(8, "b").shards[1].path}
    compact(nights.storage)
    assert nights.garbage(keep=1) == set()  # yesterday's version was the newest until now
    nights.age(7)
    assert nights.garbage() == set()
    assert nights.garbage(keep=1) == small
    remove(nights.storage, garbage(nights.storage, now=NOW, keep=1))
    found = verify(nights.storage)
    assert (found.ok, found.rows) == (True, 2)
    assert "2 objects that only older manifests list: gone, as after `draftmill gc`" in found.not_verified


def test_a_run_on_this_machine_is_waited_for(nights: Nights) -> None:
    nights.seal(9, "a")
    nights.seal(8, "b", drops=("a",))
    url = nights.storage.url
    lock = ProcessLock(journal_path(url).with_suffix(".lock"))
    lock.acquire()
    with pytest.raises(DatasetError, match="in progress"):
        collect_garbage(url, delete=True, keep=1, grace=GRACE)
    assert len(collect_garbage(url, delete=False, keep=1, grace=GRACE).entries) == 1
    lock.release()
    assert len(collect_garbage(url, delete=True, keep=1, grace=GRACE).entries) == 1


def test_a_damaged_manifest_stops_it(nights: Nights) -> None:
    nights.seal(9, "a")
    nights.seal(8, "b", drops=("a",))
    (nights.folder / "manifests/00000001.json").write_bytes(b"{}")
    assert len(nights.garbage(keep=1)) == 1  # not needed: it is not recent
    with pytest.raises(DatasetError, match="00000001"):
        nights.garbage()


def test_no_dataset(storage: Storage) -> None:
    with pytest.raises(RecipeError):
        garbage(storage, now=NOW)


@pytest.mark.parametrize(
    ("text", "age"), [("90m", timedelta(minutes=90)), ("24h", DAY), ("7d", 7 * DAY), ("0h", timedelta())]
)
def test_ages(text: str, age: timedelta) -> None:
    assert parse_age(text) == age


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "1w", "1d 2h"])
def test_no_ages(text: str) -> None:
    with pytest.raises(RecipeError):
        parse_age(text)


def test_on_s3(bucket: str, stored_rows: Rows) -> None:
    storage = open_storage(f"{bucket}/data")
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "a"}))]))
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "b"}))]))
    compact(storage)
    assert garbage(storage, now=datetime.now(UTC)).entries == []
    later = datetime.now(UTC) + 2 * DAY
    found = remove(storage, garbage(storage, now=later, keep=1))
    assert isinstance(found, Garbage)
    assert len(found.entries) == 2
    manifest = newest(storage)
    assert manifest is not None
    assert storage.list("shards") == [ref.path for ref in manifest.shards]
    assert (verify(storage).ok, verify(storage).rows) == (True, 2)
